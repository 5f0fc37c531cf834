"""The backend for SQLite 3.40 and later: the embedded default.

A commit is ``BEGIN IMMEDIATE``, the checks, the writes, ``COMMIT``: a round trip costs nothing
here, and nobody else writes in between. A process that is stopped in the middle of that blocks
other writers until it goes on: SQLite's nature.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar
from uuid import UUID

from metastore.backends.sql import gc as collect_sql
from metastore.backends.sql import snapshot as verify_sql
from metastore.backends.sql.decode import (
    child,
    entities_by_id,
    find_parameters,
    found,
    lookup_parameters,
    owned_record,
    page,
    pending,
    resolved,
    step,
)
from metastore.backends.sql.deep_paths import DEEP, resolve_deep
from metastore.backends.sql.find import FindSql, glob_of
from metastore.backends.sql.limits import Limits
from metastore.backends.sql.reads import ReadSql
from metastore.backends.sql.stats import sqlite_stats
from metastore.backends.sqlite import intents
from metastore.backends.sqlite.commit import UNMARK, Refused, apply
from metastore.backends.sqlite.connect import DRIVER, Pool, raise_read_error
from metastore.backends.sqlite.leases import SqliteLeases
from metastore.backends.sqlite.restore import SqliteRestorer
from metastore.clock import Clock
from metastore.errors import MigrationNeeded
from metastore.port.backend import MOST_AHEAD, TOMBSTONES_STAY, Guards, Matches, Search, Watermark
from metastore.port.commit import LIVE, Commit, Committed, Conflicted, Entry, Help, Mark, Outcome, Result, Unknown
from metastore.port.leases import LeaseRows
from metastore.port.records import (
    Child,
    Known,
    Lookup,
    Marked,
    Origin,
    OwnedRecord,
    Pending,
    Resolved,
    RowPage,
    Step,
    Turn,
)
from metastore.port.restore import Restorer
from metastore.port.stats import DatabaseStats, PoolUse
from metastore.retry.classify import Verdict, of_sqlite

__all__ = ["SqliteBackend"]

T = TypeVar("T")

_READ = ReadSql(
    parameter=":name",
    ids="SELECT value FROM json_each(:ids)",
    held="""SELECT count(*) FROM json_each(:guards) w JOIN guard g
    ON g.id = json_extract(w.value, '$[0]') AND g.scope_version = json_extract(w.value, '$[1]')""",
    wanted_owned="""(SELECT key AS n, json_extract(value, '$[0]') AS owner_id, json_extract(value, '$[1]') AS name
    FROM json_each(:wanted)) AS w""",
)
_resolve = cache(_READ.resolve)
_FIND = FindSql(
    parameter=":name",
    parents="SELECT value FROM json_each(:parents)",
    fits="g.name GLOB :pattern",
    by_id="guard g ON g.id = {}",
    entity="entity e ON e.id = up.id AND up.height = 0",
)
_BY_NAME, _BY_PARENT = _FIND.by_name(), _FIND.by_parent()


class SqliteBackend:
    """Keeps the promises of :class:`metastore.port.backend.Backend` on SQLite."""

    def __init__(self, database: str | None, timeout: float, clock: Clock, limits: Limits | None = None) -> None:
        self.pool = Pool(database, timeout, limits or Limits())
        self._clock = clock
        self._origin: Origin | None = None

    # --- commit

    def commit(self, commit: Commit) -> Outcome:
        """Apply ``commit`` in one transaction."""
        return self._attempt(lambda connection, now: apply(connection, commit, now))

    def _attempt(self, change: Callable[[Any, int], tuple[Result | None, ...]]) -> Outcome:
        """Let ``change`` work in a transaction; return the outcome that its results, or an error, mean."""
        try:
            with self._writer() as connection:
                results = change(connection, self._clock.micros())
        except Refused as refused:
            return Conflicted(refused.cause, refused.id, refused.found)
        except DRIVER.Error as error:
            return _outcome_of(error)
        return Committed(results)

    # --- operations that are written down, and marks

    def write_down(self, entry: Entry) -> Outcome:
        return self._attempt(lambda connection, now: (intents.write_down(connection, entry, now),))

    def pending(self, entity_id: int, operation_id: UUID | None, limit: int) -> Pending:
        try:
            with self.pool.connection() as connection:
                connection.execute("BEGIN")  # all of it at one instant
                rows = intents.pending_rows(connection, _READ, entity_id, operation_id, limit, self._clock.micros())
                chain = connection.execute(_READ.by_id, {"ids": json.dumps([entity_id])}).fetchall()
                connection.execute("COMMIT")
        except DRIVER.Error as error:
            raise_read_error(error)
        return pending([step(row) for row in rows], chain, entity_id, operation_id, self._clock.micros())

    def turn(self, entity_id: int, operation_id: UUID) -> Turn:
        rows = self._rows(intents.AHEAD, {"id": entity_id, "own": str(operation_id)})
        if rows:
            return Turn(None, rows[0][0])
        steps = self.steps(operation_id)
        return Turn(steps[0] if steps else None, 0)

    def help(self, help: Help) -> Outcome:
        return self._attempt(lambda connection, now: intents.help_intents(connection, help, now))

    def forbid(self, operation_id: UUID, life: float = 0.0) -> int | None:
        return self._written(lambda connection, now: intents.forbid(connection, operation_id, life, now))

    def cancel(self, operation_id: UUID) -> bool:
        return self._written(
            lambda connection, now: bool(connection.execute(intents.CANCEL, (now, str(operation_id))).fetchall())
        )

    def mark(self, mark: Mark) -> Outcome:
        return self._attempt(lambda connection, now: (intents.set_mark(connection, mark, now),))

    def unmark(self, entity_id: int, operation_id: UUID) -> bool:
        return self._change_mark(UNMARK, entity_id, operation_id)

    def clear(self, entity_id: int, operation_id: UUID) -> bool:
        return self._change_mark(intents.CLEAR, entity_id, operation_id)

    def _change_mark(self, sql: str, entity_id: int, operation_id: UUID) -> bool:
        def change(connection: Any, now: int) -> bool:
            parameters = {"id": entity_id, "operation_id": str(operation_id), "now": now}
            return bool(connection.execute(sql, parameters).fetchall())

        return self._written(change)

    def marked(self, ids: Sequence[int]) -> list[Marked]:
        now = self._clock.micros()
        rows = self._rows(intents.MARKED, {"ids": json.dumps(list(ids)), "now": now})
        return [intents.marked(row, now) for row in rows]

    def stats(self, since: int, limit: int) -> DatabaseStats:
        return sqlite_stats(self._rows, self._clock.micros(), since, limit)

    def _written(self, change: Callable[[Any, int], T]) -> T:
        """Let ``change`` work in a transaction; an error of the database is the caller's."""
        try:
            with self._writer() as connection:
                return change(connection, self._clock.micros())
        except DRIVER.Error as error:
            raise_read_error(error)

    @contextmanager
    def _writer(self) -> Iterator[Any]:
        with self.pool.connection() as connection:
            self.pool.begin(connection)
            yield connection
            connection.execute("COMMIT")

    # --- reads

    def _rows(self, text: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        try:
            with self.pool.connection() as connection:
                rows: list[tuple[Any, ...]] = connection.execute(text, parameters).fetchall()
                return rows
        except DRIVER.Error as error:
            raise_read_error(error)

    def resolve(self, lookups: Sequence[Lookup]) -> list[Resolved]:
        if any(len(w.names) > DEEP for w in lookups):
            return [resolve_deep(self.resolve, self.hold, w) for w in lookups]
        try:
            with self.pool.connection() as connection:
                if len(lookups) > 1:
                    connection.execute("BEGIN")  # all of them at one instant
                rows = [connection.execute(_resolve(len(w.names)), lookup_parameters(w)).fetchone() for w in lookups]
                if len(lookups) > 1:
                    connection.execute("COMMIT")
        except DRIVER.Error as error:
            raise_read_error(error)
        return [resolved(row, len(w.names)) for row, w in zip(rows, lookups, strict=True)]

    def by_id(self, ids: Sequence[int]) -> list[Known | None]:
        return entities_by_id(self._rows(_READ.by_id, {"ids": json.dumps(list(ids))}), ids)

    def hold(self, guards: Guards) -> bool:
        return bool(self._rows(_READ.hold, {"guards": json.dumps(list(guards))})[0][0] == len(guards))

    def has_children(self, entity_id: int, besides: Sequence[int] = ()) -> bool:
        parameters = {"entity_id": entity_id, "ids": json.dumps(list(besides))}
        return bool(self._rows(_READ.has_children, parameters)[0][0])

    def children(
        self, parent_id: int, kind: str, family: str, state: int, after: tuple[str, int], limit: int, guards: Guards
    ) -> RowPage[Child]:
        parameters = {"parent_id": parent_id, "kind": kind, "family": family, "page_size": limit, "after_key": after[0]}
        if state != LIVE:
            parameters["after_id"] = after[1]
        rows = self._rows(_READ.children[state], {**parameters, "guards": json.dumps(list(guards))})
        return page(rows, len(guards), child)

    def names(
        self, parent_id: int, kind: str, family: str, after: str, limit: int, guards: Guards
    ) -> RowPage[tuple[str, str]]:
        parameters = {"parent_id": parent_id, "kind": kind, "family": family, "page_size": limit, "after_key": after}
        return page(self._rows(_READ.names, {**parameters, "guards": json.dumps(list(guards))}), len(guards), tuple)

    def find(self, search: Search) -> Matches:
        parameters = {**find_parameters(search), "pattern": glob_of(search.glob)}
        if search.parents is not None:
            parameters["parents"] = json.dumps(search.parents)
        return found(self._rows(_BY_NAME if search.parents is None else _BY_PARENT, parameters), search)

    def gone(self, parent_id: int, kind: str, family: str, key: str) -> Child | None:
        rows = self._rows(_READ.gone, {"parent_id": parent_id, "kind": kind, "family": family, "key": key})
        return child(rows[0]) if rows else None

    def owned(self, owner_id: int, kind: str, after: str, limit: int, guards: Guards) -> RowPage[OwnedRecord]:
        parameters = {"owner_id": owner_id, "kind": kind, "after_key": after, "page_size": limit}
        rows = self._rows(_READ.owned, {**parameters, "guards": json.dumps(list(guards))})
        return page(rows, len(guards), owned_record)

    def owned_by_name(self, owner_ids: Sequence[int], kind: str, names: Sequence[str]) -> list[OwnedRecord | None]:
        wanted = json.dumps(list(zip(owner_ids, names, strict=True)))
        rows = self._rows(_READ.owned_by_name, {"wanted": wanted, "kind": kind})
        found = {row[0]: owned_record(row[1:]) for row in rows}
        return [found.get(n) for n in range(len(names))]

    def history(self, entity_id: int, after: int, limit: int) -> list[Step]:
        rows = self._rows(_READ.history, {"entity_id": entity_id, "after": after, "page_size": limit})
        return [step(row) for row in rows]

    def steps(self, operation_id: UUID) -> list[Step]:
        return [step(row) for row in self._rows(_READ.steps, {"operation_id": str(operation_id)})]

    def feed(self, after: int, limit: int) -> RowPage[Step]:
        """Every position is decided: numbers are drawn inside the one transaction that writes."""
        return RowPage(True, [step(row) for row in self._rows(_READ.feed, {"after": after, "page_size": limit})])

    def feed_start(self) -> tuple[str, int]:
        ((epoch, collected),) = self._rows("SELECT epoch, collected_seq FROM info", {})
        return epoch, collected

    def event_at(self, seq: int) -> tuple[UUID | None, bool]:
        rows = self._rows("SELECT operation_id FROM operation WHERE seq = :seq", {"seq": seq})
        return UUID(rows[0][0]) if rows else None, False

    # --- the rest

    def reserve_ids(self, count: int) -> list[int]:
        sql = "UPDATE info SET last_id = last_id + ? RETURNING last_id"
        last: int = self._written(lambda connection, _: connection.execute(sql, (count,)).fetchall()[0][0])
        return list(range(last - count + 1, last + 1))

    # --- gc

    def now(self) -> int:
        return self._clock.micros()

    def dropped_before(self, time: int, limit: int) -> list[int]:
        return [row[0] for row in self._rows(collect_sql.DROPPED_BEFORE, {"before": time, "page_size": limit})]

    def purging(self, limit: int) -> list[int]:
        return [row[0] for row in self._rows(collect_sql.PURGING_ROOTS, {"page_size": limit})]

    def below(self, entity_id: int, limit: int) -> list[tuple[int, str]]:
        rows = self._rows(collect_sql.BELOW, {"entity_id": entity_id, "page_size": limit})
        return [(row[0], row[1]) for row in rows]

    def delete_entities(self, ids: Sequence[int]) -> int:
        try:
            with self._writer() as connection:
                doomed = connection.execute(collect_sql.SQLITE_DOOMED, {"ids": json.dumps(list(ids))}).fetchall()
                connection.executemany("DELETE FROM owned WHERE owner_id = ?", doomed)
                connection.executemany("DELETE FROM entity WHERE id = ?", doomed)
                connection.executemany("DELETE FROM guard WHERE id = ?", doomed)
        except DRIVER.Error as error:
            raise_read_error(error)
        return len(doomed)

    def forget(self, before: int) -> None:
        sql = f"""UPDATE info SET forgotten = max(:before, iif(forgotten > :now + {MOST_AHEAD}, :now, forgotten))
          WHERE forgotten < :before OR forgotten > :now + {MOST_AHEAD}"""
        self._written(lambda connection, now: connection.execute(sql, {"before": before, "now": now}).rowcount)

    def delete_steps(self, before: int, keep: int, after: int, limit: int) -> tuple[int | None, int, int]:
        parameters = {"before": before, "keep": keep, "after": after, "limit": limit}
        try:
            with self._writer() as connection:
                ((last,),) = connection.execute(collect_sql.SQLITE_LOOKED_AT, parameters).fetchall()
                doomed = connection.execute(collect_sql.SQLITE_NEEDLESS, parameters).fetchall()
                connection.executemany("DELETE FROM operation WHERE seq = ?", [row[:1] for row in doomed])
                highest = max((row[0] for row in doomed), default=0)
                connection.execute("UPDATE info SET collected_seq = max(collected_seq, ?)", (highest,))
                forget = "DELETE FROM operation WHERE seq IS NULL AND time < ? AND coalesce(deadline, 0) < ?"
                long_ago = (before - TOMBSTONES_STAY, self._clock.micros())
                others = connection.execute(forget, long_ago).rowcount if after == 0 else 0
        except DRIVER.Error as error:
            raise_read_error(error)
        versions = sum(row[3] for row in doomed)
        return last, versions, others + len(doomed) - versions

    @contextmanager
    def snapshot(self) -> Iterator[_Snapshot]:
        """Open a read transaction: in WAL mode it keeps nobody from writing."""
        try:
            with self.pool.connection() as connection:
                connection.execute("BEGIN")
                yield _Snapshot(connection)
                connection.execute("ROLLBACK")
        except DRIVER.Error as error:
            raise_read_error(error)

    def watermark(self) -> Watermark:
        return Watermark(self._rows("SELECT last_seq FROM info", {})[0][0], 0)

    def decided(self, watermark: Watermark) -> bool:
        """Numbers are drawn inside the one transaction that writes."""
        return True

    @property
    def leases(self) -> LeaseRows:
        return SqliteLeases(self._written, self._rows, self._clock)

    def restorer(self) -> Restorer:
        return SqliteRestorer(self._written)

    # --- the schema

    @property
    def origin(self) -> Origin:
        return self._origin or self.identify()

    def identify(self) -> Origin:
        """The feed's epoch and the file's number (inode): a copy of the file has the same epoch."""
        database = f"{self.feed_start()[0]}/{self.pool.file_number}"
        if self._origin is None or self._origin.database != database:
            self._origin = Origin(database)
        return self._origin

    def format(self) -> tuple[int, int] | None:
        try:
            ((found, compatible),) = self._rows("SELECT format, compatible_from FROM info", {})
        except MigrationNeeded:
            return None
        return found, compatible

    def migrate(self) -> None:
        """Make or upgrade the schema: the embedded default does it by itself."""
        from metastore.migrations import upgrade_sqlite  # noqa: PLC0415  (Alembic is slow to import)

        with self.pool.connection() as connection:
            upgrade_sqlite(connection)

    def pool_use(self) -> PoolUse:
        return self.pool.use()

    def ping(self) -> None:
        self._rows("SELECT 1", {})

    def close(self) -> None:
        self.pool.close()


_AMONG = "IN (SELECT value FROM json_each(:ids))"


class _Snapshot:
    """Cursors in one read transaction; the first of them to read fixes the instant."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def rows(
        self, table: str, columns: Sequence[str], order: Sequence[str], only: Sequence[int] | None = None
    ) -> Iterator[tuple[Any, ...]]:
        if only is None:
            return iter(self._connection.execute(verify_sql.select(table, columns, order)))
        return iter(
            self._connection.execute(verify_sql.select(table, columns, order, _AMONG), {"ids": json.dumps(only)})
        )

    def below(self, parent_ids: Sequence[int], columns: Sequence[str], *, gone: bool) -> Iterator[tuple[Any, ...]]:
        parameters = {"ids": json.dumps(parent_ids)}
        return iter(self._connection.execute(verify_sql.select_below(columns, _AMONG, gone=gone), parameters))

    def numbers(self) -> tuple[int, int]:
        row = self._connection.execute(verify_sql.SQLITE_NUMBERS).fetchone()
        return row[0], row[1]

    def cached(self) -> list[str]:
        return []


def _outcome_of(error: Exception) -> Outcome:
    verdict = of_sqlite(getattr(error, "sqlite_errorcode", None))
    if verdict is Verdict.RETRY:
        return Conflicted("serialization")
    if verdict is Verdict.UNKNOWN:
        return Unknown(type(error).__name__)
    return raise_read_error(error)
