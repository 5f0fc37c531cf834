"""Each refused request, and each credential that a client gets, is a line of the audit log; no line has a secret."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

import metastore as ms
from metastore.serve import Principals, application, tokens_of
from tests.iceberg.server import running

TABLE = {
    "name": "t",
    "schema": {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]},
}
DELEGATION = {"X-Iceberg-Access-Delegation": "vended-credentials"}
SECRET = "the-secret-key"


def test_who_was_refused_what_and_who_got_credentials(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LAKE_KEY", SECRET)
    (tmp_path / "tokens").write_text("root token-of-root\nann token-of-ann\n")
    store = ms.open(sqlite_url, admins=["root"])
    app = application(
        store,
        warehouses={"lake.ice": f"file://{tmp_path}/w"},
        principals=Principals(tokens_of(tmp_path / "tokens")),
        credentials={"lake.ice": {"s3.region": "here", "s3.secret-access-key": "secret:env:LAKE_KEY"}},
        authorization=True,
    )
    store.users.create("lake.ann")
    store.roles.create("lake.reader")
    store.roles.assign("lake.reader", "lake.ann")
    for right in ("use_catalog", "use_schema", "select_table"):
        store.roles.grant("lake.reader", right, on="lake.ice")
    caplog.set_level(logging.INFO, "metastore.audit")
    iceberg, gravitino = "/iceberg/v1/lake.ice/namespaces", "/api/metalakes/lake/catalogs/ice/schemas"

    def ask(user: str, method: str, path: str, status: int, **more: Any) -> list[dict[str, Any]]:
        """Make a request; return the lines that it caused, and check what all lines have."""
        caplog.clear()
        headers = {"Authorization": f"Bearer token-of-{user}", **more.pop("headers", {})}
        answer = client.request(method, path, headers=headers, **more)
        assert answer.status_code == status, answer.text
        lines = [one.getMessage() for one in caplog.records if one.name == "metastore.audit"]
        assert not any(secret in line for line in lines for secret in ("token-of", SECRET, "hunter2"))
        found = [json.loads(line) for line in lines]
        for one in found:
            assert datetime.fromisoformat(one.pop("time")).utcoffset() is not None
            assert one["request_id"] == answer.headers["x-request-id"]
        return found

    with running(app) as (_, port), httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        assert ask("root", "POST", iceberg, 200, json={"namespace": ["sales"]}) == []
        assert ask("root", "POST", f"{iceberg}/sales/tables", 200, json=TABLE) == []
        (line,) = ask(
            "ann", "GET", f"{iceberg}/sales/tables/t", 200, headers={**DELEGATION, "X-Request-Id": "from-proxy"}
        )
        assert line == {
            "outcome": "vended",
            "user": "ann",
            "request": f"GET {iceberg}/sales/tables/t",
            "request_id": "from-proxy",
            "object": f"file://{tmp_path}/w/",
        }
        (line,) = ask("ann", "DELETE", f"{iceberg}/sales/tables/t?of=hunter2", 403)
        assert (line["outcome"], line["status"], line["user"]) == ("refused", 403, "ann")
        assert line["request"] == f"DELETE {iceberg}/sales/tables/t"
        assert (line["object"], bool(line["right"])) == ("lake.ice.sales.t", True)
        (line,) = ask("ann", "DELETE", f"{gravitino}/sales", 403, headers={"X-Request-Id": 'a"b'})
        assert (line["object"], bool(line["right"])) == ("lake.ice.sales", True)
        assert len(line["request_id"]) == 36, "an id that would break a line is not taken"
        for path in (iceberg, gravitino):
            (line,) = ask("nobody", "GET", path, 401)
            assert (line["user"], line["status"]) == (None, 401)
        (line,) = ask("root", "GET", "/api/version", 403, headers={"Origin": "https://elsewhere"})
        assert line["request"] == "GET /api/version"
        own = {"Sec-Fetch-Site": "same-origin"}
        (line,) = ask("nobody", "POST", "/console/signin", 401, data={"token": "hunter2"}, headers=own)
        assert line["request"] == "POST /console/signin"
        assert ask("ann", "GET", f"{gravitino}/not_there", 404) == []
