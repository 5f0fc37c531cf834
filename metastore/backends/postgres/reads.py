"""Read from PostgreSQL: each question is one statement, sent once more if the connection was dead.

A read may be repeated, so that a caller never sees that a connection broke. The SQL is in
:mod:`metastore.backends.postgres.read_sql` and :mod:`metastore.backends.sql.reads`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from sqlalchemy.engine import URL

from metastore.backends.postgres.connect import OutOfTime, Pool, raise_read_error
from metastore.backends.postgres.hints import HINT, hearing
from metastore.backends.postgres.parameters import plain, texts
from metastore.backends.postgres.place import CACHED, Place, epoch_at
from metastore.backends.postgres.read_sql import READ as _READ
from metastore.backends.postgres.read_sql import each
from metastore.backends.postgres.relations import READ_RELATIONS
from metastore.backends.postgres.settings import LASTING
from metastore.backends.sql import relations as relation_rows
from metastore.backends.sql import rights as rights_sql
from metastore.backends.sql import snapshot as verify_sql
from metastore.backends.sql.decode import (
    child,
    entities_by_id,
    find_parameters,
    found,
    lookup_parameters,
    owned_record,
    page,
    resolved,
    step,
)
from metastore.backends.sql.deep_paths import DEEP, resolve_deep
from metastore.backends.sql.find import FindSql, like_of
from metastore.backends.sql.limits import Limits
from metastore.backends.sql.past import PastSql
from metastore.backends.sql.reads import from_named
from metastore.backends.sql.touched import touched_sql
from metastore.deadlines import until
from metastore.names import fold
from metastore.port.backend import Guards, Hearing, Matches, Search, Watermark
from metastore.port.commit import LIVE
from metastore.port.records import Child, Known, Lookup, OwnedRecord, Resolved, RowPage, Step
from metastore.port.relations import Owning, Related, Relating, RelationRecord
from metastore.port.replica import Newest, Shown
from metastore.port.rights import Chosen, RightRows, Whose
from metastore.port.touched import Touch, Touched
from metastore.retry.classify import Verdict, of_sqlstate

__all__ = ["PAST", "PostgresReads"]

T = TypeVar("T")

_resolve = cache(_READ.resolve)
_resolve_holding = cache(partial(_READ.resolve, held=True))
_children_chosen, _names_chosen = cache(_READ.children_chosen), cache(_READ.names_chosen)
_resolve_in_one = cache(_READ.resolve_many)
_MANY = 8
"""With more paths, one statement for all of them is faster than one for each."""
_FIND = FindSql(
    parameter="%(name)s",
    fits="{} LIKE {}::text",
    by_id=each("guard", "g", "g.id = {}"),
    entity=each("entity", "e", "e.id = up.id AND up.height = 0") + " ON true",
)
_related, _relating = cache(READ_RELATIONS.related), cache(READ_RELATIONS.relating)
_owning = cache(READ_RELATIONS.owning)
_RELATIONS = READ_RELATIONS.relations()
_RELATED_PAGE = READ_RELATIONS.related_page()


@cache
def _rights(*, below: bool) -> str:
    return from_named(rights_sql.statement(_PLACES, _EACH, below=below), "%(name)s")


_GATHERED = "json_agg(json_build_array(what, one, other, number, word, name))::text"


@cache
def _resolve_rights(depth: int) -> str:
    return _READ.resolve_rights(depth, lambda places, lake: rights_sql.statement(places, _EACH, lake=lake), _GATHERED)


_PLACES = "unnest(:places::bigint[]) AS w(id)"
_EACH = "CROSS JOIN LATERAL (SELECT * FROM {table} {alias} WHERE {condition} OFFSET 0) {alias}"
_BY_NAME, _BY_PARENT = _FIND.by_name(), _FIND.by_parent()
PAST = PastSql(
    parameter="%(name)s",
    ids="(SELECT unnest(%(ids)s::bigint[]) AS id) AS w",
    join="CROSS JOIN LATERAL (SELECT * FROM {table} {alias} WHERE {condition} OFFSET 0) {alias}",
    left_join="LEFT JOIN LATERAL (SELECT * FROM {table} {alias} WHERE {condition} OFFSET 0) {alias} ON true",
    kinds="(:kinds::text[] IS NULL OR n.kind = ANY(:kinds::text[]))",
    distinct="DISTINCT ON (c.key, c.entity_id, c.name)",
    read=_READ,
)


class PostgresReads:
    """The reading half of the backend."""

    def __init__(self, url: URL, timeout: float, limits: Limits | None = None) -> None:
        self.pool = Pool(url, timeout, limits)
        self._decided = 0
        self._watermark: Watermark | None = None
        self._here = Place(None, None)

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

    def _fetch(self, text: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Do the same on the hot path; after an error, with all that a read knows of those."""
        try:
            return self.pool.fetch(text, parameters)
        except psycopg.Error as error:
            if isinstance(error, OutOfTime):
                raise_read_error(error)
            return self._rows(text, parameters)

    def rights(self, whose: Whose, places: Sequence[int], below: int | None) -> RightRows:
        named = {"lake": whose.lake, "name": whose.user, "places": plain(places)}
        if below is not None:
            named["below"] = below
        return rights_sql.decoded(self._fetch(_rights(below=below is not None), named))

    def resolve_rights(self, lookup: Lookup, user: str) -> tuple[Resolved, RightRows]:
        depth = len(lookup.names)
        if depth > DEEP:
            nodes = (found := resolve_deep(self.resolve, self.hold, lookup)).nodes
            ids = [node.id for node in nodes]
            return found, self.rights(Whose(ids[0], user), ids, None) if ids else rights_sql.decoded(())
        rows = self._fetch(_resolve_rights(depth), {**lookup_parameters(lookup), "name": user})
        found = resolved(rows[0][:-1] if rows else None, depth)
        return found, rights_sql.decoded(json.loads(rows[0][-1] or "[]") if rows else ())

    def resolve_holding(self, lookup: Lookup, guards: Guards) -> tuple[Resolved, bool]:
        depth = len(lookup.names)
        if depth > DEEP:
            return resolve_deep(self.resolve, self.hold, lookup), self.hold(guards)
        where = {**lookup_parameters(lookup), **_sent(guards)}
        rows = self._fetch(_resolve_holding(depth), where)
        return (resolved(rows[0][:-1], depth), rows[0][-1] == len(guards)) if rows else (Resolved((), None), False)

    def by_id_holding(self, ids: Sequence[int], guards: Guards) -> tuple[list[Known | None], bool]:
        rows = self._fetch(_READ.by_id_holding, {"ids": plain(ids), **_sent(guards)})
        return entities_by_id([row[:-1] for row in rows], ids), bool(rows) and rows[0][-1] == len(guards)

    def children_chosen(
        self,
        parent_id: int,
        kind: str,
        family: str,
        state: int,
        after: tuple[str, int],
        limit: int,
        guards: Guards,
        chosen: Chosen,
    ) -> RowPage[Child]:
        where = {"parent_id": parent_id, "kind": kind, "family": family, "page_size": limit, "after_key": after[0]}
        where |= {"chosen": list(chosen.ids), **_guard_parameters(guards)}
        if state != LIVE:
            where["after_id"] = after[1]
        return page(self._planned(_children_chosen(state, only=chosen.only), where), len(guards), child)

    def names_chosen(
        self, parent_id: int, kind: str, family: str, after: str, limit: int, guards: Guards, chosen: Chosen
    ) -> RowPage[tuple[str, str]]:
        where = {"parent_id": parent_id, "kind": kind, "family": family, "page_size": limit, "after_key": after}
        where |= {"chosen": list(chosen.ids), **_guard_parameters(guards)}
        return page(self._planned(_names_chosen(only=chosen.only), where), len(guards), tuple)

    def _planned(self, text: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Run a statement whose best plan depends on its parameters."""
        return self._read(lambda connection: connection.execute(text, parameters, prepare=False).fetchall())

    def resolve(self, lookups: Sequence[Lookup]) -> list[Resolved]:
        if any(len(w.names) > DEEP for w in lookups):
            return [resolve_deep(self.resolve, self.hold, w) for w in lookups]
        if len(lookups) == 1:
            depth = len(lookups[0].names)
            rows = self._fetch(_resolve(depth), lookup_parameters(lookups[0]))
            return [resolved(rows[0] if rows else None, depth)]
        if len(lookups) > _MANY and len({(w.families, w.start) for w in lookups}) == 1:
            return self._resolve_alike(lookups)
        return self._read(lambda connection: _resolve_many(connection, lookups))

    def _resolve_alike(self, lookups: Sequence[Lookup]) -> list[Resolved]:
        """Follow paths through the same families in one statement: one for each would take ten times as long."""
        first, where = lookups[0], lookup_parameters(lookups[0])
        depth = len(first.names)
        for n in range(1, depth + 1):
            names = [w.names[n - 1] for w in lookups]
            folded = {name: fold(name) for name in set(names)}
            where[f"k{n}"] = texts([folded[name] for name in names])
            where[f"n{n}"] = where["k1"] if n == 1 and first.start.fold else texts(names)
        return [resolved(row, depth) for row in self._rows(_resolve_in_one(depth), where)]

    def by_id(self, ids: Sequence[int]) -> list[Known | None]:
        return entities_by_id(self._rows(_READ.by_id, {"ids": list(ids)}), ids)

    def hold(self, guards: Guards) -> bool:
        return bool(self._rows(_READ.hold, _guard_parameters(guards))[0][0] == len(guards))

    def has_children(self, entity_id: int, besides: Sequence[int] = ()) -> bool:
        return bool(self._rows(_READ.has_children, {"entity_id": entity_id, "ids": list(besides)})[0][0])

    def children(
        self, parent_id: int, kind: str, family: str, state: int, after: tuple[str, int], limit: int, guards: Guards
    ) -> RowPage[Child]:
        parameters = {"parent_id": parent_id, "kind": kind, "family": family, "page_size": limit, "after_key": after[0]}
        if state != LIVE:
            parameters["after_id"] = after[1]
        rows = self._rows(_READ.children[state], {**parameters, **_guard_parameters(guards)})
        return page(rows, len(guards), child)

    def names(
        self, parent_id: int, kind: str, family: str, after: str, limit: int, guards: Guards
    ) -> RowPage[tuple[str, str]]:
        parameters = {"parent_id": parent_id, "kind": kind, "family": family, "page_size": limit, "after_key": after}
        return page(self._rows(_READ.names, {**parameters, **_guard_parameters(guards)}), len(guards), tuple)

    def find(self, search: Search) -> Matches:
        parameters = {**find_parameters(search), "pattern": like_of(search.glob), "folded": like_of(search.folded)}
        return found(self._rows(_BY_NAME if search.by_name else _BY_PARENT, parameters), search)

    def gone(self, parent_id: int, kind: str, family: str, key: str) -> Child | None:
        rows = self._rows(_READ.gone, {"parent_id": parent_id, "kind": kind, "family": family, "key": key})
        return child(rows[0]) if rows else None

    def owned(self, owner_id: int, kind: str, after: str, limit: int, guards: Guards) -> RowPage[OwnedRecord]:
        parameters = {"owner_id": owner_id, "kind": kind, "after_key": after, "page_size": limit}
        return page(self._rows(_READ.owned, {**parameters, **_guard_parameters(guards)}), len(guards), owned_record)

    def owned_by_name(self, owner_ids: Sequence[int], kind: str, names: Sequence[str]) -> list[OwnedRecord | None]:
        parameters = {"owner_ids": list(owner_ids), "names": list(names), "kind": kind}
        by_number = {row[0]: owned_record(row[1:]) for row in self._rows(_READ.owned_by_name, parameters)}
        return [by_number.get(n + 1) for n in range(len(names))]

    def owning(self, target: Lookup | int, kinds: tuple[str, str], names: Sequence[str]) -> Owning | None:
        if isinstance(target, Lookup) and len(target.names) > DEEP:
            record = self.resolve([target])[0].record
            return None if record is None else self.owning(record.chain[-1].id, kinds, names)
        where = {"id": target} if isinstance(target, int) else lookup_parameters(target)
        values = {**where, "kind": kinds[0], "other": kinds[1], "names": texts(list(names))}
        return relation_rows.owning(self._fetch(_owning(relation_rows.path_of(target)), values))

    def related(self, target: Lookup | int, kind: str, *, above: bool, doc: bool) -> Related | None:
        if isinstance(target, Lookup) and len(target.names) > DEEP:
            record = self.resolve([target])[0].record
            return None if record is None else self.related(record.chain[-1].id, kind, above=above, doc=doc)
        depth = relation_rows.path_of(target)
        where = {"id": target} if isinstance(target, int) else lookup_parameters(target)
        return relation_rows.related(self._fetch(_related(depth, above=above, doc=doc), {**where, "kind": kind}))

    def relating(
        self, to_id: int, kind: str, value: str | None, after: tuple[str, int, int], limit: int
    ) -> Relating | None:
        where = {"id": to_id, "kind": kind, "value": value, "page_size": limit, **relation_rows.key_after(after)}
        return relation_rows.relating(self._rows(_relating(valued=value is not None), where))

    def related_page(self, from_id: int, kind: str, after: tuple[int, int, str], limit: int) -> Relating | None:
        where = {"id": from_id, "kind": kind, "page_size": limit, **relation_rows.key_after(after)}
        return relation_rows.relating(self._rows(_RELATED_PAGE, where))

    def relations(self, kind: str, slots: Sequence[tuple[int, int]]) -> list[RelationRecord]:
        where = {"kind": kind, "from_ids": [s[0] for s in slots], "slots": [s[1] for s in slots]}
        return relation_rows.relations(self._rows(_RELATIONS, where))

    def history(self, entity_id: int, after: int, limit: int) -> list[Step]:
        rows = self._rows(_READ.history, {"entity_id": entity_id, "after": after, "page_size": limit})
        return [step(row) for row in rows]

    def steps(self, operation_id: UUID) -> list[Step]:
        return [step(row) for row in self._rows(_READ.steps, {"operation_id": operation_id})]

    # --- the feed

    def feed(self, after: int, limit: int) -> RowPage[Step]:
        """A position is decided when all lower ones are: seen, or drawn by a transaction that is over.

        Without gaps no question is needed. A transaction that drew the number of a gap had its id before this process
        draws its own. So the gap is final once the oldest running transaction is younger than that.
        """
        known = self._decided  # before the rows: what is decided meanwhile may not be among them
        steps = self._feed(after, limit)
        decided = _decided_rows(steps, after, known)
        if len(decided) == len(steps):
            return RowPage(True, steps)
        watermark = self._watermark
        if watermark is None:
            ((transaction,),) = self._rows(_TRANSACTION, {})
            watermark = self._watermark = Watermark(max(s.seq or 0 for s in steps), transaction)
        last, transaction = watermark
        ((oldest,),) = self._rows("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint", {})
        if oldest <= transaction:
            return RowPage(False, decided)
        self._watermark = None
        self._decided = known = max(last, self._decided)
        steps = self._feed(after, limit)
        decided = _decided_rows(steps, after, known)
        return RowPage(len(decided) == len(steps), decided)

    def _feed(self, after: int, limit: int) -> list[Step]:
        return [step(row) for row in self._fetch(_READ.feed, {"after": after, "page_size": limit})]

    def watermark(self) -> Watermark:
        """Ask for the position first: a transaction that drew a lower one had its id before this one draws its own."""
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
        ((seq, operation_id, oldest, next_),) = self._rows(_SHOWN, {})
        return Shown(Newest(seq, operation_id), next_, oldest)

    def touched(self, after: int, gaps: Sequence[int], limit: int) -> Touched:
        named: dict[str, Any] = {"after": after, "page_size": limit + 1}
        asked = self._rows(_TOUCHED_GAPS, {**named, "gaps": list(gaps)}) if gaps else self._rows(_TOUCHED, named)
        (epoch, noted, collected, oldest, *_), *_ = rows = asked
        steps = [Touch(*row[4:]) for row in rows if row[4] is not None]
        return Touched(epoch_at(self._here, epoch, noted), collected, oldest, steps)

    def hearing(self) -> AbstractContextManager[Hearing | None]:
        return hearing(self.pool)

    def hint(self) -> bool:
        return bool(self._rows(HINT, {}))

    def feed_start(self) -> tuple[str, int]:
        ((epoch, noted, collected),) = self._rows("SELECT epoch, origin, collected_seq FROM info", {})
        return epoch_at(self._here, epoch, noted), collected

    def event_at(self, seq: int) -> tuple[UUID | None, bool]:
        ((operation_id, replica),) = self._rows(_EVENT_AT, {"seq": seq})
        return operation_id, replica

    @contextmanager
    def snapshot(self) -> Iterator[_Snapshot]:
        """Open a read-only transaction: it holds no lock that a writer would meet, only old row versions."""
        try:
            with self.pool.connection() as connection:
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                connection.execute(LASTING)
                with until(math.inf):
                    yield _Snapshot(connection)
                connection.execute("ROLLBACK")
        except psycopg.Error as error:
            raise_read_error(error)


_NEXT = "pg_snapshot_xmin({0})::text::bigint + age(pg_snapshot_xmin({0})::xid)"
"""The transaction id that the server would draw next; unlike pg_current_xact_id(), a replica tells it too.

On a replica that is the one after all that its log has mentioned so far. A commit locks or writes a row, which the log
says with its transaction, before it draws its position. So the log has mentioned all that drew a position below one
that is visible."""
_TRANSACTION = f"""SELECT CASE WHEN pg_is_in_recovery() THEN {_NEXT.format("pg_current_snapshot()")} - 1
  ELSE pg_current_xact_id()::text::bigint END"""
"""A transaction id that is drawn now; on a replica, which draws none, the last one that it has heard of."""
_NEWEST = "SELECT seq, operation_id FROM operation WHERE seq IS NOT NULL ORDER BY seq DESC LIMIT 1"
_LAST_POSITION = f"""SELECT CASE WHEN pg_is_in_recovery() THEN coalesce((SELECT seq FROM ({_NEWEST}) o), 0)
  ELSE (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM change_seq) END"""
"""The last position that was drawn. A replica's copy of the sequence runs ahead: there it is the last that is seen."""
_SHOWN = f"""SELECT greatest(n.seq, i.collected_seq), CASE WHEN n.seq >= i.collected_seq THEN n.operation_id END,
  pg_snapshot_xmin(s.now)::text::bigint, {_NEXT.format("s.now")}
FROM info i CROSS JOIN (SELECT pg_current_snapshot() AS now) s LEFT JOIN ({_NEWEST}) n ON true"""
"""The newest change and the oldest transaction of one snapshot; and, read after that was taken, the next id."""

_EVENT_AT = "SELECT (SELECT operation_id FROM operation WHERE seq = %(seq)s::bigint), pg_is_in_recovery()"

_HEAD = "i.epoch, i.origin, i.collected_seq, pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
_GAPS = f"FROM unnest(%(gaps)s::bigint[]) AS w(seq) CROSS JOIN {each('operation', 'o', 'o.seq = w.seq')}"
_TOUCHED, _TOUCHED_GAPS = touched_sql(_HEAD, "%(name)s"), touched_sql(_HEAD, "%(name)s", _GAPS)
_AMONG = "= ANY(%(ids)s::bigint[])"


class _Snapshot:
    """Cursors in one REPEATABLE READ transaction."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._opened = 0

    def rows(
        self, table: str, columns: Sequence[str], order: Sequence[str], only: Sequence[int] | None = None
    ) -> Iterator[tuple[Any, ...]]:
        text = verify_sql.select(table, columns, order, None if only is None else _AMONG)
        return self._stream(text, only, 100 if "doc" in columns else 1000)  # a document may have a megabyte

    def below(self, parent_ids: Sequence[int], columns: Sequence[str], *, gone: bool) -> Iterator[tuple[Any, ...]]:
        return self._stream(verify_sql.select_below(columns, _AMONG, gone=gone), parent_ids, 1000)

    def _stream(self, text: str, ids: Sequence[int] | None, at_once: int) -> Iterator[tuple[Any, ...]]:
        self._opened += 1
        with self._connection.cursor(name=f"metastore_{self._opened}") as cursor:
            cursor.itersize = at_once
            cursor.execute(text, None if ids is None else {"ids": list(ids)})
            yield from cursor

    def numbers(self) -> tuple[int, int]:
        row = self._connection.execute(verify_sql.POSTGRES_NUMBERS).fetchone()
        assert row is not None
        return row[0], row[1]

    def cached(self) -> list[str]:
        return [row[0] for row in self._connection.execute(CACHED).fetchall()]

    def not_utf8(self) -> Iterator[tuple[str, int | None, str]]:
        return iter(())


def _resolve_many(connection: psycopg.Connection[Any], lookups: Sequence[Lookup]) -> list[Resolved]:
    with connection.pipeline():
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")  # all of them at one instant
        cursors = [connection.execute(_resolve(len(w.names)), lookup_parameters(w)) for w in lookups]
        connection.execute("COMMIT")
    return [resolved(c.fetchone(), len(w.names)) for c, w in zip(cursors, lookups, strict=True)]


def _guard_parameters(guards: Guards) -> dict[str, Any]:
    return {"guard_ids": [g[0] for g in guards], "guard_scopes": [g[1] for g in guards]}


def _sent(guards: Guards) -> dict[str, str]:
    """Return the same for the hot path, which sends text."""
    return {"guard_ids": plain([g[0] for g in guards]), "guard_scopes": plain([g[1] for g in guards])}


def _decided_rows(steps: list[Step], after: int, decided: int) -> list[Step]:
    """Return the first steps up to a gap that lies beyond ``decided``."""
    expected = after + 1
    for n, one in enumerate(steps):
        seq = one.seq or 0
        if seq != expected and seq - 1 > decided:
            return steps[:n]
        expected = seq + 1
    return steps
