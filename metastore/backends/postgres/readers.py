"""Pins and consumers on PostgreSQL: :mod:`metastore.port.past` with one statement for each call."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

from metastore.backends.postgres.connect import Pool
from metastore.backends.postgres.fragments import DURABLE, NOW
from metastore.backends.postgres.sending import attempt
from metastore.backends.sql.comments import without_comments
from metastore.backends.sql.dialect import Fetch
from metastore.clock import SYSTEM
from metastore.errors import BackendUnavailable, DeadlineExceeded, OutcomeUnknown
from metastore.port.commit import Conflicted, Unknown
from metastore.port.past import ConsumerRow, NotKept, PinRow
from metastore.port.records import Step

# If the first sending writes, it leaves a row. A second sending waits for the first, and fails if it finds that row.
# Otherwise the second sending leaves a row in any case, so that the first one fails if it comes late.
_KEPT = f"""kept AS (
  INSERT INTO operation (operation_id, ordinal, action, result, time)
  SELECT %(operation_id)s::uuid, 0, 'unchanged',
    CASE WHEN EXISTS (SELECT FROM done) THEN '{{"value": true}}' ELSE '{{"value": false}}' END, {NOW}
  WHERE (EXISTS (SELECT FROM done) OR %(again)s::boolean) AND {DURABLE})
SELECT EXISTS (SELECT FROM done)"""
_FREE_NAME = f"""WITH freed AS (DELETE FROM pin WHERE name = %(name)s::text AND expires_at < {NOW} AND {DURABLE})
SELECT {NOW}"""
_PIN = without_comments(f"""
-- FOR SHARE: waits for a gc that raises past_from, and makes one wait. So the pin is made before that gc, or refused.
WITH whole AS MATERIALIZED (SELECT past_from FROM info FOR SHARE),
-- Another pin at the position keeps its past as well; the lock holds that pin until this one exists.
held AS MATERIALIZED (SELECT name FROM pin WHERE seq = %(seq)s::bigint FOR SHARE),
done AS (
  INSERT INTO pin (name, seq, principal, created_at, expires_at)
  SELECT %(name)s::text, %(seq)s::bigint, %(principal)s::text, %(created_at)s::bigint, %(expires_at)s::bigint
  FROM whole
  WHERE (past_from <= %(seq)s::bigint OR (SELECT count(*) FROM held) > 0) AND {DURABLE}
  ON CONFLICT (name) DO NOTHING
  RETURNING name),
{_KEPT}, past_from <= %(seq)s::bigint OR (SELECT count(*) FROM held) > 0, past_from FROM whole""")
_PINS = f"""SELECT name, seq, principal, created_at, expires_at,
    (SELECT o.operation_id FROM operation o WHERE o.seq = pin.seq) FROM pin
  WHERE expires_at IS NULL OR expires_at >= {NOW} ORDER BY name"""
_EXTEND = f"""UPDATE pin SET expires_at = {NOW} + %(micros)s::bigint WHERE name = %(name)s::text AND {DURABLE}
  RETURNING 1"""
_UNPIN = f"WITH done AS (DELETE FROM pin WHERE name = %(name)s::text RETURNING 1), {_KEPT}"

_CONSUMERS = """SELECT name, seq, created_at, moved_at,
    (SELECT o.operation_id FROM operation o WHERE o.seq = consumer.seq) FROM consumer"""
_ADD = f"""WITH done AS (INSERT INTO consumer (name, seq, created_at, moved_at)
  SELECT %(name)s::text, %(seq)s::bigint, {NOW}, {NOW} ON CONFLICT (name) DO NOTHING RETURNING 1), {_KEPT}"""
_DROP = f"WITH done AS (DELETE FROM consumer WHERE name = %(name)s::text RETURNING 1), {_KEPT}"

_PAUSE = 0.05
"""The pause between two sendings of a statement whose answer was lost (seconds)."""


class PostgresReaders:
    """The implementation of :class:`metastore.port.past.Readers`."""

    def __init__(self, pool: Pool, fetch: Fetch, confirm: Callable[[UUID], list[Step]]) -> None:
        self._pool, self._fetch, self._confirm = pool, fetch, confirm

    def _write(self, text: str, values: dict[str, Any]) -> tuple[Any, ...]:
        """Send a statement, and again after a lost answer, until the deadline; return its row: first, whether it wrote.

        The row of its operation shows what an earlier sending did. Raises OutcomeUnknown if that row cannot be read.
        """
        operation_id, lost = SYSTEM.operation_id(), False
        with self._pool.in_time():
            while True:
                try:
                    answer = attempt(self._pool, text, {**values, "operation_id": operation_id, "again": lost})
                    if isinstance(answer, list):
                        return answer[0]
                    lost = lost or isinstance(answer, Unknown)
                    if isinstance(answer, Conflicted) and answer.cause == "operation":
                        for step in self._confirm(operation_id):
                            if json.loads(step.result or "")["value"]:
                                return (True, True, 0)
                            operation_id, lost = SYSTEM.operation_id(), False  # surely no sending is applied
                except (BackendUnavailable, DeadlineExceeded) as error:
                    if not lost:
                        raise
                    if isinstance(error, DeadlineExceeded):
                        raise OutcomeUnknown(operation_id) from error
                SYSTEM.sleep(_PAUSE)

    def pin(self, name: str, seq: int, principal: str | None, seconds: float | None) -> PinRow | None:
        ((now,),) = self._fetch(_FREE_NAME, {"name": name})
        row = PinRow(name, seq, principal, now, None if seconds is None else now + round(seconds * 1_000_000))
        made, whole, since = self._write(_PIN, row._asdict())
        if not whole:
            raise NotKept(since)
        return row if made else None

    def pins(self) -> list[PinRow]:
        return [PinRow(*row) for row in self._fetch(_PINS, {})]

    def extend(self, name: str, seconds: float) -> bool:
        return bool(self._fetch(_EXTEND, {"name": name, "micros": round(seconds * 1_000_000)}))

    def unpin(self, name: str) -> bool:
        return bool(self._write(_UNPIN, {"name": name})[0])

    def consumer(self, name: str) -> ConsumerRow | None:
        rows = self._fetch(f"{_CONSUMERS} WHERE name = %(name)s::text", {"name": name})
        return ConsumerRow(*rows[0]) if rows else None

    def consumers(self) -> list[ConsumerRow]:
        return [ConsumerRow(*row) for row in self._fetch(f"{_CONSUMERS} ORDER BY name", {})]

    def add_consumer(self, name: str, seq: int) -> ConsumerRow:
        while True:
            self._write(_ADD, {"name": name, "seq": seq})
            row = self.consumer(name)
            if row is not None:  # otherwise another process has just dropped the consumer: add it again
                return row

    def drop_consumer(self, name: str) -> bool:
        return bool(self._write(_DROP, {"name": name})[0])
