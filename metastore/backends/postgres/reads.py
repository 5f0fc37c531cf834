"""Read from PostgreSQL: each read is one statement, which is sent again if the connection was dead.

A read may be repeated, so a caller never notices a broken connection. The SQL is in
:mod:`metastore.backends.postgres.read_sql` and :mod:`metastore.backends.sql.reads`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast
from uuid import UUID

import psycopg

from metastore.backends.postgres.connect import Pool
from metastore.backends.postgres.connection import Connection, OutOfTime
from metastore.backends.postgres.fragments import CONFIRM, DURABLE
from metastore.backends.postgres.hints import FOLLOWED, HINT, hearing
from metastore.backends.postgres.home import START, Home, epoch_at
from metastore.backends.postgres.parameters import Statement, plain, texts
from metastore.backends.postgres.read_errors import raise_read_error, refused_here
from metastore.backends.postgres.read_sql import READ as _READ
from metastore.backends.postgres.read_sql import each
from metastore.backends.postgres.settings import LASTING
from metastore.backends.postgres.snapshots import Snapshot
from metastore.backends.sql.decode import lookup_parameters, resolved, step
from metastore.backends.sql.deep_paths import DEEP, resolve_deep
from metastore.backends.sql.find import like_of
from metastore.backends.sql.limits import Limits
from metastore.backends.sql.questions import Questions, Texts
from metastore.backends.sql.touched import touched_sql
from metastore.deadlines import until
from metastore.names import fold
from metastore.port.backend import Guards
from metastore.port.feed import Hearing
from metastore.port.format import check_compatible
from metastore.port.records import Lookup, Node, OwnedRecord, Resolved, RowPage, Step
from metastore.port.relations import RelationRecord
from metastore.port.replica import NewestChange, Shown
from metastore.port.snapshot import Watermark
from metastore.port.touched import Touch, Touched
from metastore.retry.classify import Consequence, of_sqlstate
from metastore.urls import Url

T = TypeVar("T")

_resolve_in_one = cache(_READ.resolve_many)
_MANY = 8
"""With more paths, one statement for all of them is faster than a statement for each."""
_TEXTS = Texts(_READ)


class PostgresReads(Questions):
    """The reading half of the backend."""

    sql = _TEXTS

    def __init__(self, url: Url, timeout: float, limits: Limits | None = None, *, replica: bool = False) -> None:
        self.pool = Pool(url, timeout, limits, replica=replica)
        self._decided = _Decided(None)
        self._here = Home(None, None)

    def _read(self, ask: Callable[[psycopg.Connection[Any]], T], *, writes: bool = False) -> T:
        """Read; if the connection was dead, read once more on a new one: a read may be repeated.

        ``writes``: this write may be repeated too. The repetition may find rows of the first attempt that no replica
        has confirmed.
        """
        with self.pool.in_time():
            return self._read_twice(ask, writes)

    def _read_twice(self, ask: Callable[[psycopg.Connection[Any]], T], writes: bool) -> T:
        try:
            with self.pool.connection() as connection:
                return ask(connection)
        except psycopg.Error as error:
            if not _is_dead(error):
                raise_read_error(error)
        self.pool.forget()
        try:
            with self.pool.connection() as connection:
                answer = ask(connection)
                if writes:
                    connection.execute(CONFIRM)
                return answer
        except psycopg.Error as error:
            raise_read_error(error)

    def _rows(self, text: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        return self._read(lambda connection: connection.execute(text, parameters).fetchall(), writes=DURABLE in text)

    def _quick(self, text: str, parameters: dict[str, Any], behind: Statement | None = None) -> list[tuple[Any, ...]]:
        """Do the same on the hot path; after an error, read again like :meth:`_read`. See :meth:`Pool.send`."""
        try:
            if behind is not None:
                (rows,) = self.pool.send(
                    [(text, parameters)], lambda c: [c.execute(text, parameters).fetchall()], behind=behind[:2]
                )
                return rows
            return self.pool.fetch(text, parameters)
        except psycopg.Error as error:
            if isinstance(error, OutOfTime):
                raise_read_error(error)
            return self._rows(text, parameters)

    @staticmethod
    def _ids(ids: Iterable[int]) -> str:
        return plain(ids)

    @staticmethod
    def _names(names: Iterable[str]) -> str:
        return texts(names)

    @staticmethod
    def _pattern(glob: str) -> str:
        return like_of(glob)

    @staticmethod
    def _guards(guards: Guards) -> dict[str, Any]:
        return {"guard_ids": plain([g[0] for g in guards]), "guard_scopes": plain([g[1] for g in guards])}

    def resolve(self, lookups: Sequence[Lookup]) -> list[Resolved]:
        if any(len(w.names) > DEEP for w in lookups):
            return [resolve_deep(self.resolve, self.hold, w) for w in lookups]
        if len(lookups) == 1:
            depth = len(lookups[0].names)
            rows = self._quick(_TEXTS.resolve(depth), lookup_parameters(lookups[0]))
            return [resolved(rows[0] if rows else None, depth)]
        if len(lookups) <= _MANY:
            return self._read(lambda connection: _resolve_many(connection, lookups))
        alike: dict[tuple[tuple[str, ...], Node], list[Lookup]] = {}
        for lookup in lookups:
            alike.setdefault((lookup.families, lookup.start), []).append(lookup)
        if len(alike) == 1:
            return _decoded(lookups, self._rows(*_alike(lookups)))
        return self._read(lambda connection: _resolve_groups(connection, lookups, list(alike.values())))

    def owned_by_name(self, owner_ids: Sequence[int], kind: str, names: Sequence[str]) -> list[OwnedRecord | None]:
        parameters = {"owner_ids": list(owner_ids), "names": list(names), "kind": kind}
        by_number = {row[0]: OwnedRecord(*row[1:]) for row in self._rows(_READ.owned_by_name, parameters)}
        return [by_number.get(n + 1) for n in range(len(names))]

    def relations(self, kind: str, slots: Sequence[tuple[int, int]]) -> list[RelationRecord]:
        where = {"kind": kind, "from_ids": [s[0] for s in slots], "slots": [s[1] for s in slots]}
        return [RelationRecord(*row) for row in self._rows(_TEXTS.relations, where)]

    def steps(self, operation_id: UUID) -> list[Step]:
        return [step(row) for row in self._rows(_READ.steps, {"operation_id": operation_id})]

    def confirm(self, operation_id: UUID) -> list[Step]:
        """Log a message in the statement that reads: a replica that confirms it has all earlier commits."""
        rows = self._rows(f"SELECT s.*, ({CONFIRM}) FROM ({_READ.steps}) s", {"operation_id": operation_id})
        return [step(row[:-1]) for row in rows]

    def feed(self, after: int, limit: int, *, docs: bool = True, changes: bool = True) -> RowPage[Step]:
        """A position is decided when all lower positions were seen, or drawn by transactions that are over.

        Without gaps no further query is needed. Otherwise: a transaction that drew a missing position had its id before
        this process draws an id. So the gap is final once the oldest running transaction is newer than that id.
        """
        text = _READ.feed_with(docs=docs, changes=changes)
        known, steps = self._feed_of_one_server(text, after, limit)
        decided = _decided_rows(steps, after, known.until)
        if len(decided) == len(steps):
            return RowPage(True, steps)
        watermark = known.watermark
        if watermark is None:
            ((transaction,),) = self._rows(_TRANSACTION, {})
            watermark = Watermark(max(s.seq or 0 for s in steps), transaction)
            self._decided = known._replace(watermark=watermark)
        last, transaction = watermark
        ((oldest,),) = self._rows("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint", {})
        if oldest <= transaction or self.pool.opened is not known.server:
            return RowPage(False, decided)
        self._decided = _Decided(known.server, max(last, known.until))
        known, steps = self._feed_of_one_server(text, after, limit)
        decided = _decided_rows(steps, after, known.until)
        return RowPage(len(decided) == len(steps), decided)

    def _feed_of_one_server(self, text: str, after: int, limit: int) -> tuple[_Decided, list[Step]]:
        """Read rows; return also which positions of their server were known to be decided before."""
        for _ in range(_TURNS):
            server = self.pool.opened
            known = self._decided if self._decided.server is server else _Decided(server)
            steps = [step(row) for row in self._quick(text, {"after": after, "page_size": limit})]
            if self.pool.opened is server:
                return known, steps
        return _Decided(None), steps

    def watermark(self) -> Watermark:
        """Read the position first: a transaction that drew a lower position had its id before this one draws an id."""
        ((position,),) = self._rows(_LAST_POSITION, {})
        ((transaction,),) = self._rows(_TRANSACTION, {})
        return Watermark(position, transaction)

    def decided(self, watermark: Watermark) -> bool:
        ((oldest,),) = self._rows("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint", {})
        return bool(oldest > watermark.transaction)

    @property
    def opened(self) -> object:
        return self.pool.opened

    def shown(self) -> Shown:
        ((seq, operation_id, oldest, next_, replica),) = self._rows(_SHOWN, {})
        return Shown(NewestChange(seq, operation_id), next_, oldest, replica)

    def touched(self, after: int, gaps: Sequence[int], limit: int) -> Touched:
        named: dict[str, Any] = {"after": after, "page_size": limit + 1}
        asked = self._rows(_TOUCHED_GAPS, {**named, "gaps": list(gaps)}) if gaps else self._rows(_TOUCHED, named)
        (epoch, noted, collected, oldest, *_), *_ = rows = asked
        steps = [Touch(*row[4:]) for row in rows if row[4] is not None]
        return Touched(epoch_at(self._here, epoch, noted), collected, oldest, steps)

    def hearing(self) -> AbstractContextManager[Hearing | None]:
        return hearing(self.pool)

    def hint(self, *, send: bool) -> bool:
        return bool(self._rows(HINT if send else FOLLOWED, {}))

    def feed_start(self) -> tuple[str, int]:
        ((compatible_from, *epoch, collected),) = self._rows(START, {})
        check_compatible(compatible_from)
        return epoch_at(self._here, *epoch), collected

    def unbroken(self, seq: int) -> bool:
        return bool(self._rows(_UNBROKEN, {"seq": seq})[0][0])

    def event_at(self, seq: int) -> tuple[UUID | None, bool]:
        ((operation_id, replica),) = self._rows(_EVENT_AT, {"seq": seq})
        return operation_id, replica

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Open a read-only transaction. It holds no lock that blocks a writer, but keeps old row versions."""
        begun = False
        for last in (False, True):
            try:
                with self.pool.connection() as connection:
                    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                    connection.execute(LASTING)
                    begun = True  # from now on no second connection is tried: it would show another instant
                    with until(math.inf):
                        yield Snapshot(connection)
                    connection.execute("ROLLBACK")
                    return
            except psycopg.Error as error:
                if begun or last or not _is_dead(error):
                    raise_read_error(error)
            self.pool.forget()


def _is_dead(error: psycopg.Error) -> bool:
    """Whether a connection broke, so that a read may be repeated on another one."""
    if isinstance(error, OutOfTime) or refused_here(error):
        return False
    return of_sqlstate(error.sqlstate) is Consequence.UNKNOWN


_NEXT = "pg_snapshot_xmin({0})::text::bigint + age(pg_snapshot_xmin({0})::xid)"
"""The next transaction id that the server would draw. Unlike pg_current_xact_id(), a replica can tell it.

On a replica it is the id after all ids in the log that it has received. A commit locks or writes a row before it draws
its position, and the log then has the transaction's id. So for each visible position, the log has the transactions of
all lower ones.
"""
_TRANSACTION = f"""SELECT CASE WHEN pg_is_in_recovery() THEN {_NEXT.format("pg_current_snapshot()")} - 1
  ELSE pg_current_xact_id()::text::bigint END"""
"""A transaction id that is drawn now; on a replica, which draws none, the last id that it has received."""
_NEWEST = "SELECT seq, operation_id FROM operation WHERE seq IS NOT NULL ORDER BY seq DESC LIMIT 1"
_LAST_POSITION = f"""SELECT CASE WHEN pg_is_in_recovery() THEN coalesce((SELECT seq FROM ({_NEWEST}) o), 0)
  ELSE (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM change_seq) END"""
"""The last position that was drawn. A replica's copy of the sequence runs ahead: there it is the last visible one."""
_SHOWN = f"""SELECT greatest(n.seq, i.collected_seq), CASE WHEN n.seq >= i.collected_seq THEN n.operation_id END,
  pg_snapshot_xmin(s.now)::text::bigint, {_NEXT.format("s.now")}, pg_is_in_recovery()
FROM info i CROSS JOIN (SELECT pg_current_snapshot() AS now) s LEFT JOIN ({_NEWEST}) n ON true"""
"""The newest change and the oldest transaction of one snapshot; and, read after that was taken, the next id, and
whether this is a replica.
"""

_EVENT_AT = "SELECT (SELECT operation_id FROM operation WHERE seq = %(seq)s::bigint), pg_is_in_recovery()"

_UNBROKEN = """WITH before AS (
  SELECT seq, time, seq - lag(seq) OVER (ORDER BY seq) AS step FROM (
    SELECT seq, time FROM operation WHERE seq <= %(seq)s::bigint AND seq > (SELECT collected_seq FROM info)
    ORDER BY seq DESC LIMIT 50000) AS newest)
SELECT pg_is_in_recovery() OR NOT EXISTS (SELECT FROM before
  WHERE step > 1 AND time > (SELECT max(time) FROM before WHERE seq = %(seq)s::bigint) - 10000000)"""
"""Looks back 10 seconds: a commit draws its position last, after all locks, so it ends within this time.

The number of changes that it looks at is enough for this time.
"""

_HEAD = "i.epoch, i.origin, i.collected_seq, pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
_GAPS = f"FROM unnest(%(gaps)s::bigint[]) AS w(seq) CROSS JOIN {each('operation', 'o', 'o.seq = w.seq')}"
_TOUCHED, _TOUCHED_GAPS = touched_sql(_HEAD, "%(name)s"), touched_sql(_HEAD, "%(name)s", _GAPS)


def _alike(lookups: Sequence[Lookup]) -> tuple[str, dict[str, Any]]:
    """Return one statement for paths through the same families; a statement for each would take ten times as long."""
    first, where = lookups[0], lookup_parameters(lookups[0])
    depth = len(first.names)
    for n in range(1, depth + 1):
        names = [w.names[n - 1] for w in lookups]
        folded = {name: fold(name) for name in set(names)}
        where[f"k{n}"] = texts([folded[name] for name in names])
        where[f"n{n}"] = where["k1"] if n == 1 and first.start.fold else texts(names)
    return _resolve_in_one(depth), where


def _decoded(lookups: Sequence[Lookup], rows: Sequence[Any]) -> list[Resolved]:
    return [resolved(row, len(w.names)) for row, w in zip(rows, lookups, strict=True)]


def _resolve_groups(
    connection: psycopg.Connection[Any], lookups: Sequence[Lookup], groups: Sequence[list[Lookup]]
) -> list[Resolved]:
    """Follow paths that may be of several kinds: one statement for each combination of families."""
    cursors = cast(Connection, connection).at_one_instant([_alike(group) for group in groups])
    found: dict[Lookup, Resolved] = {}
    for group, cursor in zip(groups, cursors, strict=True):
        found.update(zip(group, _decoded(group, cursor.fetchall()), strict=True))
    return [found[lookup] for lookup in lookups]


def _resolve_many(connection: psycopg.Connection[Any], lookups: Sequence[Lookup]) -> list[Resolved]:
    statements = [(_TEXTS.resolve(len(w.names)), lookup_parameters(w)) for w in lookups]
    cursors = cast(Connection, connection).at_one_instant(statements)
    return [resolved(c.fetchone(), len(w.names)) for c, w in zip(cursors, lookups, strict=True)]


class _Decided(NamedTuple):
    """How far the positions of one server are known to be decided.

    A new connection may lead to another server. After a fail-over that lost commits, that server gives their positions
    to other changes. So this knowledge is valid only until a new connection is opened.
    """

    server: object
    until: int = 0
    """Each position up to this one was seen, or its transaction is over."""
    watermark: Watermark | None = None


_TURNS = 3
"""How often to read the rows if a connection is opened meanwhile; after that, no position counts as decided."""


def _decided_rows(steps: list[Step], after: int, decided: int) -> list[Step]:
    """Return the steps before the first gap beyond ``decided``."""
    expected = after + 1
    for n, one in enumerate(steps):
        seq = one.seq or 0
        if seq != expected and seq - 1 > decided:
            return steps[:n]
        expected = seq + 1
    return steps
