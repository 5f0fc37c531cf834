"""Pins and consumers on PostgreSQL: :mod:`metastore.port.past` with one statement for each call."""

from __future__ import annotations

from metastore.backends.postgres.fragments import DURABLE, NOW
from metastore.backends.sql.comments import without_comments
from metastore.backends.sql.dialect import Fetch
from metastore.port.past import ConsumerRow, NotKept, PinRow

_FREE_NAME = f"""WITH freed AS (DELETE FROM pin WHERE name = %(name)s::text AND expires_at < {NOW} AND {DURABLE})
SELECT {NOW}"""
_PIN = without_comments(f"""
-- FOR SHARE: waits for a gc that raises past_from, and makes one wait; so a pin is before it, or is refused.
WITH whole AS MATERIALIZED (SELECT past_from FROM info FOR SHARE),
-- Another pin at the position keeps its past as well; the lock holds that pin until this one exists.
held AS MATERIALIZED (SELECT name FROM pin WHERE seq = %(seq)s::bigint FOR SHARE),
made AS (
  INSERT INTO pin (name, seq, principal, created_at, expires_at)
  SELECT %(name)s::text, %(seq)s::bigint, %(principal)s::text, %(now)s::bigint, %(now)s::bigint + %(micros)s::bigint
  FROM whole
  WHERE (past_from <= %(seq)s::bigint OR (SELECT count(*) FROM held) > 0) AND {DURABLE}
  ON CONFLICT (name) DO NOTHING
  RETURNING name, seq, principal, created_at, expires_at)
SELECT past_from <= %(seq)s::bigint OR (SELECT count(*) FROM held) > 0, past_from, made.*
FROM whole LEFT JOIN made ON true""")
_OWN = """SELECT name, seq, principal, created_at, expires_at FROM pin WHERE name = %(name)s::text
  AND seq = %(seq)s::bigint AND created_at = %(now)s::bigint AND principal IS NOT DISTINCT FROM %(principal)s::text"""
_PINS = f"""SELECT name, seq, principal, created_at, expires_at,
    (SELECT o.operation_id FROM operation o WHERE o.seq = pin.seq) FROM pin
  WHERE expires_at IS NULL OR expires_at >= {NOW} ORDER BY name"""
_EXTEND = f"""UPDATE pin SET expires_at = {NOW} + %(micros)s::bigint WHERE name = %(name)s::text AND {DURABLE}
  RETURNING 1"""
_UNPIN = f"DELETE FROM pin WHERE name = %(name)s::text AND {DURABLE} RETURNING 1"

_CONSUMERS = "SELECT name, seq, created_at, moved_at FROM consumer"
_ADD = f"""INSERT INTO consumer (name, seq, created_at, moved_at)
  SELECT %(name)s::text, %(seq)s::bigint, {NOW}, {NOW} WHERE {DURABLE} ON CONFLICT (name) DO NOTHING RETURNING 1"""
_DROP = f"DELETE FROM consumer WHERE name = %(name)s::text AND {DURABLE} RETURNING 1"


class PostgresReaders:
    """Keeps the promises of :class:`metastore.port.past.Readers`."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    def pin(self, name: str, seq: int, principal: str | None, seconds: float | None) -> PinRow | None:
        ((now,),) = self._fetch(_FREE_NAME, {"name": name})
        micros = None if seconds is None else round(seconds * 1_000_000)
        values = {"name": name, "seq": seq, "principal": principal, "micros": micros, "now": now}
        ((whole, since, *row),) = self._fetch(_PIN, values)
        if not whole:
            raise NotKept(since)
        # a statement whose answer was lost is sent again: then it meets the pin that it has made
        made = [row] if row[0] is not None else self._fetch(_OWN, values)
        return PinRow(*made[0]) if made else None

    def pins(self) -> list[PinRow]:
        return [PinRow(*row) for row in self._fetch(_PINS, {})]

    def extend(self, name: str, seconds: float) -> bool:
        return bool(self._fetch(_EXTEND, {"name": name, "micros": round(seconds * 1_000_000)}))

    def unpin(self, name: str) -> bool:
        return bool(self._fetch(_UNPIN, {"name": name}))

    def consumer(self, name: str) -> ConsumerRow | None:
        rows = self._fetch(f"{_CONSUMERS} WHERE name = %(name)s::text", {"name": name})
        return ConsumerRow(*rows[0]) if rows else None

    def consumers(self) -> list[ConsumerRow]:
        return [ConsumerRow(*row) for row in self._fetch(f"{_CONSUMERS} ORDER BY name", {})]

    def add_consumer(self, name: str, seq: int) -> ConsumerRow:
        while True:
            self._fetch(_ADD, {"name": name, "seq": seq})
            row = self.consumer(name)
            if row is not None:  # no row: another process has dropped the consumer meanwhile
                return row

    def drop_consumer(self, name: str) -> bool:
        return bool(self._fetch(_DROP, {"name": name}))
