"""The other policies on SQLite, where they make sense: there is one writer at a time.

Connections are opened exactly as the library opens its own; the rows are those it writes.
"""

from __future__ import annotations

from typing import Any

from metastore.backends.sqlite.connect import DRIVER, Pool
from metastore.clock import SYSTEM
from metastore.retry.classify import Consequence, of_sqlite
from metastore.urls import parse_url
from tests.bench.contention.cells import Work
from tests.bench.contention.change import changed
from tests.bench.contention.policy import DEADLINE, GaveUp, Pause, Retrying, Row, at_once

__all__ = ["BlindUpdate", "Cas", "ForUpdate", "Serializable"]

READ = "SELECT version, doc FROM entity WHERE id = ?"
GUARDED = "SELECT count(*) FROM guard WHERE (id, scope_version) IN (VALUES {})"
WRITE = """UPDATE entity SET version = version + 1, doc = ?, modified_by = 'bench', modified_at = ?
  WHERE id = ? AND version = ? RETURNING version, doc"""
BLIND = """UPDATE entity SET version = version + 1, modified_by = 'bench', modified_at = ?,
  doc = json_set(doc, '$.properties.counter', CAST(json_extract(doc, '$.properties.counter') + 1 AS TEXT))
  WHERE id = ? RETURNING version, doc"""
SEQ = "UPDATE info SET last_seq = last_seq + 1 RETURNING last_seq"
LOGGED = """INSERT INTO operation (writer, operation_id, ordinal, seq, entity_id, version, kind, action, principal,
  time, path_before, path_after, changes, scope_version, in_use, doc)
  SELECT 99, ?, 0, ?, id, ?, 'table', 'alter', 'bench', ?, ?, ?, ?, scope_version, in_use, ? FROM guard WHERE id = ?"""


class _Sqlite(Retrying):
    def __init__(self, url: str, work: Work, in_hand: bool, pause: Pause = at_once) -> None:
        super().__init__(work, pause)
        self.in_hand = in_hand
        self.connection = Pool(parse_url(url).database, DEADLINE)._connect()
        self.run = self.connection.execute

    def close(self) -> None:
        self.connection.close()

    def begin(self) -> None:
        """Wait for the other writers."""
        try:
            self.run("BEGIN IMMEDIATE")
        except DRIVER.OperationalError as error:
            if not _is_busy(error):
                raise
            raise GaveUp from None

    def read(self, row: Row) -> tuple[int, str]:
        """Return version and document."""
        found: tuple[int, str] = self.run(READ, (row.id,)).fetchone()
        return found

    def write(self, row: Row, version: int, doc: str, changes: str) -> bool:
        """Write everything in the transaction that is open, if the version is still that."""
        now = SYSTEM.micros()
        return self.log(row, self.run(WRITE, (doc, now, row.id, version)).fetchall(), changes, now)

    def log(self, row: Row, written: list[tuple[int, str]], changes: str, now: int) -> bool:
        """Check the guards and log what was written."""
        marks = ", ".join(["(?, ?)"] * len(row.guards))
        ((held,),) = self.run(GUARDED.format(marks), [value for guard in row.guards for value in guard]).fetchall()
        if not written or held < len(row.guards):
            return False
        ((version, doc),) = written
        ((seq,),) = self.run(SEQ).fetchall()
        operation = (str(SYSTEM.operation_id()), seq, version, now, row.path, row.path, changes, doc, row.id)
        self.run(LOGGED, operation)
        return True

    def end(self, done: bool) -> bool:
        """Commit, or roll back what is not ``done``."""
        self.run("COMMIT" if done else "ROLLBACK")
        return done


class Cas(_Sqlite):
    """Read and work outside of any transaction, then compare and swap in a short one."""

    def __init__(self, url: str, work: Work, in_hand: bool, pause: Pause = at_once) -> None:
        super().__init__(url, work, in_hand, pause)
        self._hand: dict[int, tuple[int, str]] = {}

    def attempt(self, row: Row) -> bool:
        hand = self._hand.pop(row.id, None)
        version, doc = hand or self.read(row)
        doc, changes = changed(self.change, doc, row.names)
        self.work()
        self.begin()
        done = self.end(self.write(row, version, doc, changes))
        if done and self.in_hand:
            self._hand[row.id] = version + 1, doc
        return done


class ForUpdate(_Sqlite):
    """Hold the whole database while the caller works: BEGIN IMMEDIATE comes first."""

    def attempt(self, row: Row) -> bool:
        self.begin()
        version, doc = self.read(row)
        doc, changes = changed(self.change, doc, row.names)
        self.work()
        return self.end(self.write(row, version, doc, changes))


class Serializable(_Sqlite):
    """A transaction that begins with the read; SQLite refuses to let it write over what came meanwhile.

    It refuses at once while another one writes: without a pause, who tries again only takes processors.
    """

    def attempt(self, row: Row) -> bool:
        self.run("BEGIN")
        version, doc = self.read(row)
        doc, changes = changed(self.change, doc, row.names)
        self.work()
        try:
            return self.end(self.write(row, version, doc, changes))
        except DRIVER.OperationalError as error:
            if not _is_busy(error):
                raise
            return self.end(False)


class BlindUpdate(_Sqlite):
    """Let the database add: no read before."""

    def attempt(self, row: Row) -> bool:
        if self.change.seconds:
            self.change.apply({"properties": {self.change.key: "0"}}, row.names)
        self.work()
        self.begin()
        now = SYSTEM.micros()
        return self.end(self.log(row, self.run(BLIND, (now, row.id)).fetchall(), "[]", now))


def _is_busy(error: Any) -> bool:
    return of_sqlite(getattr(error, "sqlite_errorcode", None)) is Consequence.RETRY
