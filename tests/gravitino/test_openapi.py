"""What the server answers is what Gravitino's OpenAPI documents allow: most of their endpoints, and errors.

``make gravitino-spec`` brings the documents, and an environment with a validator of OpenAPI's schemas.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg", reason="needs the extra [serve]")

from tests.gravitino.conftest import Api

SPEC = Path(__file__).resolve().parents[2] / "build/gravitino-spec"
DOCUMENT, PYTHON = SPEC / "docs/open-api/openapi.yaml", SPEC / "env/bin/python"
pytestmark = pytest.mark.skipif(
    not (DOCUMENT.exists() and PYTHON.exists()), reason="needs Gravitino's OpenAPI documents: make gravitino-spec"
)
L, C, S = "/metalakes/lake", "/metalakes/lake/catalogs/cat", "/metalakes/lake/catalogs/cat/schemas/s"


KNOWN = (
    "table.distribution.strategy: 'none' is not one of",
    "owners/catalog/cat 200 owner: None",
    "400 there is no answer 400;",
    "409 there is no answer 409;",
)
"""Where Gravitino's server differs from its documents, and this server answers as that does: a table without a
distribution, an object without an owner, a bad request, and what is not empty or in use."""


class Recorder:
    """Sends requests, and keeps each with its answer."""

    def __init__(self, api: Api) -> None:
        self.api, self.exchanges = api, list[dict[str, Any]]()

    def __call__(self, method: str, path: str, body: Any = None, status: int = 200, **query: str) -> Any:
        answer = self.api.client.request(method, f"/api{path}", json=body, params=query)
        assert answer.status_code == status, (method, path, answer.text)
        sent = {"method": method, "path": path, "query": query, "body": body}
        found = {"status": status, "type": answer.headers["content-type"], "answer": answer.json()}
        self.exchanges.append({**sent, **found})
        return answer.json()

    def change(self, path: str, *updates: dict[str, Any]) -> None:
        self("PUT", path, {"updates": list(updates)})


def violations(exchanges: list[dict[str, Any]]) -> list[str]:
    """Return what the documents do not allow."""
    lines = "".join(json.dumps(one) + "\n" for one in exchanges)
    command = [str(PYTHON), str(Path(__file__).with_name("openapi_program.py")), str(DOCUMENT)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def entities(ask: Recorder) -> None:
    ask("GET", "/metalakes")
    ask("PUT", L, {"updates": [{"@type": "updateComment", "newComment": "a lake"}]})
    ask("POST", "/metalakes", {"name": "other", "comment": "", "properties": {}})
    ask("GET", "/metalakes/other")
    ask("DELETE", "/metalakes/other", force="true")
    for details in ("true", "false"):
        ask("GET", f"{L}/catalogs", details=details)
    ask("GET", C)
    ask.change(C, {"@type": "setProperty", "property": "k", "value": "v"})
    ask("PATCH", C, {"inUse": True})
    ask("POST", f"{C}/schemas", {"name": "t", "comment": "a schema", "properties": {"a": "b"}})
    ask("GET", f"{C}/schemas")
    ask("GET", f"{C}/schemas/t")
    ask.change(f"{C}/schemas/t", {"@type": "setProperty", "property": "k", "value": "v"})
    ask("DELETE", f"{C}/schemas/t")
    table = {
        "name": "t",
        "comment": "a table",
        "columns": [
            {"name": "id", "type": "integer", "nullable": False, "comment": "the id"},
            {"name": "at", "type": "timestamp_tz", "nullable": True},
            {"name": "place", "type": {"type": "struct", "fields": [{"name": "x", "type": "double"}]}},
            {"name": "tags", "type": {"type": "list", "elementType": "string", "containsNull": True}},
        ],
        "properties": {"p": "q"},
        "partitioning": [
            {"strategy": "identity", "fieldName": ["id"]},
            {"strategy": "day", "fieldName": ["at"]},
            {"strategy": "bucket", "numBuckets": 4, "fieldNames": [["id"]]},
        ],
        "distribution": {"strategy": "hash", "number": 8, "funcArgs": [{"type": "field", "fieldName": ["id"]}]},
        "sortOrders": [{"sortTerm": {"type": "field", "fieldName": ["id"]}, "direction": "desc"}],
        "indexes": [{"indexType": "PRIMARY_KEY", "name": "pk", "fieldNames": [["id"]]}],
    }
    ask("POST", f"{S}/tables", table)
    ask("GET", f"{S}/tables")
    ask("GET", f"{S}/tables/t")
    ask.change(f"{S}/tables/t", {"@type": "addColumn", "fieldName": ["more"], "type": "long", "position": "default"})
    simple = {"name": "p", "columns": [{"name": "d", "type": "string"}]}
    ask("POST", f"{S}/tables", {**simple, "partitioning": [{"strategy": "identity", "fieldName": ["d"]}]})
    value = {"type": "literal", "dataType": "string", "value": "1"}
    part = {"type": "identity", "name": "d=1", "fieldNames": [["d"]], "values": [value], "properties": {}}
    ask("POST", f"{S}/tables/p/partitions", {"partitions": [part]})
    ask("GET", f"{S}/tables/p/partitions", details="true")
    ask("GET", f"{S}/tables/p/partitions")
    ask("GET", f"{S}/tables/p/partitions/d=1")
    measured = f"{L}/objects/table/cat.s.p/statistics/partitions"
    ask("PUT", measured, {"updates": [{"partitionName": "d=1", "statistics": {"custom-rows": 5}}]})
    ask("GET", measured)
    ask("POST", measured, {"drops": [{"partitionName": "d=1", "statisticNames": ["custom-rows"]}]})
    ask("DELETE", f"{S}/tables/p/partitions/d=1")
    ask("DELETE", f"{S}/tables/p", purge="true")
    ask("POST", f"{S}/filesets", {"name": "f", "type": "external", "storageLocations": {"default": "file:///f"}})
    ask("GET", f"{S}/filesets")
    ask("GET", f"{S}/filesets/f")
    ask.change(f"{S}/filesets/f", {"@type": "updateComment", "newComment": "x"})
    ask("POST", f"{S}/topics", {"name": "o", "comment": "c", "properties": {}})
    ask("GET", f"{S}/topics")
    ask("GET", f"{S}/topics/o")
    ask.change(f"{S}/topics/o", {"@type": "updateComment", "newComment": "x"})
    view = {"name": "v", "columns": [{"name": "a", "type": "integer"}], "properties": {}, "comment": "a view"}
    ask("POST", f"{S}/views", {**view, "representations": [{"type": "sql", "dialect": "spark", "sql": "SELECT 1"}]})
    ask("GET", f"{S}/views")
    ask("GET", f"{S}/views/v")
    ask.change(f"{S}/views/v", {"@type": "setProperty", "property": "k", "value": "v"})


def models_and_functions(ask: Recorder) -> None:
    ask("POST", f"{S}/models", {"name": "m", "comment": "a model", "properties": {}})
    ask("GET", f"{S}/models")
    ask("GET", f"{S}/models/m")
    one = f"{S}/models/m"
    ask("POST", f"{one}/versions", {"uri": "s3://m", "aliases": ["prod"], "comment": "first", "properties": {"a": "b"}})
    ask("GET", f"{one}/versions", details="true")
    ask("GET", f"{one}/versions")
    ask("GET", f"{one}/versions/0")
    ask("GET", f"{one}/aliases/prod")
    ask("GET", f"{one}/versions/0/uri")
    ask("GET", f"{one}/aliases/prod/uri")
    ask.change(f"{one}/versions/0", {"@type": "updateComment", "newComment": "x"})
    ask.change(one, {"@type": "updateComment", "newComment": "x"})
    ask("DELETE", f"{one}/versions/0")
    implementation = {"language": "SQL", "runtime": "SPARK", "sql": "x + 1", "properties": {}}
    parameter = {"name": "x", "dataType": "integer"}
    definition = {"parameters": [parameter], "returnType": "integer", "impls": [implementation]}
    function = {"name": "plus", "functionType": "SCALAR", "deterministic": True, "definitions": [definition]}
    ask("POST", f"{S}/functions", function)
    for details in ("true", "false"):
        ask("GET", f"{S}/functions", details=details)
    ask("GET", f"{S}/functions/plus")
    ask.change(f"{S}/functions/plus", {"@type": "updateComment", "newComment": "x"})
    ask("DELETE", f"{S}/functions/plus")


def governance(ask: Recorder) -> None:
    ask("POST", f"{L}/tags", {"name": "pii", "comment": "personal", "properties": {}})
    for details in ("true", "false"):
        ask("GET", f"{L}/tags", details=details)
    ask("GET", f"{L}/tags/pii")
    ask.change(f"{L}/tags/pii", {"@type": "updateComment", "newComment": "x"})
    on = f"{L}/objects/table/cat.s.t"
    ask("POST", f"{on}/tags", {"tagsToAdd": ["pii"], "tagsToRemove": []})
    for details in ("true", "false"):
        ask("GET", f"{on}/tags", details=details)
    ask("GET", f"{on}/tags/pii")
    ask("GET", f"{L}/tags/pii/objects")
    content = {"customRules": {"days": 3}, "supportedObjectTypes": ["TABLE"], "properties": {"a": "b"}}
    ask("POST", f"{L}/policies", {"name": "keep", "policyType": "custom", "comment": "c", "content": content})
    for details in ("true", "false"):
        ask("GET", f"{L}/policies", details=details)
    ask("GET", f"{L}/policies/keep")
    ask("POST", f"{on}/policies", {"policiesToAdd": ["keep"], "policiesToRemove": []})
    for details in ("true", "false"):
        ask("GET", f"{on}/policies", details=details)
    ask("GET", f"{on}/policies/keep")
    ask("GET", f"{L}/policies/keep/objects")
    ask("PATCH", f"{L}/policies/keep", {"enable": False})
    ask("POST", f"{L}/users", {"name": "ann"})
    ask("POST", f"{L}/groups", {"name": "staff"})
    privilege = {"name": "select_table", "condition": "allow"}
    secured = {"type": "table", "fullName": "cat.s.t", "privileges": [privilege]}
    ask("POST", f"{L}/roles", {"name": "reader", "properties": {}, "securableObjects": [secured]})
    for many, name in (("users", "ann"), ("groups", "staff")):
        ask("GET", f"{L}/{many}", details="true")
        ask("GET", f"{L}/{many}")
        ask("GET", f"{L}/{many}/{name}")
        ask("PUT", f"{L}/permissions/{many}/{name}/grant", {"roleNames": ["reader"]})
        ask("PUT", f"{L}/permissions/{many}/{name}/revoke", {"roleNames": ["reader"]})
    ask("GET", f"{L}/roles")
    ask("GET", f"{L}/roles/reader")
    more = {"privileges": [{"name": "modify_table", "condition": "deny"}]}
    ask("PUT", f"{L}/permissions/roles/reader/table/cat.s.t/grant", more)
    ask("PUT", f"{L}/permissions/roles/reader/table/cat.s.t/revoke", more)
    ask("PUT", f"{L}/owners/table/cat.s.t", {"name": "ann", "type": "USER"})
    ask("GET", f"{L}/owners/table/cat.s.t")
    ask("GET", f"{L}/owners/catalog/cat")
    statistics = f"{on}/statistics"
    ask("PUT", statistics, {"updates": {"custom-rows": 5, "custom-text": "x"}})
    ask("GET", statistics)
    ask("POST", statistics, {"names": ["custom-rows"]})
    ask("GET", f"{L}/objects/catalog/cat/credentials")
    ask("DELETE", f"{L}/users/ann")


def jobs(ask: Recorder) -> None:
    shell = {"name": "say", "jobType": "shell", "comment": "c", "executable": "/bin/echo", "arguments": ["{{word}}"]}
    more: dict[str, Any] = {"environments": {}, "customFields": {}, "scripts": []}
    ask("POST", f"{L}/jobs/templates", {"jobTemplate": {**shell, **more}})
    for details in ("true", "false"):
        ask("GET", f"{L}/jobs/templates", details=details)
    ask("GET", f"{L}/jobs/templates/say")
    ask.change(f"{L}/jobs/templates/say", {"@type": "updateComment", "newComment": "x"})
    job = ask("POST", f"{L}/jobs/runs", {"jobTemplateName": "say", "jobConf": {"word": "hi"}})["job"]["jobId"]
    ask("GET", f"{L}/jobs/runs")
    ask("GET", f"{L}/jobs/runs/{job}")
    ask("POST", f"{L}/jobs/runs/{job}")


def errors(ask: Recorder) -> None:
    ask("GET", "/metalakes/none", status=404)
    ask("POST", "/metalakes", {"name": "lake"}, status=409)
    ask("POST", "/metalakes", {"name": 5}, status=400)
    ask("GET", f"{S}/tables/none", status=404)
    ask("POST", f"{S}/tables", {"name": "t", "columns": []}, status=409)
    ask("DELETE", S, status=409)
    ask("GET", f"{L}/tags/none", status=404)
    ask("DELETE", C, status=409)


def test_every_answer_is_one_that_the_documents_allow(lake: Api) -> None:
    ask = Recorder(lake)
    for part in (entities, models_and_functions, governance, jobs, errors):
        part(ask)
    found = [one for one in violations(ask.exchanges) if not any(known in one for known in KNOWN)]
    assert not found, "\n".join(found)


def test_an_answer_that_is_not_allowed_is_found(lake: Api) -> None:
    ask = Recorder(lake)
    ask("GET", "/metalakes/lake")
    (good,) = ask.exchanges
    without = {**good["answer"], "metalake": {"comment": "no name"}}
    assert violations([{**good, "answer": without}, {**good, "type": "text/html"}, good]) != []
    assert len(violations([good])) == 0
