"""A real server of Gravitino: its database comes over and goes back, and both servers answer the same.

METASTORE_TEST_GRAVITINO is the address of a server of 1.3 with ``gravitino.authorization.enable`` and the model
catalog, METASTORE_TEST_GRAVITINO_DATABASE its database on PostgreSQL. The test makes a metalake of its own there.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra [serve]")

import httpx

import metastore as ms
from metastore.imports.gravitino import import_gravitino
from tests.gravitino.conftest import serving

SERVER, DATABASE = (os.environ.get(f"METASTORE_TEST_GRAVITINO{part}", "") for part in ("", "_DATABASE"))
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not SERVER or not DATABASE, reason="needs METASTORE_TEST_GRAVITINO and …_DATABASE"),
]
S = "/catalogs/cat/schemas/s"
PRIVILEGE = {"name": "USE_CATALOG", "condition": "ALLOW"}
SECURED = {"fullName": "cat", "type": "CATALOG", "privileges": [PRIVILEGE]}
RULES = {"customRules": {"days": 3}, "supportedObjectTypes": ["CATALOG", "SCHEMA", "MODEL"], "properties": {"a": "b"}}
TEMPLATE: dict[str, Any] = {"name": "say", "jobType": "shell", "comment": "c", "executable": "/bin/echo"}
TEMPLATE |= {"arguments": ["{{word}}"], "environments": {"A": "b"}, "customFields": {}, "scripts": []}
CATALOG = {"name": "cat", "type": "MODEL", "provider": "model", "comment": "c", "properties": {"k": "v"}}
FIRST = {"uris": {"unknown": "s3://m/0"}, "aliases": ["old"], "comment": "first", "properties": {}}
SECOND = {"uris": {"a": "s3://m/a", "b": "s3://m/b"}, "aliases": ["new"], "properties": {"k": "v"}}
MADE: list[tuple[str, str, Any]] = [
    ("POST", "/catalogs", CATALOG),
    ("POST", "/catalogs/cat/schemas", {"name": "s", "comment": "a schema", "properties": {"a": "b"}}),
    ("POST", "/catalogs/cat/schemas", {"name": "gone", "comment": "", "properties": {}}),
    ("DELETE", "/catalogs/cat/schemas/gone", None),
    ("POST", f"{S}/models", {"name": "m", "comment": "a model", "properties": {"x": "y"}}),
    ("POST", f"{S}/models", {"name": "other", "comment": "", "properties": {}}),
    ("POST", f"{S}/models/m/versions", FIRST),
    ("POST", f"{S}/models/m/versions", SECOND),
    ("PUT", f"{S}/models/other", {"updates": [{"@type": "rename", "newName": "renamed"}]}),
    ("POST", "/tags", {"name": "pii", "comment": "personal", "properties": {"k": "v"}}),
    ("POST", "/objects/model/cat.s.m/tags", {"tagsToAdd": ["pii"], "tagsToRemove": []}),
    ("POST", "/objects/catalog/cat/tags", {"tagsToAdd": ["pii"], "tagsToRemove": []}),
    ("POST", "/policies", {"name": "keep", "policyType": "custom", "comment": "c", "enabled": True, "content": RULES}),
    ("POST", "/objects/schema/cat.s/policies", {"policiesToAdd": ["keep"], "policiesToRemove": []}),
    ("POST", "/users", {"name": "ann"}),
    ("POST", "/groups", {"name": "staff"}),
    ("POST", "/roles", {"name": "reader", "properties": {"k": "v"}, "securableObjects": [SECURED]}),
    ("PUT", "/permissions/users/ann/grant", {"roleNames": ["reader"]}),
    ("PUT", "/permissions/groups/staff/grant", {"roleNames": ["reader"]}),
    ("PUT", "/owners/schema/cat.s", {"name": "ann", "type": "USER"}),
    ("PUT", "/owners/model/cat.s.m", {"name": "staff", "type": "GROUP"}),
    ("POST", "/jobs/templates", {"jobTemplate": TEMPLATE}),
]  # fmt: skip
ASKED = [
    "",
    "/catalogs/cat",
    "/catalogs/cat/schemas",
    S,
    f"{S}/models",
    f"{S}/models/m",
    f"{S}/models/renamed",
    f"{S}/models/m/versions?details=true",
    f"{S}/models/m/aliases/new",
    "/tags?details=true",
    "/tags/pii/objects",
    "/objects/model/cat.s.m/tags",
    "/policies?details=true",
    "/objects/schema/cat.s/policies",
    "/users/ann",
    "/groups/staff",
    "/roles/reader",
    "/owners/schema/cat.s",
    "/owners/model/cat.s.m",
    "/owners/metalake/{lake}",
    "/jobs/templates/say",
]


def _plain(answer: Any) -> Any:
    """Return an answer without what may differ: audits, the order of a set, whether what is empty is there."""
    if isinstance(answer, dict):
        return {
            key: _plain(value) for key, value in answer.items() if key != "audit" and value not in (None, "", [], {})
        }
    if isinstance(answer, list):
        return sorted((_plain(one) for one in answer), key=lambda one: json.dumps(one, sort_keys=True))
    return answer


def _answers(client: httpx.Client, lake: str) -> dict[str, Any]:
    paths = {path.format(lake=lake): f"/api/metalakes/{lake}{path.format(lake=lake)}" for path in ASKED}
    return {path: _plain(client.get(address).json()) for path, address in paths.items()}


def test_a_database_of_a_real_server(url: str, tmp_path: Path) -> None:
    lake = f"real_{secrets.token_hex(4)}"
    with httpx.Client(base_url=SERVER, timeout=60) as client:
        client.post("/api/metalakes", json={"name": lake, "comment": "c", "properties": {"a": "b"}}).raise_for_status()
        for method, path, body in MADE:
            done = client.request(method, f"/api/metalakes/{lake}{path}", json=body)
            assert done.json()["code"] == 0, (path, done.text)
        theirs = _answers(client, lake)
    report = import_gravitino(url, DATABASE, file=tmp_path / "import.jsonl")
    assert report.same
    assert [one for one in report.findings if lake in str(one)] == []
    with serving(ms.open(url)) as api:
        ours = _answers(api.client, lake)
        assert list(api.store.verify()) == []
        model = api.store.models.load(f"{lake}.cat.s.m")
        assert (model.created_by, [one.number for one in api.store.models.versions(model)]) == ("anonymous", [1, 2])
    assert ours == theirs
    again = import_gravitino(url, DATABASE, file=tmp_path / "import.jsonl")
    assert (again.same, again.written) == (True, 0)
