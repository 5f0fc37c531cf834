"""The backend for SQLite 3.40 and later: the embedded default.

A commit is ``BEGIN IMMEDIATE``, the checks, the writes, ``COMMIT``. A round trip costs nothing here, and no other
process writes meanwhile. A process that is stopped in between blocks all other writers until it continues, because
SQLite has one writer at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from metastore.backends.precondition import PreconditionFailed
from metastore.backends.sql import gc as collect_sql
from metastore.backends.sql.decode import pending, step
from metastore.backends.sql.limits import Limits
from metastore.backends.sql.past import SqlPast, as_json, rows_as_json
from metastore.backends.sql.relations import sweep
from metastore.backends.sql.stats import sqlite_stats
from metastore.backends.sqlite import intents, relations, tickets
from metastore.backends.sqlite.commit import apply
from metastore.backends.sqlite.connect import DRIVER, raise_read_error
from metastore.backends.sqlite.group import MOST, GroupCommit, wrote
from metastore.backends.sqlite.leases import SqliteLeases
from metastore.backends.sqlite.readers import SqliteReaders
from metastore.backends.sqlite.reads import READ, SqliteReads
from metastore.backends.sqlite.restore import SqliteRestorer
from metastore.backends.sqlite.secret_keys import SqliteSecretKeys
from metastore.backends.sqlite.text import all_rows
from metastore.backends.sqlite.writer import UNMARK
from metastore.clock import Clock
from metastore.errors import MigrationNeeded
from metastore.port.backend import MOST_AHEAD, TOMBSTONES_STAY
from metastore.port.commit import Commit, CommitOutcome, Committed, Conflicted, Unknown
from metastore.port.format import SCHEMA_FORMAT, one_info
from metastore.port.intents import Entry, Help, Mark
from metastore.port.leases import LeaseRows
from metastore.port.past import PastRows, Readers
from metastore.port.records import Marked, Origin, Pending, Step, Turn
from metastore.port.relations import Sweep
from metastore.port.restore import Restorer
from metastore.port.secret_keys import SecretKeys
from metastore.port.stats import DatabaseStats, PoolUse
from metastore.port.tickets import NOBODY, TICKETS_STAY, Line
from metastore.port.upkeep import HistoryLimits
from metastore.port.writes import Result
from metastore.retry.classify import Consequence, of_sqlite

_SCOPES = "SELECT id, scope_version FROM guard WHERE id IN (SELECT value FROM json_each(:ids))"
_BELOW = collect_sql.BELOW.format(among="IN (SELECT value FROM json_each(:ids))")

T = TypeVar("T")

_DOOMED = ("entity_id", "version", "parent_id", "name", "family", "key")


class SqliteBackend(SqliteReads):
    """The implementation of :class:`metastore.port.backend.Backend` on SQLite."""

    def __init__(self, database: str | None, timeout: float, clock: Clock, limits: Limits | None = None) -> None:
        super().__init__(database, timeout, clock, limits)
        self._origin: Origin | None = None
        self._run = str(clock.operation_id())
        """Each store counts as a run, because between two stores the file may be replaced by a backup."""
        self._group = GroupCommit(self.pool, clock)

    def commit(self, commit: Commit) -> CommitOutcome:
        """Apply ``commit`` in one transaction."""

        def applied(connection: Any, now: int) -> tuple[Result | None, ...]:
            results = apply(connection, commit, now)
            if commit.carries or commit.leaves:
                intents.carry(connection, commit, now)
            return results

        return self._attempt(applied, large=len(commit.writes) > MOST)

    def _attempt(
        self, change: Callable[[Any, int], tuple[Result | None, ...]], *, large: bool = False
    ) -> CommitOutcome:
        """Let ``change`` work in a transaction; return the outcome that its results, or an error, mean."""
        try:
            results = self._group.run(change, large=large)
        except PreconditionFailed as failed:
            return failed.conflict
        except DRIVER.Error as error:
            return _outcome_of(error)
        return Committed(results)

    def write_down(self, entry: Entry) -> CommitOutcome:
        return self._attempt(lambda connection, now: (intents.write_down(connection, entry, now),))

    def pending(self, entity_id: int, operation_id: UUID | None, limit: int, ticket: int | None = None) -> Pending:
        try:
            with self.pool.connection() as connection:
                connection.execute("BEGIN")  # one snapshot for the entity and its intents
                rows = intents.pending_rows(connection, READ, entity_id, operation_id, limit, self._clock.micros())
                chain = all_rows(connection, READ.by_id, {"ids": json.dumps([entity_id])})
                now = self._clock.micros()
                queued, line = tickets.stands(connection, entity_id, now), NOBODY
                if ticket is not None:
                    line = tickets.line(partial(all_rows, connection), [entity_id], ticket, now)
                connection.execute("COMMIT")
        except DRIVER.Error as error:
            raise_read_error(error)
        return pending([step(row) for row in rows], chain, entity_id, operation_id, now, queued, line)

    def scopes(self, ids: Sequence[int]) -> dict[int, int]:
        return dict(self._rows(_SCOPES, {"ids": json.dumps(list(ids))}))

    def turn(self, entity_id: int, operation_id: UUID) -> Turn:
        rows = self._rows(intents.AHEAD, {"id": entity_id, "own": str(operation_id)})
        if rows:
            return Turn(None, rows[0][0], self.line([entity_id], None))
        steps = self.steps(operation_id)
        return Turn(steps[0] if steps else None, 0)

    @property
    def notices(self) -> None:
        """Return None: this backend sends no notices, so waiting calls look at intervals."""

    def queue(self, ids: Sequence[int], patience: float) -> int:
        return self._written(lambda connection, now: tickets.queue(connection, ids, patience, now))

    def line(self, ids: Sequence[int], ticket: int | None) -> Line:
        return tickets.line(self._rows, ids, ticket, self._clock.micros())

    def leave(self, ids: Sequence[int], ticket: int, gap: float = 0.0) -> bool:
        return self._written(lambda connection, now: tickets.leave(connection, ids, ticket, gap, now))

    def help(self, help: Help) -> CommitOutcome:
        return self._attempt(lambda connection, now: intents.help_intents(connection, help, now))

    def forbid(self, operation_id: UUID, life: float = 0.0) -> int | None:
        return self._written(lambda connection, now: intents.forbid(connection, operation_id, life, now))

    def confirm(self, operation_id: UUID) -> list[Step]:
        """Return the rows: every readable row is in the file."""
        return self.steps(operation_id)

    def cancel(self, operation_id: UUID) -> bool:
        return wrote(self._written, intents.CANCEL, operation_id=str(operation_id))

    def mark(self, mark: Mark) -> CommitOutcome:
        return self._attempt(lambda connection, now: (intents.set_mark(connection, mark, now),))

    def unmark(self, entity_id: int, operation_id: UUID) -> bool:
        return wrote(self._written, UNMARK, id=entity_id, operation_id=str(operation_id))

    def clear(self, entity_id: int, operation_id: UUID) -> bool:
        return wrote(self._written, intents.CLEAR, id=entity_id, operation_id=str(operation_id))

    def marked(self, ids: Sequence[int]) -> list[Marked]:
        now = self._clock.micros()
        rows = self._rows(intents.MARKED, {"ids": json.dumps(list(ids)), "now": now})
        return [intents.marked(row, now) for row in rows]

    def stats(self, since: int, limit: int) -> DatabaseStats:
        return sqlite_stats(self._rows, self._clock.micros(), since, limit)

    def _written(self, change: Callable[[Any, int], T], *, large: bool = False) -> T:
        """Let ``change`` work in a transaction; raise the caller's error for an error of the database."""
        try:
            return self._group.run(change, large=large)
        except DRIVER.Error as error:
            raise_read_error(error)

    def reserve_ids(self, count: int) -> list[int]:
        sql = "UPDATE info SET last_id = last_id + ? RETURNING last_id"
        last: int = self._written(lambda connection, _: connection.execute(sql, (count,)).fetchall()[0][0])
        return list(range(last - count + 1, last + 1))

    def now(self) -> int:
        return self._clock.micros()

    def below(self, entity_ids: Sequence[int], limit: int) -> list[int]:
        return [row[0] for row in self._rows(_BELOW, {"ids": json.dumps(list(entity_ids)), "page_size": limit})]

    def delete_relations(self, ids: Sequence[int], limit: int) -> int:
        return self._written(lambda connection, _: relations.delete_relations(connection, ids, limit))

    def sweep_relations(self, after: int, limit: int) -> Sweep:
        rows = self._rows(self.sql.sweep, {"after": after, "page_size": limit})
        missing = [row[0] for row in rows if row[1]]
        deleted = self._written(lambda connection, _: relations.delete_missing(connection, missing)) if missing else 0
        return sweep(rows, deleted)

    def delete_columns(self, relation_ids: Sequence[int]) -> None:
        self._written(lambda connection, _: relations.delete_columns(connection, relation_ids))

    def delete_entities(self, ids: Sequence[int]) -> int:
        def change(connection: Any, _: int) -> int:
            doomed = connection.execute(collect_sql.SQLITE_DOOMED, {"ids": json.dumps(list(ids))}).fetchall()
            connection.executemany("DELETE FROM owned WHERE owner_id = ?", doomed)
            connection.executemany("DELETE FROM entity WHERE id = ?", doomed)
            connection.executemany("DELETE FROM guard WHERE id = ?", doomed)
            return len(doomed)

        return self._written(change, large=True)

    def forget(self, before: int) -> None:
        sql = f"""UPDATE info SET writer = {SCHEMA_FORMAT},
            forgotten = max(:before, iif(forgotten > :now + {MOST_AHEAD}, :now, forgotten))
          WHERE forgotten < :before OR forgotten > :now + {MOST_AHEAD}"""
        self._written(lambda connection, now: connection.execute(sql, {"before": before, "now": now}).rowcount)

    def forget_tickets(self) -> None:
        sql = "DELETE FROM ticket WHERE time < ?"
        self._written(lambda connection, now: connection.execute(sql, (now - TICKETS_STAY,)).rowcount)

    def forget_pins(self) -> None:
        self._written(lambda connection, now: connection.execute(collect_sql.FORGET_PINS, {"now": now}))

    def delete_steps(self, limits: HistoryLimits, after: int, limit: int) -> tuple[int | None, int, int]:
        parameters = {**limits._asdict(), "after": after, "page_size": limit}

        def change(connection: Any, now: int) -> tuple[int | None, int, int]:
            ((last,),) = connection.execute(collect_sql.SQLITE_LOOKED_AT, parameters).fetchall()
            doomed = connection.execute(collect_sql.SQLITE_NEEDLESS, parameters).fetchall()
            connection.executemany("DELETE FROM operation WHERE seq = ?", [row[:1] for row in doomed])
            names = [row for row in doomed if row[8] is not None]
            connection.executemany(
                collect_sql.SQLITE_NAMED, [dict(zip(_DOOMED, row[3:], strict=True)) for row in names]
            )
            highest, since = (max((row[n] for row in doomed), default=0) for n in (0, 2))
            numbers = f"""UPDATE info SET writer = {SCHEMA_FORMAT}, collected_seq = max(collected_seq, ?),
              past_from = max(past_from, ?)"""
            connection.execute(numbers, (highest, since))
            forget = "DELETE FROM operation WHERE seq IS NULL AND time < ? AND coalesce(deadline, 0) < ?"
            long_ago = (limits.before - TOMBSTONES_STAY, now)
            others = connection.execute(forget, long_ago).rowcount if after == 0 else 0
            versions = sum(row[1] for row in doomed)
            return last, versions, others + len(doomed) - versions

        return self._written(change, large=True)

    @property
    def leases(self) -> LeaseRows:
        return SqliteLeases(self._written, self._rows, self._clock)

    @property
    def past(self) -> PastRows:
        return SqlPast(self.sql, self._rows, as_json, rows_as_json)

    @property
    def readers(self) -> Readers:
        return SqliteReaders(self._written, self._rows, self.now)

    @property
    def secret_keys(self) -> SecretKeys:
        return SqliteSecretKeys(self.pool, self._written, self._rows)

    def restorer(self) -> Restorer:
        return SqliteRestorer(self._written)

    @property
    def origin(self) -> Origin:
        return self._origin or self.identify()

    @property
    def known_origin(self) -> Origin | None:
        return self._origin

    def identify(self) -> Origin:
        """Return the feed's epoch and the file's number (inode), because a copy of the file has the same epoch."""
        database = f"{self.feed_start()[0]}/{self.pool.file_number}"
        if self._origin is None or self._origin.database != database:
            self._origin = Origin(database, run=self._run)
        return self._origin

    def format(self) -> tuple[int, int] | None:
        try:
            rows = self._rows("SELECT format, compatible_from FROM info", {})
        except MigrationNeeded:
            return None
        written_format, compatible = one_info(rows)
        return written_format, compatible

    def migrate(self) -> None:
        """Create or upgrade the schema. The embedded default does this by itself."""
        from metastore.migrations import upgrade_sqlite  # noqa: PLC0415  (Alembic is slow to import)

        with self.pool.connection() as connection:
            upgrade_sqlite(connection)

    def pool_use(self) -> PoolUse:
        return self.pool.use()

    def ping(self) -> None:
        self._rows("SELECT 1", {})

    def in_one_go(self, work: Callable[[], T], *, for_many: bool = False) -> T:
        return work()

    def close(self) -> None:
        self.pool.close()


def _outcome_of(error: Exception) -> CommitOutcome:
    consequence = of_sqlite(getattr(error, "sqlite_errorcode", None))
    if consequence is Consequence.RETRY:
        return Conflicted("serialization")
    if consequence is Consequence.UNKNOWN:
        return Unknown(type(error).__name__)
    return raise_read_error(error)
