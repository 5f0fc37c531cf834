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
from tests.docs.examples import ROOT
from tests.verify.planting import LOOSE, build

PAGE = ROOT / "docs" / "verify.md"
_ROWS = 4
OTHERS = (
    "INSERT INTO staged VALUES ('00000000-0000-7000-8000-00000000000a', 1, 1, '{}', 1, 'k', '{}', 'p', 1, 1, 0)",
    "INSERT INTO ticket VALUES (0, 1, 1, 1, 1)",
    "INSERT INTO lease_waiter VALUES ('job', 1, 'p', 1)",
    "INSERT INTO secret_key VALUES (1, 'w', 'k', 1)",
    "INSERT INTO cache_member VALUES (1, 'i', 1, '1:1:', 1, 'h', 1, 1, 1)",
    "INSERT INTO cache_announcement VALUES (1, 1, '[]', '[]', '[]', 1)",
)
"""Rows of processes that run, as they leave them."""

REASONS = {
    "cache_*": "a cache on PostgreSQL leaves them behind, and a member that does not renew them is evicted",
    "lease_waiter.*": "a waiter writes it again while it waits; the next one goes on without it",
    "ticket.*": "a transaction writes it again while it waits; gc deletes it",
    "staged.*": "nothing of it is visible; what is published is in the document of its entity",
    "secret_key.*": "a value whose data key is damaged raises SecretDamaged when it is revealed",
    "pin.*": "any name, position and time is a pin",
    "consumer.*": "any name, position and time is a consumer",
    "lease.*": "any time, name of a holder and id may be a lease's; tokens and who holds it are compared",
    "info.*": "any number of this kind may be true; `open` reads the format, and the feed its epoch",
    "guard.*": "a time, a mark or a scope version that may be true",
    "entity.*": "any principal and any time may be true: history has its own",
    "owned.*": "any principal and any time may be true: history has its own",
    "relation.*": "any principal and any time may be true: history has its own",
    "operation.digest": "a fingerprint: the repeat of the call tells",
    "operation.fences": "present only where a commit was made under a lease",
    "operation.generation": "says why a commit was let in on PostgreSQL, not what it did",
    "operation.writer": "a trigger looked at it when it was written",
    "operation.*": "one of several values that may be true; nothing else in the database says it",
}
"""Why a change is not reported, by table and column."""


def grow(url: str) -> None:
    ids = build(url)
    with ms.open(url, principal="tester") as store:
        store.tags.create("lake.tag")
        store.tags.attach("lake.c.s.a", "lake.tag", kind="table")
        with store.leases.acquire("job", ttl=60) as lease:
            store.tables.alter("lake.c.s.a", ms.SetComment("three"), lease=lease)
        with store.transaction() as t:
            t.tables.alter("lake.c.s.a", ms.SetComment("four"))
            t.schemas.create("lake.c.more")
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
                ((where,),) = [(rowid,)] if column != "id" else [(value,)]
            except DRIVER.IntegrityError:
                continue  # a constraint refuses it
            found.append(bool(store.verify()))
            alias = {"guard": "id", "entity": "id", "info": "id"}.get(table) == column
            key = where if alias else rowid
            raw.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (before, key))
        assert store.verify() == []
    raw.close()
    return "refused" if not found else "yes" if all(found) else "some" if any(found) else "no"


def reason_of(table: str, column: str) -> str:
    names = (f"{table}.{column}", f"{table}.*", f"{table.partition('_')[0]}_*")
    return next((REASONS[name] for name in names if name in REASONS), "")


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
    assert [name for name, said, why in rows if said in ("no", "some") and not why] == []
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
