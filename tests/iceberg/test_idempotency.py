"""A request under an Idempotency-Key is applied once, however often and to whichever server it is sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

import metastore as ms
from metastore.operation import record
from metastore.operation.digest import digest
from metastore.pyiceberg.once import Once, Refused
from tests.iceberg.server import served
from tests.iceberg.test_rest import SCHEMA

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

KEY = "0196ff00-0000-7000-8000-000000000000"
SET = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"k": "v"}}]}
UNSET = {"requirements": [], "updates": [{"action": "remove-properties", "removals": ["k"]}]}
VERSION = {
    "version-id": 1,
    "schema-id": 0,
    "timestamp-ms": 1,
    "summary": {},
    "representations": [{"type": "sql", "sql": "SELECT 1 n", "dialect": "spark"}],
    "default-namespace": ["a"],
}


def _name(name: str) -> dict[str, Any]:
    return {"namespace": ["a"], "name": name}


def _several(*names: str) -> dict[str, Any]:
    return {"table-changes": [{"identifier": _name(name), **SET} for name in names]}


MOVE = {"source": _name("t"), "destination": _name("w")}
CALLS: list[tuple[str, str, dict[str, Any] | None, int]] = [
    ("POST", "/namespaces", {"namespace": ["b"]}, 200),
    ("DELETE", "/namespaces/empty", None, 204),
    ("POST", "/namespaces/a/properties", {"updates": {"k": "v"}}, 200),
    ("POST", "/namespaces/a/tables", {"name": "n", "schema": SCHEMA}, 200),
    ("POST", "/namespaces/a/tables/t", SET, 200),
    ("POST", "/transactions/commit", _several("t", "u"), 204),
    ("POST", "/tables/rename", MOVE, 204),
    ("DELETE", "/namespaces/a/tables/t", None, 204),
    ("DELETE", "/namespaces/a/tables/t?purgeRequested=true", None, 204),
    ("POST", "/namespaces/a/views", {"name": "v", "schema": SCHEMA, "view-version": VERSION}, 200),
]
"""Requests, and what a client that repeats them is answered."""


@pytest.fixture
def servers(url: str, tmp_path: Path) -> Iterator[list[httpx.Client]]:
    """Give clients of two servers of one database."""
    warehouse = tmp_path / "warehouse"
    with served(url, warehouse) as one, served(url, warehouse) as two:
        clients = [httpx.Client(base_url=f"{address}/v1/lake.ice", timeout=60) for address in (one, two)]
        first = clients[0]
        for namespace in ("a", "empty"):
            first.post("/namespaces", json={"namespace": [namespace]})
        for name in ("t", "u"):
            first.post("/namespaces/a/tables", json={"name": name, "schema": SCHEMA})
        yield clients
        for client in clients:
            client.close()


def _changes(url: str) -> int:
    with ms.open(url) as store:
        return sum(1 for _ in store.changes())


@pytest.mark.parametrize(("method", "path", "body", "status"), CALLS, ids=[f"{m} {p}" for m, p, _, _ in CALLS])
def test_a_repeat_at_another_server_changes_nothing(
    servers: list[httpx.Client], url: str, method: str, path: str, body: dict[str, Any] | None, status: int
) -> None:
    headers = {"Idempotency-Key": str(uuid4())}
    first = servers[0].request(method, path, json=body, headers=headers)
    after = _changes(url)
    second = servers[1].request(method, path, json=body, headers=headers)
    assert (first.status_code, second.status_code) == (status, status), (first.text, second.text)
    assert _changes(url) == after
    if status == 200 and "metadata" in first.json():
        assert first.json()["metadata"] == second.json()["metadata"]


def test_a_late_repeat_does_not_undo_what_came_after(servers: list[httpx.Client]) -> None:
    key = {"Idempotency-Key": str(uuid4())}
    table = "/namespaces/a/tables/t"
    servers[0].post(table, json=SET, headers=key)
    servers[0].post(table, json=UNSET)
    assert servers[1].post(table, json=SET, headers=key).status_code == 200
    assert "k" not in servers[0].get(table).json()["metadata"].get("properties", {})
    servers[1].post(table, json=SET)  # without the key it is another request
    assert servers[0].get(table).json()["metadata"]["properties"]["k"] == "v"


def test_a_late_repeat_of_properties_of_a_namespace(servers: list[httpx.Client]) -> None:
    key = {"Idempotency-Key": str(uuid4())}
    path = "/namespaces/a/properties"
    first = servers[0].post(path, json={"updates": {"k": "v"}}, headers=key).json()
    servers[0].post(path, json={"removals": ["k"]})
    assert servers[1].post(path, json={"updates": {"k": "v"}}, headers=key).json() == first
    assert "k" not in servers[0].get("/namespaces/a").json()["properties"]


@pytest.mark.parametrize("path", ["/namespaces/a/tables/t", "/transactions/commit"])
def test_repeats_at_the_same_moment_commit_once(servers: list[httpx.Client], url: str, path: str) -> None:
    table = "/namespaces/a/tables/t"
    before = len(servers[0].get(table).json()["metadata"].get("metadata-log", []))
    key = {"Idempotency-Key": str(uuid4())}
    body = _several("t", "u") if path.startswith("/tr") else SET

    def send(n: int) -> int:
        if n % 4 == 3:  # others change the table meanwhile
            updates = [{"action": "set-properties", "updates": {f"n{n}": "v"}}]
            return servers[n % 2].post(table, json={"requirements": [], "updates": updates}).status_code
        return servers[n % 2].post(path, json=body, headers=key).status_code

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, range(8)))
    assert set(answers) <= {200, 204}
    metadata = servers[0].get(table).json()["metadata"]
    assert len(metadata["metadata-log"]) - before == 1 + 2  # the request once, and two others
    with ms.open(url) as store:
        assert store.verify() == []


def test_creates_at_the_same_moment(servers: list[httpx.Client]) -> None:
    key = {"Idempotency-Key": str(uuid4())}

    def create(name: str, headers: dict[str, str]) -> list[int]:
        body = {"name": name, "schema": SCHEMA}

        def send(n: int) -> int:
            return servers[n % 2].post("/namespaces/a/tables", json=body, headers=headers).status_code

        with ThreadPoolExecutor(4) as pool:
            return sorted(pool.map(send, range(4)))

    assert create("x", key) == [200] * 4
    assert create("y", {}) == [200, 409, 409, 409]


def test_a_refusal_is_final(servers: list[httpx.Client], url: str) -> None:
    """The repeat at another server gets the first answer, although the request would be granted by now."""
    late = {"name": "x", "schema": SCHEMA}
    stale = {"requirements": [{"type": "assert-current-schema-id", "current-schema-id": 9}], "updates": SET["updates"]}
    taken = {"name": "t", "schema": SCHEMA}
    calls = [("late/tables", late, 404), ("a/tables/t", stale, 409), ("a/tables", taken, 409), ("a/tables", {}, 400)]
    keys = [{"Idempotency-Key": str(uuid4())} for _ in calls]
    first = [
        servers[0].post(f"/namespaces/{path}", json=body, headers=key)
        for (path, body, _), key in zip(calls, keys, strict=True)
    ]
    assert [one.status_code for one in first] == [status for _, _, status in calls]
    servers[0].post("/namespaces", json={"namespace": ["late"]})
    servers[0].delete("/namespaces/a/tables/t")
    for (path, body, status), key, answer in zip(calls, keys, first, strict=True):
        again = servers[1].post(f"/namespaces/{path}", json=body, headers=key)
        assert (again.status_code, again.json()) == (status, answer.json())
    assert servers[1].post("/namespaces/late/tables", json=late).status_code == 200, "without the key, or with another"
    with ms.open(url) as store:
        assert store.verify() == []


def test_a_namespace_that_is_not_there_is_not_dropped(servers: list[httpx.Client]) -> None:
    """The answer to a first request with a key was 204."""
    under = {"Idempotency-Key": KEY}
    assert [one.delete("/namespaces/none", headers=under).status_code for one in servers] == [404, 404]
    servers[0].post("/namespaces", json={"namespace": ["none"]})
    assert servers[1].delete("/namespaces/none", headers=under).status_code == 404
    assert servers[0].delete("/namespaces/none", headers={"Idempotency-Key": str(uuid4())}).status_code == 204


def test_a_key_is_of_one_request(servers: list[httpx.Client]) -> None:
    """Another path, query or body under a key that was used is refused, and changes nothing."""
    key = {"Idempotency-Key": str(uuid4())}
    assert servers[0].post("/namespaces/a/tables/t", json=SET, headers=key).status_code == 200
    other = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"k": "other"}}]}
    for server in servers:
        refused = [
            server.post("/namespaces/a/tables/u", json=SET, headers=key),
            server.post("/namespaces/a/tables/t", json=other, headers=key),
            server.delete("/namespaces/a/tables/t", headers=key),
        ]
        assert [one.status_code for one in refused] == [422] * 3, [one.text for one in refused]
        assert "belongs to another request" in refused[0].text
    assert servers[0].post("/namespaces/a/tables/t", json=SET, headers=key).status_code == 200
    shown = [servers[0].get(f"/namespaces/a/tables/{name}").json()["metadata"]["properties"] for name in "tu"]
    assert [one.get("k") for one in shown] == ["v", None]


def test_what_a_request_made_may_be_gone_at_its_repeat(servers: list[httpx.Client], url: str) -> None:
    """The repeat says so, and is not answered again and again: it would keep a thread for ever."""
    view = {"name": "v", "schema": SCHEMA, "view-version": VERSION}
    to = {"source": _name("v"), "destination": {"namespace": ["empty"], "name": "v"}}
    made = [
        ("/namespaces/a/tables", {"name": "x", "schema": SCHEMA}, 404),
        ("/namespaces/a/tables/x", SET, 404),
        ("/transactions/commit", _several("x", "u"), 404),
        ("/namespaces/a/views", view, 404),
        ("/views/rename", to, 204),
    ]
    keys = [{"Idempotency-Key": str(uuid4())} for _ in made]
    for (path, body, _), key in zip(made, keys, strict=True):
        assert servers[0].post(path, json=body, headers=key).is_success
    for path in ("a/tables/x", "empty/views/v", "empty"):
        assert servers[0].delete(f"/namespaces/{path}").status_code == 204
    after = _changes(url)
    for (path, body, status), key in zip(made, keys, strict=True):
        for _ in range(2):
            again = servers[1].post(path, json=body, headers=key, timeout=20)
            assert again.status_code == status, (path, again.text)
    assert _changes(url) == after


def test_an_attempt_in_flight_cannot_follow_a_refusal(url: str) -> None:
    """The answer takes the place of the attempt, which was begun and not sent."""
    with ms.open(url) as store:
        store.metalakes.create("lake")
        slow, repeat = Once(store, KEY, "ann", "POST /x"), Once(store, KEY, "ann", "POST /x")
        options = slow.begin()
        assert options is not None
        repeat.settle({"status": 409, "body": {}})
        with pytest.raises(ms.OperationIdReused):
            store.metalakes.alter("lake", ms.SetProperty("k", "v"), **options)
        for one in (slow, repeat):
            with pytest.raises(Refused):
                one.begin()
        won, late = Once(store, KEY, "bob", "POST /x"), Once(store, KEY, "bob", "POST /x")
        options = late.begin()
        assert options is not None
        store.metalakes.alter("lake", ms.SetProperty("k", "v"), **(won.begin() or {}))
        assert not late.settle({"status": 409, "body": {}})


def test_a_key_is_a_uuid_and_of_one_principal(servers: list[httpx.Client]) -> None:
    bad = servers[0].post("/namespaces", json={"namespace": ["b"]}, headers={"Idempotency-Key": "x" * 50})
    assert (bad.status_code, "Idempotency-Key" in bad.text) == (400, True)
    key = {"Idempotency-Key": str(uuid4())}
    assert servers[0].post("/namespaces", json={"namespace": ["b"]}, headers=key).status_code == 200
    assert servers[0].post("/namespaces", json={"namespace": ["b"]}, headers=key, auth=("eve", "")).status_code == 409
    config = httpx.get(f"{str(servers[0].base_url).split('/v1')[0]}/v1/config").json()
    assert config["idempotency-key-lifetime"] == "P1D"


@pytest.mark.long
def test_a_repeat_after_a_thousand_other_commits(servers: list[httpx.Client], url: str) -> None:
    key = {"Idempotency-Key": str(uuid4())}
    table = "/namespaces/a/tables/t"
    assert servers[0].post(table, json=SET, headers=key).status_code == 200
    servers[0].post(table, json=UNSET)
    with ms.open(url) as store:
        for n in range(1000):
            store.tables.alter("lake.ice.a.t", ms.SetProperty("n", str(n)))
    assert servers[1].post(table, json=SET, headers=key).status_code == 200
    assert "k" not in servers[0].get(table).json()["metadata"].get("properties", {})


def test_a_key_is_compared_by_the_digest_of_a_large_body(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To write all of it as JSON once more would stop all threads."""
    sizes = list[int]()

    def digested(request: Any) -> str:
        sizes.append(len(json.dumps(request.arguments(), default=str)))
        return digest(request)

    monkeypatch.setattr(record, "digest", digested)
    with served(sqlite_url, tmp_path) as address, httpx.Client(base_url=f"{address}/v1/lake.ice", timeout=60) as client:
        body, key = {"namespace": ["n"], "x": "y" * 200_000}, {"Idempotency-Key": str(uuid4())}
        found = [
            client.post("/namespaces", json=one, headers=key) for one in (body, body, {**body, "x": "z" * 200_000})
        ]
    assert [answer.status_code for answer in found] == [200, 200, 422]
    assert 0 < max(sizes) < 1000
