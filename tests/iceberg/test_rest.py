"""The Iceberg REST protocol: what clients rest on, and bad requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError

import metastore as ms
from metastore.pyiceberg import files
from metastore.serve.iceberg import tables
from tests.iceberg.server import served

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

ROWS = pa.table({"n": pa.array([1, 2], pa.int64())})
SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "n", "type": "long", "required": False}]}
MADE: list[dict[str, Any]] = [
    {"action": "assign-uuid", "uuid": "2f9faa83-be3a-4af9-9241-9a513359fdd6"},
    {"action": "upgrade-format-version", "format-version": 2},
    {"action": "add-schema", "schema": SCHEMA, "last-column-id": 1},
    {"action": "set-current-schema", "schema-id": -1},
    {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
    {"action": "set-default-spec", "spec-id": -1},
    {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
    {"action": "set-default-sort-order", "sort-order-id": -1},
]
"""The updates that make a table, but for its location."""


@pytest.fixture
def address(url: str, tmp_path: Path) -> Iterator[str]:
    with served(url, tmp_path / "warehouse") as address:
        yield address


@pytest.fixture
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{address}/v1/lake.ice", timeout=60) as client:
        yield client


@pytest.fixture
def rest(address: str) -> Catalog:
    return load_catalog("x", type="rest", uri=address, warehouse="lake.ice")


def _make(client: httpx.Client, *names: str) -> None:
    client.post("/namespaces", json={"namespace": ["a"]})
    for name in names:
        assert client.post("/namespaces/a/tables", json={"name": name, "schema": SCHEMA}).status_code == 200


def test_what_is_dropped_in_steps(url: str, client: httpx.Client, rest: Catalog) -> None:
    _make(client, "t")
    with ms.open(url) as store:
        store.tables.begin_drop("lake.ice.a.t")
    assert client.head("/namespaces/a/tables/t").status_code == 404
    assert not rest.table_exists("a.t")
    assert rest.list_tables("a") == []
    for answer in (
        client.get("/namespaces/a/tables/t"),
        client.delete("/namespaces/a/tables/t"),
        client.post("/namespaces/a/tables", json={"name": "t", "schema": SCHEMA}),
    ):
        assert (answer.status_code, answer.json()["error"]["type"]) == (409, "DropPendingException")


def test_the_clients_catalog_works(rest: Catalog) -> None:
    rest.create_namespace("a.b", {"k": "v"})
    table = rest.create_table("a.b.t", ROWS.schema)
    stale = rest.load_table("a.b.t")
    table.append(ROWS)
    stale.append(ROWS)  # rebased by the server
    assert rest.load_table("a.b.t").scan().to_arrow().num_rows == 4
    assert rest.list_namespaces("a") == [("a", "b")]
    rest.rename_table("a.b.t", "a.b.u")
    assert rest.list_tables("a.b") == [("a", "b", "u")]
    with pytest.raises(NoSuchTableError):
        rest.load_table("a.b.t")
    with pytest.raises(TableAlreadyExistsError):
        rest.create_table("a.b.u", ROWS.schema)
    rest.drop_table("a.b.u")
    rest.drop_namespace("a.b")


def test_a_client_learns_its_prefix_and_the_endpoints(address: str) -> None:
    config = httpx.get(f"{address}/v1/config", params={"warehouse": "lake.ice"}).json()
    assert config["overrides"] == {"prefix": "lake.ice"}
    assert "POST /v1/{prefix}/transactions/commit" in config["endpoints"]
    missing = httpx.get(f"{address}/v1/config", params={"warehouse": "lake.none"})
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "NotFoundException")


def test_an_unchanged_table_is_not_sent_again(client: httpx.Client) -> None:
    _make(client, "t")
    first = client.get("/namespaces/a/tables/t")
    again = client.get("/namespaces/a/tables/t", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    update = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"k": "v"}}]}
    assert client.post("/namespaces/a/tables/t", json=update).status_code == 200
    several = {"If-None-Match": f'"other", W/{first.headers["etag"]}'}
    assert client.get("/namespaces/a/tables/t", headers=several).status_code == 200
    assert client.get("/namespaces/a/tables/t", headers={"If-None-Match": "*"}).status_code == 304
    weak = {"If-None-Match": f'"other", W/{client.get("/namespaces/a/tables/t").headers["etag"]}'}
    assert client.get("/namespaces/a/tables/t", headers=weak).status_code == 304
    changed = client.get("/namespaces/a/tables/t", headers={"If-None-Match": first.headers["etag"]})
    assert changed.status_code == 200


def test_pages(client: httpx.Client) -> None:
    _make(client, "t1", "t2", "t3")
    names: list[str] = []
    token = ""
    while True:
        page = client.get("/namespaces/a/tables", params={"pageSize": 2, "pageToken": token}).json()
        assert len(page["identifiers"]) <= 2
        names += [one["name"] for one in page["identifiers"]]
        token = page.get("next-page-token")
        if not token:
            break
    assert names == ["t1", "t2", "t3"]
    assert client.get("/namespaces", params={"pageSize": 0}).status_code == 400
    assert client.get("/namespaces", params={"pageSize": 5, "pageToken": "forged"}).status_code == 400


def test_names_with_any_character(client: httpx.Client) -> None:
    created = client.post("/namespaces", json={"namespace": ["a.b/c", "d%1Fe"]})
    assert created.status_code == 200
    assert client.get("/namespaces/a.b%2Fc%1Fd%251Fe").json()["namespace"] == ["a.b/c", "d%1Fe"]
    client.post("/namespaces", json={"namespace": ["x", "y"]})
    twice = client.get("/namespaces/x%251Fy")  # some clients encode twice
    assert twice.json()["namespace"] == ["x", "y"]
    below = client.get("/namespaces", params={"parent": "a.b/c"}).json()
    assert below["namespaces"] == [["a.b/c", "d%1Fe"]]


def test_several_tables_in_one_transaction(client: httpx.Client) -> None:
    _make(client, "t", "u")

    def change(name: str, uuid: str) -> dict[str, Any]:
        return {
            "identifier": {"namespace": ["a"], "name": name},
            "requirements": [{"type": "assert-table-uuid", "uuid": uuid}],
            "updates": [{"action": "set-properties", "updates": {"k": "v"}}],
        }

    uuids = {n: client.get(f"/namespaces/a/tables/{n}").json()["metadata"]["table-uuid"] for n in ("t", "u")}
    wrong = {"table-changes": [change("t", uuids["t"]), change("u", uuids["t"])]}
    refused = client.post("/transactions/commit", json=wrong)
    assert (refused.status_code, refused.json()["error"]["type"]) == (409, "CommitFailedException")
    assert "k" not in client.get("/namespaces/a/tables/t").json()["metadata"].get("properties", {})
    right = {"table-changes": [change(n, uuids[n]) for n in uuids]}
    assert client.post("/transactions/commit", json=right).status_code == 204
    for name in uuids:
        assert client.get(f"/namespaces/a/tables/{name}").json()["metadata"]["properties"]["k"] == "v"


def creation(name: str, location: str) -> dict[str, Any]:
    return {
        "identifier": {"namespace": ["a"], "name": name},
        "requirements": [{"type": "assert-create"}],
        "updates": [
            {"action": "assign-uuid", "uuid": str(uuid4())},
            *MADE[1:],
            {"action": "set-location", "location": location},
        ],
    }


def test_a_transaction_creates_tables_and_changes_others(client: httpx.Client, tmp_path: Path) -> None:
    """All or none: a table that is there already, or a requirement that fails, leaves no table and no file."""
    _make(client, "t")
    uuid = client.get("/namespaces/a/tables/t").json()["metadata"]["table-uuid"]
    change = {
        "identifier": {"namespace": ["a"], "name": "t"},
        "requirements": [{"type": "assert-table-uuid", "uuid": uuid}],
        "updates": [{"action": "set-properties", "updates": {"k": "v"}}],
    }
    new = [creation(name, f"file://{tmp_path}/warehouse/a/{name}") for name in ("u", "w")]

    def commit(*changes: dict[str, Any]) -> httpx.Response:
        return client.post("/transactions/commit", json={"table-changes": changes})

    def files_of_new() -> list[Path]:
        return [file for name in "uw" for file in (tmp_path / "warehouse/a" / name).rglob("*.json")]

    stale = {**change, "requirements": [{"type": "assert-table-uuid", "uuid": str(uuid4())}]}
    taken = {**new[1], "identifier": {"namespace": ["a"], "name": "t"}}
    nowhere = {**new[1], "identifier": {"namespace": ["none"], "name": "w"}}
    for changes, status in (([*new, stale], 409), ([new[0], taken], 409), ([change, new[0], nowhere], 404)):
        refused = commit(*changes)
        assert refused.status_code == status, refused.text
        assert client.head("/namespaces/a/tables/u").status_code == 404
        assert files_of_new() == []
    assert "k" not in client.get("/namespaces/a/tables/t").json()["metadata"].get("properties", {})

    done = commit(new[0], change, new[1])
    assert done.status_code == 204, done.text
    assert client.get("/namespaces/a/tables/t").json()["metadata"]["properties"]["k"] == "v"
    for name in ("u", "w"):
        assert client.get(f"/namespaces/a/tables/{name}").json()["metadata"]["last-column-id"] == 1
    assert commit(new[0]).status_code == 409
    assert len(files_of_new()) == 2


def test_a_view_is_created_and_replaced(client: httpx.Client) -> None:
    client.post("/namespaces", json={"namespace": ["a"]})

    def version(number: int, sql: str, schema: int = 0) -> dict[str, Any]:
        return {
            "version-id": number,
            "schema-id": schema,
            "timestamp-ms": 1,
            "summary": {},
            "representations": [{"type": "sql", "sql": sql, "dialect": "spark"}],
            "default-namespace": ["a"],
        }

    body = {"name": "v", "schema": SCHEMA, "view-version": version(1, "SELECT 1 n"), "properties": {}}
    made = client.post("/namespaces/a/views", json=body)
    assert made.status_code == 200, made.text
    uuid = made.json()["metadata"]["view-uuid"]
    replace = {
        "requirements": [{"type": "assert-view-uuid", "uuid": uuid}],
        "updates": [
            {"action": "add-view-version", "view-version": version(2, "SELECT 2 n", -1)},
            {"action": "set-current-view-version", "view-version-id": -1},
        ],
    }
    replaced = client.post("/namespaces/a/views/v", json=replace)
    assert replaced.json()["metadata"]["current-version-id"] == 2, replaced.text
    replace["requirements"] = [{"type": "assert-view-uuid", "uuid": "00000000-0000-0000-0000-000000000000"}]
    assert client.post("/namespaces/a/views/v", json=replace).status_code == 409
    rename = {"source": {"namespace": ["a"], "name": "v"}, "destination": {"namespace": ["a"], "name": "w"}}
    assert client.post("/views/rename", json=rename).status_code == 204
    assert client.head("/namespaces/a/views/v").status_code == 404
    assert client.head("/namespaces/a/views/w").status_code == 204
    assert client.delete("/namespaces/a/views/w").status_code == 204


def test_a_staged_table_is_created_by_its_commit(client: httpx.Client) -> None:
    client.post("/namespaces", json={"namespace": ["a"]})
    staged = client.post("/namespaces/a/tables", json={"name": "t", "schema": SCHEMA, "stage-create": True}).json()
    assert "metadata-location" not in staged
    assert client.head("/namespaces/a/tables/t").status_code == 404
    metadata = staged["metadata"]
    commit = {
        "requirements": [{"type": "assert-create"}],
        "updates": [
            {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
            {"action": "upgrade-format-version", "format-version": 2},
            {"action": "add-schema", "schema": metadata["schemas"][0], "last-column-id": 1},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": metadata["partition-specs"][0]},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": metadata["sort-orders"][0]},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-location", "location": metadata["location"]},
        ],
    }
    created = client.post("/namespaces/a/tables/t", json=commit)
    assert created.status_code == 200, created.text
    again = client.post("/namespaces/a/tables/t", json=commit)
    assert again.status_code == 409


def test_a_repeated_append_is_there_once(client: httpx.Client, rest: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that lost the answer sends the same snapshot again; others have appended meanwhile."""
    _make(client, "t")
    sent: list[tuple[Any, Any]] = []
    commit = type(rest).commit_table

    def noted(self: Any, table: Any, requirements: Any, updates: Any) -> Any:
        sent.append((requirements, updates))
        return commit(self, table, requirements, updates)

    monkeypatch.setattr(type(rest), "commit_table", noted)
    table = rest.load_table("a.t")
    table.append(ROWS)
    rest.load_table("a.t").append(ROWS)
    commit(rest, table, *sent[0])
    now = rest.load_table("a.t")
    assert (len(now.metadata.snapshots), now.scan().to_arrow().num_rows) == (2, 4)


def test_a_commit_without_changes_writes_nothing(client: httpx.Client) -> None:
    _make(client, "t", "u")
    before = [client.get(f"/namespaces/a/tables/{name}").json()["metadata-location"] for name in ("t", "u")]
    nothing: dict[str, Any] = {"requirements": [], "updates": []}
    assert client.post("/namespaces/a/tables/t", json=nothing).json()["metadata-location"] == before[0]
    changes = [{"identifier": {"namespace": ["a"], "name": name}, **nothing} for name in ("t", "u")]
    assert client.post("/transactions/commit", json={"table-changes": changes}).status_code == 204
    assert [client.get(f"/namespaces/a/tables/{name}").json()["metadata-location"] for name in ("t", "u")] == before


def test_only_iceberg_views_are_views(client: httpx.Client, url: str) -> None:
    client.post("/namespaces", json={"namespace": ["a"]})
    with ms.open(url) as store:
        store.views.create(
            "lake.ice.a.v", columns=[ms.Column("n", "long")], representations=[ms.SQL("spark", "SELECT 1")]
        )
    assert client.get("/namespaces/a/views").json()["identifiers"] == []
    assert client.head("/namespaces/a/views/v").status_code == 404
    assert client.delete("/namespaces/a/views/v").status_code == 404


def test_what_was_written_last_is_not_read_again(client: httpx.Client, tmp_path: Path) -> None:
    _make(client, "t")
    for n in range(2):
        for file in tmp_path.rglob("*.metadata.json"):
            file.unlink()
        done = client.post("/namespaces/a/tables/t", json=_update("set-properties", updates={"n": str(n)}))
        assert done.status_code == 200, done.text
        loaded = client.get("/namespaces/a/tables/t")
        assert loaded.json() == done.json()
        assert loaded.headers["etag"] == done.headers["etag"]


def test_a_rename_reads_no_file(client: httpx.Client, tmp_path: Path) -> None:
    _make(client, "t")
    files._KNOWN.clear()  # the server runs in this process, and has read it
    for file in tmp_path.rglob("*.metadata.json"):
        file.unlink()
    rename = {"source": {"namespace": ["a"], "name": "t"}, "destination": {"namespace": ["a"], "name": "u"}}
    assert client.post("/tables/rename", json=rename).status_code == 204
    tables._ANSWERS.clear()
    assert client.get("/namespaces/a/tables/u").status_code == 404  # the outcome is known: no 5xx


def test_a_purge_deletes_all_files(rest: Catalog, tmp_path: Path) -> None:
    rest.create_namespace("a")
    rest.create_table("a.t", ROWS.schema).append(ROWS)
    assert [path for path in (tmp_path / "warehouse").rglob("*") if path.is_file()]
    rest.purge_table("a.t")
    assert [path for path in (tmp_path / "warehouse").rglob("*") if path.is_file()] == []


_SNAPSHOT = {
    "snapshot-id": 1 << 63,
    "sequence-number": 1,
    "timestamp-ms": 1,
    "manifest-list": "x",
    "summary": {"operation": "append"},
}
_MAP = {"type": "map", "key-id": 2, "key": "string", "value-id": 3, "value": "long", "value-required": False}
_WRONG_DEFAULT = {"id": 1, "name": "n", "type": _MAP, "required": False, "initial-default": True}
_WRONG_SCHEMA = {"type": "struct", "schema-id": 0, "fields": [_WRONG_DEFAULT]}
_OTHER_SCHEMA = {
    "version-id": 1,
    "schema-id": 7,
    "timestamp-ms": 1,
    "summary": {},
    "representations": [],
    "default-namespace": [],
}
_VIEW = {"name": "v", "schema": SCHEMA, "view-version": _OTHER_SCHEMA, "properties": {}}
_TWICE = {"identifier": {"namespace": ["a"], "name": "t"}, "requirements": [], "updates": []}


def _update(action: str, **fields: Any) -> dict[str, Any]:
    return {"requirements": [], "updates": [{"action": action, **fields}]}


_YEAR = {"source-id": 1, "field-id": 1000, "name": "y", "transform": "year"}
_NO_BUCKETS = {**_YEAR, "transform": "bucket[x]"}


def _new(**fields: Any) -> dict[str, Any]:
    return {"name": "u", "schema": SCHEMA, **fields}


def _version(version: str) -> dict[str, Any]:
    return _new(properties={"format-version": version})


_NEWBORN = {"requirements": [{"type": "assert-create"}], "updates": [{"action": "set-properties", "updates": {}}]}

BAD: list[tuple[str, str, Any, int, str]] = [
    ("POST", "/namespaces/a/tables", _version("3"), 406, "format-version"),
    ("POST", "/namespaces/a/tables", _version("9"), 400, "format-version"),
    ("POST", "/namespaces/a/tables", _version("x"), 400, "format-version"),
    ("POST", "/namespaces/a/tables", _new(**{"partition-spec": {"fields": [_YEAR]}}), 400, "transform"),
    ("POST", "/namespaces/a/tables", _new(**{"partition-spec": {"fields": [_NO_BUCKETS]}}), 400, "partition-spec"),
    ("POST", "/namespaces/a/tables", _new(location="folder/t"), 400, "relative"),
    ("POST", "/namespaces/a/tables", _new(name="a\0b"), 400, "control character"),
    ("POST", "/namespaces/a/tables", _new(name="a" * 256), 400, "255"),
    ("POST", "/namespaces/a/tables", _new(name="é" * 255), 400, "too long"),
    ("POST", "/namespaces/a/tables/t", _update("add-spec", spec={"fields": [_NO_BUCKETS]}), 400, "updates"),
    ("POST", "/namespaces/a/tables/t", _update("set-location", location="folder/t"), 400, "relative"),
    ("POST", "/namespaces/a/tables/t", _update("assign-uuid", uuid=str(uuid4())), 400, "UUID cannot change"),
    ("POST", "/namespaces/a/tables/u", _NEWBORN, 400, "a new table needs"),
    ("DELETE", "/namespaces/a/tables/t?purgeRequested=maybe", None, 400, "purgeRequested"),
    ("POST", "/transactions/commit", {"table-changes": [_TWICE, _TWICE]}, 400, "twice"),
    ("POST", "/transactions/commit", {"table-changes": []}, 400, "table-changes"),
    ("POST", "/namespaces/a/tables/t", _update("add-snapshot", snapshot=_SNAPSHOT), 400, "64-bit integer"),
    ("POST", "/namespaces/a/tables/t", _update("set-current-schema", **{"schema-id": 99}), 400, "99"),
    ("POST", "/namespaces/a/tables/t", _update("set-current-schema", **{"schema-id": -1}), 400, "schema"),
    ("POST", "/namespaces/a/tables/t", _update("set-default-spec", **{"spec-id": -1}), 400, "spec"),
    ("POST", "/namespaces/a/tables/t", _update("set-default-sort-order", **{"sort-order-id": 9}), 400, "9"),
    ("POST", "/namespaces/a/tables/t", _update("upgrade-format-version", **{"format-version": 99}), 400, "99"),
    (
        "POST",
        "/namespaces/a/tables/t",
        _update("upgrade-format-version", **{"format-version": 3}),
        406,
        "format-version",
    ),
    ("POST", "/namespaces/a/tables/t", _update("remove-snapshots", **{"snapshot-ids": ["x"]}), 400, "snapshot-ids"),
    ("POST", "/namespaces", {"namespace": "a"}, 400, "namespace"),
    ("POST", "/namespaces", {}, 400, "namespace"),
    ("POST", "/namespaces", {"namespace": ["a", " "]}, 400, "namespace"),
    ("POST", "/namespaces/a/tables", {"name": "u", "schema": _WRONG_SCHEMA}, 400, "schema"),
    ("POST", "/namespaces/a/tables/t", _update("add-schema", schema=_WRONG_SCHEMA), 400, "updates"),
    ("POST", "/namespaces/a/register", {"name": "u", "metadata-location": ""}, 400, "metadata-location"),
    ("POST", "/namespaces/a/register", {"name": "u", "metadata-location": "/dev"}, 403, "warehouse"),
    ("POST", "/namespaces/a/register", {"name": "u", "metadata-location": "/none/such"}, 403, "warehouse"),
    ("POST", "/namespaces/a/views", _VIEW, 400, "schema-id"),
    ("POST", "/namespaces/a/register-view", {"name": "u", "metadata-location": "/dev"}, 403, "warehouse"),
    ("POST", "/namespaces", [1], 400, "object"),
    ("POST", "/namespaces", {"namespace": ["a"], "properties": {"k": 1}}, 400, "properties.k"),
    ("POST", "/namespaces/a/tables", {"name": "u"}, 400, "schema"),
    ("POST", "/namespaces/a/tables/t", {"requirements": [], "updates": [{"action": "fly"}]}, 400, "updates.0"),
    ("POST", "/namespaces/a/tables/t", {"requirements": [{"type": "assert-luck"}], "updates": []}, 400, "requirements"),
    ("POST", "/namespaces/a/properties", {"removals": ["k"], "updates": {"k": "v"}}, 422, "k"),
    ("GET", "/namespaces/none", None, 404, "none"),
    ("DELETE", "/namespaces/none", None, 404, "none"),
    ("DELETE", "/namespaces/a", None, 409, "not empty"),
    ("GET", "/namespaces/a/tables/t?snapshots=some", None, 400, "snapshots"),
    ("POST", "/namespaces/a/tables/t/plan", {}, 406, "plans"),
    ("PATCH", "/namespaces/a", {}, 405, "PATCH"),
    ("GET", "/nowhere", None, 404, "nowhere"),
]


def test_bad_requests_name_what_is_wrong_and_write_nothing(client: httpx.Client, url: str) -> None:
    _make(client, "t")
    with ms.open(url) as store:
        before = [change.position for change in store.changes()]
        for method, path, body, status, word in BAD:
            answer = client.request(method, path, json=body) if body is not None else client.request(method, path)
            assert answer.status_code == status, (path, answer.text)
            error = answer.json()["error"]
            assert error["code"] == status
            assert word in error["message"], (path, error)
        kind = {"content-type": "application/json"}
        for broken in (b'{"namespace": ["a"', b'{"namespace": ["b"], "x": Infinity}', b'{"n": "' + b"x" * 99_999):
            answer = client.post("/namespaces", content=broken, headers=kind)
            assert (answer.status_code, "is not JSON" in answer.text) == (400, True)
        form = client.post("/namespaces", content=b'{"namespace": ["b"]}', headers={"content-type": "text/plain"})
        assert (form.status_code, "content type" in form.text) == (400, True)
        for size in (17 << 20, 100 << 20):
            large = client.post("/namespaces", content=b" " * size)
            assert large.status_code == 413
        for missing in ("/namespaces/none", "/namespaces/a/tables/none", "/namespaces/a/views/none"):
            head = client.head(missing)
            assert (head.status_code, head.headers["content-type"]) == (404, "application/json")
        assert [change.position for change in store.changes()] == before


def test_health_and_metrics(address: str) -> None:
    root = address.removesuffix("/iceberg")
    assert httpx.get(f"{root}/healthz").json() == {"status": "ok"}
    assert "metastore" in httpx.get(f"{root}/metrics").text


def test_the_user_of_basic_authorization_is_the_principal(client: httpx.Client, url: str) -> None:
    client.post("/namespaces", json={"namespace": ["a"]}, auth=("ann@corp.com", ""))
    client.post("/namespaces", json={"namespace": ["b"]})
    with ms.open(url) as store:
        who = {change.path_after: change.principal for change in store.changes() if change.kind == "schema"}
    assert who == {"lake.ice.a": "ann@corp.com", "lake.ice.b": "anonymous"}


def test_a_stale_overwrite_is_refused_by_name(rest: Catalog) -> None:
    rest.create_namespace("a")
    table = rest.create_table("a.t", ROWS.schema, properties={"commit.retry.num-retries": "0"})
    table.append(ROWS)
    stale = rest.load_table("a.t")
    table.append(ROWS)
    with pytest.raises(CommitFailedException, match="has changed"):
        stale.overwrite(ROWS)


def test_a_server_listens_on_loopback_only() -> None:
    from metastore.serve import serve_application

    with pytest.raises(ms.InvalidArgument, match=r"127\.0\.0\.1"):
        serve_application(None, host="0.0.0.0")  # type: ignore[arg-type]
