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

import metastore as ms
from metastore.clock import SYSTEM
from metastore.pyiceberg import commits, tables, views
from metastore.pyiceberg.confined import Folders
from metastore.serve import Principals, tokens_of
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


@pytest.fixture
def users(sqlite_url: str, lake: Path, tmp_path: Path) -> Iterator[dict[str, httpx.Client]]:
    """Serve the namespaces ``a``, which ann may read and bob may write, and ``b``, for neither."""
    names = ("root", "ann", "bob")
    (tmp_path / "tokens").write_text("".join(f"{user} token-of-{user}\n" for user in names))
    with served(sqlite_url, lake, Principals(tokens_of(tmp_path / "tokens")), admins=["root"]) as address:
        clients = {
            user: httpx.Client(
                base_url=f"{address}/v1/lake.ice", headers={"Authorization": f"Bearer token-of-{user}"}, timeout=60
            )
            for user in names
        }
        for space in "ab":
            assert clients["root"].post("/namespaces", json={"namespace": [space]}).status_code == 200
            made = clients["root"].post(f"/namespaces/{space}/tables", json={"name": "t", "schema": SCHEMA})
            assert made.status_code == 200
        with ms.open(sqlite_url) as store:
            rights = {"ann": ("select_table", "select_view"), "bob": ("select_table", "create_table", "create_view")}
            for user, privileges in rights.items():
                store.users.create(("lake", user))
                store.roles.create(("lake", f"of-{user}"))
                store.roles.grant(("lake", f"of-{user}"), "use_catalog", on="lake.ice")
                for privilege in ("use_schema", *privileges):
                    store.roles.grant(("lake", f"of-{user}"), privilege, on="lake.ice.a", kind="schema")
                store.roles.assign(("lake", f"of-{user}"), ("lake", user))
        yield clients
        for client in clients.values():
            client.close()


def test_rights_come_before_files(users: dict[str, httpx.Client], lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may not do it leaves no folder and no file, not for a moment, and learns nothing of one that is there."""
    written = list[str]()
    for module in (commits, tables):
        monkeypatch.setattr(module, "write_metadata", lambda io, metadata, location: written.append(location))
    assert users["root"].post("/namespaces/a/views", json=VIEW).status_code == 200
    monkeypatch.setattr(views, "_write", lambda io, metadata: written.append(metadata.location))
    pointers = {space: users["root"].get(f"/namespaces/{space}/tables/t").json() for space in "ab"}
    before = sorted(lake.rglob("*"))
    new = {"name": "u", "schema": SCHEMA}
    there, missing = pointers["b"]["metadata-location"], f"{lake}/none.metadata.json"
    change = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"k": "v"}}]}
    staged = {"requirements": [{"type": "assert-create"}], "updates": change["updates"]}
    for path, body in (
        (TABLES, new),
        (TABLES, {**new, "stage-create": True}),
        (TABLES, {**new, "stage-create": True, "location": pointers["b"]["metadata"]["location"]}),
        ("/namespaces/a/register", {"name": "u", "metadata-location": there}),
        ("/namespaces/a/register", {"name": "u", "metadata-location": missing}),
        ("/namespaces/a/register", {"name": "t", "metadata-location": there, "overwrite": True}),
        ("/namespaces/a/register-view", {"name": "u", "metadata-location": there}),
        (f"{TABLES}/t", change),
        (f"{TABLES}/u", staged),
        ("/namespaces/a/views", {**VIEW, "name": "u"}),
        ("/namespaces/a/views/v", change),
    ):
        answer = users["ann"].post(path, json=body, headers={"X-Iceberg-Access-Delegation": "vended-credentials"})
        assert answer.status_code == 403, (path, body, answer.text)
        assert "ann" in answer.text, "it is a right that is missing"
    assert sorted(lake.rglob("*")) == before
    assert written == []


def test_a_user_chooses_no_folder_of_another_table(users: dict[str, httpx.Client], lake: Path) -> None:
    """A client gets the credentials for its table's location: that is never the place of another table."""
    bob, secret = users["bob"], users["root"].get("/namespaces/b/tables/t").json()
    place = secret["metadata"]["location"]
    for body in (
        {"name": "u", "schema": SCHEMA, "location": place},
        {"name": "u", "schema": SCHEMA, "location": str(lake)},
        {"name": "u", "schema": SCHEMA, "location": f"{lake.as_uri()}/a", "stage-create": True},
        {"name": "u", "schema": SCHEMA, "location": f"{lake.as_uri()}/a/u-/../../b", "stage-create": True},
    ):
        assert bob.post(TABLES, json=body).status_code == 403
    taken = {"name": "u", "metadata-location": secret["metadata-location"]}
    assert bob.post("/namespaces/a/register", json=taken).status_code == 403
    staged = bob.post(TABLES, json={"name": "u", "schema": SCHEMA, "stage-create": True})
    assert staged.status_code == 200, staged.text
    assert bob.post(TABLES, json={"name": "t", "schema": SCHEMA, "stage-create": True}).status_code == 409
    own = bob.post(TABLES, json={"name": "u", "schema": SCHEMA, "location": f"{lake.as_uri()}/a/u"})
    assert own.status_code == 200, own.text
    moved = {"requirements": [], "updates": [{"action": "set-location", "location": place}]}
    assert bob.post(f"{TABLES}/u", json=moved).status_code == 403


@pytest.mark.parametrize("key", ["metadata", "data", "object-storage", "folder-storage"])
def test_a_user_has_no_files_written_into_the_folder_of_another_table(
    users: dict[str, httpx.Client], lake: Path, key: str
) -> None:
    bob, other = users["bob"], f"file://{lake}/a/t/metadata"
    assert bob.post(TABLES, json={"name": "own", "schema": SCHEMA}).status_code == 200
    there = {"properties": {f"write.{key}.path": other}}
    updates = {"action": "set-properties", "updates": there["properties"]}
    assert commit(bob, updates, table="own").status_code == 403
    assert bob.post(TABLES, json={"name": "u", "schema": SCHEMA, **there}).status_code == 403
    assert bob.post(TABLES, json={"name": "u", "schema": SCHEMA, "stage-create": True, **there}).status_code == 403
    location = bob.get(f"{TABLES}/own").json()["metadata"]["location"]
    below = {"action": "set-properties", "updates": {f"write.{key}.path": f"{location}/elsewhere"}}
    assert commit(bob, below, table="own").status_code == 200


def test_a_users_view_lies_in_no_folder_of_another_table(users: dict[str, httpx.Client]) -> None:
    """The server would write the view's next metadata file there."""
    bob, secret = users["bob"], users["root"].get("/namespaces/b/tables/t").json()["metadata"]["location"]
    made = bob.post("/namespaces/a/views", json=VIEW).json()
    own, file = made["metadata"]["location"], Path(made["metadata-location"].removeprefix("file://"))

    def moved(place: str) -> int:
        updates = [{"action": "set-location", "location": place}]
        return bob.post("/namespaces/a/views/v", json={"updates": updates}).status_code

    assert [moved(place) for place in (secret, f"{own}/../t", own, f"{own}/")] == [403, 403, 200, 200]
    assert bob.delete("/namespaces/a/views/v").status_code == 204
    taken = {"name": "v", "metadata-location": made["metadata-location"]}
    text = file.read_text()
    for place, status in ((secret, 403), (own, 200)):
        file.write_text(json.dumps(json.loads(text) | {"location": place}))
        assert bob.post("/namespaces/a/register-view", json=taken).status_code == status


def test_a_user_adds_no_file_of_another_table(users: dict[str, httpx.Client], lake: Path) -> None:
    """A merge would read it, although the user may not read that table."""
    bob, other = users["bob"], f"file://{lake}/a/t/metadata/x.avro"
    assert bob.post(TABLES, json={"name": "own", "schema": SCHEMA}).status_code == 200
    location = bob.get(f"{TABLES}/own").json()["metadata"]["location"]

    def added(place: str) -> int:
        summary = {"operation": "append"}
        snapshot = {"snapshot-id": 5, "sequence-number": 1, "timestamp-ms": SYSTEM.micros() // 1000, "summary": summary}
        update = {"action": "add-snapshot", "snapshot": {**snapshot, "manifest-list": place, "schema-id": 0}}
        return commit(bob, update, table="own").status_code

    assert added(other) == 403
    assert added(f"{location}/metadata/x.avro") == 200
    for name, more in (
        ("statistics", {"file-footer-size-in-bytes": 1, "blob-metadata": []}),
        ("partition-statistics", {}),
    ):
        figures = {"snapshot-id": 5, "statistics-path": other, "file-size-in-bytes": 1, **more}
        update = {"action": f"set-{name}", "snapshot-id": 5, name: figures}
        assert commit(bob, update, table="own").status_code == 403


def test_a_registered_file_names_no_folder_of_another_table(users: dict[str, httpx.Client], lake: Path) -> None:
    """A user may write files into the folder of its own table: what such a file says is not to be believed."""
    bob = users["bob"]
    assert bob.post(TABLES, json={"name": "own", "schema": SCHEMA}).status_code == 200
    loaded = bob.get(f"{TABLES}/own").json()
    secret = users["root"].get("/namespaces/b/tables/t").json()["metadata"]["location"]
    assert bob.delete(f"{TABLES}/own").status_code == 204
    file = Path(loaded["metadata-location"].removeprefix("file://")).with_name("00001-x.metadata.json")
    snapshot = {"snapshot-id": 1, "sequence-number": 1, "timestamp-ms": 1, "summary": {"operation": "append"}}
    for change in (
        {"location": secret},
        {"properties": {"write.metadata.path": f"{secret}/metadata"}},
        {"snapshots": [{**snapshot, "manifest-list": f"{secret}/metadata/snap-1.avro"}]},
    ):
        file.write_text(json.dumps(loaded["metadata"] | change))
        taken = {"name": "own", "metadata-location": file.as_uri()}
        assert bob.post("/namespaces/a/register", json=taken).status_code == 403
    taken = {"name": "own", "metadata-location": loaded["metadata-location"]}
    assert bob.post("/namespaces/a/register", json=taken).status_code == 200
