"""What is not an export, or was damaged, is refused with the number of the line, before anything is written."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

import metastore as ms
from metastore.transfer.lines import write
from metastore.transfer.parser import parse_header, parse_line
from metastore.transfer.tally import Tally
from tests.transfer.world import rows

pytestmark = pytest.mark.one_in(3)

Lines = list[dict[str, Any]]
LARGE = "1e400"
"""Written as a number, not as a text."""


def small(*, history: bool = False) -> Lines:
    """Lake, catalog, schema, table with a partition, and another table: lines 2 to 7."""
    with ms.open("memory://", principal="ada") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        table = store.tables.create("lake.c.s.t", parents=True, columns=[ms.Column("a", "int")])
        store.partitions.create(table, "p", values={"a": "1"})
        store.tables.create("lake.c.s.u")
        stream = io.BytesIO()
        store.export_to(stream, history=history)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def sealed(lines: Lines) -> bytes:
    """Write lines with counts and hashes that are right, as a user would who writes a file by hand."""
    raws = [json.dumps(line).replace(f'"{LARGE}"', LARGE).encode() + b"\n" for line in lines[:-1]]
    tally = Tally()
    with suppress(ms.InvalidArgument, KeyError):  # bad by itself
        header = parse_header(raws[0])
        for raw in raws[1:]:
            tally.add(parse_line(raw, header), raw)  # type: ignore[arg-type]
    return b"".join([*raws, write(tally.footer(), None)])


def changed(at: int, **fields: Any) -> Callable[[Lines], None]:
    """Give line ``at`` (from 1) other fields; None takes one away."""

    def change(lines: Lines) -> None:
        line = lines[at - 1]
        line |= fields
        for name in [name for name, value in fields.items() if value is ...]:
            del line[name]

    return change


def moved(at: int, to: int) -> Callable[[Lines], None]:
    return lambda lines: lines.insert(to - 1, lines.pop(at - 1))


def dropped(at: int) -> Callable[[Lines], None]:
    return lambda lines: lines.__delitem__(at - 1)


def folding(lines: Lines) -> None:
    """Let the catalog fold names, and two tables have one name there."""
    doc(3, fold_case=True)(lines)
    lines[6]["path"] = ["lake", "c", "s", "T"]


def doc(at: int, **fields: Any) -> Callable[[Lines], None]:
    return lambda lines: lines[at - 1]["doc"].update(fields)


def flagged(lines: Lines) -> None:
    """Two tables have equal columns: 0 == False."""
    for at, flag in ((5, False), (7, 0)):
        part = {"id": 2, "name": "b", "type": "int", "nullable": flag}
        doc(at, columns=[{"id": 1, "name": "a", "type": "struct", "fields": [part]}], last_column_id=2)(lines)


BAD: dict[str, tuple[Callable[[Lines], None], str]] = {
    "no header": (dropped(1), "line 1: this is not an export"),
    "an unknown format": (changed(1, format=2), "line 1: .*format 2, and this program reads format 1"),
    "a header without a field": (changed(1, history=...), "line 1: the header has no 'history'"),
    "history without ids": (changed(1, history=True), "line 1: .*history without ids"),
    "ids without numbers": (changed(1, ids=True), "line 1: numbers, in the header, has no 'id'"),
    "a missing field": (changed(5, kind=...), "line 5: an entity has no 'kind'"),
    "a field of another type": (changed(5, in_use=1), "line 5: .*'in_use' 1; it must be true or false"),
    "no document": (changed(5, doc="x"), "line 5: .*it must be an object"),
    "a path that is none": (changed(5, path="lake.c.s.t"), "line 5: .*it must be a list of names"),
    "an empty path": (changed(5, path=[]), "line 5: .*it must be a list of names"),
    "a name that is none": (changed(5, path=["lake", "c", "s", "a\u0007"]), "line 5: .*control character"),
    "a name not in NFC": (changed(5, path=["lake", "c", "s", "a\u0308"]), "line 5: .*not in the normal form NFC"),
    "a time before 1970": (changed(5, created_at=-1), "line 5: .*'created_at' -1"),
    "half of a character in a principal": (changed(5, created_by="a\ud800"), "line 5: .*'created_by'"),
    "a number that no database holds": (changed(5, created_at=1 << 63), "line 5: .*'created_at'"),
    "neither entity nor row": (changed(5, path=...), "line 5: this is neither an entity"),
    "a child before its parent": (moved(4, 5), "line 4: the parent of .* is missing, or comes after it"),
    "a child without its parent": (dropped(3), "line 3: the parent of lake.c.s is missing, or comes after it"),
    "a container twice": (lambda lines: lines.insert(4, lines[3]), "line 5: the file has lake.c.s twice"),
    "two names that are one": (folding, "line 7: the file has lake.c.s.T twice: the catalog treats"),
    "a row that belongs to nothing": (moved(6, 2), "line 2: the partition 'p' comes before all entities"),
    "a kind where it cannot stand": (changed(5, path=["lake", "c", "t"]), "line 5: .*must be below a schema, not"),
    "a table at the top": (changed(2, kind="table", family="table"), "line 2: .*cannot be below the root"),
    "a family of another kind": (changed(5, family="fileset"), "line 5: .*of the family table, not 'fileset'"),
    "families that do not fit": (changed(5, under=["metalake"]), "line 5: .*under 3 families"),
    "a type that is none": (doc(5, columns=[{"id": 1, "name": "a", "type": "in"}]), "line 5: lake.c.s.t: its document"),
    "a column without a number": (
        doc(5, columns=[{"id": {}, "name": "a", "type": "int"}]),
        "line 5: lake.c.s.t: its document cannot be read",
    ),
    "a field without a number": (
        doc(5, columns=[{"id": 1, "name": "a", "type": "struct", "fields": [{"id": "2", "name": "b", "type": "int"}]}]),
        "line 5: lake.c.s.t: its document cannot be read",
    ),
    "a version of a table": (changed(6, owned="model_version"), "line 6: .*belongs to a model, not to a table"),
    "a partition of a schema": (moved(6, 5), "line 5: .*belongs to a table, not to a schema"),
    "a schema that is disabled": (changed(4, in_use=False), "line 4: lake.c.s: a schema cannot be disabled"),
    "a property that is not a string": (doc(2, properties={"a": 1}), "line 2: lake: its document cannot be read"),
    "a partition without values": (changed(6, doc={"comment": None, "properties": {}}), "line 6: .*cannot be read"),
    "a number beyond all floats": (doc(2, x=LARGE), "line 2: this is not JSON: the number '1e400' is too large"),
    "a document that is too large": (doc(2, comment="x" * (1 << 20)), "line 2: lake: the document has"),
    "a partitioning of numbers": (doc(5, partitioning=[1]), "line 5: lake.c.s.t: its document cannot be written"),
    "a partitioning by nothing": (doc(5, partitioning=["b"]), "line 5: lake.c.s.t: its document cannot be written"),
    "a location of another type": (doc(5, location=7), "line 5: lake.c.s.t: its document cannot be written: a loc"),
    "a flag that is a number": (doc(3, fold_case=1.5), "line 3: lake.c: .*the fold_case 1.5 is not a bool"),
    "a column's flag that is a number": (flagged, "line 7: lake.c.s.u: .*nullable must be True or False, not 0"),
    "a column whose name is a number": (
        doc(5, columns=[{"id": 1, "name": 0, "type": "int"}]),
        "line 5: lake.c.s.t: its document cannot be written",
    ),
    "two columns of one number": (
        doc(5, columns=[{"id": 1, "name": n, "type": "int"} for n in "ab"]),
        "line 5: lake.c.s.t: .*the column 'b' has the number 1, which is taken",
    ),
    "a column's number beyond the last": (
        doc(5, columns=[{"id": 2, "name": "a", "type": "int"}]),
        "line 5: lake.c.s.t: .*the column 'a' has the number 2, which is .*not given",
    ),
    "a column's number that is not whole": (
        doc(5, last_column_id=1.0),
        "line 5: lake.c.s.t: .*the last_column_id is 1.0",
    ),
    "an unknown kind among schemas": (changed(4, kind="box"), "line 4: lake.c.s: a box cannot be of the family schema"),
    "an operation without history": (
        lambda lines: lines.insert(6, {"operation_id": ID, "ordinal": 0, "action": "x", "time": 1}),
        "line 7: .*no history",
    ),
}
ID = "01a1fb2b-a5fc-7482-a63a-6741f4952106"

BAD_WITH_HISTORY: dict[str, tuple[Callable[[Lines], None], str]] = {
    "an id beyond the last": (changed(5, id=99), "line 5: lake.c.s.t has the id 99"),
    "an id of nothing": (changed(5, id=0), "line 5: lake.c.s.t has the id 0"),
    "a parent that is not there": (changed(5, parent_id=5), "line 5: the parent of .* is missing"),
    "a missing column": (changed(5, scope_version=...), "line 5: an entity with ids has no 'scope_version'"),
    "an operation that is none": (changed(8, operation_id="x"), "line 8: .*it must be a UUID"),
    "an operation without a time": (changed(8, time=...), "line 8: an operation has no 'time'"),
    "an entity after the operations": (moved(7, 9), "line 9: this line comes after the operations"),
    "a root": (changed(1, root=["lake"]), "line 1: the header has ids and a root"),
}


def refused(data: bytes, match: str) -> None:
    """Nothing of it is imported."""
    with ms.open("sqlite://") as store:
        before = rows(store)
        with pytest.raises(ms.InvalidArgument, match=match):
            store.import_from(io.BytesIO(data))
        assert rows(store) == before
        assert store.metalakes.create("on").version == 1


@pytest.mark.parametrize(("change", "match"), BAD.values(), ids=BAD)
def test_bad_lines(change: Callable[[Lines], None], match: str) -> None:
    lines = small()
    change(lines)
    refused(sealed(lines), match)


@pytest.mark.parametrize(("change", "match"), BAD_WITH_HISTORY.values(), ids=BAD_WITH_HISTORY)
def test_bad_lines_with_history(change: Callable[[Lines], None], match: str) -> None:
    lines = small(history=True)
    change(lines)
    refused(sealed(lines), match)


@pytest.mark.parametrize("history", [False, True])
def test_good_lines(history: bool) -> None:
    """Control: what is sealed here, and not bad, comes in."""
    with ms.open("sqlite://") as store:
        assert store.import_from(io.BytesIO(sealed(small(history=history)))).lines == len(small(history=history))
        assert store.verify() == []


def related(*, ids: bool) -> Lines:
    """A table with a tag on its column, a tag on it and an owner; the relations come last of the entities' lines."""
    with ms.open("memory://", principal="ada") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        store.users.create("lake.ann")
        store.users.create("lake.bob")
        store.tags.create("lake.pii")
        table = store.tables.create("lake.c.s.t", parents=True, columns=[ms.Column("a", "int")])
        store.partitions.create(table, "p", values={"a": "1"})
        store.tags.attach(table, "lake.pii", column="a")
        store.owners.set(table, store.users.load("lake.ann"))
        stream = io.BytesIO()
        store.export_to(stream, ids=ids)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def again(key: str, value: str, **fields: Any) -> Callable[[Lines], None]:
    """Repeat the first line that says so, with other fields."""

    def change(lines: Lines) -> None:
        at = next(n for n, line in enumerate(lines) if line.get(key) == value)
        lines.insert(at + 1, {**lines[at], **fields})

    return change


def other(key: str, value: str, **fields: Any) -> Callable[[Lines], None]:
    """Give the first line that says so other fields."""
    return lambda lines: next(line for line in lines if line.get(key) == value).update(fields)


TWICE: dict[str, tuple[Callable[[Lines], None], str]] = {
    "a row": (again("name", "p"), "the partition 'p' of lake.c.s.t twice"),
    "a relation": (again("relation", "tag_on"), "the relation tag_on of lake.c.s.t twice"),
    "an owner": (again("relation", "owner", to=["lake", "bob"]), "the relation owner of lake.c.s.t twice"),
}
NOWHERE: dict[str, tuple[Callable[[Lines], None], str]] = {
    "an end that is not in the file": (other("relation", "owner", to=["lake", "eve"]), "the user lake.eve, which the"),
    "an end that was left out": (lambda lines: lines.remove(at_path(lines, "lake", "pii")), "the tag lake.pii, which"),
    "an owner that is a tag": (
        other("relation", "owner", to=["lake", "pii"], to_kind="tag"),
        "owner ends at a user or",
    ),
    "a column that is not there": (
        other("relation", "tag_on", column=["b"]),
        "from the column b, which it does not have",
    ),
    "an owner of a column": (other("relation", "owner", column=["a"]), "owner of lake.c.s.t cannot go from a column"),
}


def at_path(lines: Lines, *path: str) -> dict[str, Any]:
    return next(line for line in lines if line.get("path") == list(path))


ASTRAY: dict[str, tuple[Callable[[Lines], None], str]] = {
    "to nothing": (other("relation", "owner", to_id=1 << 40), "has the id 1099511627776"),
    "to no entity": (other("relation", "tag_on", to_id=8), "leads to the id 8, and the file has no entity"),
    "from no column": (other("relation", "tag_on", column_id=7), "from the column 7, which is not a"),
    "an id twice": (other("kind", "schema", id=2), "another line of the file has its id 2"),
    "a place twice": (again("kind", "tag", id=8), "the file has lake.pii twice"),
}


@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize(("change", "match"), TWICE.values(), ids=TWICE)
def test_what_comes_twice_is_refused_before_anything_is_written(
    change: Callable[[Lines], None], match: str, ids: bool
) -> None:
    lines = related(ids=ids)
    change(lines)
    refused(sealed(lines), match)


@pytest.mark.parametrize(("change", "match"), ASTRAY.values(), ids=ASTRAY)
def test_rows_with_ids_fit_each_other(change: Callable[[Lines], None], match: str) -> None:
    lines = related(ids=True)
    change(lines)
    refused(sealed(lines), match)


def test_damaged_files() -> None:
    """Cut off anywhere, or with one byte changed, in whichever line."""
    with ms.open("memory://") as store:
        store.metalakes.create("lake", comment="a comment")
        stream = io.BytesIO()
        store.export_to(stream)
    data = stream.getvalue()
    lines = data.splitlines(keepends=True)
    for length in (0, 1, len(lines[0]), len(lines[0]) + 1, len(data) - len(lines[-1]), len(data) - 1):
        refused(data[:length], "not whole|inside this line|not an export")
    refused(data.replace(b"a comment", b"b comment"), r"line 3: it says checksum .* the file was changed or damaged")
    refused(
        data.replace(b'"entities":1', b'"entities":2'), "line 3: it says entities 2, and the lines before it give 1"
    )
    refused(data.replace(b'"hash":"', b'"hash":"0'), "line 3: it says hash 0")
    refused(data.replace(b'"header":"', b'"leader":"'), "not whole|the last line has 'leader'")
    refused(data.replace(lines[1], b"\xff\xfe\n"), "line 2: this is not JSON")
    refused(data.replace(lines[1], b"[" * 100_000 + b"\n"), "line 2: this is not JSON")
    refused(data.replace(b"1", b"1" * 5000, 1), "line 1: this is not an export")
    refused(data.replace(lines[1], b'{"path":["lake"],"doc":{"n":NaN}}\n'), "line 2: this is not JSON: NaN")
    refused(lines[0], "not whole")
    refused(data + data, "line 3: the export ends here, but the file continues")
    refused(b"not JSON lines\n" * 3, "line 1: this is not an export: this is not JSON")
    refused(b"[]\n", "line 1: this is not an export: an export's lines are JSON objects")


def test_a_header_that_was_changed() -> None:
    """Its numbers become those of the restored database: with other ones every later write fails."""
    with ms.open("memory://") as store:
        store.metalakes.create("lake")
        store.metalakes.alter("lake", ms.SetComment("c"))
        stream = io.BytesIO()
        store.export_to(stream, history=True)
    first, *lines, last = stream.getvalue().splitlines(keepends=True)
    header = json.loads(first)
    for name in header["numbers"]:
        changed = {**header, "numbers": {**header["numbers"], name: header["numbers"][name] + 1}}
        refused(b"".join([json.dumps(changed).encode() + b"\n", *lines, last]), "it says header")
    old = json.loads(last)
    del old["header"]
    end = json.dumps(old).encode() + b"\n"
    too_few = {**header, "numbers": {**header["numbers"], "seq": 1}}
    refused(b"".join([json.dumps(too_few).encode() + b"\n", *lines, end]), "the position 2; the header says .* is 1")
    with ms.open("memory://") as store:  # as an earlier release wrote it
        assert store.import_from(io.BytesIO(b"".join([first, *lines, end]))).written == 1


def test_statistics_before_their_partition(tmp_path: Path) -> None:
    """Their id must be greater than that of their partition, also where a chunk ends between the two lines."""
    lines = small()
    at = next(n for n, line in enumerate(lines) if line.get("owned") == "partition")
    of = {**lines[at], "owned": "partition_statistic"}
    lines.insert(at, {**of, "doc": {"comment": None, "properties": {}, "values": {"custom-rows": 5}}})
    refused = pytest.raises(ms.InvalidArgument, match=f"line {at + 2}: .*statistics of .* come before it")
    with ms.open("memory://") as store, refused:
        store.import_from(io.BytesIO(sealed(lines)))


@pytest.mark.parametrize(("change", "match"), NOWHERE.values(), ids=NOWHERE)
def test_relations_to_nowhere(change: Callable[[Lines], None], match: str) -> None:
    lines = related(ids=False)
    change(lines)
    refused(sealed(lines), match)


def test_relations_before_their_other_end() -> None:
    """Only parents must come before their children: a tag may follow the table that has it."""
    lines = related(ids=False)
    tag = at_path(lines, "lake", "pii")
    lines.remove(tag)
    lines.insert(len(lines) - 1, tag)
    with ms.open("sqlite://") as store:
        store.import_from(io.BytesIO(sealed(lines)))
        assert [tag.column for tag in store.tags.on("lake.c.s.t", kind="table", column="a")] == ["a"]
        assert store.verify() == []


def test_a_history_of_an_old_release() -> None:
    """Its steps do not have the places of their rows, nor the end of their commit. Nothing is wrong with that."""
    with ms.open("memory://") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational", fold_case=True)
        store.schemas.create("lake.c.s")
        with store.transaction() as tx:
            tx.tables.create("lake.c.s.t")
            tx.tables.create("lake.c.s.u")
        store.catalogs.alter("lake.c", ms.SetComment("later than the tables"))
        stream = io.BytesIO()
        store.export_to(stream, history=True)
    lines = json.loads(b"[%s]" % b",".join(stream.getvalue().splitlines()))
    for step in lines:
        if "operation_id" in step:
            for name in ("parent_id", "name", "fold", "state", "family", "key", "through"):
                step.pop(name, None)
    with ms.open("memory://") as store:
        store.import_from(io.BytesIO(sealed(lines)))
        assert store.verify() == []
        now = store.position()
        assert list(store.at(now).tables.names("lake.c.s")) == ["t", "u"]


def test_relations_of_an_unknown_kind() -> None:
    """The command line does not know the kinds that a program declared; its import keeps their relations."""
    with ms.open("memory://") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        topic = store.topics.create("lake.c.s.t", parents=True)
        store.tags.attach(topic, store.tags.create("lake.pii"))
        store.owners.set(topic, store.users.create("lake.ann"))
        store.roles.grant(store.roles.create("lake.r"), "use_catalog", "lake.c", kind="catalog")
        stream = io.BytesIO()
        store.export_to(stream)
    lines = json.loads(b"[%s]" % b",".join(stream.getvalue().splitlines()))
    at_path(lines, "lake", "c", "s", "t").update(kind="box", family="boxes")
    other("relation", "grant", to=["lake", "c", "s", "t"], to_kind="box")(lines)
    with ms.open("memory://") as store:
        imported = store.import_from(io.BytesIO(sealed(lines)))
        assert store.export_to(io.BytesIO()).hash == imported.hash
        assert store.verify() == []


@pytest.mark.parametrize("to", [3, "1", None, []])
def test_an_alias_to_a_missing_version(to: object) -> None:
    with ms.open("memory://") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="model")
        store.models.create("lake.c.s.m", parents=True)
        store.models.add_version("lake.c.s.m", uris={"default": "s3://m"}, aliases=["prod"])
        stream = io.BytesIO()
        store.export_to(stream)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    at_path(lines, "lake", "c", "s", "m")["doc"]["aliases"]["prod"] = to
    refused(sealed(lines), "line 7: m: the alias 'prod' leads to .* not one of its versions")


@pytest.mark.parametrize(("key", "value"), [("owned", "partition"), ("relation", "tag_on"), ("relation", "owner")])
def test_an_id_that_an_entity_has(key: str, value: str) -> None:
    """Rows, relations and entities share their ids: an id leads to one history."""
    lines = related(ids=True)
    other(key, value, id=1)(lines)
    refused(sealed(lines), "another line of the file has its id 1")


class Broken(io.BytesIO):
    """A stream of the caller's own, whose disk or network fails after some lines."""

    left = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().readline(size)


@pytest.mark.parametrize("left", range(7))
def test_a_stream_that_breaks_off(left: int) -> None:
    data = sealed(small())
    stream = Broken(data)
    stream.left = left
    with ms.open("memory://") as store:
        with pytest.raises(ms.InvalidArgument, match=r"the stream cannot be read: .*Input/output error"):
            store.import_from(stream)
        assert list(store.changes()) == []
    closed = io.BytesIO(data)
    closed.close()
    with ms.open("memory://") as store, pytest.raises(ms.InvalidArgument, match=r"the stream cannot be read: .*closed"):
        store.import_from(closed)


def test_a_compressed_stream_that_is_cut_off() -> None:
    data = gzip.compress(sealed(small()))
    with (
        ms.open("memory://") as store,
        gzip.open(io.BytesIO(data[:-20])) as stream,
        pytest.raises(ms.InvalidArgument, match="the stream cannot be read: Compressed file ended"),
    ):
        store.import_from(cast(BinaryIO, stream))


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with ms.open("memory://") as store:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(ms.BackendUnavailable, match=r"x\.jsonl.*No space left.*room"):
                store.export_to(tmp_path / "x.jsonl")
        assert store.export_to(tmp_path / "x.jsonl").lines == 2
        with pytest.raises(ms.BackendUnavailable, match=r"/dev/full.*No space left"):
            store.export_to("/dev/full")


def test_wrong_calls(tmp_path: Path) -> None:
    """Ids below a parent, a file that is read once, text, a missing file."""
    whole, part, with_ids = io.BytesIO(), io.BytesIO(), io.BytesIO()
    with ms.open("memory://") as store, ms.open("memory://") as empty:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        for stream, target, ids in ((whole, None, False), (part, "lake.c", False), (with_ids, None, True)):
            store.export_to(stream, target, ids=ids)
        with pytest.raises(ms.InvalidArgument, match="whole database"):
            store.export_to(io.BytesIO(), "lake.c", history=True)
        with pytest.raises(ms.EntityNotFound):
            store.export_to(tmp_path / "never", "lake.none")
        assert not (tmp_path / "never").exists()
        with pytest.raises(ms.InvalidArgument, match="have no parent"):
            empty.import_from(whole, into="lake")
        with pytest.raises(ms.EntityNotFound):
            empty.import_from(part)
        with pytest.raises(ms.InvalidArgument, match="must be below a metalake"):
            store.import_from(part, into="lake.c")
        with pytest.raises(ms.InvalidArgument, match="leave out into"):
            empty.import_from(with_ids, into="lake")
        for one, reason in ((empty, "why"), (empty.bind(reason="why"), None)):
            with pytest.raises(ms.InvalidArgument, match="leave out the reason"):
                one.import_from(with_ids, reason=reason)
        with pytest.raises(ms.InvalidArgument, match="empty database"):
            store.import_from(with_ids)
        new = tmp_path / "new.db"
        for bad, why in ((whole, "without ids"), (tmp_path / "none", "cannot be read")):
            with pytest.raises(ms.InvalidArgument, match=why):
                ms.restore(f"sqlite:///{new}", bad)
        assert not new.exists(), "a file that cannot be restored makes no database"
        with pytest.raises(ms.InvalidArgument, match='if_exists is "error"'):
            empty.import_from(whole, if_exists="never")  # type: ignore[arg-type]
        with pytest.raises(ms.InvalidArgument, match="binary stream"):
            empty.import_from(io.StringIO())  # type: ignore[arg-type]
        for place, why in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory")):
            for read_it in (empty.import_from, lambda file: ms.restore("memory://", file)):
                with pytest.raises(ms.InvalidArgument, match=f"cannot be read: {why}.*check its name"):
                    read_it(place)
        read, write_end = os.pipe()
        os.close(write_end)
        with os.fdopen(read, "rb") as once, pytest.raises(ms.InvalidArgument, match="only once"):
            empty.import_from(once)
        assert list(empty.metalakes.list()) == []


def test_an_error_of_the_callers_own_is_not_the_disks(tmp_path: Path) -> None:
    """A progress bar whose pipe is closed, say."""

    def progress(_: object) -> None:
        raise BrokenPipeError

    with ms.open("memory://") as store:
        store.metalakes.create("lake")
        with pytest.raises(BrokenPipeError):
            store.export_to(tmp_path / "x.jsonl", progress=progress)
