"""A server keeps its clients' requirements, asks for rights first, and touches only files below its warehouse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, ForbiddenError
from pyiceberg.table import StaticTable, Table

from metastore.pyiceberg.confined import Folders
from metastore.serve.iceberg.errors import failed
from tests.iceberg.server import served
from tests.iceberg.test_idempotency import VERSION
from tests.iceberg.test_rest import SCHEMA

ROWS = pa.table({"n": pa.array([1, 2], pa.int64())})
TABLES = "/namespaces/a/tables"
VIEW = {"name": "v", "schema": SCHEMA, "view-version": VERSION}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def address(sqlite_url: str, lake: Path) -> Iterator[str]:
    with served(sqlite_url, lake) as address:
        catalog = load_catalog("x", type="rest", uri=address, warehouse="lake.ice")
        catalog.create_namespace("a")
        catalog.create_table("a.t", ROWS.schema, properties={"commit.retry.num-retries": "0"}).append(ROWS)
        yield address


@pytest.fixture
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{address}/v1/lake.ice", timeout=60) as client:
        yield client


def load(address: str, name: str = "a.t", **properties: str) -> Table:
    return load_catalog("x", type="rest", uri=address, warehouse="lake.ice", **properties).load_table(name)


def commit(client: httpx.Client, *updates: dict[str, Any], table: str = "t") -> httpx.Response:
    return client.post(f"{TABLES}/{table}", json={"requirements": [], "updates": list(updates)})


def test_a_requirement_that_is_false_is_refused_unless_the_client_asks_for_the_merge(
    address: str, client: httpx.Client
) -> None:
    """Java's writers call an overwrite that only adds files an append, and rely on the branch they stated."""
    stale, merging = load(address), load(address, **{"header.X-Metastore-Merge": "true"})
    load(address).append(ROWS)
    with pytest.raises(CommitFailedException, match="has changed"):
        stale.append(ROWS)
    merging.append(ROWS)
    assert load(address).scan().to_arrow().num_rows == 6
    wanted = {"action": "set-properties", "updates": {"metastore.commit.merge": "true"}}
    assert commit(client, wanted).status_code == 200
    stale.append(ROWS)
    assert load(address).scan().to_arrow().num_rows == 8


def test_a_registered_file_names_no_location_elsewhere(client: httpx.Client, lake: Path) -> None:
    """The table was there then, and each commit to it was refused. Its files could be anywhere."""
    assert client.post("/namespaces/a/views", json=VIEW).status_code == 200
    for kind, register in (("tables/t", "register"), ("views/v", "register-view")):
        metadata = client.get(f"/namespaces/a/{kind}").json()["metadata"]
        file, out = lake / f"{register}.metadata.json", lake.parent.as_uri()
        changes: list[dict[str, Any]] = [{"location": out}]
        if kind == "tables/t":
            figures = {"snapshot-id": 1, "statistics-path": f"{out}/x", "file-size-in-bytes": 1}
            listed = {
                "snapshot-id": 1,
                "timestamp-ms": 1,
                "manifest-list": f"{out}/x",
                "summary": {"operation": "append"},
            }
            changes += [{"snapshots": [listed]}, {"partition-statistics": [figures]}]
        for change in changes:
            file.write_text(json.dumps({**metadata, **change}))
            answer = client.post(f"/namespaces/a/{register}", json={"name": "odd", "metadata-location": file.as_uri()})
            assert (answer.status_code, "does not lie in the warehouse" in answer.text) == (403, True), answer.text


def test_the_server_deletes_no_manifest_list_that_a_client_named(address: str, client: httpx.Client) -> None:
    """A merge replaces the list that the client wrote. The client may have named one of another table."""
    load_catalog("x", type="rest", uri=address, warehouse="lake.ice").create_table("a.victim", ROWS.schema).append(ROWS)
    victim = load(address, "a.victim").metadata.current_snapshot()
    assert victim is not None
    body = json.loads(client.get(f"{TABLES}/victim").text)["metadata"]
    (stolen,) = body["snapshots"]
    for metadata in (client.get(f"{TABLES}/t").json()["metadata"],):
        snapshot = {**stolen, "sequence-number": 9, "timestamp-ms": metadata["last-updated-ms"] + 1}
        requirement = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 7}
        reference = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch"}
        answer = client.post(
            f"{TABLES}/t",
            headers={"X-Metastore-Merge": "true"},
            json={
                "requirements": [requirement],
                "updates": [
                    {"action": "add-snapshot", "snapshot": snapshot},
                    {**reference, "snapshot-id": snapshot["snapshot-id"]},
                ],
            },
        )
        assert answer.status_code == 200, answer.text
    assert load(address, "a.victim").scan().to_arrow().num_rows == 2


def test_a_metadata_file_that_is_missing_is_not_found() -> None:
    answer = failed(FileNotFoundError(2, "No such file", "00001-x.metadata.json"))
    assert (answer.status, answer.body["error"]["type"]) == (404, "NotFoundException")


def outside(lake: Path, address: str) -> list[str]:
    """Return names of a real metadata file that lies outside of the warehouse."""
    secret = lake.parent / "other"
    secret.mkdir()
    file = secret / "secret.metadata.json"
    file.write_text(load(address).metadata.model_dump_json())
    (lake / "link").symlink_to(secret)
    return [
        str(file),
        file.as_uri(),
        f"file://host{file}",
        f"{lake}/../other/secret.metadata.json",
        f"{lake}/link/secret.metadata.json",
        f"{lake.as_uri()}/x/../../other/secret.metadata.json",
        f"{lake.as_uri()}//..//other/secret.metadata.json",
        f"{lake.as_uri()}-other/x.metadata.json",
        "http://127.0.0.1:9/secret.metadata.json",
        "s3://bucket/secret.metadata.json",
    ]


def test_no_field_leads_out_of_the_warehouse(address: str, client: httpx.Client, lake: Path) -> None:
    before = sorted(lake.parent.rglob("*"))
    places = outside(lake, address)
    known = sorted(lake.parent.rglob("*"))
    snapshot = client.get(f"{TABLES}/t").json()["metadata"]["snapshots"][0]
    for place in places:
        figures = {"snapshot-id": snapshot["snapshot-id"], "statistics-path": place, "file-size-in-bytes": 1}
        footer = {"file-footer-size-in-bytes": 1, "blob-metadata": []}
        updates: list[dict[str, Any]] = [
            {"action": "set-location", "location": place},
            {"action": "add-snapshot", "snapshot": {**snapshot, "snapshot-id": 5, "manifest-list": place}},
            {"action": "set-statistics", "snapshot-id": snapshot["snapshot-id"], "statistics": {**figures, **footer}},
            {"action": "set-partition-statistics", "partition-statistics": figures},
            *[
                {"action": "set-properties", "updates": {key: place}}
                for key in ("write.metadata.path", "write.data.path", "write.object-storage.path")
            ],
        ]
        new: dict[str, Any] = {"name": "u", "schema": SCHEMA}
        known_file = {"name": "u", "metadata-location": place}
        creations: list[dict[str, Any]] = [{"location": place}, {"location": place, "stage-create": True}]
        creations.append({"properties": {"write.metadata.path": place}})
        answers = [commit(client, update) for update in updates]
        answers += [client.post(TABLES, json=new | more) for more in creations]
        answers += [client.post(f"/namespaces/a/{name}", json=known_file) for name in ("register", "register-view")]
        assert {answer.status_code for answer in answers} == {403}, [(place, a.status_code, a.text) for a in answers]
        assert not any("secret" in answer.json()["error"]["type"] for answer in answers)
    file = next(one for one in (lake / "a").rglob("*.json"))
    taken = commit(client, {"action": "set-properties", "updates": {"write.metadata.path": file.as_uri()}})
    assert (taken.status_code, file.is_file()) == (400, True), "a file where the folder should be"
    assert sorted(lake.parent.rglob("*")) == known
    assert len(known) > len(before)
    assert load(address).scan().to_arrow().num_rows == 2


def test_spellings_of_a_folder() -> None:
    folders = Folders(["s3://b/lake/", "/data/lake"])
    for inside in ("s3://b/lake/t", "s3a://b/lake/t", "S3://b/lake//t", "/data/lake/t", "file:///data/lake/t",
                   "file:/data/lake/t", "s3://b/lake/%2E%2E/t", "s3://b/lake/a?b/t"):  # fmt: skip
        folders.check(inside)
    for other in ("s3://b/lake", "s3://b/lake/", "s3://b/lake2/t", "s3://B/lake/t", "gs://b/lake/t", "s3://b/lake/../t",
                  "/data/lake/..", "/data/lake/a/../../t", "s3://b/x?/lake/t", "s3://b/x#/../lake/t", "", "lake/t",
                  "s3://c/b/lake/t", "s3:/b/lake/t"):  # fmt: skip
        with pytest.raises(ForbiddenError):
            folders.check(other)
    with pytest.raises(ForbiddenError):
        Folders([""]).check("/")
    stored = Folders(["abfss://c@acct.dfs.core.windows.net/lake", "gs://b/lake"])
    for inside in ("abfs://c@Acct.dfs.core.windows.net:443/lake/t", "wasbs://c@acct.blob.core.windows.net/lake/t",
                   "gcs://b/lake/t"):  # fmt: skip
        stored.check(inside)
    for other in ("abfss://c@acct.dfs.core.example/lake/t", "abfss://C@acct.dfs.core.windows.net/lake/t",
                  "abfss://c@other.dfs.core.windows.net/lake/t", "abfss://c/lake/t", "gs://B/lake/t"):  # fmt: skip
        with pytest.raises(ForbiddenError):
            stored.check(other)


def test_an_operator_allows_more(sqlite_url: str, lake: Path, tmp_path: Path) -> None:
    with (
        served(sqlite_url, lake, allowed=[f"file://{tmp_path}/more"]) as address,
        httpx.Client(base_url=f"{address}/v1/lake.ice") as client,
    ):
        client.post("/namespaces", json={"namespace": ["a"]})
        for place, status in (("more/t", 200), ("more2/t", 403)):
            body = {"name": "t", "schema": SCHEMA, "location": f"file://{tmp_path}/{place}"}
            assert client.post(TABLES, json=body).status_code == status


def test_a_renamed_table_and_the_next_one_of_its_name_share_no_folder(address: str) -> None:
    catalog = load_catalog("x", type="rest", uri=address, warehouse="lake.ice")
    catalog.rename_table("a.t", "a.old")
    new = catalog.create_table("a.t", ROWS.schema)
    assert new.location() != catalog.load_table("a.old").location()
    catalog.purge_table("a.t")
    assert catalog.load_table("a.old").scan().to_arrow().num_rows == 2


def test_a_purge_deletes_the_table_s_own_files(address: str, client: httpx.Client, lake: Path) -> None:
    """Its statistics too; its data only if ``gc.enabled`` lets it; nothing that lies in the folder of another table."""
    catalog = load_catalog("x", type="rest", uri=address, warehouse="lake.ice")
    for name, value in (
        ("kept", "false"),
        ("odd", "garbage"),
    ):  # what is not true is false, as in Iceberg's Java library
        catalog.create_table(f"a.{name}", ROWS.schema, properties={"gc.enabled": value}).append(ROWS)
    catalog.create_table("a.thief", ROWS.schema)
    stolen = load(address)
    snapshot = client.get(f"{TABLES}/t").json()["metadata"]["snapshots"][0]
    number = snapshot["snapshot-id"]
    own = next(lake.glob("a/thief-*")) / "metadata" / "own.stats"
    own.write_bytes(b"stats")
    figures = {"snapshot-id": number, "statistics-path": str(own), "file-size-in-bytes": 5}
    more = {"file-footer-size-in-bytes": 1, "blob-metadata": []}
    for update in (
        {"action": "add-snapshot", "snapshot": snapshot},
        {"action": "set-statistics", "snapshot-id": number, "statistics": {**figures, **more}},
    ):
        answer = commit(client, update, table="thief")
        assert answer.status_code == 200, answer.text
    catalog.purge_table("a.thief")
    assert not own.exists()
    assert StaticTable.from_metadata(stolen.metadata_location).scan().to_arrow().num_rows == 2
    for name in ("kept", "odd"):
        catalog.purge_table(f"a.{name}")
        (folder,) = lake.glob(f"a/{name}-*")
        assert {path.suffix for path in folder.rglob("*") if path.is_file()} == {".parquet"}
