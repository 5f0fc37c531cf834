"""The backend for SQLite 3.40 and later: the embedded default.

A commit is ``BEGIN IMMEDIATE``, the checks, the writes, ``COMMIT``: a round trip costs nothing
here, and nobody else writes in between. A process that is stopped in the middle of that blocks
other writers until it goes on: SQLite's nature.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from uuid import UUID

from metastore.backends import collect_sql, verify_sql
from metastore.backends.decode import child, entities_by_id, lookup_parameters, owned_record, page, resolved, step
from metastore.backends.deep import DEEP, resolve_deep
from metastore.backends.port import TOMBSTONES_STAY, Child, Guards, Known, Lookup, Page, Resolved, Step
from metastore.backends.read_sql import ReadSql
from metastore.backends.sqlite_commit import Refused, apply
from metastore.backends.sqlite_connect import DRIVER, Pool, raise_read_error
from metastore.clock import Clock
from metastore.commit import LIVE, Commit, Committed, Conflicted, Outcome, Unknown
from metastore.entity import OwnedRecord
from metastore.errors import MigrationNeeded
from metastore.retry.classify import Verdict, of_sqlite

__all__ = ["SqliteBackend"]

_READ = ReadSql(
    parameter=":name",
    ids="SELECT value FROM json_each(:ids)",
    held="""SELECT count(*) FROM json_each(:guards) w JOIN guard g
    ON g.id = json_extract(w.value, '$[0]') AND g.scope_version = json_extract(w.value, '$[1]')""",
    wanted_owned="""(SELECT key AS n, json_extract(value, '$[0]') AS owner_id, json_extract(value, '$[1]') AS name
    FROM json_each(:wanted)) AS w""",
)
_resolve = cache(_READ.resolve)


class SqliteBackend:
    """Keeps the promises of :class:`metastore.backends.port.Backend` on SQLite."""

    def __init__(self, database: str | None, timeout: float, clock: Clock) -> None:
        self.pool = Pool(database, timeout)
        self._clock = clock

    # --- commit

    def commit(self, commit: Commit) -> Outcome:
        """Apply ``commit`` in one transaction."""
        try:
            with self._writer() as connection:
                results = apply(connection, commit, self._clock.micros())
        except Refused as refused:
            return Conflicted(refused.cause, refused.id, refused.found)
        except DRIVER.Error as error:
            return _outcome_of(error)
        return Committed(results)

    @contextmanager
    def _writer(self) -> Iterator[Any]:
        with self.pool.connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
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
            return [resolve_deep(self, w) for w in lookups]
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
    ) -> Page[Child]:
        parameters = {"parent_id": parent_id, "kind": kind, "family": family, "page_size": limit, "after_key": after[0]}
        if state != LIVE:
            parameters["after_id"] = after[1]
        rows = self._rows(_READ.children[state], {**parameters, "guards": json.dumps(list(guards))})
        return page(rows, len(guards), child)

    def names(
        self, parent_id: int, kind: str, family: str, after: str, limit: int, guards: Guards
    ) -> Page[tuple[str, str]]:
        parameters = {"parent_id": parent_id, "kind": kind, "family": family, "page_size": limit, "after_key": after}
        return page(self._rows(_READ.names, {**parameters, "guards": json.dumps(list(guards))}), len(guards), tuple)

    def gone(self, parent_id: int, family: str, key: str) -> Child | None:
        rows = self._rows(_READ.gone, {"parent_id": parent_id, "family": family, "key": key})
        return child(rows[0]) if rows else None

    def owned(self, owner_id: int, kind: str, after: str, limit: int, guards: Guards) -> Page[OwnedRecord]:
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

    def feed(self, after: int, limit: int) -> Page[Step]:
        """Every position is decided: numbers are drawn inside the one transaction that writes."""
        return Page(True, [step(row) for row in self._rows(_READ.feed, {"after": after, "page_size": limit})])

    def feed_start(self) -> tuple[str, int]:
        ((epoch, collected),) = self._rows("SELECT epoch, collected_seq FROM info", {})
        return epoch, collected

    # --- the rest

    def reserve_ids(self, count: int) -> list[int]:
        try:
            with self._writer() as connection:
                sql = "UPDATE info SET last_id = last_id + ? RETURNING last_id"
                ((last,),) = connection.execute(sql, (count,)).fetchall()
        except DRIVER.Error as error:
            raise_read_error(error)
        return list(range(last - count + 1, last + 1))

    def forbid(self, operation_id: UUID) -> bool:
        """Insert a tombstone, unless the operation was applied."""
        try:
            with self._writer() as connection:
                sql = "SELECT action FROM operation WHERE operation_id = ? AND ordinal = 0"
                known = connection.execute(sql, (str(operation_id),)).fetchone()
                if known is None:
                    connection.execute(
                        "INSERT INTO operation (operation_id, ordinal, action, time) VALUES (?, 0, 'forbidden', ?)",
                        (str(operation_id), self._clock.micros()),
                    )
        except DRIVER.Error as error:
            raise_read_error(error)
        return known is None or known[0] == "forbidden"

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

    def delete_steps(self, before: int, keep: int, after: int, limit: int) -> tuple[int | None, int, int]:
        parameters = {"before": before, "keep": keep, "after": after, "limit": limit}
        try:
            with self._writer() as connection:
                ((last,),) = connection.execute(collect_sql.SQLITE_LOOKED_AT, parameters).fetchall()
                doomed = connection.execute(collect_sql.SQLITE_NEEDLESS, parameters).fetchall()
                connection.executemany("DELETE FROM operation WHERE seq = ?", [row[:1] for row in doomed])
                highest = max((row[0] for row in doomed), default=0)
                connection.execute("UPDATE info SET collected_seq = max(collected_seq, ?)", (highest,))
                tombstones = "DELETE FROM operation WHERE seq IS NULL AND time < ?"
                others = connection.execute(tombstones, (before - TOMBSTONES_STAY,)).rowcount if after == 0 else 0
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

    # --- the schema

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

    def ping(self) -> None:
        self._rows("SELECT 1", {})

    def close(self) -> None:
        self.pool.close()


class _Snapshot:
    """Cursors in one read transaction; the first of them to read fixes the instant."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def rows(self, table: str, columns: Sequence[str], order: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        yield from self._connection.execute(verify_sql.select(table, columns, order))

    def numbers(self) -> tuple[int, int]:
        row = self._connection.execute(verify_sql.SQLITE_NUMBERS).fetchone()
        return row[0], row[1]


def _outcome_of(error: Exception) -> Outcome:
    verdict = of_sqlite(getattr(error, "sqlite_errorcode", None))
    if verdict is Verdict.RETRY:
        return Conflicted("serialization")
    if verdict is Verdict.UNKNOWN:
        return Unknown(type(error).__name__)
    return raise_read_error(error)
