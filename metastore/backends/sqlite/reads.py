"""Read from SQLite: each question is one statement, or several in one read transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from typing import Any
from uuid import UUID

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
from metastore.backends.sql.find import FindSql, glob_of
from metastore.backends.sql.limits import Limits
from metastore.backends.sql.past import PastSql
from metastore.backends.sql.reads import ReadSql
from metastore.backends.sql.touched import touched_sql
from metastore.backends.sqlite.connect import DRIVER, Pool, raise_read_error
from metastore.backends.sqlite.relations import READ_RELATIONS
from metastore.backends.sqlite.text import LenientReader, NotUtf8, all_rows, lenient
from metastore.clock import Clock
from metastore.port.backend import Guards, Matches, Search, Watermark
from metastore.port.commit import LIVE
from metastore.port.records import (
    Child,
    Known,
    Lookup,
    OwnedRecord,
    Resolved,
    RowPage,
    Step,
)
from metastore.port.relations import Owning, Related, Relating, RelationRecord
from metastore.port.rights import Chosen, RightRows, Whose
from metastore.port.touched import Touch, Touched

__all__ = ["PAST", "READ", "SqliteReads"]

READ = ReadSql(
    parameter=":name",
    ids="SELECT value FROM json_each(:ids)",
    held="""SELECT count(*) FROM json_each(:guards) w JOIN guard g
    ON g.id = json_extract(w.value, '$[0]') AND g.scope_version = json_extract(w.value, '$[1]')""",
    wanted_owned="""(SELECT key AS n, json_extract(value, '$[0]') AS owner_id, json_extract(value, '$[1]') AS name
    FROM json_each(:wanted)) AS w""",
    chosen="SELECT value FROM json_each(:chosen)",
)
_resolve = cache(READ.resolve)
_resolve_holding = cache(partial(READ.resolve, held=True))
_children_chosen, _names_chosen = cache(READ.children_chosen), cache(READ.names_chosen)
_FIND = FindSql(
    parameter=":name",
    fits="{} GLOB {}",
    by_id="guard g ON g.id = {}",
    entity="entity e ON e.id = up.id AND up.height = 0",
)
_related, _relating = cache(READ_RELATIONS.related), cache(READ_RELATIONS.relating)
_owning = cache(READ_RELATIONS.owning)
_RELATIONS = READ_RELATIONS.relations()
_RELATED_PAGE = READ_RELATIONS.related_page()
_GATHERED = "json_group_array(json_array(what, one, other, number, word, name))"


@cache
def _resolve_rights(depth: int) -> str:
    return READ.resolve_rights(depth, lambda places, lake: rights_sql.statement(places, _EACH, lake=lake), _GATHERED)


_PLACES = "(SELECT value AS id FROM json_each(:places)) AS w"
_EACH = "JOIN {table} {alias} ON {condition}"
_BY_NAME, _BY_PARENT = _FIND.by_name(), _FIND.by_parent()
PAST = PastSql(
    parameter=":name",
    ids="(SELECT value AS id FROM json_each(:ids)) AS w",
    join="JOIN {table} {alias} ON {condition}",
    left_join="LEFT JOIN {table} {alias} ON {condition}",
    distinct="DISTINCT",
    kinds="(:kinds IS NULL OR n.kind IN (SELECT value FROM json_each(:kinds)))",
    read=READ,
)


class SqliteReads:
    """The reading half of the backend."""

    def __init__(self, database: str | None, timeout: float, clock: Clock, limits: Limits | None = None) -> None:
        self.pool = Pool(database, timeout, limits or Limits())
        self._clock = clock

    def _rows(self, text: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        try:
            with self.pool.connection() as connection:
                return all_rows(connection, text, parameters)
        except DRIVER.Error as error:
            raise_read_error(error)

    def rights(self, whose: Whose, places: Sequence[int], below: int | None) -> RightRows:
        statement = rights_sql.statement(_PLACES, _EACH, below=below is not None)
        named = {"lake": whose.lake, "name": whose.user, "places": json.dumps(list(places)), "below": below}
        return rights_sql.decoded(self._rows(statement, named))

    def resolve_rights(self, lookup: Lookup, user: str) -> tuple[Resolved, RightRows]:
        depth = len(lookup.names)
        if depth > DEEP:
            nodes = (found := resolve_deep(self.resolve, self.hold, lookup)).nodes
            ids = [node.id for node in nodes]
            return found, self.rights(Whose(ids[0], user), ids, None) if ids else rights_sql.decoded(())
        rows = self._rows(_resolve_rights(depth), {**lookup_parameters(lookup), "name": user})
        found = resolved(rows[0][:-1] if rows else None, depth)
        return found, rights_sql.decoded(json.loads(rows[0][-1] or "[]") if rows else ())

    def resolve_holding(self, lookup: Lookup, guards: Guards) -> tuple[Resolved, bool]:
        depth = len(lookup.names)
        if depth > DEEP:
            return resolve_deep(self.resolve, self.hold, lookup), self.hold(guards)
        where = {**lookup_parameters(lookup), "guards": json.dumps(list(guards))}
        rows = self._rows(_resolve_holding(depth), where)
        return (resolved(rows[0][:-1], depth), rows[0][-1] == len(guards)) if rows else (Resolved((), None), False)

    def by_id_holding(self, ids: Sequence[int], guards: Guards) -> tuple[list[Known | None], bool]:
        rows = self._rows(READ.by_id_holding, {"ids": json.dumps(list(ids)), "guards": json.dumps(list(guards))})
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
        where |= {"chosen": json.dumps(chosen.ids), "guards": json.dumps(list(guards))}
        if state != LIVE:
            where["after_id"] = after[1]
        return page(self._rows(_children_chosen(state, only=chosen.only), where), len(guards), child)

    def names_chosen(
        self, parent_id: int, kind: str, family: str, after: str, limit: int, guards: Guards, chosen: Chosen
    ) -> RowPage[tuple[str, str]]:
        where = {"parent_id": parent_id, "kind": kind, "family": family, "page_size": limit, "after_key": after}
        where |= {"chosen": json.dumps(chosen.ids), "guards": json.dumps(list(guards))}
        return page(self._rows(_names_chosen(only=chosen.only), where), len(guards), tuple)

    def resolve(self, lookups: Sequence[Lookup]) -> list[Resolved]:
        if any(len(w.names) > DEEP for w in lookups):
            return [resolve_deep(self.resolve, self.hold, w) for w in lookups]
        try:
            with self.pool.connection() as connection:
                if len(lookups) > 1:
                    connection.execute("BEGIN")  # all of them at one instant
                rows = [_first(connection, _resolve(len(w.names)), lookup_parameters(w)) for w in lookups]
                if len(lookups) > 1:
                    connection.execute("COMMIT")
        except DRIVER.Error as error:
            raise_read_error(error)
        return [resolved(row, len(w.names)) for row, w in zip(rows, lookups, strict=True)]

    def by_id(self, ids: Sequence[int]) -> list[Known | None]:
        return entities_by_id(self._rows(READ.by_id, {"ids": json.dumps(list(ids))}), ids)

    def hold(self, guards: Guards) -> bool:
        return bool(self._rows(READ.hold, {"guards": json.dumps(list(guards))})[0][0] == len(guards))

    def has_children(self, entity_id: int, besides: Sequence[int] = ()) -> bool:
        parameters = {"entity_id": entity_id, "ids": json.dumps(list(besides))}
        return bool(self._rows(READ.has_children, parameters)[0][0])

    def children(
        self, parent_id: int, kind: str, family: str, state: int, after: tuple[str, int], limit: int, guards: Guards
    ) -> RowPage[Child]:
        parameters = {"parent_id": parent_id, "kind": kind, "family": family, "page_size": limit, "after_key": after[0]}
        if state != LIVE:
            parameters["after_id"] = after[1]
        rows = self._rows(READ.children[state], {**parameters, "guards": json.dumps(list(guards))})
        return page(rows, len(guards), child)

    def names(
        self, parent_id: int, kind: str, family: str, after: str, limit: int, guards: Guards
    ) -> RowPage[tuple[str, str]]:
        parameters = {"parent_id": parent_id, "kind": kind, "family": family, "page_size": limit, "after_key": after}
        return page(self._rows(READ.names, {**parameters, "guards": json.dumps(list(guards))}), len(guards), tuple)

    def find(self, search: Search) -> Matches:
        parameters = {**find_parameters(search), "pattern": glob_of(search.glob), "folded": glob_of(search.folded)}
        return found(self._rows(_BY_NAME if search.by_name else _BY_PARENT, parameters), search)

    def gone(self, parent_id: int, kind: str, family: str, key: str) -> Child | None:
        rows = self._rows(READ.gone, {"parent_id": parent_id, "kind": kind, "family": family, "key": key})
        return child(rows[0]) if rows else None

    def owned(self, owner_id: int, kind: str, after: str, limit: int, guards: Guards) -> RowPage[OwnedRecord]:
        parameters = {"owner_id": owner_id, "kind": kind, "after_key": after, "page_size": limit}
        rows = self._rows(READ.owned, {**parameters, "guards": json.dumps(list(guards))})
        return page(rows, len(guards), owned_record)

    def owned_by_name(self, owner_ids: Sequence[int], kind: str, names: Sequence[str]) -> list[OwnedRecord | None]:
        wanted = json.dumps(list(zip(owner_ids, names, strict=True)))
        rows = self._rows(READ.owned_by_name, {"wanted": wanted, "kind": kind})
        by_number = {row[0]: owned_record(row[1:]) for row in rows}
        return [by_number.get(n) for n in range(len(names))]

    def owning(self, target: Lookup | int, kinds: tuple[str, str], names: Sequence[str]) -> Owning | None:
        if isinstance(target, Lookup) and len(target.names) > DEEP:
            record = self.resolve([target])[0].record
            return None if record is None else self.owning(record.chain[-1].id, kinds, names)
        where = {"id": target} if isinstance(target, int) else lookup_parameters(target)
        values = {**where, "kind": kinds[0], "other": kinds[1], "names": json.dumps(list(names))}
        return relation_rows.owning(self._rows(_owning(relation_rows.path_of(target)), values))

    def related(self, target: Lookup | int, kind: str, *, above: bool, doc: bool) -> Related | None:
        if isinstance(target, Lookup) and len(target.names) > DEEP:
            record = self.resolve([target])[0].record
            return None if record is None else self.related(record.chain[-1].id, kind, above=above, doc=doc)
        depth = relation_rows.path_of(target)
        where = {"id": target} if isinstance(target, int) else lookup_parameters(target)
        return relation_rows.related(self._rows(_related(depth, above=above, doc=doc), {**where, "kind": kind}))

    def relating(
        self, to_id: int, kind: str, value: str | None, after: tuple[str, int, int], limit: int
    ) -> Relating | None:
        where = {"id": to_id, "kind": kind, "value": value, "page_size": limit, **relation_rows.key_after(after)}
        return relation_rows.relating(self._rows(_relating(valued=value is not None), where))

    def related_page(self, from_id: int, kind: str, after: tuple[int, int, str], limit: int) -> Relating | None:
        where = {"id": from_id, "kind": kind, "page_size": limit, **relation_rows.key_after(after)}
        return relation_rows.relating(self._rows(_RELATED_PAGE, where))

    def relations(self, kind: str, slots: Sequence[tuple[int, int]]) -> list[RelationRecord]:
        return relation_rows.relations(self._rows(_RELATIONS, {"kind": kind, "wanted": json.dumps(list(slots))}))

    def history(self, entity_id: int, after: int, limit: int) -> list[Step]:
        rows = self._rows(READ.history, {"entity_id": entity_id, "after": after, "page_size": limit})
        return [step(row) for row in rows]

    def steps(self, operation_id: UUID) -> list[Step]:
        return [step(row) for row in self._rows(READ.steps, {"operation_id": str(operation_id)})]

    # --- the feed

    def feed(self, after: int, limit: int) -> RowPage[Step]:
        """Every position is decided: numbers are drawn inside the one transaction that writes."""
        return RowPage(True, [step(row) for row in self._rows(READ.feed, {"after": after, "page_size": limit})])

    def touched(self, after: int, gaps: Sequence[int], limit: int) -> Touched:
        named = {"after": after, "gaps": json.dumps(list(gaps)), "page_size": limit + 1}
        (epoch, collected, *_), *_ = rows = self._rows(_TOUCHED, named)
        return Touched(epoch, collected, 1, [Touch(*row[2:]) for row in rows if row[2] is not None])

    def hearing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def hint(self) -> bool:
        return False

    def feed_start(self) -> tuple[str, int]:
        ((epoch, collected),) = self._rows("SELECT epoch, collected_seq FROM info", {})
        return epoch, collected

    def event_at(self, seq: int) -> tuple[UUID | None, bool]:
        rows = self._rows("SELECT operation_id FROM operation WHERE seq = :seq", {"seq": seq})
        return UUID(rows[0][0]) if rows else None, False

    @contextmanager
    def snapshot(self) -> Iterator[_Snapshot]:
        """Open a read transaction. In WAL mode it stops no writer."""
        try:
            with self.pool.connection() as connection:
                connection.execute("BEGIN")
                with lenient(connection) as reader:
                    yield _Snapshot(connection, reader)
                connection.execute("ROLLBACK")
        except DRIVER.Error as error:
            raise_read_error(error)

    def watermark(self) -> Watermark:
        return Watermark(self._rows("SELECT last_seq FROM info", {})[0][0], 0)

    def decided(self, watermark: Watermark) -> bool:
        """Numbers are drawn inside the one transaction that writes."""
        return True


def _first(connection: Any, text: str, parameters: dict[str, Any]) -> tuple[Any, ...] | None:
    rows = all_rows(connection, text, parameters)
    return rows[0] if rows else None


_GAPS = "FROM operation o WHERE o.seq IN (SELECT value FROM json_each(:gaps))"
_TOUCHED = touched_sql("i.epoch, i.collected_seq", ":name", _GAPS)
_AMONG = "IN (SELECT value FROM json_each(:ids))"


_TEXTS = {
    "guard": ("id", "kind", "family", "name", "key"),
    "entity": ("id", "doc", "created_by", "modified_by"),
    "owned": ("id", "kind", "name", "doc", "created_by", "modified_by"),
    "operation": ("entity_id", "action", "principal", "path_before", "path_after", "changes", "doc", "result"),
    "lease": ("id", "name", "owner", "incarnation"),
}
"""The texts in which :meth:`_Snapshot.not_utf8` looks, after the column that names the row."""


class _Snapshot:
    """Cursors in one read transaction; the first of them to read fixes the instant."""

    def __init__(self, connection: Any, reader: LenientReader) -> None:
        self._connection, self._reader = connection, reader

    def rows(
        self, table: str, columns: Sequence[str], order: Sequence[str], only: Sequence[int] | None = None
    ) -> Iterator[tuple[Any, ...]]:
        if only is None:
            return self._reader.rows(verify_sql.select(table, columns, order))
        return self._reader.rows(verify_sql.select(table, columns, order, _AMONG), {"ids": json.dumps(only)})

    def below(self, parent_ids: Sequence[int], columns: Sequence[str], *, gone: bool) -> Iterator[tuple[Any, ...]]:
        parameters = {"ids": json.dumps(parent_ids)}
        return self._reader.rows(verify_sql.select_below(columns, _AMONG, gone=gone), parameters)

    def numbers(self) -> tuple[int, int]:
        row = self._connection.execute(verify_sql.SQLITE_NUMBERS).fetchone()
        return row[0], row[1]

    def cached(self) -> list[str]:
        return []

    def not_utf8(self) -> Iterator[tuple[str, int | None, str]]:
        for table, columns in _TEXTS.items():
            for row in self._connection.execute(f"SELECT {', '.join(columns)} FROM {table}"):
                for column, value in zip(columns, row, strict=True):
                    if isinstance(value, NotUtf8):
                        yield table, row[0], column
