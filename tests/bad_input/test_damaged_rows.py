"""One damaged row: readers name it, or leave it out; verify survives it, an export too, and no import plants it."""

from __future__ import annotations

import io
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

import metastore as ms
from metastore.urls import parse_url
from tests.bad_input.conftest import TABLE
from tests.transfer.test_bad_input import changed, refused, sealed, small

Execute = Callable[[str], Any]
DEEP = '{"comment":null,"properties":{},"x":' + "[" * 5000 + "]" * 5000 + "}"
HUGE = '{"comment":null,"properties":{},"x":' + "1" * 5000 + "}"

DOCS = {
    "no JSON": "{",
    "no object": "[1]",
    "an empty object": "{}",
    "no properties": '{"comment":null}',
    "deep": DEEP,
    "a huge number": HUGE,
    "empty": "",
}


@pytest.fixture
def execute(url: str) -> Iterator[Execute]:
    """Give a function that changes the database by hand, past every check of ours."""
    if url.startswith("sqlite"):
        connection: Any = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    else:
        parsed = parse_url(url)
        connection = psycopg.connect(parsed.set(drivername="postgresql").render_as_string(False), autocommit=True)
    yield connection.execute
    connection.close()


def _table_row(column: str, value: str) -> str:
    return f"UPDATE entity SET {column} = {value} WHERE id IN (SELECT id FROM guard WHERE kind = 'table')"


def _step_row(column: str, value: str) -> str:
    return f"UPDATE operation SET {column} = {value} WHERE kind = 'table' AND version = 1"


def _read_all(found: Iterator[Any]) -> None:
    for one in found:
        one.read_all()


@pytest.mark.parametrize("doc", DOCS.values(), ids=DOCS)
def test_a_damaged_document(ground: ms.Store, execute: Execute, doc: str) -> None:
    ground.tables.create("m.c.s.good")
    table = ground.tables.load(TABLE)
    execute(_table_row("doc", f"'{doc}'") + " AND id = " + str(table.id))
    _is_found(ground, table)
    with pytest.raises(ms.UnreadableRow):
        ground.tables.alter(TABLE, ms.SetComment("x"))
    assert list(ground.tables.names("m.c.s")) == ["good", "t"]


@pytest.mark.parametrize("column", ["created_at", "modified_at"])
@pytest.mark.parametrize("value", ["9223372036854775807", "300000000000000000"])
def test_a_time_beyond_the_calendar(ground: ms.Store, execute: Execute, column: str, value: str) -> None:
    ground.tables.create("m.c.s.good")
    table = ground.tables.load(TABLE)
    execute(_table_row(column, value) + f" AND id = {table.id}")
    _is_found(ground, table)


def _is_found(store: ms.Store, table: ms.Table) -> None:
    """The listing, the export and verify name the row, and what is beside it is read."""
    with pytest.raises(ms.UnreadableRow) as caught:
        _read_all(store.tables.list("m.c.s"))
    assert (caught.value.kind, caught.value.entity_id, caught.value.version) == ("table", table.id, 1)
    left_out: list[ms.UnreadableRow] = []
    assert [t.name for t in store.tables.list("m.c.s", unreadable=left_out.append)] == ["good"]
    assert [error.entity_id for error in left_out] == [table.id]
    with pytest.raises(ms.UnreadableRow, match=f"table with the id {table.id}"):
        store.export_to(io.BytesIO())
    stream = io.BytesIO()
    store.export_to(stream, unreadable=left_out.append)
    names = [json.loads(line)["path"][-1] for line in stream.getvalue().splitlines()[1:-1]]
    assert "good" in names
    assert "t" not in names
    assert table.id in [violation.entity_id for violation in store.verify()]


STEPS = {
    "changes that are no JSON": ("changes", "'{'"),
    "changes that are no list": ("changes", "'5'"),
    "deep changes": ("changes", "'" + "[" * 5000 + "]" * 5000 + "'"),
    "a time beyond the calendar": ("time", "9223372036854775807"),
    "a path that is none": ("path_after", "'m.`'"),
}


@pytest.mark.parametrize(("column", "value"), STEPS.values(), ids=STEPS)
def test_a_damaged_step(ground: ms.Store, execute: Execute, column: str, value: str) -> None:
    table = ground.tables.alter(TABLE, ms.SetComment("second"))
    before = len(list(ground.changes()))
    execute(_step_row(column, value))
    readers: list[Callable[..., Iterator[ms.Version]]] = [ground.changes, partial(ground.tables.history, TABLE)]
    for reader in readers:
        with pytest.raises(ms.UnreadableRow) as caught:
            list(reader())
        assert (caught.value.kind, caught.value.entity_id, caught.value.version) == ("table", table.id, 1)
    left_out: list[ms.UnreadableRow] = []
    assert len(list(ground.changes(unreadable=left_out.append))) == before - 1
    assert left_out[0].position is not None
    assert [v.version for v in ground.tables.history(TABLE, unreadable=left_out.append)] == [2]
    assert ground.verify() != []
    with pytest.raises(ms.UnreadableRow):
        ground.export_to(io.BytesIO(), history=True)
    ground.export_to(io.BytesIO(), history=True, unreadable=left_out.append)
    assert len(left_out) == 3


def test_a_circle_of_parents(url: str, ground: ms.Store, execute: Execute) -> None:
    """What is in it is refused in time, whatever is asked; the rest works."""
    upper = ground.schemas.create("m.c.up")
    lower = ground.schemas.create("m.c.up.low")
    table = ground.tables.create("m.c.up.low.t")
    execute(f"UPDATE guard SET parent_id = {lower.id}, scope_version = scope_version + 1 WHERE id = {upper.id}")
    with ms.open(url, deadline=5.0) as store:
        for call in (
            lambda: store.tables.alter(table, ms.SetComment("x"), expected_version=7),
            lambda: list(store.tables.history(table)),
            lambda: store.export_to(io.BytesIO(), table),
            lambda: store.schemas.drop(upper, cascade=True),
        ):
            began = time.monotonic()
            with pytest.raises(ms.MetastoreError):
                call()
            assert time.monotonic() - began < 10, "twice the deadline"
        with pytest.raises(ms.MetastoreError), store.transaction() as tx:
            tx.tables.alter(table, ms.SetComment("x"))
        assert [v.message for v in store.verify() if v.invariant == 2]
        store.stats()
        store.gc()
        assert store.tables.load(TABLE).version == 1
        store.export_to(io.BytesIO())


PLANTED: dict[str, tuple[int, dict[str, Any], str]] = {
    "a time beyond the calendar": (5, {"created_at": 1 << 60}, "line 5: .*before the year 10000"),
    "a key of another name": (5, {"key": "other"}, "line 5: .*is compared as"),
    "a state that means nothing": (5, {"state": 7}, "line 5: .*not a state"),
    "a drop without a time": (5, {"state": 1}, "line 5: .*time of its drop"),
    "a version that is none": (5, {"version": 0}, "line 5: .*versions begin at 1"),
    "changes that are no JSON": (8, {"changes": "{"}, "line 8: .*changes cannot be read"),
    "deep changes": (8, {"changes": "[" * 900 + "]" * 900}, "line 8: .*changes cannot be read"),
    "a step beyond the calendar": (8, {"time": 1 << 60}, "line 8: .*before the year 10000"),
    "a step with a damaged document": (8, {"doc": "{}"}, "line 8: .*document cannot be read"),
    "a step with a path that is none": (8, {"path_after": "m.`"}, "line 8: .*never closed"),
    "a result that is no JSON": (8, {"result": "{"}, "line 8: .*result cannot be read"),
}


@pytest.mark.parametrize(("at", "fields", "match"), PLANTED.values(), ids=PLANTED)
def test_no_import_plants_them(at: int, fields: dict[str, Any], match: str) -> None:
    """Whatever the counts and checksums say."""
    lines = small(history=True)
    changed(at, **fields)(lines)
    refused(sealed(lines), match)


def test_a_failing_export_leaves_the_good_file(ground: ms.Store, execute: Execute, tmp_path: Path) -> None:
    good = tmp_path / "export.jsonl"
    ground.export_to(good)
    before = good.read_bytes()
    good.chmod(0o640)
    execute(_table_row("doc", "'{'"))
    with pytest.raises(ms.UnreadableRow):
        ground.export_to(good)
    assert good.read_bytes() == before
    ground.export_to(good, unreadable=lambda _: None)
    assert good.read_bytes() != before
    assert good.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir() if "export" in path.name) == ["export.jsonl"]


def test_files_are_for_their_owner(tmp_path: Path) -> None:
    """Exports and SQLite's files; one that was there keeps its mode."""
    shared = tmp_path / "shared.db"
    shared.touch(0o660)
    shared.chmod(0o660)
    for name, mode in (("own.db", 0o600), ("shared.db", 0o660)):
        with ms.open(f"sqlite:///{tmp_path / name}") as store:
            store.metalakes.create("m")
            modes = {p.name: p.stat().st_mode & 0o777 for p in tmp_path.iterdir() if p.name.startswith(name)}
            store.export_to(tmp_path / f"{name}.jsonl")
        assert set(modes) == {name, f"{name}-wal", f"{name}-shm"}
        assert set(modes.values()) == {mode}
        assert (tmp_path / f"{name}.jsonl").stat().st_mode & 0o777 == 0o600
