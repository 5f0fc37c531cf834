"""Each field of each request missing, or of another type: refused, or taken, but never a defect of the server."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from metastore.serve.gravitino.errors import failed
from metastore.serve.principals import NotAuthenticated
from tests.gravitino.conftest import Api

S = "/metalakes/lake/catalogs/cat/schemas/s"
OBJECT = "/metalakes/lake/objects/table/cat.s.t"
FIELD = {"type": "field", "fieldName": ["a"]}
REQUESTS: list[tuple[str, str, Any]] = [
    ("POST", "/metalakes/lake/catalogs", {"name": "c", "type": "fileset", "provider": "fileset", "comment": "c"}),
    ("POST", f"{S}/tables", {
        "name": "n",
        "comment": "c",
        "columns": [{"name": "a", "type": {"type": "list", "elementType": "long", "containsNull": True},
                     "nullable": True, "autoIncrement": False, "comment": "c",
                     "defaultValue": {"type": "literal", "dataType": "long", "value": "1"}}],
        "partitioning": [{"strategy": "bucket", "numBuckets": 4, "fieldNames": [["a"]]}],
        "distribution": {"strategy": "hash", "number": 4, "funcArgs": [FIELD]},
        "sortOrders": [{"sortTerm": FIELD, "direction": "asc", "nullOrdering": "nulls_first"}],
        "indexes": [{"indexType": "PRIMARY_KEY", "name": "pk", "fieldNames": [["a"]]}],
    }),
    ("PUT", f"{S}/tables/t", {"updates": [
        {"@type": "addColumn", "fieldName": ["b"], "type": "long", "position": {"after": "a"}, "nullable": True},
        {"@type": "addTableIndex", "index": {"indexType": "UNIQUE_KEY", "name": "u", "fieldNames": [["a"]]}},
        {"@type": "rename", "newName": "t2", "newSchemaName": "s"},
    ]}),
    ("POST", f"{S}/tables/t/partitions", {"partitions": [
        {"type": "identity", "name": "p", "fieldNames": [["a"]], "values": [{"type": "literal", "value": "1"}],
         "properties": {"k": "v"}}]}),
    ("POST", f"{S}/filesets", {"name": "f", "type": "managed", "storageLocations": {"a": "file:///a"}}),
    ("POST", f"{S}/views", {
        "name": "v", "columns": [], "representations": [{"type": "sql", "dialect": "spark", "sql": "SELECT 1"}],
        "defaultCatalog": "c"}),
    ("POST", f"{S}/models/m/versions", {"uris": {"u": "s3://x"}, "aliases": ["a"], "properties": {"k": "v"}}),
    ("PUT", f"{S}/models/m/versions/0", {"updates": [
        {"@type": "updateAliases", "aliasesToAdd": ["x"], "aliasesToRemove": []},
        {"@type": "updateUri", "uriName": "u", "newUri": "s3://y"}]}),
    ("POST", "/metalakes/lake/policies", {
        "name": "p", "policyType": "custom", "enabled": True,
        "content": {"supportedObjectTypes": ["TABLE"], "customRules": {"a": 1}}}),
    ("POST", f"{OBJECT}/tags", {"tagsToAdd": ["x"], "tagsToRemove": []}),
    ("PUT", "/metalakes/lake/owners/table/cat.s.t", {"name": "ann", "type": "USER"}),
    ("PUT", f"{OBJECT}/statistics", {"updates": {"custom-a": 1}}),
    ("PUT", f"{OBJECT}/statistics/partitions", {"updates": [{"partitionName": "p", "statistics": {"custom-a": 1}}]}),
    ("POST", f"{OBJECT}/statistics/partitions", {"drops": [{"partitionName": "p", "statisticNames": ["custom-a"]}]}),
    ("POST", "/metalakes/lake/roles", {"name": "r", "securableObjects": [
        {"fullName": "cat", "type": "CATALOG", "privileges": [{"name": "USE_CATALOG", "condition": "ALLOW"}]}]}),
]  # fmt: skip
MISSING = object()
WRONG: tuple[Any, ...] = (None, 7, True, "", "\x00", ["x"], [7], {"k": 7}, {})


def broken(body: Any) -> Iterator[Any]:
    """Yield the body with each of its values replaced by each wrong one, and without each of its fields."""

    def places(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, one in below:
            yield (*path, key)
            yield from places(one, (*path, key))

    for path in places(body, ()):
        for wrong in (*WRONG, MISSING):
            changed = copy.deepcopy(body)
            above = changed
            for key in path[:-1]:
                above = above[key]
            if wrong is MISSING:
                del above[path[-1]]
            else:
                above[path[-1]] = wrong
            yield changed


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("method", "path", "body"), REQUESTS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_wrong_type_anywhere_is_no_defect(lake: Api, method: str, path: str, body: Any) -> None:
    lake.ask("POST", f"{S}/tables", {"name": "t", "columns": [{"name": "a", "type": "long"}]})
    lake.ask("POST", f"{S}/models", {"name": "m"})
    lake.ask("POST", f"{S}/models/m/versions", {"uris": {"u": "s3://x"}})
    codes = {}
    for one in broken(body):
        answer = lake.client.request(method, f"/api{path}", json=one)
        codes[str(one)] = answer.json()["code"]
    assert [one for one, code in codes.items() if code == 1002] == []
    assert 1001 in codes.values()


PLACES = (
    "/metalakes/%00",
    "/metalakes/" + "x" * 5000,
    "/metalakes/a%2Fb",
    "/metalakes/a.b",
    "/metalakes/%FF",
    "/metalakes/lake/objects/nothing/cat/tags",
    "/metalakes/lake/objects/table/cat.s/tags",
    "/metalakes/lake/objects/table/cat..t/tags",
    "/metalakes/lake/owners/metalake/other",
    f"{S}/models/m/versions/99999999999",
    "/metalakes/lake/catalogs?details=perhaps",
)


@pytest.mark.parametrize("place", PLACES)
def test_a_wrong_place_is_refused(lake: Api, place: str) -> None:
    answer = lake.client.get(f"/api{place}").json()
    assert answer["code"] in (1001, 1003)
    assert answer["stack"] == []


def test_a_client_without_a_token_gets_the_code_of_unauthorized() -> None:
    answer = failed(NotAuthenticated("the request needs a valid token"))
    assert (answer.status, answer.body["code"], answer.body["type"]) == (401, 1011, "UnauthorizedException")
