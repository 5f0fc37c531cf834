"""What other writers put into a table's metadata stays, and is accepted, although PyIceberg does not know it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

import metastore as ms
from metastore.pyiceberg import MetastoreCatalog, commits
from metastore.pyiceberg.commits import Commits
from metastore.pyiceberg.unknown import unknown_fields, with_unknown
from tests.iceberg.server import served
from tests.iceberg.test_rest import SCHEMA

TABLES = "/namespaces/a/tables"
SET = {"action": "set-properties", "updates": {"k": "v"}}


@pytest.fixture
def client(sqlite_url: str, tmp_path: Path) -> Iterator[httpx.Client]:
    with (
        served(sqlite_url, tmp_path / "lake") as address,
        httpx.Client(base_url=f"{address}/v1/lake.ice", timeout=60) as client,
    ):
        client.post("/namespaces", json={"namespace": ["a"]})
        client.post(TABLES, json={"name": "t", "schema": SCHEMA})
        yield client


def changed(client: httpx.Client, *updates: dict[str, Any], status: int = 200) -> dict[str, Any]:
    answer = client.post(f"{TABLES}/t", json={"requirements": [], "updates": list(updates)})
    assert answer.status_code == status, answer.text
    return dict(answer.json())


def read(pointer: str) -> dict[str, Any]:
    return dict(json.loads(Path(pointer.removeprefix("file://")).read_bytes()))


def statistics(number: int, blob: str) -> dict[str, Any]:
    one = {"type": blob, "snapshot-id": number, "sequence-number": 1, "fields": [1], "properties": {"k": "v"}}
    return {
        "snapshot-id": number,
        "statistics-path": "",
        "file-size-in-bytes": 9,
        "file-footer-size-in-bytes": 4,
        "blob-metadata": [one],
    }


def snapshot(number: int, parent: int | None = None) -> dict[str, Any]:
    one: dict[str, Any] = {"snapshot-id": number, "sequence-number": number, "timestamp-ms": 2_000_000_000_000 + number}
    one |= {"manifest-list": "", "schema-id": 0, "summary": {"operation": "append"}, "key-id": f"k{number}"}
    return one if parent is None else {**one, "parent-snapshot-id": parent}


def test_unknown_fields_and_blobs_survive(client: httpx.Client) -> None:
    """A file as another writer leaves it: with fields, at each depth, and a blob that PyIceberg does not have."""
    loaded = client.get(f"{TABLES}/t").json()
    path = Path(loaded["metadata-location"].removeprefix("file://"))
    text = read(loaded["metadata-location"])
    deep = {"deep": [1, {"null": None}]}
    text["x-of-another-engine"] = deep
    text["schemas"][0] |= {"x-schema": 1}
    text["schemas"][0]["fields"][0] |= {"x-field": deep}
    text["partition-specs"][0] |= {"x-spec": deep}
    text["sort-orders"][0] |= {"x-order": [1]}
    text["snapshots"] = [snapshot(1), snapshot(2, 1), snapshot(3, 2)]
    text["refs"] = {"main": {"snapshot-id": 3, "type": "branch", "x-ref": deep}}
    text |= {"current-snapshot-id": 3, "last-sequence-number": 3}
    text["statistics"] = [{**statistics(3, "boring-type"), "x-statistics": 1}, {**statistics(2, "b"), "x-old": 1}]
    other = path.with_name("00007-6fa459ea-ee8a-3ca4-894e-db77e160355e.metadata.json")
    other.write_text(json.dumps(text))
    body = {"name": "u", "metadata-location": str(other)}
    registered = client.post("/namespaces/a/register", json=body)
    assert registered.status_code == 200, registered.text
    old: Any = SCHEMA["fields"]
    schema = {**SCHEMA, "schema-id": 1, "fields": [*old, {**old[0], "id": 9, "name": "z"}]}
    replaced = statistics(2, "b") | {"file-size-in-bytes": 8, "statistics-path": f"{path.parent}/x.stats"}
    updates = [
        {"action": "set-properties", "updates": {"k": "v"}},
        {"action": "add-schema", "schema": schema},
        {"action": "remove-snapshots", "snapshot-ids": [1]},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 2},
        {"action": "set-statistics", "statistics": replaced},
    ]
    done = client.post(f"{TABLES}/u", json={"requirements": [], "updates": updates})
    assert done.status_code == 200, done.text
    answer = done.json()
    for found in (read(answer["metadata-location"]), answer["metadata"], client.get(f"{TABLES}/u").json()["metadata"]):
        assert found["properties"]["k"] == "v"
        assert found["x-of-another-engine"] == deep
        assert found["schemas"][0] == text["schemas"][0]
        assert "x-schema" not in found["schemas"][1]
        assert found["partition-specs"] == text["partition-specs"]
        assert found["sort-orders"] == text["sort-orders"]
        assert [(one["snapshot-id"], one["key-id"]) for one in found["snapshots"]] == [(2, "k2"), (3, "k3")]
        assert found["refs"]["main"] == {"snapshot-id": 2, "type": "branch", "x-ref": deep}
        assert found["statistics"] == [text["statistics"][0], replaced], "what a client has set is as it set it"
        assert not [name for name in found if "_" in name], "no field of another version gets in"


def test_an_upgrade_keeps_unknown_fields(client: httpx.Client) -> None:
    """PyIceberg makes new metadata for another format version, and knows nothing of what it never read."""
    client.post(TABLES, json={"name": "v1", "schema": SCHEMA, "properties": {"format-version": "1"}})
    loaded = client.get(f"{TABLES}/v1").json()
    path = Path(loaded["metadata-location"].removeprefix("file://"))
    text = read(loaded["metadata-location"]) | {"x-of-another-engine": 1, "last-sequence-number": 7}
    text["schemas"][0]["fields"][0] |= {"x-field": 1}
    text["schema"] |= {"x-schema": 1}
    other = path.with_name("00007-6fa459ea-ee8a-3ca4-894e-db77e160355e.metadata.json")
    other.write_text(json.dumps(text))
    body = {"name": "u", "metadata-location": str(other)}
    assert client.post("/namespaces/a/register", json=body).status_code == 200
    for update in ({"action": "upgrade-format-version", "format-version": 2}, SET):
        done = client.post(f"{TABLES}/u", json={"requirements": [], "updates": [update]})
        assert done.status_code == 200, done.text
        for found in (read(done.json()["metadata-location"]), done.json()["metadata"]):
            assert (found["format-version"], found["x-of-another-engine"], "schema" in found) == (2, 1, False)
            assert found["schemas"] == text["schemas"]
        written = Path(done.json()["metadata-location"].removeprefix("file://")).read_text()
        assert written.count('"last-sequence-number"') == 1, "a field of the new version is not an unknown one any more"


def test_a_file_with_a_number_that_cannot_be_written_again_is_refused(client: httpx.Client) -> None:
    """The server wrote ``Infinity`` into its answers and the next file, which no reader of JSON takes."""
    loaded = client.get(f"{TABLES}/t").json()
    file = Path(loaded["metadata-location"].removeprefix("file://")).with_name("odd.metadata.json")
    text = json.dumps(loaded["metadata"])
    for number, status in (("1e400", 400), ("NaN", 400), ("1" + "0" * 400, 200)):
        file.write_text(text.replace('"fields":', f'"x-unknown": {number}, "fields":', 1))
        body = {"name": f"u{len(number)}", "metadata-location": str(file)}
        assert client.post("/namespaces/a/register", json=body).status_code == status


def test_statistics_are_set_and_removed(client: httpx.Client, tmp_path: Path) -> None:
    figures = {**statistics(7, "boring-type"), "statistics-path": f"file://{tmp_path}/lake/a/x.stats"}
    made = changed(client, {"action": "set-statistics", "snapshot-id": 7, "statistics": figures})
    assert made["metadata"]["statistics"] == [figures]
    gone = [{"action": name, "snapshot-id": 8} for name in ("remove-statistics", "remove-partition-statistics")]
    assert changed(client, *gone)["metadata"]["statistics"] == [figures]
    assert changed(client, {"action": "remove-statistics", "snapshot-id": 7})["metadata"]["statistics"] == []
    wrong = {"action": "set-statistics", "statistics": {**figures, "blob-metadata": [{"type": 5}]}}
    changed(client, wrong, status=400)


def test_a_writer_in_the_line_keeps_its_place(sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It loses again to a writer that came later; it does not go to the end of the line, and later ones wait there."""
    acquired = list[list[str]]()
    swap, lost = Commits._swap, list[int]()
    with closing(MetastoreCatalog("ice", uri=sqlite_url, warehouse=f"file://{tmp_path}")) as catalog:
        catalog.create_namespace("a")
        table = catalog.create_table("a.t", schema=Schema(NestedField(1, "n", LongType(), required=False)))
        acquire = catalog.store.leases.acquire_many

        def noted(names: list[str], **options: Any) -> Any:
            acquired.append(list(names))
            return acquire(names, **options)

        def beaten(self: Commits, attempts: Any, options: Any) -> None:
            if len(lost) < 3:
                lost.append(1)
                raise ms.VersionConflict("lake.ice.a.t", 1, 2)
            swap(self, attempts, options)

        monkeypatch.setattr(catalog.store.leases, "acquire_many", noted)
        monkeypatch.setattr(Commits, "_swap", beaten)
        with table.transaction() as tx:
            tx.set_properties({"k": "v"})
        assert (len(lost), len(acquired)) == (3, 1), "three losses, one place"
        with table.transaction() as tx:
            tx.set_properties({"k": "w"})
        assert len(acquired) == 2, "a new writer waits from its first attempt on"
        with closing(
            MetastoreCatalog("ice", uri=f"sqlite:///{tmp_path}/other.db", warehouse=f"file://{tmp_path}/o")
        ) as other:
            other.create_namespace("a")
            twin = other.create_table("a.t", schema=table.schema())
            before = other.store.position()
            with twin.transaction() as tx:
                tx.set_properties({"k": "v"})
            assert [one.kind for one in other.store.changes(after=before)] == ["table"], (
                "another store's table has its id"
            )
        commits._CONTENDED.clear()
        with table.transaction() as tx:
            tx.set_properties({"k": "x"})
        assert len(acquired) == 2, "where nobody loses, nobody waits"


def test_a_schema_that_gets_a_new_id_keeps_its_unknown_fields() -> None:
    """Only a schema does: another part under another id is another one."""
    known: dict[str, Any] = {
        "schemas": [{"schema-id": 0, "fields": [1]}, {"schema-id": 1, "fields": [2]}],
        "specs": [{"spec-id": 0}],
    }
    found = json.loads(json.dumps(known))
    found["schemas"][0]["x"] = found["specs"][0]["x"] = "kept"
    unknown = unknown_fields(json.dumps(found).encode(), json.dumps(known))
    known["schemas"][0]["schema-id"], known["specs"][0]["spec-id"] = 7, 7
    whole = json.loads(with_unknown(json.dumps(known), unknown))
    assert whole == {**known, "schemas": [{**known["schemas"][0], "x": "kept"}, known["schemas"][1]]}
