"""Tags, policies, owners, statistics, users, groups, roles, views, partitions and model versions over REST."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gravitino.conftest import Api

S = "/metalakes/lake/catalogs/cat/schemas/s"
LAKE = "/metalakes/lake"
TABLE = f"{LAKE}/objects/table/cat.s.t"


@pytest.fixture
def table(lake: Api) -> Api:
    """The API with the table lake.cat.s.t."""
    columns = [{"name": "a", "type": "integer"}, {"name": "b", "type": "string"}]
    lake.ask("POST", f"{S}/tables", {"name": "t", "columns": columns})
    return lake


def test_tags_stand_on_objects_and_columns_and_are_inherited(table: Api) -> None:
    for name in ("pii", "gold"):
        table.ask("POST", f"{LAKE}/tags", {"name": name, "comment": "c", "properties": {"k": "v"}})
    assert table.ask("POST", f"{LAKE}/objects/catalog/cat/tags", {"tagsToAdd": ["gold"]})["names"] == ["gold"]
    column = f"{LAKE}/objects/column/cat.s.t.a/tags"
    assert table.ask("POST", column, {"tagsToAdd": ["pii"], "tagsToRemove": []})["names"] == ["gold", "pii"]
    found = table.ask("GET", column, details="true")["tags"]
    assert [(one["name"], one["inherited"]) for one in found] == [("gold", True), ("pii", False)]
    assert table.ask("GET", f"{TABLE}/tags")["names"] == ["gold"]
    assert table.ask("GET", f"{LAKE}/tags/pii/objects")["metadataObjects"] == [
        {"type": "column", "fullName": "cat.s.t.a"}
    ]
    twice = {"tagsToAdd": ["pii"], "tagsToRemove": ["gold"]}
    assert table.refused("POST", column, twice) == (409, 1004, "TagAlreadyAssociatedException")
    assert table.refused("POST", f"{TABLE}/tags", {"tagsToAdd": ["none"]})[1:] == (1003, "NoSuchTagException")
    nowhere = f"{LAKE}/objects/table/cat.s.none/tags"
    assert table.refused("POST", nowhere, {"tagsToAdd": ["pii"]})[1:] == (1003, "NoSuchMetadataObjectException")
    assert table.refused("GET", f"{TABLE}/tags/pii")[1:] == (1003, "NoSuchTagException")


def test_tags_of_one_request_are_attached_together_or_not_at_all(table: Api) -> None:
    table.ask("POST", f"{LAKE}/tags", {"name": "pii"})
    assert table.refused("POST", f"{TABLE}/tags", {"tagsToAdd": ["pii", "none"]})[1] == 1003
    assert table.ask("GET", f"{TABLE}/tags")["names"] == []


def test_a_policy_keeps_its_content_and_stands_where_it_may(table: Api) -> None:
    content = {"supportedObjectTypes": ["TABLE"], "customRules": {"days": 3}, "properties": {"k": "v"}}
    body = {"name": "keep", "policyType": "custom", "enabled": True, "content": content}
    shown = {**content, "supportedObjectTypes": ["table"]}  # in lower case, as Gravitino answers
    assert table.ask("POST", f"{LAKE}/policies", body)["policy"]["content"] == shown
    assert table.ask("POST", f"{TABLE}/policies", {"policiesToAdd": ["keep"]})["names"] == ["keep"]
    assert table.refused("POST", f"{LAKE}/objects/catalog/cat/policies", {"policiesToAdd": ["keep"]})[1] == 1001
    table.ask("PATCH", f"{LAKE}/policies/keep", {"enable": False})
    new = {"@type": "updateContent", "policyType": "custom", "newContent": {**content, "customRules": {}}}
    changed = table.ask("PUT", f"{LAKE}/policies/keep", {"updates": [new]})["policy"]
    assert (changed["enabled"], changed["content"]["customRules"]) == (False, {})


def test_an_owner_is_readable_at_once(table: Api) -> None:
    path = f"{LAKE}/owners/table/cat.s.t"
    assert table.ask("GET", path)["owner"] == {"name": "anonymous", "type": "user"}, "without rights, who made it"
    assert table.refused("PUT", path, {"name": "ann@corp.com", "type": "USER"})[:2] == (404, 1003)
    table.ask("POST", f"{LAKE}/users", {"name": "ann@corp.com"})
    assert table.ask("PUT", path, {"name": "ann@corp.com", "type": "USER"})["set"] is True
    assert table.ask("GET", path)["owner"] == {"name": "ann@corp.com", "type": "user"}
    assert table.refused("GET", f"{LAKE}/owners/table/cat.s") == (400, 1001, "IllegalArgumentException")


def test_a_role_is_made_with_its_privileges_or_not_at_all(table: Api) -> None:
    on = {"fullName": "cat.s.t", "type": "TABLE", "privileges": [{"name": "SELECT_TABLE", "condition": "ALLOW"}]}
    role = table.ask("POST", f"{LAKE}/roles", {"name": "reader", "securableObjects": [on]})["role"]
    assert [one["fullName"] for one in role["securableObjects"]] == ["cat.s.t"]
    bad = {**on, "fullName": "cat.s.none"}
    refused = table.refused("POST", f"{LAKE}/roles", {"name": "other", "securableObjects": [on, bad]})
    assert refused == (400, 1001, "IllegalMetadataObjectException")
    odd = {**on, "privileges": [{"name": "CREATE_CATALOG", "condition": "ALLOW"}]}
    refused = table.refused("POST", f"{LAKE}/roles", {"name": "other", "securableObjects": [odd]})
    assert refused == (400, 1001, "IllegalPrivilegeException")
    assert table.ask("GET", f"{LAKE}/roles")["names"] == ["reader"]
    grant = f"{LAKE}/permissions/roles/reader/catalog/cat"
    body = {"privileges": [{"name": "USE_CATALOG", "condition": "DENY"}]}
    shown = table.ask("PUT", f"{grant}/grant", body)["role"]["securableObjects"]
    assert {"name": "use_catalog", "condition": "deny"} in [p for one in shown for p in one["privileges"]]
    assert len(table.ask("PUT", f"{grant}/revoke", body)["role"]["securableObjects"]) == 1
    nowhere = f"{LAKE}/permissions/roles/reader/catalog/none/grant"
    assert table.refused("PUT", nowhere, body) == (404, 1003, "NoSuchMetadataObjectException")
    assert table.refused("PUT", grant.replace("reader", "none") + "/grant", body)[2] == "NoSuchRoleException"


@pytest.mark.parametrize("kind", ["user", "group"])
def test_roles_are_given_and_taken_together(table: Api, kind: str) -> None:
    table.ask("POST", f"{LAKE}/{kind}s", {"name": "x"})
    table.ask("POST", f"{LAKE}/roles", {"name": "reader"})
    path = f"{LAKE}/permissions/{kind}s/x"
    refused = table.refused("PUT", f"{path}/grant", {"roleNames": ["reader", "none"]})
    assert refused == (400, 1001, "IllegalRoleException")
    assert table.ask("GET", f"{LAKE}/{kind}s/x")[kind]["roles"] == []
    assert table.ask("PUT", f"{path}/grant", {"roleNames": ["reader"]})[kind]["roles"] == ["reader"]
    assert table.ask("GET", f"{LAKE}/{kind}s", details="true")[f"{kind}s"][0]["roles"] == ["reader"]
    assert table.ask("PUT", f"{path}/revoke", {"roleNames": ["reader"]})[kind]["roles"] == []
    assert [table.ask("DELETE", f"{LAKE}/{kind}s/x")["removed"] for _ in range(2)] == [True, False]


def test_statistics_of_a_table(table: Api) -> None:
    path = f"{TABLE}/statistics"
    table.ask("PUT", path, {"updates": {"custom-rows": 5, "custom-names": ["a"]}})
    found = {one["name"]: one["value"] for one in table.ask("GET", path)["statistics"]}
    assert found == {"custom-rows": 5, "custom-names": ["a"]}
    refused = table.refused("PUT", path, {"updates": {"rows": 5}})
    assert refused == (400, 1001, "IllegalStatisticNameException")
    assert table.ask("POST", path, {"names": ["custom-rows"]})["dropped"] is True
    assert table.ask("POST", path, {"names": ["custom-rows"]})["dropped"] is False


def test_statistics_of_partitions(table: Api) -> None:
    for name in "123":
        values = [{"type": "literal", "dataType": "integer", "value": name}]
        one = {"type": "identity", "name": f"a={name}", "fieldNames": [["a"]], "values": values}
        table.ask("POST", f"{S}/tables/t/partitions", {"partitions": [one]})
    path = f"{TABLE}/statistics/partitions"
    updates = [{"partitionName": f"a={name}", "statistics": {"custom-rows": int(name)}} for name in "123"]
    table.ask("PUT", path, {"updates": updates})

    def rows(**query: str) -> dict[str, Any]:
        found = table.ask("GET", path, **query)["partitionStatistics"]
        return {one["partitionName"]: one["statistics"][0]["value"] for one in found}

    assert rows() == {"a=1": 1, "a=2": 2, "a=3": 3}
    assert rows(**{"from": "a=1", "to": "a=3"}) == {"a=1": 1, "a=2": 2}
    assert rows(**{"from": "a=1", "fromInclusive": "false", "to": "a=3", "toInclusive": "true"}) == {"a=2": 2, "a=3": 3}
    bad = [*updates, {"partitionName": "none", "statistics": {"custom-rows": 7}}]
    bad[0] = {"partitionName": "a=1", "statistics": {"custom-rows": 7}}
    assert table.refused("PUT", path, {"updates": bad}) == (404, 1003, "NoSuchPartitionException")
    assert rows()["a=1"] == 1
    bad = [{"partitionName": "a=1", "statistics": {"rows": 7}}]
    assert table.refused("PUT", path, {"updates": bad}) == (400, 1001, "IllegalStatisticNameException")
    drops = [{"partitionName": f"a={name}", "statisticNames": ["custom-rows"]} for name in "12"]
    assert [table.ask("POST", path, {"drops": drops})["dropped"] for _ in range(2)] == [True, False]
    assert rows() == {"a=3": 3}


def test_a_view_is_replaced_as_a_whole(table: Api) -> None:
    sql = [{"type": "sql", "dialect": "spark", "sql": "SELECT 1"}]
    body = {"name": "v", "columns": [{"name": "a", "type": "long"}], "representations": sql, "properties": {"k": "v"}}
    made = table.ask("POST", f"{S}/views", body)["view"]
    assert made["representations"] == sql
    new = {"columns": [{"name": "b", "type": "string"}], "representations": [{**sql[0], "sql": "SELECT 'x'"}]}
    updates: list[Any] = [{"@type": "replaceView", **new, "defaultSchema": "s"}, {"@type": "rename", "newName": "w"}]
    view = table.ask("PUT", f"{S}/views/v", {"updates": updates})["view"]
    assert (view["name"], view["properties"], view["defaultSchema"]) == ("w", {"k": "v"}, "s")
    assert [one["name"] for one in view["columns"]] == ["b"]
    assert view["representations"] == new["representations"]
    assert table.refused("POST", f"{S}/views", {"name": "x", "representations": [{"dialect": "spark"}]})[1] == 1001


def test_partitions_of_a_table(table: Api) -> None:
    path = f"{S}/tables/t/partitions"
    one = {
        "type": "identity",
        "name": "a=1",
        "fieldNames": [["a"]],
        "values": [{"type": "literal", "dataType": "integer", "value": "1"}],
        "properties": {"k": "v"},
    }
    assert table.ask("POST", path, {"partitions": [one]})["partitions"] == [one]
    assert table.ask("GET", f"{path}/a=1")["partition"] == one
    assert table.ask("GET", path)["names"] == ["a=1"]
    assert table.refused("POST", path, {"partitions": [one]})[1:] == (1004, "PartitionAlreadyExistsException")
    assert table.refused("POST", path, {"partitions": [{**one, "type": "range"}]})[1] == 1006
    assert [table.ask("DELETE", f"{path}/a=1")["dropped"] for _ in range(2)] == [True, False]
    assert table.refused("GET", f"{path}/a=1")[1:] == (1003, "NoSuchPartitionException")


def test_versions_of_a_model_count_from_0_and_an_alias_does_not_move_by_itself(table: Api) -> None:
    path = f"{S}/models/m"
    table.ask("POST", f"{S}/models", {"name": "m"})
    table.ask("POST", f"{path}/versions", {"uri": "s3://m/0", "aliases": ["new"]})
    taken = {"uris": {"x": "s3://m/1"}, "aliases": ["new"]}
    refused = table.refused("POST", f"{path}/versions", taken)
    assert refused == (409, 1004, "ModelVersionAliasesAlreadyExistException")
    table.ask("POST", f"{path}/versions", {"uris": {"x": "s3://m/1", "y": "s3://m/1y"}})
    assert table.ask("GET", f"{path}/versions")["versions"] == [0, 1]
    updates = [
        {"@type": "updateUri", "uriName": "x", "newUri": "s3://new"},
        {"@type": "removeUri", "uriName": "y"},
        {"@type": "updateAliases", "aliasesToAdd": ["last"], "aliasesToRemove": []},
    ]
    version = table.ask("PUT", f"{path}/versions/1", {"updates": updates})["modelVersion"]
    assert (version["version"], version["uris"], version["aliases"]) == (1, {"x": "s3://new"}, ["last"])
    assert table.ask("GET", f"{path}/aliases/last/uri")["uri"] == "s3://new"
    assert table.refused("GET", f"{path}/versions/0/uri", uriName="x")[2] == "NoSuchModelVersionURINameException"
    assert table.refused("GET", f"{path}/versions/7")[1:] == (1003, "NoSuchModelVersionException")
    assert table.refused("GET", f"{path}/versions/-1")[1] == 1001
    assert table.ask("DELETE", f"{path}/aliases/new")["dropped"] is True
    assert table.ask("GET", f"{path}")["model"]["latestVersion"] == 2
