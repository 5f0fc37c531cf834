"""The reads that PostgreSQL and SQLite answer by the same statements, each in its own dialect.

Each database defines how to run a statement, and how to send a list of ids and a set of guards. A database implements a
read itself if that read needs another statement, another number of statements, or other parameters.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cache, partial
from typing import Any

from metastore.backends.sql import gc as collect_sql
from metastore.backends.sql import relations as of_relations
from metastore.backends.sql import rights as of_rights
from metastore.backends.sql.decode import (
    chains_of,
    child,
    entities_by_id,
    find_parameters,
    found,
    lookup_parameters,
    page,
    resolved,
    step,
)
from metastore.backends.sql.deep_paths import DEEP, resolve_deep
from metastore.backends.sql.find import FindSql
from metastore.backends.sql.past_sql import PastSql
from metastore.backends.sql.reads import ReadSql
from metastore.backends.sql.relations import RelationSql
from metastore.port.backend import Guards
from metastore.port.conditions import LIVE
from metastore.port.records import Child, Known, Lookup, Node, OwnedRecord, Resolved, RowPage, Step
from metastore.port.relations import Owning, Related, Relating
from metastore.port.rights import Chosen, RightRows, Whose
from metastore.port.search import Matches, Search, Sizes, Span
from metastore.port.upkeep import Gone

Rows = list[tuple[Any, ...]]
Values = dict[str, Any]
_FEW = 2000
"""Up to this many children that a user sees are looked up one by one.

If there are more, a scan in order soon finds some.
"""


class Texts:
    """The statements of one database; each is composed at its first use."""

    def __init__(self, read: ReadSql) -> None:
        dialect = read.dialect
        relations, find = RelationSql(dialect), FindSql(dialect)
        self.read, self.past = read, PastSql(read)
        self.resolve_past, self.below_past = cache(self.past.resolve), cache(self.past.below)
        self.resolve = cache(read.resolve)
        self.resolve_holding = cache(partial(read.resolve, held=True))
        self.children_chosen, self.names_chosen = cache(read.children_chosen), cache(read.names_chosen)
        self.owning = cache(relations.owning)
        self.related, self.relating = cache(relations.related), cache(relations.relating)
        self.related_page, self.relations = relations.related_page(), relations.relations()
        self.by_name, self.by_parent, self.by_family = find.by_name(), find.by_parent(), find.by_family()
        self.below_all, self.below_family = find.below_all(family=False), find.below_all(family=True)
        self.sizes = cache(find.sizes)

        self.sweep = relations.sweep()
        self.dropped_before = dialect.statement(collect_sql.DROPPED_BEFORE)
        self.purging = dialect.statement(collect_sql.PURGING_ROOTS)
        self.nodes = of_rights.nodes(dialect)
        gathered = dialect.rows("what, one, other, number, word, name") + dialect.text

        def in_lake(places: str, lake: str) -> str:
            return of_rights.statement(dialect, places, lake=lake)

        @cache
        def rights(*, below: bool) -> str:
            return dialect.statement(of_rights.statement(dialect, dialect.w_places, below=below))

        self.rights = rights
        self.resolve_rights = cache(partial(read.resolve_rights, rights=in_lake, gathered=gathered))


class Questions(ABC):
    """Reads that a backend inherits. Each database implements the methods below the line in the class."""

    sql: Texts

    def resolve_rights(self, lookup: Lookup, user: str) -> tuple[Resolved, RightRows]:
        depth = len(lookup.names)
        if depth > DEEP:
            nodes = (far := resolve_deep(self.resolve, self.hold, lookup)).nodes
            ids = [node.id for node in nodes]
            return far, self.rights(Whose(ids[0], user), ids, None) if ids else of_rights.decoded(())
        rows = self._quick(self.sql.resolve_rights(depth), {**lookup_parameters(lookup), "name": user})
        rights = json.loads(rows[0][-1] or "[]") if rows else ()
        return resolved(rows[0][:-1] if rows else None, depth), of_rights.decoded(rights)

    def rights(self, whose: Whose, places: Sequence[int], below: int | None) -> RightRows:
        named = {"lake": whose.lake, "name": whose.user, "places": self._ids(places)}
        if below is not None:
            named["below"] = below
        return of_rights.decoded(self._quick(self.sql.rights(below=below is not None), named))

    def nodes(self, ids: Sequence[int]) -> dict[int, tuple[Node, ...]]:
        return chains_of(self._quick(self.sql.nodes, {"ids": self._ids(ids)}), ids)

    def resolve_holding(self, lookup: Lookup, guards: Guards) -> tuple[Resolved, bool]:
        depth = len(lookup.names)
        if depth > DEEP:
            return resolve_deep(self.resolve, self.hold, lookup), self.hold(guards)
        rows = self._quick(self.sql.resolve_holding(depth), {**lookup_parameters(lookup), **self._guards(guards)})
        return (resolved(rows[0][:-1], depth), rows[0][-1] == len(guards)) if rows else (Resolved((), None), False)

    def by_id(self, ids: Sequence[int]) -> list[Known | None]:
        return entities_by_id(self._rows(self.sql.read.by_id, {"ids": self._ids(ids)}), ids)

    def by_id_holding(self, ids: Sequence[int], guards: Guards) -> tuple[list[Known | None], bool]:
        rows = self._quick(self.sql.read.by_id_holding, {"ids": self._ids(ids), **self._guards(guards)})
        return entities_by_id([row[:-1] for row in rows], ids), bool(rows) and rows[0][-1] == len(guards)

    def hold(self, guards: Guards) -> bool:
        return bool(self._rows(self.sql.read.hold, self._guards(guards))[0][0] == len(guards))

    def has_children(self, entity_id: int, besides: Sequence[int] = ()) -> bool:
        values = {"entity_id": entity_id, "ids": self._ids(besides)}
        return bool(self._rows(self.sql.read.has_children, values)[0][0])

    def children(
        self, parent_id: int, kind: str, family: str, state: int, after: tuple[str, int], limit: int, guards: Guards
    ) -> RowPage[Child]:
        values = _below(parent_id, kind, family, after[0], limit) | _after_id(state, after) | self._guards(guards)
        return page(self._rows(self.sql.read.children[state], values), len(guards), child)

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
        values = _below(parent_id, kind, family, after[0], limit) | _after_id(state, after) | self._guards(guards)
        text = self.sql.children_chosen(state, only=chosen.only, few=len(chosen.ids) <= _FEW)
        return page(self._rows(text, {**values, "chosen": self._ids(chosen.ids)}), len(guards), child)

    def names(
        self, parent_id: int, kind: str, family: str, after: str, limit: int, guards: Guards
    ) -> RowPage[tuple[str, str]]:
        values = _below(parent_id, kind, family, after, limit) | self._guards(guards)
        return page(self._rows(self.sql.read.names, values), len(guards), tuple)

    def names_chosen(
        self, parent_id: int, kind: str, family: str, after: str, limit: int, guards: Guards, chosen: Chosen
    ) -> RowPage[tuple[str, str]]:
        values = _below(parent_id, kind, family, after, limit) | self._guards(guards)
        text = self.sql.names_chosen(only=chosen.only, few=len(chosen.ids) <= _FEW)
        return page(self._rows(text, {**values, "chosen": self._ids(chosen.ids)}), len(guards), tuple)

    def find(self, search: Search) -> Matches:
        patterns = {"pattern": self._pattern(search.glob), "folded": self._pattern(search.folded)}
        values = {**find_parameters(search), **patterns}
        if search.parents:
            text = self.sql.below_family if search.family else self.sql.below_all
            return found(self._rows(text, {**values, "places": self._ids(search.parents)}), search)
        by_children = self.sql.by_family if search.family else self.sql.by_parent
        return found(self._rows(self.sql.by_name if search.by_name else by_children, values), search)

    def search_sizes(self, span: Span, most: Sizes) -> Sizes:
        values = {"begin": span.begin, "before": span.before, "scope": span.scope}
        named = {} if span.families is None else {"families": self._names(span.families)}
        limits = {"most_names": most.names, "most_below": most.below}
        (row,) = self._rows(self.sql.sizes(families=span.families is not None), {**values, **named, **limits})
        return Sizes(*row)

    def named(self, parent_id: int, family: str, key: str, guards: Guards) -> RowPage[Child]:
        values = {"parent_id": parent_id, "family": family, "key": key, **self._guards(guards)}
        return page(self._rows(self.sql.read.named, values), len(guards), child)

    def gone(self, parent_id: int, kind: str, family: str, key: str) -> Child | None:
        values = {"parent_id": parent_id, "kind": kind, "family": family, "key": key}
        rows = self._rows(self.sql.read.gone, values)
        return child(rows[0]) if rows else None

    def owned(self, owner_id: int, kind: str, after: str, limit: int, guards: Guards) -> RowPage[OwnedRecord]:
        values = {"owner_id": owner_id, "kind": kind, "after_key": after, "page_size": limit, **self._guards(guards)}
        return page(self._rows(self.sql.read.owned, values), len(guards), OwnedRecord._make)

    def owning(self, target: Lookup | int, kinds: tuple[str, str], names: Sequence[str]) -> Owning | None:
        if isinstance(target, Lookup) and len(target.names) > DEEP:
            record = self.resolve([target])[0].record
            return None if record is None else self.owning(record.chain[-1].id, kinds, names)
        values = {**_at(target), "kind": kinds[0], "other": kinds[1], "names": self._names(names)}
        return of_relations.owning(self._quick(self.sql.owning(of_relations.depth_of(target)), values))

    def related(self, target: Lookup | int, kind: str, *, above: bool, doc: bool) -> Related | None:
        if isinstance(target, Lookup) and len(target.names) > DEEP:
            record = self.resolve([target])[0].record
            return None if record is None else self.related(record.chain[-1].id, kind, above=above, doc=doc)
        text = self.sql.related(of_relations.depth_of(target), above=above, doc=doc)
        return of_relations.related(self._quick(text, {**_at(target), "kind": kind}))

    def relating(
        self, to_id: int, kind: str, value: str | None, after: tuple[str, int, int], limit: int
    ) -> Relating | None:
        values = {"id": to_id, "kind": kind, "value": value, "page_size": limit, **of_relations.key_after(after)}
        return of_relations.relating(self._rows(self.sql.relating(valued=value is not None), values))

    def related_page(self, from_id: int, kind: str, after: tuple[int, int, str], limit: int) -> Relating | None:
        values = {"id": from_id, "kind": kind, "page_size": limit, **of_relations.key_after(after)}
        return of_relations.relating(self._rows(self.sql.related_page, values))

    def history(self, entity_id: int, after: int, limit: int) -> list[Step]:
        values = {"entity_id": entity_id, "after": after, "page_size": limit}
        return [step(row) for row in self._rows(self.sql.read.history, values)]

    def steps_at(self, positions: Sequence[int]) -> list[Step]:
        return [step(row) for row in self._quick(self.sql.read.steps_at, {"ids": self._ids(positions)})]

    def dropped_before(self, time: int, after: Gone, limit: int) -> list[Gone]:
        values = {**after._asdict(), "before": time, "page_size": limit}
        return [Gone(*row) for row in self._rows(self.sql.dropped_before, values)]

    def purging(self, after: Gone, limit: int) -> list[Gone]:
        return [Gone(*row) for row in self._rows(self.sql.purging, {**after._asdict(), "page_size": limit})]

    # --- the methods of each database

    @abstractmethod
    def resolve(self, lookups: Sequence[Lookup]) -> list[Resolved]:
        """Follow paths, all at one instant."""

    @abstractmethod
    def _rows(self, text: str, parameters: Values) -> Rows:
        """Run a statement."""

    def _quick(self, text: str, parameters: Values) -> Rows:
        """Run a statement of the hot path."""
        return self._rows(text, parameters)

    @staticmethod
    @abstractmethod
    def _ids(ids: Iterable[int]) -> object:
        """Return the parameter for a list of ids."""

    @staticmethod
    @abstractmethod
    def _names(names: Iterable[str]) -> object:
        """Return the parameter for a list of names."""

    @staticmethod
    @abstractmethod
    def _guards(guards: Guards) -> Values:
        """Return the parameters of guards to count."""

    @staticmethod
    @abstractmethod
    def _pattern(glob: str) -> str:
        """Return a glob as a pattern of this database."""


def _below(parent_id: int, kind: str, family: str, after: str, limit: int) -> Values:
    return {"parent_id": parent_id, "kind": kind, "family": family, "page_size": limit, "after_key": after}


def _after_id(state: int, after: tuple[str, int]) -> Values:
    """Return the second order of a page: several dropped children may have one name."""
    return {} if state == LIVE else {"after_id": after[1]}


def _at(target: Lookup | int) -> Values:
    return {"id": target} if isinstance(target, int) else lookup_parameters(target)
