"""Metalakes, catalogs, schemas, tables, filesets, topics and models over REST, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gravitino.conftest import Api

S = "/metalakes/lake/catalogs/cat/schemas/s"


def test_a_table_comes_back_as_it_was_sent(lake: Api) -> None:
    struct = {
        "type": "struct",
        "fields": [
            {"name": "c d", "type": {"type": "list", "elementType": "decimal(10,2)", "containsNull": False},
             "nullable": True, "comment": "it's"},
            {"name": "m", "type": {"type": "map", "keyType": "string", "valueType": "timestamp_tz(3)",
                                   "valueContainsNull": True}, "nullable": False},
        ],
    }  # fmt: skip
    default = {"type": "literal", "dataType": "integer", "value": "3"}
    types: list[Any] = ["integer", struct, "integer unsigned", {"type": "union", "types": ["long", "string"]}]
    columns = [
        {"name": f"c{i}", "type": kind, "comment": None, "nullable": True, "autoIncrement": False}
        for i, kind in enumerate(types)
    ]
    columns[0]["defaultValue"] = default
    partitioning = [
        {"strategy": "identity", "fieldName": ["c0"]},
        {"strategy": "bucket", "numBuckets": 4, "fieldNames": [["c0"], ["c2"]]},
        {"strategy": "truncate", "width": 3, "fieldName": ["c0"]},
        {"strategy": "year", "fieldName": ["c0"]},
        {"strategy": "function", "funcName": "mine", "funcArgs": [
            {"type": "field", "fieldName": ["c1", "c d"]}, {"type": "literal", "dataType": "string", "value": "a'b"}]},
        {"strategy": "list", "fieldNames": [["c0"]], "assignments": []},
        {"strategy": "range", "fieldName": ["c0"], "assignments": []},
    ]  # fmt: skip
    term = {"type": "field", "fieldName": ["c0"]}
    sent = {
        "name": "t",
        "comment": "all of it",
        "properties": {"k": "v"},
        "columns": columns,
        "partitioning": partitioning,
        "distribution": {"strategy": "hash", "number": 8, "funcArgs": [term]},
        "sortOrders": [{"sortTerm": term, "direction": "desc", "nullOrdering": "nulls_first"}],
        "indexes": [{"indexType": "PRIMARY_KEY", "name": "pk", "fieldNames": [["c0"]]}],
    }
    made = lake.ask("POST", f"{S}/tables", sent)["table"]
    audit = made.pop("audit")
    assert audit["creator"] == "anonymous"
    assert made == sent
    assert lake.ask("GET", f"{S}/tables/t")["table"] == {**sent, "audit": audit}
    assert lake.ask("GET", f"{S}/tables")["identifiers"] == [{"namespace": ["lake", "cat", "s"], "name": "t"}]


def test_updates_of_one_request_are_one_commit_or_none(lake: Api) -> None:
    columns = [{"name": "a", "type": "integer"}, {"name": "b", "type": "string"}]
    lake.ask("POST", f"{S}/tables", {"name": "t", "columns": columns})
    before = [change.position for change in lake.store.changes()]
    wrong = [
        {"@type": "rename", "newName": "u"},
        {"@type": "deleteColumn", "fieldName": ["nope"], "ifExists": False},
    ]
    assert lake.refused("PUT", f"{S}/tables/t", {"updates": wrong})[1] == 1003
    assert [change.position for change in lake.store.changes()] == before
    right = [
        {"@type": "rename", "newName": "u"},
        {"@type": "deleteColumn", "fieldName": ["nope"], "ifExists": True},
        {"@type": "addColumn", "fieldName": ["c"], "type": "long", "position": {"after": "a"}},
        {"@type": "updateColumnNullability", "fieldName": ["a"], "nullable": False},
        {"@type": "updateComment", "newComment": "new"},
    ]
    table = lake.ask("PUT", f"{S}/tables/t", {"updates": right})["table"]
    assert (table["name"], table["comment"]) == ("u", "new")
    assert [(c["name"], c["nullable"]) for c in table["columns"]] == [("a", False), ("c", True), ("b", True)]


def test_a_rename_moves_only_a_table(lake: Api) -> None:
    """A catalog with this field went into another metalake."""
    lake.ask("POST", "/metalakes", {"name": "other"})
    lake.ask("POST", "/metalakes/lake/catalogs/cat/schemas", {"name": "other"})
    lake.ask("POST", f"{S}/tables", {"name": "t", "columns": [{"name": "a", "type": "integer"}]})
    update = {"@type": "rename", "newName": "new", "newSchemaName": "other"}
    lake.ask("PUT", f"{S}/tables/t", {"updates": [update]})
    assert lake.store.tables.exists("lake.cat.other.new")
    assert lake.ask("PUT", "/metalakes/lake/catalogs/cat", {"updates": [update]})["catalog"]["name"] == "new"
    assert lake.store.catalogs.exists("lake.new")


def test_what_is_missing_is_not_dropped_and_says_so(lake: Api) -> None:
    assert lake.ask("DELETE", f"{S}/tables/none")["dropped"] is False
    assert lake.ask("DELETE", "/metalakes/none")["dropped"] is False
    assert lake.refused("GET", f"{S}/tables/none") == (404, 1003, "NoSuchTableException")
    assert lake.refused("GET", "/metalakes/lake/catalogs/cat/schemas/x/tables/t")[2] == "NoSuchSchemaException"
    assert lake.refused("POST", "/metalakes/lake/catalogs/x/schemas", {"name": "s"})[2] == "NoSuchCatalogException"
    assert lake.refused("GET", "/metalakes/x/catalogs") == (404, 1003, "NoSuchMetalakeException")


def test_a_catalog_in_use_is_not_dropped_and_a_disabled_one_admits_nothing(lake: Api) -> None:
    path = "/metalakes/lake/catalogs/cat"
    assert lake.ask("GET", path)["catalog"]["properties"] == {"in-use": "true"}
    assert lake.refused("DELETE", path) == (409, 1010, "CatalogInUseException")
    lake.ask("PATCH", path, {"inUse": False})
    assert lake.ask("GET", path)["catalog"]["properties"] == {"in-use": "false"}
    assert lake.refused("POST", f"{path}/schemas", {"name": "t"}) == (409, 1009, "CatalogNotInUseException")
    assert lake.refused("DELETE", path) == (409, 1005, "NonEmptyCatalogException")
    assert lake.refused("DELETE", "/metalakes/lake") == (409, 1010, "MetalakeInUseException")
    assert lake.ask("DELETE", "/metalakes/lake", force="True")["dropped"] is True
    assert lake.ask("GET", "/metalakes")["metalakes"] == []


def test_the_creator_is_the_user_of_the_request(lake: Api) -> None:
    answer = lake.client.post(f"/api{S}/topics", json={"name": "t"}, auth=("ann", "secret")).json()
    assert answer["topic"]["audit"]["creator"] == "ann"
    lake.ask("PUT", f"{S}/topics/t", {"updates": [{"@type": "setProperty", "property": "a", "value": "b"}]})
    audit = lake.ask("GET", f"{S}/topics/t")["topic"]["audit"]
    assert (audit["creator"], audit["lastModifier"]) == ("ann", "anonymous")


def test_a_fileset_gets_its_locations_from_the_schema_or_the_catalog(lake: Api) -> None:
    lake.ask("PUT", "/metalakes/lake/catalogs/cat", {
        "updates": [{"@type": "setProperty", "property": "location", "value": "s3://lake/cat/"},
                    {"@type": "setProperty", "property": "location-cold", "value": "s3://cold"}]})  # fmt: skip
    one = lake.ask("POST", f"{S}/filesets", {"name": "f", "type": "MANAGED"})["fileset"]
    assert one["storageLocations"] == {"unknown": "s3://lake/cat/s/f", "cold": "s3://cold/s/f"}
    assert one["storageLocation"] == "s3://lake/cat/s/f"
    body = {"name": "g", "type": "external", "storageLocation": "file:///x", "storageLocations": {"b": "file:///y"}}
    two = lake.ask("POST", f"{S}/filesets", body)["fileset"]
    assert two["storageLocations"] == {"unknown": "file:///x", "cold": "s3://cold/s/g", "b": "file:///y"}
    assert lake.refused("POST", f"{S}/filesets", {"name": "h", "type": "external"})[1] == 1001


def test_locations_of_filesets_as_gravitino_writes_them(lake: Api) -> None:
    """A path gets a scheme; one location is the default one; placeholders are filled in."""
    filesets = f"{S}/filesets"
    one = lake.ask("POST", filesets, {"name": "f", "storageLocation": "/tmp/x", "properties": {"k": "v"}})["fileset"]
    assert (one["storageLocation"], one["properties"]) == (
        "file:/tmp/x",
        {"k": "v", "default-location-name": "unknown"},
    )
    template = "s3://b/{{catalog}}/{{schema}}/{{fileset}}/{{team}}"
    body = {"name": "g", "storageLocations": {"t": template}, "properties": {"placeholder-team": "red"}}
    assert lake.ask("POST", filesets, body)["fileset"]["storageLocations"] == {"t": "s3://b/cat/s/g/red"}
    assert lake.refused("POST", filesets, {**body, "name": "h", "properties": {}})[:2] == (400, 1001)
    wrong = {**body, "name": "h", "properties": {"default-location-name": "none", "placeholder-team": "x"}}
    assert lake.refused("POST", filesets, wrong)[:2] == (400, 1001)
    where = f"{filesets}/f/location"
    assert lake.ask("GET", where, sub_path="a/b")["fileLocation"] == "file:/tmp/x/a/b"
    renaming = lake.client.get(f"/api{where}", headers={"FilesetDataOperation": "RENAME"})
    assert (renaming.status_code, renaming.json()["code"]) == (400, 1002)


BAD: list[tuple[str, str, Any]] = [
    ("POST", "/metalakes", {"name": 3}),
    ("POST", "/metalakes", {}),
    ("POST", "/metalakes", []),
    ("POST", "/metalakes", {"name": "a.b"}),
    ("POST", "/metalakes", {"name": "/a"}),
    ("POST", "/metalakes", {"name": "m", "properties": {"in-use": "false"}}),
    ("POST", "/metalakes", {"name": "m", "properties": {"k": 1}}),
    ("POST", "/metalakes/lake/catalogs", {"name": "c", "type": "relational", "provider": "nope"}),
    ("POST", "/metalakes/lake/catalogs", {"name": "c", "type": "nope", "provider": "hive"}),
    ("PATCH", "/metalakes/lake", {"inUse": "no"}),
    ("PUT", "/metalakes/lake", {"updates": []}),
    ("PUT", "/metalakes/lake", {"updates": [{"@type": "explode"}]}),
    ("PUT", "/metalakes/lake", {"updates": [{"@type": "rename", "newName": "a.b"}]}),
    ("PUT", "/metalakes/lake", {"updates": [{"@type": "setProperty", "property": "in-use", "value": "x"}]}),
    ("POST", f"{S}/tables", {"name": "t", "columns": {}}),
    ("POST", f"{S}/tables", {"name": "t", "columns": [{"name": "a"}]}),
    ("POST", f"{S}/tables", {"name": "t", "columns": [{"name": "a", "type": "int<"}, {"name": "a", "type": "long"}]}),
    ("POST", f"{S}/tables", {"name": "t", "partitioning": [{"strategy": "identity", "fieldName": ["none"]}]}),
    ("POST", f"{S}/tables", {"name": "t", "distribution": {"strategy": "hash", "number": "4", "funcArgs": []}}),
]


@pytest.mark.parametrize(("method", "path", "body"), BAD)
def test_a_wrong_request_is_refused_and_nothing_is_written(lake: Api, method: str, path: str, body: Any) -> None:
    before = [change.position for change in lake.store.changes()]
    assert lake.refused(method, path, body) == (400, 1001, "IllegalArgumentException")
    assert [change.position for change in lake.store.changes()] == before


def test_broken_and_huge_bodies_and_unknown_places_are_refused_in_the_same_shape(lake: Api) -> None:
    broken = lake.client.post("/api/metalakes", content=b'{"name":', headers={"content-type": "application/json"})
    assert (broken.status_code, broken.json()["code"]) == (400, 1001)
    huge = lake.client.post("/api/metalakes", content=b" " * (17 << 20))
    assert (huge.status_code, huge.json()["code"]) == (413, 1001)
    assert lake.refused("GET", "/nowhere") == (404, 1003, "NotFoundException")
    assert lake.refused("PATCH", "/version")[:2] == (405, 1006)
    assert lake.refused("POST", "/metalakes/lake/catalogs/testConnection", {})[1] == 1006
    assert lake.refused("POST", "/metalakes", {"name": "lake"}) == (409, 1004, "MetalakeAlreadyExistsException")


def test_a_missing_version_has_the_number_that_the_client_gave(lake: Api) -> None:
    models = "/metalakes/lake/catalogs/cat/schemas/s/models"
    lake.ask("POST", models, {"name": "m"})
    answer = lake.client.get(f"/api{models}/m/versions/3")
    assert (answer.status_code, answer.json()["type"]) == (404, "NoSuchModelVersionException")
    assert answer.json()["message"] == "lake.cat.s.m has no version 3"
    assert lake.refused("GET", f"{models}/none/versions/3") == (404, 1003, "NoSuchModelVersionException")
    assert lake.refused("GET", f"{models}/none") == (404, 1003, "NoSuchModelException")
    assert lake.refused("GET", f"{models.replace('/s/', '/none/')}/m") == (404, 1003, "NoSuchModelException")
    assert lake.refused("POST", models.replace("/s/", "/none/"), {"name": "m"}) == (404, 1003, "NoSuchSchemaException")
    assert lake.client.get(f"/api{models}/m/aliases/prod").json()["message"] == "lake.cat.s.m has no alias 'prod'"
    assert answer.headers["content-type"] == "application/vnd.gravitino.v1+json"
