"""One damaged row: readers name it, or leave it out; verify survives it, an export too, and no import plants it."""

from __future__ import annotations

import io
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

import metastore as ms
from metastore.kinds import entity
from metastore.managers import history
from metastore.urls import parse_url
from tests.bad_input.conftest import TABLE, prepare
from tests.cli.test_cli import here
from tests.transfer.test_bad_input import changed, refused, sealed, small

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

Execute = Callable[[str], Any]
ROOT = Path(__file__).resolve().parents[2]
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


def test_a_document_that_is_too_deep_wherever_python_reads_it(ground: ms.Store, execute: Execute) -> None:
    """Python's bound differs from version to version, and from program to program: ours holds beside a higher one."""
    doc = json.loads(ground.tables.load(TABLE).record.doc)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        execute(_table_row("doc", "'" + json.dumps(doc)[:-1] + ',"x":' + "[" * 5000 + "]" * 5000 + "}'"))
        with pytest.raises(ms.UnreadableRow, match="deep"):
            ground.tables.alter(TABLE, ms.SetComment("x"))
        assert any("deep" in violation.message for violation in ground.verify())
    finally:
        sys.setrecursionlimit(limit)


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
    "changes that are not JSON": ("changes", "'{'"),
    "changes that are not a list": ("changes", "'5'"),
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
    ground.users.create("m.ann")
    ground.owners.set("m", "m.ann", kind="metalake")
    ground.roles.create("m.role")
    ground.roles.grant("m.role", "select_table", table)  # an export looks for the table's place
    execute(f"UPDATE guard SET parent_id = {lower.id}, scope_version = scope_version + 1 WHERE id = {upper.id}")
    with ms.open(url, deadline=5.0) as store:
        seen = {change.path_after for change in store.as_user("ann").changes()}
        assert TABLE in seen
        assert table.path not in seen, "nobody can tell whether she may see it"
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
        for name in ("t*", "*"):
            assert table.id not in _found(url, name)
        store.stats()
        store.gc()
        assert store.tables.load(TABLE).version == 1
        store.export_to(io.BytesIO())


def _found(url: str, name: str) -> set[int]:
    """Return the ids that a search finds, in a process of its own: SQLite holds the signals of one that searches on."""
    program = "import sys, metastore as ms\nfor one in ms.open(sys.argv[1]).find(name=sys.argv[2]): print(one.id)"
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, url, name], cwd=ROOT, check=True, capture_output=True, text=True, timeout=90
        )
    except subprocess.TimeoutExpired:
        pytest.fail("the search does not end")
    return {int(line) for line in done.stdout.splitlines()}


PLANTED: dict[str, tuple[int, dict[str, Any], str]] = {
    "a time beyond the calendar": (5, {"created_at": 1 << 60}, "line 5: .*before the year 10000"),
    "a key of another name": (5, {"key": "other"}, "line 5: .*the key of .* cannot be"),
    "a state that means nothing": (5, {"state": 7}, "line 5: .*there is no state 7"),
    "a drop without a time": (5, {"state": 1}, "line 5: .*time of its drop"),
    "a version that is none": (5, {"version": 0}, "line 5: .*versions begin at 1"),
    "changes that are not JSON": (8, {"changes": "{"}, "line 8: .*changes cannot be read"),
    "deep changes": (8, {"changes": "[" * 900 + "]" * 900}, "line 8: .*changes cannot be read"),
    "a step beyond the calendar": (8, {"time": 1 << 60}, "line 8: .*before the year 10000"),
    "a step with a damaged document": (8, {"doc": "{}"}, "line 8: .*document cannot be read"),
    "a step with a path that is none": (8, {"path_after": "m.`"}, "line 8: .*never closed"),
    "a result that is not JSON": (8, {"result": "{"}, "line 8: .*result cannot be read"),
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


LEASE_ROWS = {
    "changes that are not JSON": ("changes = '{'", "action = 'acquire'", ["release", "commit"]),
    "a time beyond the calendar": ("time = 9223372036854775807", "action = 'release'", ["acquire", "commit"]),
    "leases that are not JSON": ("fences = fences || '{'", "fences IS NOT NULL", ["acquire", "release"]),
}


@pytest.mark.each_run_on("sqlite")
@pytest.mark.parametrize(("change", "where", "rest"), LEASE_ROWS.values(), ids=LEASE_ROWS)
def test_a_damaged_event_of_a_lease(
    url: str, ground: ms.Store, execute: Execute, change: str, where: str, rest: list[str]
) -> None:
    with ground.leases.acquire("job") as lease:
        ground.tables.alter(TABLE, ms.SetComment("fenced"), lease=lease)
    execute(f"UPDATE operation SET {change} WHERE {where}")
    with pytest.raises(ms.UnreadableRow) as caught:
        list(ground.leases.audit("job"))
    assert caught.value.position is not None
    left_out: list[ms.UnreadableRow] = []
    assert sorted(e.action for e in ground.leases.audit("job", unreadable=left_out.append)) == sorted(rest)
    assert [error.position for error in left_out] == [caught.value.position]
    refused_by_command = here(url, "lease", "audit", "job")
    assert refused_by_command.returncode == 1
    assert "--skip-unreadable" in refused_by_command.stderr
    done = here(url, "lease", "audit", "job", "--skip-unreadable")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)
    assert "left out: " in done.stderr


@pytest.mark.each_run_on("sqlite")
def test_the_commands_leave_damaged_rows_out(url: str, ground: ms.Store, execute: Execute, tmp_path: Path) -> None:
    ground.tables.alter(TABLE, ms.SetComment("second"))
    before = len(list(ground.changes()))
    execute(_step_row("changes", "'{'"))
    table = ground.tables.load(TABLE)
    file = str(tmp_path / "export.jsonl")
    commands = (["history", TABLE], ["changes"], ["export", "--history", "-o", file])
    for words in commands:
        refusal = here(url, *words)
        assert refusal.returncode == 1
        assert f"version 1 of the table with the id {table.id}" in refusal.stderr
        assert "--skip-unreadable" in refusal.stderr
        done = here(url, *words, "--skip-unreadable")
        assert done.returncode == 0
        assert f"left out: version 1 of the table with the id {table.id}" in done.stderr
    assert len(here(url, "changes", "--json", "--skip-unreadable").stdout.splitlines()) == before - 1
    (version,) = json.loads(here(url, "history", TABLE, "--json", "--skip-unreadable").stdout)["versions"]
    assert version["version"] == 2


NO_TEXT = "CAST(x'41ff42' AS TEXT)"
"""SQLite takes any bytes for text; PostgreSQL refuses these."""


@pytest.fixture
def on_sqlite(sqlite_url: str) -> Iterator[tuple[ms.Store, Execute]]:
    """Give a small tree in a SQLite file, and a function that changes it by hand."""
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    with ms.open(sqlite_url) as store:
        yield prepare(store), connection.execute
    connection.close()


@pytest.mark.parametrize("column", ["doc", "created_by", "modified_by"])
def test_a_row_that_is_not_utf8(on_sqlite: tuple[ms.Store, Execute], column: str) -> None:
    store, execute = on_sqlite
    store.tables.create("m.c.s.good")
    table = store.tables.load(TABLE)
    execute(_table_row(column, NO_TEXT) + f" AND id = {table.id}")
    _is_found(store, table)
    with pytest.raises(ms.UnreadableRow, match=f"its column {column} is not UTF-8") as caught:
        store.tables.load(TABLE).read_all()
    assert "A\udcff" not in str(caught.value), "no content in a message"
    for change in (ms.SetComment("x"), ms.SetProperty("a", "b")):
        with pytest.raises(ms.UnreadableRow):
            store.tables.alter(TABLE, change)
    if column == "doc":
        with pytest.raises(ms.UnreadableRow, match=f"table with the id {table.id}"):
            store.tables.drop(table)


def test_a_name_that_is_not_utf8(on_sqlite: tuple[ms.Store, Execute]) -> None:
    store, execute = on_sqlite
    store.tables.create("m.c.s.good")
    table = store.tables.load(TABLE)
    execute(f"UPDATE guard SET name = {NO_TEXT}, scope_version = scope_version + 1 WHERE id = {table.id}")
    _is_found(store, table)


def test_an_owned_row_that_is_not_utf8(on_sqlite: tuple[ms.Store, Execute]) -> None:
    store, execute = on_sqlite
    store.partitions.put_many(TABLE, [store.partitions.row(f"day={n}", {}, {}) for n in (1, 2)])
    execute(f"UPDATE owned SET doc = {NO_TEXT} WHERE name = 'day=1'")
    left_out: list[ms.UnreadableRow] = []
    assert [p.name for p in store.partitions.list(TABLE, unreadable=left_out.append)] == ["day=2"]
    (error,) = left_out
    assert (error.kind, error.version) == ("partition", 1)
    assert store.verify() != []
    with pytest.raises(ms.UnreadableRow, match=f"partition with the id {error.entity_id}"):
        store.partitions.drop(TABLE, "day=1")


@pytest.mark.parametrize("column", ["changes", "path_after", "principal", "doc", "operation_id"])
def test_a_step_that_is_not_utf8(on_sqlite: tuple[ms.Store, Execute], column: str) -> None:
    store, execute = on_sqlite
    table = store.tables.alter(TABLE, ms.SetComment("second"))
    before = len(list(store.changes()))
    execute(_step_row(column, NO_TEXT))
    left_out: list[ms.UnreadableRow] = []
    assert len(list(store.changes(unreadable=left_out.append))) == before - 1
    assert [v.version for v in store.tables.history(TABLE, unreadable=left_out.append)] == [2]
    assert {(e.kind, e.entity_id, e.version) for e in left_out} == {("table", table.id, 1)}
    with pytest.raises(ms.UnreadableRow):
        list(store.changes())
    if column != "operation_id":
        assert table.id in [violation.entity_id for violation in store.verify()]
    with pytest.raises(ms.UnreadableRow):
        store.export_to(io.BytesIO(), history=True)
    store.export_to(io.BytesIO(), history=True, unreadable=left_out.append)


class Late(Exception):
    """What the handler of an alarm raises, such as a task's time limit."""


@pytest.mark.parametrize(
    ("module", "decoder", "readers"),
    [
        (history, "utc", [lambda s, u: s.changes(unreadable=u), lambda s, u: s.tables.history(TABLE, unreadable=u)]),
        (entity, "_object", [lambda s, u: s.tables.list("m.c.s", unreadable=u)]),
    ],
    ids=["changes and versions", "entities"],
)
def test_an_alarm_within_decoding_damages_no_row(
    ground: ms.Store, monkeypatch: pytest.MonkeyPatch, module: Any, decoder: str, readers: list[Callable[..., Any]]
) -> None:
    decode = getattr(module, decoder)
    for read in readers:
        alarms, left_out = [Late()], list[object]()

        def decoded(value: Any, alarms: list[Late] = alarms) -> Any:
            if alarms:
                raise alarms.pop()
            return decode(value)

        monkeypatch.setattr(module, decoder, decoded)
        with pytest.raises(Late):
            list(read(ground, left_out.append))
        assert not left_out
        assert list(read(ground, left_out.append))


@pytest.mark.parametrize("history", [False, True])
def test_an_export_leaves_out_relations_of_damaged_entities(ground: ms.Store, execute: Execute, history: bool) -> None:
    """An import refuses a relation to an entity that is not in the file. One of a column needs its table's document."""
    ground.tags.create("m.tag")
    ground.tags.attach(TABLE, "m.tag", column="id")
    ground.roles.create("m.role")
    ground.roles.grant("m.role", "select_table", TABLE, kind="table")
    execute(_table_row("doc", "'{'"))
    with pytest.raises(ms.UnreadableRow):
        list(ground.tags.targets("m.tag"))
    ground.gc(retention=timedelta(0))
    left_out: list[ms.UnreadableRow] = []
    stream = io.BytesIO()
    ground.export_to(stream, history=history, unreadable=left_out.append)
    assert {error.kind for error in left_out} == {"table"}
    stream.seek(0)
    with ms.open("memory://") as other:
        other.import_from(stream)
        assert not list(other.tags.targets("m.tag"))
        assert other.roles.load("m.role").name == "role"


def test_a_search_for_a_text_elsewhere_reads_no_damaged_table(ground: ms.Store, execute: Execute) -> None:
    """The text is in the name of a tag that the damaged table has, too."""
    sound = ground.tables.create("m.c.elsewhere.sound", parents=True, columns=[ms.Column("id", "long")])
    ground.tags.create("m.tag")
    ground.tags.attach_many("m.tag", [{"target": p, "kind": "table", "column": "id"} for p in (TABLE, sound.path)])
    execute("UPDATE entity SET doc = '{' WHERE id IN (SELECT id FROM guard WHERE kind = 'table' AND name = 't')")
    assert [one.path for one in ground.find("m.c.elsewhere", text="tag")] == [sound.path]
    with pytest.raises(ms.UnreadableRow):
        list(ground.find("m.c", text="tag"))


def test_an_info_table_without_its_row(tmp_path: Path) -> None:
    """A restore that failed half-way leaves one."""
    url = f"sqlite:///{tmp_path}/half.db"
    ms.migrate(url)
    with sqlite3.connect(tmp_path / "half.db") as connection:
        connection.execute("DELETE FROM info")
    connection.close()
    with pytest.raises(ms.BackendRefused, match="the backup was not restored completely"), ms.open(url) as store:
        store.metalakes.names()
