"""The other policies on PostgreSQL: psycopg, prepared statements, the fewest round trips.

Connections are opened exactly as the library opens its own, so that all plan alike. What is
written is what the library writes: the entity, guarded by its ancestors, and its operation row
with history and event, whose position is drawn last.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, ClassVar

import psycopg

from metastore.clock import SYSTEM
from tests.bench.contention.cells import Work
from tests.bench.contention.change import changed
from tests.bench.contention.policy import GaveUp, Pause, Retrying, Row, at_once
from tests.bench.core.setting import connect

__all__ = ["Advisory", "BlindUpdate", "Cas", "ForUpdate", "Serializable"]

_NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_GUARDED = """WITH guarded AS MATERIALIZED (
  SELECT id FROM guard
  WHERE id = ANY(%(guard_ids)s::bigint[])
    AND scope_version = (%(guard_scopes)s::bigint[])[array_position(%(guard_ids)s::bigint[], id)]
  ORDER BY id FOR KEY SHARE)"""
_LOGGED = """INSERT INTO operation (writer, generation, operation_id, ordinal, seq, entity_id, version, owner_id, kind,
  action, principal, time, path_before, path_after, changes, scope_version, in_use, doc)
SELECT 99, 0, %(operation_id)s::uuid, 0, nextval('change_seq'), a.id, a.version, NULL, 'table', 'alter', 'bench',
  a.modified_at, %(path)s::text, %(path)s::text, %(changes)s::text, g.scope_version, g.in_use, a.doc
FROM altered a JOIN guard g ON g.id = a.id
RETURNING version"""
_HELD = "(SELECT count(*) FROM guarded) = cardinality(%(guard_ids)s::bigint[])"

READ = "SELECT version, doc FROM entity WHERE id = %(id)s::bigint"
WRITE = f"""{_GUARDED},
altered AS (
  UPDATE entity SET version = version + 1, doc = %(doc)s::text, modified_by = 'bench', modified_at = {_NOW}
  WHERE id = %(id)s::bigint AND version = %(version)s::bigint AND {_HELD}
  RETURNING id, version, doc, modified_at)
{_LOGGED}"""
BLIND = f"""{_GUARDED},
altered AS (
  UPDATE entity SET version = version + 1, modified_by = 'bench', modified_at = {_NOW},
    doc = jsonb_set(doc::jsonb, '{{properties,counter}}',
      to_jsonb(((doc::jsonb #>> '{{properties,counter}}')::bigint + 1)::text))::text
  WHERE id = %(id)s::bigint AND {_HELD}
  RETURNING id, version, doc, modified_at)
{_LOGGED}"""


@cache
def _known(row: Row) -> dict[str, Any]:
    """The parameters that never change."""
    ids, scopes = (",".join(map(str, each)) for each in zip(*sorted(row.guards), strict=True))
    return {"id": row.id, "path": row.path, "guard_ids": f"{{{ids}}}", "guard_scopes": f"{{{scopes}}}"}


class _Postgres(Retrying):
    def __init__(self, url: str, work: Work, in_hand: bool, pause: Pause = at_once) -> None:
        super().__init__(work, pause)
        self.in_hand = in_hand
        self.connection = connect(url)
        self.cursor = self.connection.cursor()

    def close(self) -> None:
        self.connection.close()

    def parameters(self, row: Row, version: int, doc: str, changes: str) -> dict[str, Any]:
        return {
            **_known(row),
            "operation_id": SYSTEM.operation_id(),
            "version": version,
            "doc": doc,
            "changes": changes,
        }


class Cas(_Postgres):
    """Read, work, compare and swap: one statement each, each its own transaction.

    The statement that lost does not return the row to which it lost. After a wait its snapshot is older than that row,
    so the next attempt would lose as well.
    """

    def __init__(self, url: str, work: Work, in_hand: bool, pause: Pause = at_once) -> None:
        super().__init__(url, work, in_hand, pause)
        self._hand: dict[int, tuple[int, str]] = {}

    def attempt(self, row: Row) -> bool:
        hand = self._hand.pop(row.id, None)
        version, doc = hand or self._read(row)
        doc, changes = changed(self.change, doc, row.names)
        self.work()
        try:
            written = self.cursor.execute(WRITE, self.parameters(row, version, doc, changes)).fetchone()
        except psycopg.errors.QueryCanceled:
            raise GaveUp from None
        if written and self.in_hand:
            self._hand[row.id] = written[0], doc
        return written is not None

    def _read(self, row: Row) -> tuple[int, str]:
        found = self.cursor.execute(READ, _known(row)).fetchone()
        assert found is not None
        return found[0], found[1]


class _Transaction(_Postgres):
    """BEGIN and the read in one round trip, the write and COMMIT in another.

    Both are one message of several statements, which were prepared by hand: psycopg forgets the
    statements that it prepared at every ROLLBACK, and plans would be made again at every conflict.
    """

    begin: ClassVar = "BEGIN"
    lock: ClassVar = ""
    read: ClassVar = READ

    def __init__(self, url: str, work: Work, in_hand: bool, pause: Pause = at_once) -> None:
        super().__init__(url, work, in_hand, pause)
        self.connection.prepare_threshold = None
        self._cursor = psycopg.ClientCursor(self.connection)
        lock = f"{_prepared('locking', self.lock)};" if self.lock else ""
        self._opening = f"{self.begin}; {lock} {_prepared('reading', self.read)}"
        self._before = ""
        self._closing = f"{_prepared('writing', WRITE)}; COMMIT"
        for name, text in (("locking", self.lock), ("reading", self.read), ("writing", WRITE)):
            if text:
                self.connection.execute(_prepare(name, text))

    def attempt(self, row: Row) -> bool:
        try:
            version, doc = self._read(row)
            doc, changes = changed(self.change, doc, row.names)
            self.work()
            self._cursor.execute(self._closing, self.parameters(row, version, doc, changes))
        except psycopg.Error as error:
            self._before = "ROLLBACK; "  # goes with the next message; the server has released the locks already
            if isinstance(error, psycopg.errors.QueryCanceled):
                raise GaveUp from None
            if isinstance(error, (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)):
                return False
            raise
        return self._cursor.fetchone() is not None

    def _read(self, row: Row) -> tuple[int, str]:
        opening, self._before = f"{self._before}{self._opening}", ""
        cursor = self._cursor.execute(opening, _known(row))
        while cursor.nextset():
            pass
        found = cursor.fetchone()
        assert found is not None
        return found[0], found[1]


def _names_in(text: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))


def _prepare(name: str, text: str) -> str:
    """The statement that prepares ``text`` by hand."""
    places = {parameter: f"${n}" for n, parameter in enumerate(_names_in(text), 1)}
    return f"PREPARE {name} AS " + re.sub(r"%\((\w+)\)s", lambda m: places[m[1]], text)


def _prepared(name: str, text: str) -> str:
    """The statement that executes it."""
    return f"EXECUTE {name}({', '.join(f'%({parameter})s' for parameter in _names_in(text))})"


class ForUpdate(_Transaction):
    """Hold the entity's row while the caller works."""

    read = f"{READ} FOR UPDATE"


class Advisory(_Transaction):
    """Hold a lock that only means the entity."""

    lock = "SELECT pg_advisory_xact_lock(%(id)s::bigint)"


class Serializable(_Transaction):
    """Let the server find conflicts, and try again at once: its writers wait for each other anyway."""

    begin = "BEGIN ISOLATION LEVEL SERIALIZABLE"


class BlindUpdate(_Postgres):
    """Let the server add: one statement, no read. Only what SQL can say can be merged like this."""

    def attempt(self, row: Row) -> bool:
        if self.change.seconds:
            self.change.apply({"properties": {self.change.key: "0"}}, row.names)
        self.work()
        try:
            written = self.cursor.execute(BLIND, self.parameters(row, 0, "", "[]")).fetchone()
        except psycopg.errors.QueryCanceled:
            raise GaveUp from None
        return written is not None
