"""What clients may send that leads a server, or another reader of the table, where it must not go."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from pyiceberg.exceptions import ValidationError
from pyiceberg.types import StringType

import metastore as ms
from metastore.pyiceberg import MetastoreCatalog, files
from metastore.pyiceberg.places import folder
from tests.iceberg.server import served
from tests.iceberg.test_idempotency import VERSION
from tests.iceberg.test_rest import ROWS, SCHEMA

TABLE = "/namespaces/a/tables/t"
STRINGS = {**SCHEMA, "fields": [{"id": 1, "name": "n", "type": "string", "required": False}]}
IDENTITY = {"source-id": 1, "field-id": 1000, "name": "p", "transform": "identity"}


@pytest.fixture
def client(sqlite_url: str, tmp_path: Path) -> Iterator[httpx.Client]:
    with (
        served(sqlite_url, tmp_path / "lake" / "warehouse") as address,
        httpx.Client(base_url=f"{address}/v1/lake.ice", timeout=60) as client,
    ):
        client.post("/namespaces", json={"namespace": ["a"]})
        client.post("/namespaces/a/tables", json={"name": "t", "schema": SCHEMA})
        yield client


def _commit(client: httpx.Client, *updates: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(TABLE, json={"requirements": [], "updates": list(updates)})
    assert answer.status_code == 200, answer.text
    metadata: dict[str, Any] = client.get(TABLE).json()["metadata"]
    return metadata


def test_a_file_that_is_no_metadata_is_not_shown(
    client: httpx.Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number, text in enumerate(("the password is 1234", '{"format-version": 2, "location": "1234"}', "\ud800")):
        file = tmp_path / "lake" / "warehouse" / f"{number}.metadata.json"
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        body = {"name": "r", "metadata-location": str(file)}
        with caplog.at_level(logging.DEBUG):
            answer = client.post("/namespaces/a/register", json=body)
        assert (answer.status_code, "is not table metadata" in answer.text) == (400, True), answer.text
        assert "1234" not in answer.text + caplog.text


NAMES = [("..", "t"), ("a", ".."), ("a", "."), ("a", "x/../../../u"), ("a/..", "t"), ("a?", "t#")]


@pytest.mark.parametrize("names", NAMES)
def test_names_lead_nowhere_else(client: httpx.Client, tmp_path: Path, names: tuple[str, str]) -> None:
    client.post("/namespaces", json={"namespace": [names[0]]})
    path = f"/namespaces/{names[0].replace('/', '%2F').replace('.', '%2E').replace('?', '%3F')}/tables"
    made = client.post(path, json={"name": names[1], "schema": SCHEMA})
    assert made.status_code == 200, made.text
    place = Path(made.json()["metadata"]["location"].removeprefix("file://")).resolve()
    assert len(place.relative_to(tmp_path / "lake" / "warehouse").parts) == 2
    assert Path(made.json()["metadata-location"].removeprefix("file://")).exists(), "not cut where a URL has a query"


def test_folders_of_names_differ() -> None:
    names = ["a", ".", "..", "...", "a/b", "a%2Fb", "a%b", "é", "é/", "a b", "%2E", "a?b", "a?c", "a#b"]
    folders = [folder(name) for name in names]
    assert len(set(folders)) == len(names)
    assert not any("/" in one or one in (".", "..") for one in folders)
    assert [folder(name) for name in ("a", "...", "é", "a b")] == ["a", "...", "é", "a b"]


def test_a_schema_without_an_id_gets_one(client: httpx.Client) -> None:
    anonymous = {key: value for key, value in STRINGS.items() if key != "schema-id"}
    last = {"action": "set-current-schema", "schema-id": -1}
    changed = _commit(client, {"action": "add-schema", "schema": anonymous}, last)
    assert ([one["schema-id"] for one in changed["schemas"]], changed["current-schema-id"]) == ([0, 1], 1)
    back = _commit(client, {"action": "add-schema", "schema": {**SCHEMA, "schema-id": 7}}, last)
    assert ([one["schema-id"] for one in back["schemas"]], back["current-schema-id"]) == ([0, 1], 0)
    named = {"action": "set-current-schema", "schema-id": 0}  # the client's id for the schema that it adds
    again = _commit(client, {"action": "add-schema", "schema": {**STRINGS, "schema-id": 0}}, named)
    assert ([one["schema-id"] for one in again["schemas"]], again["current-schema-id"]) == ([0, 1], 1)


def test_specs_and_orders_are_added_once(client: httpx.Client) -> None:
    spec = {"action": "add-spec", "spec": {"fields": [IDENTITY]}}
    field = {"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}
    order = {"action": "add-sort-order", "sort-order": {"order-id": 1, "fields": [field]}}
    defaults = (
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    )
    for _ in range(2):
        changed = _commit(client, spec, order, *defaults)
        assert [one["spec-id"] for one in changed["partition-specs"]] == [0, 1]
        assert [one["order-id"] for one in changed["sort-orders"]] == [0, 1]
        assert (changed["default-spec-id"], changed["default-sort-order-id"]) == (1, 1)


def test_a_warehouse_that_is_not_there_is_named(client: httpx.Client) -> None:
    base = str(client.base_url).removesuffix("lake.ice/")
    missing = httpx.get(f"{base}lake.none/namespaces")
    assert (missing.status_code, "lake.none does not exist" in missing.text) == (404, True)


def test_what_is_kept_of_a_written_file_is_what_is_in_it(sqlite_url: str, tmp_path: Path) -> None:
    with MetastoreCatalog("ice", uri=sqlite_url, warehouse=f"file://{tmp_path}") as catalog:
        catalog.create_namespace("a")
        for version in ("1", "2"):
            table = catalog.create_table(f"a.t{version}", ROWS.schema, properties={"format-version": version})
            table.append(ROWS)
            with table.update_schema() as change:
                change.rename_column("n", "m").add_column("o", StringType())
            with table.update_spec() as spec:
                spec.add_identity("m")
            table.manage_snapshots().create_tag(table.metadata.snapshots[0].snapshot_id, "first").commit()
            with table.transaction() as transaction:
                transaction.set_properties({"k": "v"})
            for entry in (*table.metadata.metadata_log, table):
                location = getattr(entry, "metadata_file", None) or table.metadata_location
                kept, size = files._KNOWN[files._reach(table.io), location]
                assert kept == files._parsed(table.io, location)[0]
                assert size == len(files.read_text(table.io, location))


def test_a_table_that_pyiceberg_cannot_write_is_refused(sqlite_url: str, tmp_path: Path) -> None:
    with MetastoreCatalog("ice", uri=sqlite_url, warehouse=f"file://{tmp_path}") as catalog:
        catalog.create_namespace("a")
        with pytest.raises(NotImplementedError, match="version 3"):
            catalog.create_table("a.t", ROWS.schema, properties={"format-version": "3"})
        with pytest.raises(ValidationError, match="format-version"):
            catalog.create_table("a.t", ROWS.schema, properties={"format-version": "4"})
        assert not list(tmp_path.rglob("*.json"))


def test_old_metadata_files_are_deleted_where_the_table_wants_it(client: httpx.Client, tmp_path: Path) -> None:
    (folder,) = tmp_path.glob("lake/warehouse/a/t-*/metadata")
    foreign = tmp_path / f"00000-{UUID(int=0)}.metadata.json"
    wanted = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
    for n in range(3):
        _commit(client, {"action": "set-properties", "updates": {"n": str(n)}})
    assert len(list(folder.iterdir())) == 4
    now = _commit(client, {"action": "set-properties", "updates": wanted})
    assert len(list(folder.iterdir())) == len(now["metadata-log"]) + 1 == 2
    foreign.write_text("not the table's")
    file = folder / f"00009-{UUID(int=1)}.metadata.json"
    file.write_text(json.dumps({**now, "metadata-log": [{"metadata-file": str(foreign), "timestamp-ms": 1}]}))
    client.post("/namespaces/a/register", json={"name": "t", "metadata-location": str(file), "overwrite": True})
    log = _commit(client, {"action": "set-properties", "updates": {"n": "4"}})["metadata-log"]
    assert str(foreign) not in {entry["metadata-file"] for entry in log}  # it was cut, and yet
    assert foreign.exists()


def test_no_property_takes_the_place_of_a_field_of_the_store(client: httpx.Client, sqlite_url: str) -> None:
    """It is in the metadata file alone: a commit, a create and a view cannot point elsewhere by it."""
    names = ("metadata_location", "previous_metadata_location", "current_snapshot_id", "current_snapshot_operation")
    forged = dict.fromkeys((*names, "table_uuid", "format", "location"), "forged")
    assert _commit(client, {"action": "set-properties", "updates": forged})["properties"] == forged
    client.post("/namespaces/a/tables", json={"name": "u", "schema": SCHEMA, "properties": forged})
    view = {"name": "v", "schema": SCHEMA, "view-version": VERSION, "properties": forged}
    assert client.post("/namespaces/a/views", json=view).status_code == 200
    kept = {"format": "forged", "location": "forged"}
    with ms.open(sqlite_url) as store:
        for name in "tu":
            table = store.tables.load(f"lake.ice.a.{name}")
            own = {key: value for key, value in table.properties.items() if key in names or key == "table_uuid"}
            assert "forged" not in own.values()
            assert (table.format, table.properties.items() >= kept.items()) == ("iceberg", True)
            assert table.location is not None
            assert own["metadata_location"].startswith(table.location)
        assert store.views.load("lake.ice.a.v").properties["metadata_location"].startswith("file:")
    _commit(client, {"action": "remove-properties", "removals": list(forged)})
    assert client.get("/namespaces/a/views/v").status_code == 200


def test_no_commit_makes_a_file_that_the_server_would_not_read(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(files, "_LARGEST", 4096)
    before = sorted(tmp_path.rglob("*.json"))
    large = {"action": "set-properties", "updates": {"k": "x" * 4096}}
    view = {"name": "v", "schema": SCHEMA, "view-version": VERSION, "properties": large["updates"]}
    for path, body in ((TABLE, {"requirements": [], "updates": [large]}), ("/namespaces/a/views", view)):
        answer = client.post(path, json=body)
        assert (answer.status_code, "more than 4096 bytes" in answer.text) == (400, True), answer.text
    monkeypatch.setattr(files, "_VALUES", 100)
    many = {"action": "set-properties", "updates": {f"k{n}": "" for n in range(100)}}
    answer = client.post(TABLE, json={"requirements": [], "updates": [many]})
    assert (answer.status_code, "more than 100 values" in answer.text) == (400, True), answer.text
    assert sorted(tmp_path.rglob("*.json")) == before
    assert _commit(client, {"action": "set-properties", "updates": {"k": "v"}})["properties"] == {"k": "v"}


def test_a_table_of_version_3_is_read_and_not_served(client: httpx.Client, tmp_path: Path, sqlite_url: str) -> None:
    metadata = client.get(TABLE).json()["metadata"]
    file = tmp_path / "lake" / "warehouse" / "v3.metadata.json"
    file.write_text(json.dumps({**metadata, "format-version": 3, "next-row-id": 0}))
    body = {"name": "r", "metadata-location": str(file)}
    refused = client.post("/namespaces/a/register", json=body)
    assert (refused.status_code, "version 3" in refused.text) == (406, True)
    assert client.head("/namespaces/a/tables/r").status_code == 404
    with MetastoreCatalog("ice", uri=sqlite_url, warehouse=f"file://{tmp_path}") as catalog:
        catalog.register_table("a.r", str(file))
        assert catalog.load_table("a.r").format_version == 3
    assert client.get("/namespaces/a/tables/r").status_code == 406


def test_what_other_readers_could_not_read_is_refused(client: httpx.Client) -> None:
    """A partition of a column that is not there; a schema at whose depth a reader of Python gives up; a namespace."""
    spec = {"action": "add-spec", "spec": {"spec-id": 1, "fields": [{**IDENTITY, "source-id": 99}]}}
    field = {"source-id": 99, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}
    order = {"action": "add-sort-order", "sort-order": {"order-id": 1, "fields": [field]}}
    for update in (spec, order):
        answer = client.post(TABLE, json={"requirements": [], "updates": [update]})
        assert (answer.status_code, "source" in answer.text.lower()) == (400, True), answer.text
    for levels, status in ((100, 200), (101, 400)):
        answer = client.post("/namespaces", json={"namespace": ["n"] * levels})
        assert (answer.status_code, "at most 100" in answer.text) == (status, status == 400)
    for depth, status in ((15, 200), (90, 400)):
        deep: Any = "long"
        for number in range(depth):
            inner = {"id": number + 1, "name": "n", "type": deep, "required": False}
            deep = {"type": "struct", "fields": [inner]}
        schema = {**deep, "schema-id": 0}
        body = {"name": f"d{depth}", "schema": schema}
        assert client.post("/namespaces/a/tables", json=body).status_code == status
        view = {"name": f"v{depth}", "schema": schema, "view-version": VERSION}
        assert client.post("/namespaces/a/views", json=view).status_code == status
