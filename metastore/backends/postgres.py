"""The backend for PostgreSQL 14 and later, through psycopg 3.

A commit with one insert or one altered document is one statement. Any other commit is one
message, hence one round trip and one transaction: locks by id where shared and exclusive ones
mix, checks of what must be absent with a snapshot taken after them, then what writes. The SQL
is in :mod:`metastore.backends.postgres_sql` and ``read_sql``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from sqlalchemy.engine import URL

from metastore.backends import collect_sql, verify_sql
from metastore.backends import postgres_intents as intents
from metastore.backends import postgres_sql as sql
from metastore.backends.decode import (
    child,
    entities_by_id,
    lookup_parameters,
    owned_record,
    page,
    pending,
    resolved,
    step,
    steps_of_json,
)
from metastore.backends.deep import DEEP, resolve_deep
from metastore.backends.port import (
    TOMBSTONES_STAY,
    Child,
    Guards,
    Known,
    Lookup,
    Marked,
    Page,
    Pending,
    Resolved,
    Step,
    Turn,
)
from metastore.backends.postgres_commit import Statement, alter, create, preludes, statements
from metastore.backends.postgres_connect import OutOfTime, Pool, raise_read_error
from metastore.backends.postgres_read import READ as _READ
from metastore.backends.read_sql import from_named
from metastore.backends.stats_sql import DatabaseStats, postgres_stats
from metastore.commit import (
    LIVE,
    Cause,
    Commit,
    Committed,
    Conflicted,
    Entry,
    Help,
    Insert,
    Mark,
    Outcome,
    Result,
    Unknown,
    Update,
)
from metastore.deadlines import until
from metastore.entity import OwnedRecord
from metastore.errors import BackendUnavailable, MigrationNeeded
from metastore.retry.classify import Verdict, of_sqlstate

__all__ = ["PostgresBackend"]

T = TypeVar("T")
Row = tuple[Any, ...]

_resolve = cache(_READ.resolve)
_DROPPED_BEFORE = from_named(collect_sql.DROPPED_BEFORE, "%(name)s")
_PURGING = from_named(collect_sql.PURGING_ROOTS, "%(name)s")
_BELOW = from_named(collect_sql.BELOW, "%(name)s")
_FORGET = f"""DELETE FROM operation WHERE seq IS NULL AND time < %(before)s
  AND coalesce(deadline, 0) < {sql.NOW} RETURNING 1"""
_NEW_ORIGIN = """UPDATE info SET origin = %(origin)s, epoch = CASE origin WHEN '' THEN epoch ELSE %(epoch)s END
  WHERE origin <> %(origin)s RETURNING epoch"""


class PostgresBackend:
    """Keeps the promises of :class:`metastore.backends.port.Backend` on PostgreSQL."""

    def __init__(self, url: URL, timeout: float) -> None:
        self.pool = Pool(url, timeout)
        self._decided = 0
        self._fence: tuple[int, int] | None = None

    # --- commit

    def commit(self, commit: Commit) -> Outcome:
        """Apply ``commit`` in one round trip."""
        if len(commit.writes) == 1 and not commit.reads and not any(g.exclusive for g in commit.guards):
            (write,) = commit.writes
            if commit.claim or commit.held is not None or commit.skip_existing or commit.overlook:
                pass  # rare: the general form knows these
            elif isinstance(write, Insert) and write.id is None:
                return self._last([*preludes(commit), create(commit, write)], lambda row: _created(commit, row))
            elif isinstance(write, Update) and write.scope_version is None and write.doc is not None:
                return self._last([*preludes(commit), alter(commit, write)], lambda row: _altered(commit, write, row))
        return self._all(
            [*preludes(commit), *statements(commit)], lambda rows: _outcome_of_rows(commit, rows), commit.patience
        )

    def _last(self, statements: list[Statement], outcome: Callable[[Row], Outcome]) -> Outcome:
        """Send the statements, of which the last writes; return the outcome that its row, or an error, means."""
        if len(statements) > 1:
            return self._all(statements, lambda rows: outcome(rows[0]))
        try:
            row = self.pool.fetch_one(statements[0].text, statements[0].parameters)
        except psycopg.Error as error:
            return self._failed(error)
        assert row is not None
        return outcome(row)

    def _failed(self, error: psycopg.Error) -> Outcome:
        outcome = _outcome_of(error)
        if isinstance(outcome, Unknown):
            self.pool.forget()
        return outcome

    def _all(
        self, statements: list[Statement], outcome: Callable[[list[Row]], Outcome], patience: int | None = None
    ) -> Outcome:
        """Send the statements as one transaction; return the outcome that their rows, or an error, mean."""
        try:
            with self.pool.connection() as connection:
                rows = _rows_of_writes(connection, statements)
        except psycopg.errors.LockNotAvailable as error:
            return self._failed(error) if patience is None else Conflicted("busy")
        except psycopg.Error as error:
            return self._failed(error)
        return outcome(rows)

    # --- operations that are written down, and marks

    def write_down(self, entry: Entry) -> Outcome:
        return self._last(
            intents.write_down_statements(entry), lambda row: Committed((Result(entry.entity_id or 0, *row),))
        )

    def pending(self, entity_id: int, operation_id: UUID | None, limit: int) -> Pending:
        parameters = {"ids": [entity_id], "id": entity_id, "own": operation_id, "limit": limit}
        rows = self._rows(intents.PENDING_OF, parameters)
        chain = [row[2:] for row in rows if row[2] is not None]
        return pending(steps_of_json(rows[0][0]), chain, entity_id, operation_id, rows[0][1])

    def turn(self, entity_id: int, operation_id: UUID) -> Turn:
        try:
            row = self.pool.fetch_one(intents.TURN, {"id": entity_id, "own": operation_id})
        except psycopg.Error:  # rarely a dead connection: ask again, with all that a read knows of those
            rows = self._rows(intents.TURN, {"id": entity_id, "own": operation_id})
            row = rows[0] if rows else None
        if row is None:
            return Turn(None, 0)
        return Turn(steps_of_json(row[1])[0] if row[1] else None, row[0])

    def help(self, help: Help) -> Outcome:
        return self._last([intents.help_statement(help)], lambda row: _helped(help, row))

    def forbid(self, operation_id: UUID) -> int | None:
        """Insert a tombstone: it waits for an original in flight, and fails if that commits."""
        try:
            return int(self._rows(intents.FORBID, {"operation_id": operation_id})[0][0])
        except psycopg.errors.UniqueViolation:
            rows = self._rows(intents.FORBID_AGAIN, {"operation_id": operation_id})
            return rows[0][0] if rows else None

    def cancel(self, operation_id: UUID) -> bool:
        return bool(self._rows(intents.CANCEL, {"operation_id": operation_id}))

    def mark(self, mark: Mark) -> Outcome:
        def outcome(rows: list[Row]) -> Outcome:
            if not rows:
                return Conflicted("marked" if mark.scope_version is None else "ancestor", mark.id)
            return Committed((Result(mark.id, *rows[0]),))

        return self._all(intents.mark_statements(mark), outcome)

    def unmark(self, entity_id: int, operation_id: UUID) -> bool:
        return bool(self._rows(intents.UNMARK, {"id": entity_id, "operation_id": operation_id}))

    def marked(self, ids: Sequence[int]) -> list[Marked]:
        return [Marked(row[0], row[1], float(row[2])) for row in self._rows(intents.MARKED, {"ids": list(ids)})]

    def clear(self, entity_id: int, operation_id: UUID) -> bool:
        return bool(self._rows(intents.CLEAR, {"id": entity_id, "operation_id": operation_id}))

    def stats(self, since: int, limit: int) -> DatabaseStats:
        return postgres_stats(self._rows, since, limit)

    # --- reads

    def _read(self, ask: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Ask; once more on a fresh connection if the first was dead: a read may be repeated."""
        with self.pool.in_time():
            return self._read_twice(ask)

    def _read_twice(self, ask: Callable[[psycopg.Connection[Any]], T]) -> T:
        try:
            with self.pool.connection() as connection:
                return ask(connection)
        except psycopg.OperationalError as error:
            if isinstance(error, OutOfTime) or of_sqlstate(error.sqlstate) is not Verdict.UNKNOWN:
                raise_read_error(error)
        except psycopg.Error as error:
            raise_read_error(error)
        self.pool.forget()
        try:
            with self.pool.connection() as connection:
                return ask(connection)
        except psycopg.Error as error:
            raise_read_error(error)

    def _rows(self, text: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        return self._read(lambda connection: connection.execute(text, parameters).fetchall())

    def resolve(self, lookups: Sequence[Lookup]) -> list[Resolved]:
        if any(len(w.names) > DEEP for w in lookups):
            return [resolve_deep(self, w) for w in lookups]
        if len(lookups) == 1:
            depth = len(lookups[0].names)
            rows = self._rows(_resolve(depth), lookup_parameters(lookups[0]))
            return [resolved(rows[0] if rows else None, depth)]
        return self._read(lambda connection: _resolve_many(connection, lookups))

    def by_id(self, ids: Sequence[int]) -> list[Known | None]:
        return entities_by_id(self._rows(_READ.by_id, {"ids": list(ids)}), ids)

    def hold(self, guards: Guards) -> bool:
        return bool(self._rows(_READ.hold, _guard_parameters(guards))[0][0] == len(guards))

    def has_children(self, entity_id: int, besides: Sequence[int] = ()) -> bool:
        return bool(self._rows(_READ.has_children, {"entity_id": entity_id, "ids": list(besides)})[0][0])

    def children(
        self, parent_id: int, kind: str, family: str, state: int, after: tuple[str, int], limit: int, guards: Guards
    ) -> Page[Child]:
        parameters = {"parent_id": parent_id, "kind": kind, "family": family, "page_size": limit, "after_key": after[0]}
        if state != LIVE:
            parameters["after_id"] = after[1]
        rows = self._rows(_READ.children[state], {**parameters, **_guard_parameters(guards)})
        return page(rows, len(guards), child)

    def names(
        self, parent_id: int, kind: str, family: str, after: str, limit: int, guards: Guards
    ) -> Page[tuple[str, str]]:
        parameters = {"parent_id": parent_id, "kind": kind, "family": family, "page_size": limit, "after_key": after}
        return page(self._rows(_READ.names, {**parameters, **_guard_parameters(guards)}), len(guards), tuple)

    def gone(self, parent_id: int, family: str, key: str) -> Child | None:
        rows = self._rows(_READ.gone, {"parent_id": parent_id, "family": family, "key": key})
        return child(rows[0]) if rows else None

    def owned(self, owner_id: int, kind: str, after: str, limit: int, guards: Guards) -> Page[OwnedRecord]:
        parameters = {"owner_id": owner_id, "kind": kind, "after_key": after, "page_size": limit}
        return page(self._rows(_READ.owned, {**parameters, **_guard_parameters(guards)}), len(guards), owned_record)

    def owned_by_name(self, owner_ids: Sequence[int], kind: str, names: Sequence[str]) -> list[OwnedRecord | None]:
        parameters = {"owner_ids": list(owner_ids), "names": list(names), "kind": kind}
        found = {row[0]: owned_record(row[1:]) for row in self._rows(_READ.owned_by_name, parameters)}
        return [found.get(n + 1) for n in range(len(names))]

    def history(self, entity_id: int, after: int, limit: int) -> list[Step]:
        rows = self._rows(_READ.history, {"entity_id": entity_id, "after": after, "page_size": limit})
        return [step(row) for row in rows]

    def steps(self, operation_id: UUID) -> list[Step]:
        return [step(row) for row in self._rows(_READ.steps, {"operation_id": operation_id})]

    # --- the feed

    def feed(self, after: int, limit: int) -> Page[Step]:
        """A position is decided when all lower ones are: seen, or drawn by a transaction that is over.

        Without gaps nothing has to be asked. For a gap: whoever drew the number had a transaction
        id before we draw ours, so that the gap is final once the oldest running one is younger.
        """
        known = self._decided  # before the rows: what is decided meanwhile may not be among them
        steps = self._feed(after, limit)
        decided = _decided_rows(steps, after, known)
        if len(decided) == len(steps):
            return Page(True, steps)
        fence = self._fence
        if fence is None:
            ((transaction,),) = self._rows("SELECT pg_current_xact_id()::text::bigint", {})
            fence = self._fence = (max(s.seq or 0 for s in steps), transaction)
        last, transaction = fence
        ((oldest,),) = self._rows("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint", {})
        if oldest <= transaction:
            return Page(False, decided)
        self._fence = None
        self._decided = known = max(last, self._decided)
        steps = self._feed(after, limit)
        decided = _decided_rows(steps, after, known)
        return Page(len(decided) == len(steps), decided)

    def _feed(self, after: int, limit: int) -> list[Step]:
        return [step(row) for row in self._rows(_READ.feed, {"after": after, "page_size": limit})]

    def feed_start(self) -> tuple[str, int]:
        ((epoch, collected),) = self._rows("SELECT epoch, collected_seq FROM info", {})
        return epoch, collected

    # --- the rest

    def reserve_ids(self, count: int) -> list[int]:
        rows = self._rows("SELECT nextval('entity_id_seq') FROM generate_series(1, %(count)s)", {"count": count})
        return [row[0] for row in rows]

    # --- gc

    def now(self) -> int:
        return int(self._rows("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint", {})[0][0])

    def dropped_before(self, time: int, limit: int) -> list[int]:
        return [row[0] for row in self._rows(_DROPPED_BEFORE, {"before": time, "page_size": limit})]

    def purging(self, limit: int) -> list[int]:
        return [row[0] for row in self._rows(_PURGING, {"page_size": limit})]

    def below(self, entity_id: int, limit: int) -> list[tuple[int, str]]:
        return [(row[0], row[1]) for row in self._rows(_BELOW, {"entity_id": entity_id, "page_size": limit})]

    def delete_entities(self, ids: Sequence[int]) -> int:
        return int(self._rows(collect_sql.POSTGRES_DELETE_ENTITIES, {"ids": list(ids)})[0][0])

    def forget(self, before: int) -> None:
        """Waits for the commits in flight that have looked whether their id may be forgotten."""
        sql = "UPDATE info SET forgotten = greatest(forgotten, %(before)s) RETURNING 1"
        self._rows(sql, {"before": before})

    def delete_steps(self, before: int, keep: int, after: int, limit: int) -> tuple[int | None, int, int]:
        parameters = {"before": before, "keep": keep, "after": after, "limit": limit}
        ((last, versions, others),) = self._rows(collect_sql.POSTGRES_DELETE_STEPS, parameters)
        if after == 0:
            others += len(self._rows(_FORGET, {"before": before - TOMBSTONES_STAY}))
        return last, versions, others

    @contextmanager
    def snapshot(self) -> Iterator[_Snapshot]:
        """Open a read-only transaction: it holds no lock that a writer would meet, only old row versions."""
        try:
            with self.pool.connection() as connection:
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                connection.execute("SET LOCAL statement_timeout = 0")
                with until(math.inf):
                    yield _Snapshot(connection)
                connection.execute("ROLLBACK")
        except psycopg.Error as error:
            raise_read_error(error)

    # --- the schema

    def format(self) -> tuple[int, int] | None:
        """A restored copy of a database is another database: it gets an epoch of its own."""
        try:
            ((found, compatible, origin),) = self._rows("SELECT format, compatible_from, origin FROM info", {})
        except MigrationNeeded:
            return None
        here = self._origin()
        if origin != here:
            self._rows(_NEW_ORIGIN, {"origin": here, "epoch": f"{self.now():014x}"})
        return found, compatible

    def _origin(self) -> str:
        """Return what tells this database from its copies: the cluster's number and the database's."""
        try:
            ((cluster,),) = self._rows("SELECT system_identifier::text FROM pg_control_system()", {})
        except BackendUnavailable:  # a server that does not tell everybody
            cluster = "?"
        ((database,),) = self._rows("SELECT oid::text FROM pg_database WHERE datname = current_database()", {})
        return f"{cluster}/{database}"

    def ping(self) -> None:
        self._rows("SELECT 1", {})

    def close(self) -> None:
        self.pool.close()


class _Snapshot:
    """Cursors in one REPEATABLE READ transaction."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._opened = 0

    def rows(self, table: str, columns: Sequence[str], order: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        self._opened += 1
        with self._connection.cursor(name=f"metastore_{self._opened}") as cursor:
            cursor.itersize = 100 if "doc" in columns else 1000  # a document may have a megabyte
            cursor.execute(verify_sql.select(table, columns, order))
            yield from cursor

    def numbers(self) -> tuple[int, int]:
        row = self._connection.execute(verify_sql.POSTGRES_NUMBERS).fetchone()
        assert row is not None
        return row[0], row[1]


def _resolve_many(connection: psycopg.Connection[Any], lookups: Sequence[Lookup]) -> list[Resolved]:
    with connection.pipeline():
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")  # all of them at one instant
        cursors = [connection.execute(_resolve(len(w.names)), lookup_parameters(w)) for w in lookups]
        connection.execute("COMMIT")
    return [resolved(c.fetchone(), len(w.names)) for c, w in zip(cursors, lookups, strict=True)]


def _guard_parameters(guards: Guards) -> dict[str, Any]:
    return {"guard_ids": [g[0] for g in guards], "guard_scopes": [g[1] for g in guards]}


def _decided_rows(steps: list[Step], after: int, decided: int) -> list[Step]:
    """Return the first steps up to a gap that lies beyond ``decided``."""
    expected = after + 1
    for n, one in enumerate(steps):
        seq = one.seq or 0
        if seq != expected and seq - 1 > decided:
            return steps[:n]
        expected = seq + 1
    return steps


def _rows_of_writes(connection: psycopg.Connection[Any], statements: list[Statement]) -> list[tuple[Any, ...]]:
    """Send the statements as one transaction; return the rows of those that write.

    Several are made up completely before the first byte is sent, and sent as one message, so that
    the server never holds a lock while Python runs. (psycopg's pipeline sends each as it comes.)
    """
    if len(statements) == 1:
        return connection.execute(statements[0].text, statements[0].parameters).fetchall()
    composer = psycopg.ClientCursor(connection)
    message = ";\n".join([composer.mogrify(s.text, s.parameters) for s in statements])
    cursor = connection.execute(message.encode(), prepare=False)
    rows: list[tuple[Any, ...]] = []
    for statement in statements:
        if statement.writes:
            rows += cursor.fetchall()
        cursor.nextset()
    return rows


_CHECKS: dict[str | None, Cause] = {
    sql.NOT_EMPTY: "not_empty",
    sql.READ: "read",
    sql.CLAIM: "claim",
    sql.STALE_ID: "stale_id",
}
_UNIQUE: dict[str | None, Cause] = {
    "guard_live_name": "name",
    "owned_pkey": "name",
    "operation_pkey": "operation",
}


def _created(commit: Commit, row: Row) -> Outcome:
    held, new_id, time, marked = row
    if new_id is not None:
        return Committed((Result(new_id, 1, time),))
    return Conflicted("name" if held == len(commit.guards) else "marked" if marked else "ancestor")


def _altered(commit: Commit, write: Update, row: Row) -> Outcome:
    held, version, time, found, marked = row
    if version is not None:
        return Committed((Result(write.id, version, time),))
    if marked or held < len(commit.guards):
        return Conflicted("marked" if marked else "ancestor")
    # the version may be as expected in this statement's snapshot, and another one after the wait
    return Conflicted("self" if found != write.version else "pending", write.id, found)


def _helped(help_: Help, row: Row) -> Outcome:
    held, cas, time, found, marked = row
    if time is not None:
        return Committed(tuple([Result(help_.id, help_.version, time)] * len(help_.resolutions)))
    if marked or held < len(help_.guards):
        return Conflicted("marked" if marked else "ancestor")
    return Conflicted("pending" if cas else "self", help_.id, found)


def _outcome_of(error: psycopg.Error) -> Outcome:
    verdict = of_sqlstate(error.sqlstate)
    if error.sqlstate is None and not isinstance(error, psycopg.OperationalError):
        raise_read_error(error)  # the client refused it, nothing was sent
    if verdict is Verdict.RETRY:
        return Conflicted("serialization")
    if verdict is Verdict.UNKNOWN:
        return Unknown(type(error).__name__)
    if verdict is Verdict.CHECK:
        return Conflicted(_CHECKS[error.sqlstate])
    if verdict is Verdict.UNIQUE and error.diag.constraint_name in _UNIQUE:
        return Conflicted(_UNIQUE[error.diag.constraint_name])
    return raise_read_error(error)


def _outcome_of_rows(commit: Commit, rows: list[Row]) -> Outcome:
    guards, reads, own, free, marked, *_ = rows[0]  # of several stages each holds, or all would have failed
    if not guards:
        return Conflicted("marked" if marked else "ancestor")
    if not (reads and own and free):
        return Conflicted("read" if not reads else "self" if not own else "pending")
    results: list[Result | None] = [None] * len(commit.writes)
    for _, _, _, _, _, ordinal, row_id, version, at, *_ in rows:
        if ordinal is not None:
            results[ordinal] = Result(row_id, version, at)
    return Committed(tuple(results))
