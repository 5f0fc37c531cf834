"""Pins and consumers on SQLite: :mod:`metastore.port.past`, with each change in a writing transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from metastore.backends.sql.dialect import Fetch
from metastore.backends.sqlite.group import Written, wrote
from metastore.port.past import ConsumerRow, NotKept, PinRow

_PINS = """SELECT name, seq, principal, created_at, expires_at,
    (SELECT o.operation_id FROM operation o WHERE o.seq = pin.seq) FROM pin
  WHERE expires_at IS NULL OR expires_at >= :now ORDER BY name"""
_CONSUMERS = """SELECT name, seq, created_at, moved_at,
    (SELECT o.operation_id FROM operation o WHERE o.seq = consumer.seq) FROM consumer"""


class SqliteReaders:
    """The implementation of :class:`metastore.port.past.Readers`."""

    def __init__(self, written: Written, fetch: Fetch, now: Callable[[], int]) -> None:
        self._written, self._fetch, self._now = written, fetch, now

    def pin(self, name: str, seq: int, principal: str | None, seconds: float | None) -> PinRow | None:
        def insert(connection: Any, now: int) -> PinRow | None:
            connection.execute("DELETE FROM pin WHERE name = ? AND expires_at < ?", (name, now))
            ((since,),) = connection.execute("SELECT past_from FROM info").fetchall()
            if seq < since and not connection.execute("SELECT 1 FROM pin WHERE seq = ?", (seq,)).fetchone():
                raise NotKept(since)
            row = PinRow(name, seq, principal, now, None if seconds is None else now + round(seconds * 1_000_000))
            sql = """INSERT INTO pin (name, seq, principal, created_at, expires_at) VALUES (?, ?, ?, ?, ?)
            ON CONFLICT (name) DO NOTHING RETURNING 1"""
            return row if connection.execute(sql, row[:5]).fetchall() else None

        return self._written(insert)

    def pins(self) -> list[PinRow]:
        rows = self._fetch(_PINS, {"now": self._now()})
        return [PinRow(*row[:5])._replace(operation_id=row[5] and UUID(row[5])) for row in rows]

    def extend(self, name: str, seconds: float) -> bool:
        sql = "UPDATE pin SET expires_at = :now + :micros WHERE name = :name RETURNING 1"
        return wrote(self._written, sql, name=name, micros=round(seconds * 1_000_000))

    def unpin(self, name: str) -> bool:
        return wrote(self._written, "DELETE FROM pin WHERE name = :name RETURNING 1", name=name)

    def consumer(self, name: str) -> ConsumerRow | None:
        rows = self._fetch(f"{_CONSUMERS} WHERE name = :name", {"name": name})
        return _consumer(rows[0]) if rows else None

    def consumers(self) -> list[ConsumerRow]:
        return [_consumer(row) for row in self._fetch(f"{_CONSUMERS} ORDER BY name", {})]

    def add_consumer(self, name: str, seq: int) -> ConsumerRow:
        def add(connection: Any, now: int) -> ConsumerRow:
            sql = """INSERT INTO consumer (name, seq, created_at, moved_at) VALUES (?, ?, ?, ?)
            ON CONFLICT (name) DO NOTHING"""
            connection.execute(sql, (name, seq, now, now))
            (row,) = connection.execute(f"{_CONSUMERS} WHERE name = ?", (name,)).fetchall()
            return _consumer(row)

        return self._written(add)

    def drop_consumer(self, name: str) -> bool:
        return wrote(self._written, "DELETE FROM consumer WHERE name = :name RETURNING 1", name=name)


def _consumer(row: Sequence[Any]) -> ConsumerRow:
    return ConsumerRow(*row[:4])._replace(operation_id=row[4] and UUID(row[4]))
