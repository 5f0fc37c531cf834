"""Which changed value of which column ``verify`` reports: docs/verify.md says it, and this test keeps it true.

Each column of each table gets another value of its kind, in up to four rows, one at a time, in a SQLite file that was
sound before. A column is reported if each of these changes is.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore.backends.sql.tables import metadata
from metastore.backends.sqlite.connect import DRIVER
from metastore.secrets.keyring import new_key
from tests.docs.examples import ROOT
from tests.verify.planting import LOOSE, build

PAGE = ROOT / "docs" / "verify.md"
_ROWS = 4
OTHERS = (
    "INSERT INTO staged VALUES ('00000000-0000-7000-8000-00000000000a', 1, 1, '{}', 1, 'k', '{}', 'p', 1, 1, 0)",
    "INSERT INTO ticket VALUES (0, 1, 1, 1, 1)",
    "INSERT INTO lease_waiter VALUES ('job', 1, 'p', 1)",
    "INSERT INTO cache_member VALUES (1, 'i', 1, '1:1:', 1, 'h', 1, 1, 1)",
    "INSERT INTO cache_announcement VALUES (1, 1, '[]', '[]', '[]', 1)",
)
"""Rows of processes that run, as they leave them."""

REASONS = {
    "cache_announcement.*": "the process that announced it takes it away; a cache on PostgreSQL",
    "cache_member.*": "a member renews it, or is evicted; a cache on PostgreSQL",
    "lease_waiter.*": "the waiter renews it, or others go on without the waiter",
    "ticket.*": "the transaction that waits writes it again, or gc deletes it",
    "staged.*": "it is not visible; what is published is in the document of its entity",
    "secret_key.*": "keys are not at hand: revealing the value raises SecretDamaged",
    "pin.*": "nothing else says it",
    "consumer.*": "nothing else says it",
    "lease.*": "its events say its token, and whether it is held; nothing else says this",
    "info.format": "`open` compares it with the program's",
    "info.compatible_from": "`open` compares it with the program's",
    "info.epoch": "positions of the feed are refused under another one",
    "info.last_id": "a higher number may have been drawn; a lower one is reported",
    "info.last_seq": "a higher number may have been drawn; a lower one is reported",
    "info.id": "it is the only row",
    "info.origin": "noted again at the next open",
    "info.collected_seq": "gc may have left it so",
    "info.forgotten": "gc may have left it so",
    "info.past_from": "gc may have left it so",
    "info.writer": "a trigger removes it",
    "guard.scope_version": "a freeze, or a mark that was cleared, raises it and leaves no history",
    "guard.dropped_at": "any time may be true",
    "guard.quiet_until": "it ends by itself after 5 s at most",
    "operation.operation_id": "an id may be any, unless rows of one operation part",
    "operation.ordinal": "the last write of an operation may have any number while gc may have removed others",
    "operation.action": "an action by which nothing moves looks like another one",
    "operation.principal": "of steps between the first and the last: nothing else says it",
    "operation.time": "of steps between the first and the last: nothing else says it",
    "operation.path_before": "a path is compared where it changes the tree",
    "operation.changes": "they are not applied to the document before them",
    "operation.doc": "of steps before the last: changes are not applied to the document before them",
    "operation.scope_version": "of steps before the last: any number in between may be true",
    "operation.in_use": "of steps before the last: nothing else says it",
    "operation.attempt": "it counts claims of a row that was not applied",
    "operation.deadline": "any time may be true of an intent",
    "operation.digest": "a fingerprint of the call: its repeat tells",
    "operation.result": "what the caller was answered: nothing else says it",
    "operation.format": "of an intent: any may be true",
    "operation.fences": "present where a commit was made under a lease; without it nothing says so",
    "operation.other_path": "the other end may have been renamed since",
    "operation.generation": "says why a commit was let in on PostgreSQL, not what it did",
    "operation.writer": "a trigger looked at it when it was written",
}
"""Why a change is not reported, by table and column."""


def grow(url: str) -> None:
    ids = build(url)
    with pytest.MonkeyPatch.context() as patch, ms.open(url, principal="tester") as store:
        patch.setenv("METASTORE_SECRET_KEY", new_key())
        secret = {"metastore.secret-properties": "password", "password": "x"}
        store.tags.create("lake.tag")
        store.tags.attach("lake.c.s.a", "lake.tag", kind="table")
        with store.leases.acquire("job", ttl=60) as lease:
            store.tables.alter("lake.c.s.a", ms.SetComment("three"), lease=lease)
        with store.transaction() as t:
            t.tables.alter("lake.c.s.a", ms.SetComment("four"))
            t.catalogs.create("lake.sealed", type="relational", properties=secret)
        store.pin("here")
        store.consumers.get("reader")
        assert store.verify() == []
    assert ids


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a file in which nothing is wrong, and no trigger is in the way."""
    file = tmp_path_factory.mktemp("columns") / "sound.db"
    grow(f"sqlite:///{file}")
    with DRIVER.connect(file, isolation_level=None) as raw:
        for statement in (*LOOSE["sqlite"], *OTHERS):
            raw.execute(statement)
        raw.execute("PRAGMA journal_mode = DELETE")
    raw.close()
    return file


def changed(value: object) -> object:
    """Return another value of the same kind."""
    if value is None:
        return 7
    if isinstance(value, int):
        return 1 - value if value in (0, 1) else value + 1
    text = str(value)
    if text[:1] in ("[", "{"):
        found = json.loads(text)
        if isinstance(found, dict) and "comment" in found:
            return json.dumps({**found, "comment": "another"})
        return "[]" if found else '[{"change":"SetComment","text":"y"}]'
    return text[:-1] + ("0" if text[-1:] != "0" else "1")


def attempts(raw: Any, table: str, column: str) -> Iterator[tuple[int, object]]:
    """Yield rows to change and their new values: those with a value first, spread over the table."""
    rows = raw.execute(f"SELECT rowid, {column} FROM {table} WHERE {column} IS NOT NULL ORDER BY rowid").fetchall()
    rows = rows or raw.execute(f"SELECT rowid, {column} FROM {table} ORDER BY rowid").fetchall()
    step = max(1, len(rows) // _ROWS)
    for rowid, value in rows[step - 1 :: step][:_ROWS]:
        yield rowid, changed(value)


def reported(file: Path, table: str, column: str) -> str:
    """Change one value after the other; return how many of the changes ``verify`` reports: all, some, none."""
    with ms.open(f"sqlite:///{file}") as store, DRIVER.connect(file, isolation_level=None) as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        found = list[bool]()
        for rowid, value in attempts(raw, table, column):
            (before,) = raw.execute(f"SELECT {column} FROM {table} WHERE rowid = ?", (rowid,)).fetchone()
            try:
                raw.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, rowid))
            except DRIVER.IntegrityError:
                continue  # a constraint refuses it
            found.append(bool(store.verify()))
            alias = {"guard": "id", "entity": "id", "info": "id", "secret_key": "number"}.get(table) == column
            key = value if alias else rowid
            raw.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (before, key))
        assert store.verify() == []
    raw.close()
    return "refused" if not found else "yes" if all(found) else "some" if any(found) else "no"


def reason_of(table: str, column: str) -> str:
    return REASONS.get(f"{table}.{column}") or REASONS.get(f"{table}.*", "")


def page(rows: list[tuple[str, str, str]]) -> str:
    text = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if not line.startswith("|")]
    lines = [f"| `{name}` | {said} | {why} |" for name, said, why in rows]
    table = ["| column | reported | why not |", "|---|---|---|", *lines]
    at = next(n for n, line in enumerate(text) if line.startswith("<!-- table"))
    return "\n".join([*text[: at + 1], *table, *text[at + 1 :]]) + "\n"


def test_what_verify_reports_is_what_its_page_says(sound: Path, tmp_path: Path) -> None:
    """To write the page again, remove its table and run this test: it writes what it found, and fails."""
    file = tmp_path / "changed.db"
    shutil.copy(sound, file)
    rows = list[tuple[str, str, str]]()
    for name, table in sorted(metadata.tables.items()):
        for column in table.columns:
            said = reported(file, name, column.name)
            rows.append(
                (f"{name}.{column.name}", said, "" if said in ("yes", "refused") else reason_of(name, column.name))
            )
    assert [(name, said) for name, said, why in rows if said in ("no", "some") and not why] == []
    wanted, there = page(rows), PAGE.read_text(encoding="utf-8")
    if "| column |" not in there:
        PAGE.write_text(wanted, encoding="utf-8")
    assert there == wanted


@pytest.mark.parametrize("column", ["parent_id", "name", "fold", "state", "family", "key", "through"])
def test_what_the_past_rests_on_is_reported(sound: Path, tmp_path: Path, column: str) -> None:
    """Of these columns every changed value of every row that has one."""
    file = tmp_path / "changed.db"
    shutil.copy(sound, file)
    missed = list[tuple[object, ...]]()
    with ms.open(f"sqlite:///{file}") as store, DRIVER.connect(file, isolation_level=None) as raw:
        of = f"SELECT rowid, {column}, action, kind, path_after FROM operation WHERE {column} IS NOT NULL"
        for rowid, value, *what in raw.execute(of).fetchall():
            raw.execute(f"UPDATE operation SET {column} = ? WHERE rowid = ?", (changed(value), rowid))
            if not store.verify():
                missed.append((value, *what))
            raw.execute(f"UPDATE operation SET {column} = ? WHERE rowid = ?", (value, rowid))
    raw.close()
    assert missed == []
