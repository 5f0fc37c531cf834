"""The queries and deletions of gc and purge on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psycopg

from metastore.backends.postgres import relations, sending, tickets
from metastore.backends.postgres.fragments import DURABLE, NOW, WRITER
from metastore.backends.postgres.members import FORGET as FORGET_ANNOUNCEMENTS
from metastore.backends.postgres.parameters import Row, Statement
from metastore.backends.postgres.reads import PostgresReads
from metastore.backends.sql import gc as collect_sql
from metastore.backends.sql.dialect import from_named
from metastore.backends.sql.relations import sweep
from metastore.port.backend import MOST_AHEAD, TOMBSTONES_STAY
from metastore.port.relations import Sweep
from metastore.port.upkeep import HistoryLimits

_BELOW = from_named(collect_sql.BELOW.format(among="= ANY(%(ids)s::bigint[])"), "%(name)s")
_FORGET = f"""DELETE FROM operation WHERE seq IS NULL AND time < %(before)s
  AND coalesce(deadline, 0) < {NOW} RETURNING 1"""
_RAISE_PAST = f"""UPDATE info SET writer = {WRITER}, past_from = %(since)s::bigint
  WHERE past_from < %(since)s::bigint AND {DURABLE} RETURNING 1"""
_FORGET_PINS = from_named(collect_sql.FORGET_PINS, "%(name)s") + f" AND {DURABLE} RETURNING 1"
_FORGET_UNTIL = f"""UPDATE info SET writer = {WRITER}, forgotten = greatest(%(before)s::bigint,
    CASE WHEN forgotten > {NOW} + {MOST_AHEAD} THEN {NOW} ELSE forgotten END)
  WHERE forgotten < %(before)s::bigint OR forgotten > {NOW} + {MOST_AHEAD} RETURNING 1"""
_ONE_SNAPSHOT = Statement("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", {})


class PostgresUpkeep(PostgresReads):
    """The implementation of :class:`metastore.port.upkeep.Upkeep` on PostgreSQL."""

    def now(self) -> int:
        return int(self._rows(f"SELECT {NOW}", {})[0][0])

    def below(self, entity_ids: Sequence[int], limit: int) -> list[int]:
        return [row[0] for row in self._rows(_BELOW, {"ids": list(entity_ids), "page_size": limit})]

    def delete_relations(self, ids: Sequence[int], limit: int) -> int:
        ((deleted, _),) = self._rows(relations.DELETE_RELATIONS, {"ids": list(ids), "limit": limit})
        return int(deleted)

    def sweep_relations(self, after: int, limit: int) -> Sweep:
        rows = self._rows(self.sql.sweep, {"after": after, "page_size": limit})
        missing = [row[0] for row in rows if row[1]]
        return sweep(rows, len(self._rows(relations.DELETE_MISSING, {"ids": missing})) if missing else 0)

    def delete_columns(self, relation_ids: Sequence[int]) -> None:
        self._rows(relations.DELETE_COLUMNS, {"ids": list(relation_ids)})

    def delete_entities(self, ids: Sequence[int]) -> int:
        return int(self._rows(collect_sql.POSTGRES_DELETE_ENTITIES, {"ids": list(ids)})[0][0])

    def forget(self, before: int) -> None:
        """Wait for the commits in flight that have checked their id against the old limit, then raise the limit."""
        self._rows(_FORGET_UNTIL, {"before": before})

    def forget_tickets(self) -> None:
        self._rows(tickets.FORGET_TICKETS, {})
        self._rows(FORGET_ANNOUNCEMENTS, {})  # members do this too, but there may be none now

    def forget_pins(self) -> None:
        self._rows(_FORGET_PINS, {"now": self.now()})

    def delete_steps(self, limits: HistoryLimits, after: int, limit: int) -> tuple[int | None, int, int]:
        parameters = {**limits._asdict(), "after": after, "page_size": limit}
        ((last, since),) = self._rows(collect_sql.POSTGRES_PAST_FROM, parameters)
        versions = others = 0
        if since is not None:
            # The new start of the past is committed before the deletion, so that a read of the past sees that rows are
            # missing. The statement waits for pins that are being inserted; later pins are refused.
            self._rows(_RAISE_PAST, {"since": since})
            ((last, versions, others),) = self._read(lambda connection: _delete_steps(connection, parameters))
        if after == 0:
            others += len(self._rows(_FORGET, {"before": limits.before - TOMBSTONES_STAY}))
        return last, versions, others


def _delete_steps(connection: psycopg.Connection[Any], parameters: dict[str, Any]) -> list[Row]:
    """Delete steps that one snapshot shows; no other gc may have changed or deleted any of these rows since.

    Otherwise the other gc may delete the step that inherits a name, and the name is lost. Each repetition means that
    another gc has deleted some steps.
    """
    statements = [_ONE_SNAPSHOT, Statement(collect_sql.POSTGRES_DELETE_STEPS, parameters, writes=True)]
    while True:
        with suppress(psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
            return sending.rows_of_writes(connection, statements)
