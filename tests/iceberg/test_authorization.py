"""Clients of both protocols may do what their users may do, and see nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import ForbiddenError, NoSuchNamespaceError, NoSuchTableError

import metastore as ms
from metastore.serve import Principals, application, tokens_of
from tests.iceberg.server import served

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


@pytest.fixture
def tokens(tmp_path: Path) -> Principals:
    file = tmp_path / "tokens"
    file.write_text("".join(f"{user} token-of-{user}\n" for user in ("root", "ann@corp.com", "bob", "nobody")))
    return Principals(tokens_of(file))


@pytest.fixture
def address(url: str, tmp_path: Path, tokens: Principals) -> Iterator[str]:
    """Serve a lake in which ann may read the namespace sales, and bob may write there; hr is for neither."""
    with served(url, tmp_path / "w", tokens, admins=["root"]) as address:
        root = client(address, "root")
        for name in ("sales", "hr"):
            root.create_namespace(name)
            root.create_table(f"{name}.t", ROWS.schema).append(ROWS)
        with ms.open(url) as store:
            for user, role, privileges in (
                ("ann@corp.com", "reader", ("select_table",)),
                ("bob", "writer", ("select_table", "modify_table", "create_table")),
            ):
                store.users.create(("lake", user))
                store.roles.create(("lake", role))
                store.roles.grant(("lake", role), "use_catalog", on="lake.ice")
                for privilege in ("use_schema", *privileges):
                    store.roles.grant(("lake", role), privilege, on="lake.ice.sales", kind="schema")
                store.roles.assign(("lake", role), ("lake", user))
        yield address


def client(address: str, user: str, **properties: str) -> Catalog:
    """Open the warehouse as one of the users."""
    return load_catalog("x", type="rest", uri=address, warehouse="lake.ice", token=f"token-of-{user}", **properties)


def test_who_may_read_reads_and_writes_nothing(address: str) -> None:
    ann = client(address, "ann@corp.com")
    assert ann.list_namespaces() == [("sales",)]
    assert ann.list_tables("sales") == [("sales", "t")]
    table = ann.load_table("sales.t")
    assert table.scan().to_arrow().num_rows == 2
    for refused in (
        lambda: table.append(ROWS),
        lambda: ann.drop_table("sales.t"),
        lambda: ann.purge_table("sales.t"),
        lambda: ann.rename_table("sales.t", "sales.u"),
        lambda: ann.create_table("sales.mine", ROWS.schema),
        lambda: ann.create_namespace("mine"),
        lambda: ann.drop_namespace("sales"),
        lambda: ann.update_namespace_properties("sales", updates={"a": "b"}),
    ):
        with pytest.raises(ForbiddenError, match=r"ann@corp\.com"):
            refused()
    assert ann.load_table("sales.t").scan().to_arrow().num_rows == 2, "its files are there"


def test_a_right_that_comes_helps_a_repeat_under_its_key(address: str, url: str) -> None:
    """What is hidden answers 404, which is not a last word."""
    headers = {"Authorization": "Bearer token-of-bob", "Idempotency-Key": str(uuid4())}
    fields = [{"id": 1, "name": "n", "type": "long", "required": False}]
    body = {"name": "x", "schema": {"type": "struct", "schema-id": 0, "fields": fields}}

    def created() -> int:
        path = f"{address}/v1/lake.ice/namespaces/hr/tables"
        return httpx.post(path, json=body, headers=headers, timeout=20).status_code

    assert created() == 404
    with ms.open(url) as store:
        for privilege in ("use_schema", "create_table", "select_table"):
            store.roles.grant(("lake", "writer"), privilege, on="lake.ice.hr", kind="schema")
    assert (created(), created()) == (200, 200)


def test_repeats_that_find_no_namespace_leave_nothing(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each repeat left an operation, and read those of all repeats before it."""
    read, outcome = set[Any](), ms.Store.outcome

    def counted(store: ms.Store, operation: Any) -> ms.Outcome:
        read.add(operation)
        return outcome(store, operation)

    monkeypatch.setattr(ms.Store, "outcome", counted)
    headers = {"Authorization": "Bearer token-of-root", "Idempotency-Key": str(uuid4())}
    for _ in range(3):
        assert httpx.delete(f"{address}/v1/lake.ice/namespaces/none", headers=headers, timeout=20).status_code == 404
    assert len(read) == 1


def test_a_users_repeats_are_answered_once_more(address: str, url: str) -> None:
    """A right is asked for an attempt, not for the repeat of one that has happened: the name is taken by then."""
    with ms.open(url) as store:
        store.roles.grant(("lake", "writer"), "create_view", on="lake.ice.sales", kind="schema")
    headers = {"Authorization": "Bearer token-of-bob"}
    fields = [{"id": 1, "name": "n", "type": "long", "required": False}]
    schema = {"type": "struct", "schema-id": 0, "fields": fields}
    version = {"version-id": 1, "schema-id": 0, "timestamp-ms": 1, "summary": {}, "default-namespace": ["sales"]}
    query = {"type": "sql", "sql": "SELECT 1", "dialect": "spark"}
    view = {"name": "v", "schema": schema, "view-version": {**version, "representations": [query]}}
    with httpx.Client(base_url=f"{address}/v1/lake.ice/namespaces/sales", headers=headers, timeout=20) as bob:

        def twice(path: str, body: dict[str, Any]) -> dict[str, Any]:
            key = {"Idempotency-Key": str(uuid4())}
            first, again = bob.post(path, json=body, headers=key), bob.post(path, json=body, headers=key)
            assert (first.status_code, again.status_code) == (200, 200), (path, first.text, again.text)
            assert first.json() == again.json()
            return dict(first.json())

        for path, made in (
            ("/register", twice("/tables", {"name": "x", "schema": schema})),
            ("/register-view", twice("/views", view)),
        ):
            held = bob.post("/tables", json={"name": f"of-{path[1:]}", "schema": schema, "stage-create": True}).json()
            place = held["metadata"]["location"]
            file = Path(place.removeprefix("file://")) / "metadata" / "1.metadata.json"
            file.write_text(json.dumps(made["metadata"] | {"location": place}))
            twice(path, {"name": f"of-{path[1:]}", "metadata-location": file.as_uri()})


def test_what_one_may_not_see_is_not_there(address: str) -> None:
    ann = client(address, "ann@corp.com")
    assert not ann.namespace_exists("hr")
    assert not ann.table_exists("hr.t")
    with pytest.raises(NoSuchTableError):
        ann.load_table("hr.t")
    with pytest.raises(NoSuchNamespaceError):
        ann.list_tables("hr")
    with pytest.raises(NoSuchTableError):
        ann.purge_table("hr.t")
    assert client(address, "root").load_table("hr.t").scan().to_arrow().num_rows == 2


def test_who_creates_owns(address: str, url: str) -> None:
    bob = client(address, "bob")
    mine = bob.create_table("sales.mine", ROWS.schema)
    mine.append(ROWS)
    bob.rename_table("sales.mine", "sales.ours")
    with ms.open(url) as store:
        owner = store.owners.of("lake.ice.sales.ours", kind="table")
        assert owner is not None
        assert owner.name == "bob"
    bob.drop_table("sales.ours")
    with pytest.raises(ForbiddenError):
        bob.drop_table("sales.t")


def test_a_right_that_was_taken_away_is_gone(address: str, url: str) -> None:
    table = client(address, "bob").load_table("sales.t")
    table.append(ROWS)
    with ms.open(url) as store:
        assert store.roles.revoke(("lake", "writer"), "modify_table", on="lake.ice.sales", kind="schema")
    with pytest.raises(ForbiddenError):
        table.append(ROWS)


def test_many_writers_on_one_table_wait_in_the_server_s_line(address: str) -> None:
    """A user has no leases; commits that lost wait in the line of the server."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(6) as threads:
        merging = {"header.X-Metastore-Merge": "true"}
        list(threads.map(lambda _: client(address, "bob", **merging).load_table("sales.t").append(ROWS), range(12)))
    assert client(address, "ann@corp.com").load_table("sales.t").scan().to_arrow().num_rows == 2 * 13


def test_a_warehouse_that_one_does_not_see_is_not_named(address: str, url: str) -> None:
    with ms.open(url) as store:
        store.catalogs.create("lake.secret", type="relational")

    def asked(user: str, warehouse: str) -> int:
        headers = {"Authorization": f"Bearer token-of-{user}"}
        return httpx.get(f"{address}/v1/config", params={"warehouse": warehouse}, headers=headers).status_code

    assert (asked("root", "lake.secret"), asked("bob", "lake.secret"), asked("bob", "lake.none")) == (200, 404, 404)


def test_gravitino_s_protocol_checks_too(address: str) -> None:
    api = address.replace("/iceberg", "/api")

    def ask(user: str, method: str, path: str, **body: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer token-of-{user}"}
        return httpx.request(method, f"{api}/{path}", headers=headers, json=body or None)

    schemas = "metalakes/lake/catalogs/ice/schemas"
    seen = ask("ann@corp.com", "GET", schemas).json()["identifiers"]
    assert [one["name"] for one in seen] == ["sales"]
    assert ask("ann@corp.com", "GET", f"{schemas}/hr").status_code == 404
    refused = ask("ann@corp.com", "POST", schemas, name="mine")
    assert (refused.status_code, refused.json()["code"], refused.json()["type"]) == (403, 1008, "ForbiddenException")
    assert ask("nobody", "GET", schemas).status_code == 404
    assert ask("bob", "POST", "metalakes", name="mine").status_code == 403
    assert ask("root", "POST", "metalakes", name="new").status_code == 200


def test_it_needs_to_know_who_asks(sqlite_url: str) -> None:
    with ms.open(sqlite_url) as store, pytest.raises(ms.InvalidArgument, match="--token-file"):
        application(store, authorization=True)
