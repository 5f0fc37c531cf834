"""What a user puts into the folder of its own table leads nobody, an operator included, to the files of another one."""

from __future__ import annotations

import bz2
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest
import zstandard
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

import metastore as ms
from metastore.clock import SYSTEM
from metastore.pyiceberg import confined, files, manifests
from metastore.pyiceberg.confined import Confined
from metastore.serve.iceberg import tables as tables_of_rest
from tests.iceberg.test_confined import TABLES, VIEW, commit
from tests.iceberg.test_folders_of_users import lake, users
from tests.iceberg.test_rest import SCHEMA

pytestmark = pytest.mark.one_in(3)

__all__ = ["lake", "users"]

_IO: Final = PyArrowFileIO()
_EMPTY: Final = {7: 0, 8: 0}
"""The fields of a manifest in a list that say how many files it adds and keeps."""


def path(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def made(client: httpx.Client, name: str = "own", *, stage: bool = False, **more: Any) -> dict[str, Any]:
    """Make a table; return the answer."""
    answer = client.post(TABLES, json={"name": name, "schema": SCHEMA, "stage-create": stage, **more})
    assert answer.status_code == 200, answer.text
    loaded: dict[str, Any] = answer.json()
    return loaded


def manifest(place: str, snapshot: int) -> str:
    """Write a data file and its manifest below a table's place; return the manifest."""
    path(f"{place}/data").mkdir(parents=True, exist_ok=True)
    path(f"{place}/data/{snapshot}.parquet").write_text("rows")
    schema = Schema(NestedField(1, "n", LongType()))
    file = f"{place}/metadata/m{snapshot}.avro"
    one: dict[str, Any] = {
        "content": DataFileContent.DATA,
        "file_path": f"{place}/data/{snapshot}.parquet",
        "file_format": FileFormat.PARQUET,
        "partition": Record(),
        "record_count": 1,
        "file_size_in_bytes": 4,
    }
    with write_manifest(2, UNPARTITIONED_PARTITION_SPEC, schema, _IO.new_output(file), snapshot, "null") as writer:
        writer.add_entry(
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=snapshot, data_file=DataFile.from_args(**one)
            )
        )
    listed(f"{place}/metadata/snap-{snapshot}.avro", snapshot, writer.to_manifest_file())
    return file


def listed(file: str, snapshot: int, *manifests: Any) -> None:
    with write_manifest_list(2, _IO.new_output(file), snapshot, None, 1, "null") as writer:
        writer.add_manifests(list(manifests))


def snapshot_of(place: str, number: int) -> dict[str, Any]:
    return {
        "snapshot-id": number,
        "sequence-number": 1,
        "timestamp-ms": SYSTEM.micros() // 1000,
        "summary": {"operation": "append"},
        "manifest-list": f"{place}/metadata/snap-{number}.avro",
        "schema-id": 0,
    }


def append(client: httpx.Client, table: str, snapshot: Mapping[str, Any]) -> httpx.Response:
    """Append, and let the server merge: nothing was there when the client began."""
    number = snapshot["snapshot-id"]
    body = {
        "requirements": [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}],
        "updates": [
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": number},
        ],
    }
    return client.post(table, json=body, headers={"X-Metastore-Merge": "true"})


def test_a_link_makes_no_folder_of_another_table_a_users_own(users: dict[str, httpx.Client], sqlite_url: str) -> None:
    """A purge deleted all files of the other table."""
    bob, other = users["bob"], users["root"].get("/namespaces/b/tables/t").json()["metadata"]["location"]
    manifest(other, 77)
    before = sorted(path(other).rglob("*"))
    place = made(bob, "own", stage=True)["metadata"]["location"]
    path(f"{place}/sub").symlink_to(path(other))
    answer = bob.post(TABLES, json={"name": "own", "schema": SCHEMA, "location": f"{place}/sub"})
    assert (answer.status_code, "has a link in it" in answer.text) == (403, True), answer.text

    moved = f"{made(bob)['metadata']['location']}/sub"
    assert commit(bob, {"action": "set-location", "location": moved}, table="own").status_code == 200
    with ms.open(sqlite_url) as store:
        store.schemas.create("lake.ice.mine", properties={"location": place})
        store.owners.set("lake.ice.mine", "lake.bob", kind="schema")
    below = bob.post("/namespaces/mine/tables", json={"name": "own", "schema": SCHEMA})
    assert below.status_code == 403, "its namespace leads into the folder of a table"
    path(moved).rename(path(f"{moved}-away"))
    path(moved).symlink_to(path(other))
    for user in (bob, users["root"]):
        assert append(user, f"{TABLES}/own", snapshot_of(moved, 77)).status_code == 403
        assert user.delete(f"{TABLES}/own?purgeRequested=true").status_code == 403
    assert sorted(path(other).rglob("*")) == before


def test_a_deletion_follows_no_link_that_was_made_since_the_check(tmp_path: Path) -> None:
    place, other = tmp_path / "lake" / "own" / "data", tmp_path / "lake" / "other"
    for folder in (place, other):
        folder.mkdir(parents=True)
        (folder / "x").write_text("rows")

    class Folders(confined.Folders):
        def check(self, location: str) -> None:
            super().check(location)
            place.rename(place.parent / "away")
            place.symlink_to(other)

    io = Confined(_IO, Folders([f"file://{tmp_path}/lake"], links=False))
    with pytest.raises((NotADirectoryError, ForbiddenError)):
        io.delete(f"file://{place}/x")
    assert (other / "x").exists()
    (tmp_path / "lake" / "linked").symlink_to(other)
    roots = [f"file://{tmp_path}/lake", f"file://{tmp_path}/lake/linked"]
    plain = Confined(_IO, confined.Folders(roots, links=False))
    for below, name in (("other", "x"), ("other", "a?b"), ("linked", "x")):
        (other / name.partition("?")[0]).write_text("rows")
        plain.delete(f"{roots[0]}/{below}/{name}")
    assert list(other.iterdir()) == []


def test_a_link_has_no_metadata_file_of_another_table_deleted(users: dict[str, httpx.Client]) -> None:
    """The log of the table named the file in its own folder, which led to that of the other table."""
    bob, other = users["bob"], path(users["root"].get("/namespaces/b/tables/t").json()["metadata-location"])
    cut = {"delete-after-commit.enabled": "true", "previous-versions-max": "1"}
    own = made(bob, properties={f"write.metadata.{key}": value for key, value in cut.items()})
    folder, metadata = path(own["metadata-location"]).parent, own["metadata"]
    older = {"metadata-file": f"{folder.as_uri()}/{other.name}", "timestamp-ms": metadata["last-updated-ms"]}
    file = folder / f"00001-{uuid4()}.metadata.json"
    file.write_text(json.dumps({**metadata, "metadata-log": [older]}))
    taken = {"name": "own", "metadata-location": file.as_uri(), "overwrite": True}
    assert bob.post("/namespaces/a/register", json=taken).status_code == 200
    folder.rename(folder.parent / "away")
    folder.symlink_to(other.parent)
    for user in ("bob", "root"):
        change = {"action": "set-properties", "updates": {"k": user}}
        assert commit(users[user], change, table="own").status_code == 403
    assert list(other.parent.iterdir()) == [other]


def test_a_merge_reads_no_manifest_list_of_another_table(users: dict[str, httpx.Client]) -> None:
    """It wrote the other table's manifests into a list in the user's folder."""
    other = users["root"].get("/namespaces/b/tables/t").json()["metadata"]["location"]
    manifest(other, 77)
    for where in ("head", "added"):
        _merge_is_refused(users, other, where)


def _merge_is_refused(users: dict[str, httpx.Client], other: str, where: str) -> None:
    own = made(users["bob"], where)
    metadata, file = own["metadata"], path(own["metadata-location"])
    place = metadata["location"]
    manifest(place, 78)
    taken = snapshot_of(other, 77)
    metadata |= {"last-sequence-number": 1}
    if where == "head":
        refs = {"main": {"snapshot-id": 77, "type": "branch"}}
        metadata |= {"snapshots": [taken], "current-snapshot-id": 77, "refs": refs}
    else:
        metadata["properties"] = {"write.data.path": other}
    file.write_text(json.dumps(metadata))
    files._KNOWN.clear()
    before = sorted(path(place).rglob("*"))
    for user in ("bob", "root"):
        answer = append(users[user], f"{TABLES}/{where}", snapshot_of(place, 78) if where == "head" else taken)
        assert (answer.status_code, "outside the table's folder" in answer.text) == (409, True), answer.text
    assert sorted(path(place).rglob("*")) == before


def test_a_list_of_one_table_says_nothing_of_the_manifests_of_another(users: dict[str, httpx.Client]) -> None:
    """A user who reads a table named its manifest in a list of its own, as empty: the table lost the rows."""
    bob, root, table = users["bob"], users["root"], "/namespaces/b/tables/t"
    other = root.get(table).json()["metadata"]["location"]
    place = made(bob)["metadata"]["location"]
    kept = manifest(other, 77)
    (fake,) = read_manifest_list(_IO.new_input(f"{other}/metadata/snap-77.avro"))
    for position, count in _EMPTY.items():
        fake[position] = count
    for number in (5, 6):
        listed(f"{place}/metadata/snap-{number}.avro", number, fake)
        assert append(bob, f"{TABLES}/own", snapshot_of(place, number)).status_code == 200
    assert append(root, table, snapshot_of(other, 77)).status_code == 200
    added = manifest(other, 78)
    answer = append(root, table, snapshot_of(other, 78))
    assert answer.status_code == 200, answer.text
    head = next(one for one in answer.json()["metadata"]["snapshots"] if one["snapshot-id"] == 78)["manifest-list"]
    assert {one.manifest_path for one in read_manifest_list(_IO.new_input(head))} == {kept, added}


def test_a_list_of_manifests_unpacks_to_no_more_than_a_server_reads(
    users: dict[str, httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.5 MB took 3 GB of memory: a user stopped the server for everybody."""
    monkeypatch.setattr(manifests, "_LARGEST", 1 << 20)
    bob, large = users["bob"], bytes(4 << 20)
    deflating = zlib.compressobj(wbits=-15)
    blocks = {
        "deflate": deflating.compress(large) + deflating.flush(),
        "bzip2": bz2.compress(large),
        "zstandard": zstandard.compress(large),
        "snappy": b"\x80\x80\x80\x02" + bytes(9),
        "null": large,
    }
    for codec, block in blocks.items():
        place = made(bob, codec)["metadata"]["location"]
        manifest(place, 5)
        file = path(f"{place}/metadata/snap-5.avro")
        plain = file.read_bytes()
        header, sync = plain[: plain.index(plain[-16:])], plain[-16:]
        header = header.replace(b"\x14avro.codec\x08null", b"\x14avro.codec" + written(codec.encode()))
        file.write_bytes(header + sync + b"\x02" + written(block) + sync)
        added = {"action": "add-snapshot", "snapshot": snapshot_of(place, 5)}
        assert commit(bob, added, table=codec).status_code == 200
        main = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 5}
        assert commit(bob, main, table=codec).status_code == 200
        manifest(place, 6)
        answer = append(bob, f"{TABLES}/{codec}", snapshot_of(place, 6))
        assert (answer.status_code, "no manifest is so large" in answer.text) == (400, True), answer.text
        assert bob.delete(f"{TABLES}/{codec}?purgeRequested=true").status_code == 204
        assert not file.exists()


def written(text: bytes) -> bytes:
    """Return a text as Avro has it: after its length, a number in zigzag code."""
    number, length = len(text) << 1, bytearray()
    while number >= 0x80:
        length.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*length, number]) + text


def test_an_operator_replaces_a_view_beside_its_file(users: dict[str, httpx.Client]) -> None:
    """The file that the user replaced names the folder of another table; a link shows no view of another."""
    bob, root = users["bob"], users["root"]
    other = root.get("/namespaces/b/tables/t").json()["metadata"]["location"]
    own, before = bob.post("/namespaces/a/views", json=VIEW).json(), sorted(path(other).rglob("*"))
    file = path(own["metadata-location"])
    file.write_text(json.dumps(own["metadata"] | {"location": other}))
    change = {"updates": [{"action": "set-properties", "updates": {"k": "v"}}]}
    answer = root.post("/namespaces/a/views/v", json=change)
    assert path(answer.json()["metadata-location"]).parent == file.parent
    assert sorted(path(other).rglob("*")) == before
    file = path(answer.json()["metadata-location"])
    file.unlink()
    file.symlink_to(path(root.post("/namespaces/b/views", json=VIEW).json()["metadata-location"]))
    for user in (bob, root):
        assert user.get("/namespaces/a/views/v").status_code == 403


def test_an_operator_registers_no_file_that_names_another_folder(users: dict[str, httpx.Client]) -> None:
    """A user may have written it: its table had the other's folder then, and a purge deleted what is there."""
    root, own = users["root"], made(users["bob"])
    other = root.get("/namespaces/b/tables/t").json()["metadata"]["location"]
    place = own["metadata"]["location"]
    for named, folder in ((other, "metadata"), (f"{place}/..", "metadata"), (place, "away")):
        file = path(place) / folder / f"00001-{uuid4()}.metadata.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(own["metadata"] | {"location": named}))
        body = {"name": "own", "metadata-location": file.as_uri(), "overwrite": True}
        assert root.post("/namespaces/a/register", json=body).status_code == 403, named
    tables_of_rest._ANSWERS.clear()
    assert users["bob"].get(f"{TABLES}/own").json()["metadata"]["location"] == place
    body["metadata-location"] = own["metadata-location"]
    assert root.post("/namespaces/a/register", json=body).status_code == 200


def test_a_namespace_lies_in_no_query(users: dict[str, httpx.Client], sqlite_url: str) -> None:
    """PyIceberg leaves out what follows: the server wrote a file beside those of another table."""
    other = users["root"].get("/namespaces/b/tables/t").json()["metadata"]["location"]
    before = sorted(path(other).rglob("*"))
    for name, mark in (("query", "?"), ("fragment", "#")):
        with ms.open(sqlite_url) as store:
            store.schemas.create(f"lake.ice.{name}", properties={"location": f"{other}/metadata/x{mark}"})
            store.owners.set(f"lake.ice.{name}", "lake.bob", kind="schema")
        for stage in (False, True):
            body = {"name": "own", "schema": SCHEMA, "stage-create": stage}
            assert users["bob"].post(f"/namespaces/{name}/tables", json=body).status_code == 400
    assert sorted(path(other).rglob("*")) == before


def with_end(file: str, end: bytes, new: bytes) -> None:
    """Let the only block of an Avro file, of one record, end in other bytes."""
    plain = path(file).read_bytes()
    sync = plain[-16:]
    header, rest, _ = plain.split(sync)
    size = next(n for n in range(1, 5) if written(rest[1 + n :]) == rest[1:])
    block = rest[1 + size :].removesuffix(end) + new
    path(file).write_bytes(header + sync + b"\x02" + written(block) + sync)


def test_no_length_leads_behind_a_file(users: dict[str, httpx.Client]) -> None:
    """What lies there in the server's memory came into the merged list, in the user's folder; or the server ended."""
    bob = users["bob"]
    for name, stated in {"near": b"\xd8\x04", "far": b"\x80\x80\x80\x80\x02"}.items():
        place = made(bob, name)["metadata"]["location"]
        for number in (5, 6, 7):
            manifest(place, number)
        with_end(f"{place}/metadata/snap-6.avro", b"\0", b"\x02" + stated + b"key")  # the last field is the key
        with_end(f"{place}/metadata/m7.avro", b"\0\0\0", b"\x02" + stated)  # and here there are offsets
        assert append(bob, f"{TABLES}/{name}", snapshot_of(place, 5)).status_code == 200
        answer = append(bob, f"{TABLES}/{name}", snapshot_of(place, 6))
        assert (answer.status_code, "is not of manifests" in answer.text) == (400, True), answer.text
        assert append(bob, f"{TABLES}/{name}", snapshot_of(place, 7)).status_code == 200
        assert bob.delete(f"{TABLES}/{name}?purgeRequested=true").status_code == 204
        assert path(f"{place}/data/7.parquet").exists()


def test_a_manifest_list_has_no_more_values_than_a_server_reads(
    users: dict[str, httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte of 64 MiB, packed to 64 KiB, became an object of 200 bytes."""
    monkeypatch.setattr(manifests, "_VALUES", 1_000)
    place = made(users["bob"])["metadata"]["location"]
    for number in (5, 6):
        manifest(place, number)
    summaries = b"\x80\x10" + bytes(4 * 1024) + b"\0"  # 1,024 of partitions, and the end of the list
    with_end(f"{place}/metadata/snap-6.avro", b"\0\0", summaries + b"\0")
    assert append(users["bob"], f"{TABLES}/own", snapshot_of(place, 5)).status_code == 200
    answer = append(users["bob"], f"{TABLES}/own", snapshot_of(place, 6))
    assert (answer.status_code, "more than 1,000 values" in answer.text) == (400, True), answer.text


def test_the_uuid_of_another_table_keeps_no_purge_from_its_files(users: dict[str, httpx.Client]) -> None:
    """Whoever could read a table could stage one with its UUID; the files of the first stayed then, after its purge."""
    bob, root = users["bob"], users["root"]
    other = root.get(f"{TABLES}/t").json()
    own = made(bob, stage=True)["metadata"]
    updates = [
        {"action": "assign-uuid", "uuid": other["metadata"]["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": own["schemas"][0], "last-column-id": 1},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": own["location"]},
    ]
    staged = bob.post(f"{TABLES}/own", json={"requirements": [{"type": "assert-create"}], "updates": updates})
    assert staged.json()["metadata"]["table-uuid"] == other["metadata"]["table-uuid"]
    assert root.delete(f"{TABLES}/t?purgeRequested=true").status_code == 204
    assert not path(other["metadata-location"]).exists()
    assert path(staged.json()["metadata-location"]).exists()


@pytest.mark.parametrize("spelt", [("file:///", "file:/"), ("/a/", "/./a/"), ("/a/", "//a/")])
def test_a_purge_leaves_the_files_of_a_dropped_copy_however_its_folder_is_spelt(
    users: dict[str, httpx.Client], sqlite_url: str, tmp_path: Path, spelt: tuple[str, str]
) -> None:
    root, copy = users["root"], "/namespaces/copies/tables/t"
    first = root.get(f"{TABLES}/t").json()
    assert root.post("/namespaces", json={"namespace": ["copies"]}).status_code == 200
    moved = [{"action": "set-location", "location": first["metadata"]["location"].replace(*spelt)}]
    with ms.open(sqlite_url) as store:
        store.export_to(tmp_path / "t.jsonl", "lake.ice.a.t")
        store.import_from(tmp_path / "t.jsonl", into="lake.ice.copies")
        assert root.post(copy, json={"requirements": [], "updates": moved}).status_code == 200
        assert store.tables.drop("lake.ice.copies.t")
        assert root.delete(f"{TABLES}/t?purgeRequested=true").status_code == 204
        assert path(first["metadata-location"]).exists()
        store.tables.restore("lake.ice.copies.t")
    assert root.get(copy).status_code == 200
