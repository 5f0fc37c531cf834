"""Read the past on both SQL databases: rows of the operation table as they were at a position.

``operation`` has one row for each version of an entity, with the entity's place after the step. The rows in which an
entity took a name also have its key, and an index over (parent, family, key). So a path takes two look-ups for each
level: the entity that took the name last, and its newest version at the position, which must still have the name. A
listing goes through all entities that ever had a name below the parent, and keeps those that had it at the position.

Every statement also checks that the past at the position is complete, or that a pin holds it. Before gc deletes, it
raises ``past_from``, so a snapshot with the old value has all rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from metastore.backends.sql.decode import child, lookup_parameters, node, resolved, step, ways_down
from metastore.backends.sql.deep_paths import DEEP
from metastore.backends.sql.dialect import Fetch
from metastore.backends.sql.past_sql import columns_of
from metastore.backends.sql.questions import Texts
from metastore.port.conditions import LIVE, ROOT_ID
from metastore.port.past import NotKept, PastRow, Way
from metastore.port.records import Child, Known, Lookup, Node, OwnedRecord, Record, Resolved, Step
from metastore.port.unreadable import DEEPEST, too_deep

Row = tuple[Any, ...]
Many = Callable[[Sequence[str], Sequence[dict[str, Any]]], dict[str, Any]]
"""A function that returns the parameters of ``PastSql.many`` from the columns and the rows."""
_LAST = 1 << 62
"""An id greater than all others."""


class SqlPast:
    """The implementation of :class:`metastore.port.past.PastRows` on a SQL database."""

    def __init__(
        self, texts: Texts, fetch: Fetch, listed: Callable[[Sequence[int] | Sequence[str]], Any], many: Many
    ) -> None:
        self._texts, self._sql = texts, texts.past
        self._fetch, self._listed, self._many = fetch, listed, many

    def resolve(self, at: int, lookups: Sequence[Lookup]) -> list[Resolved]:
        """Follow paths of any depth: one statement for all paths of one length."""
        found: dict[Lookup, Resolved] = {}
        for depth in {len(lookup.names) for lookup in lookups}:
            some = list(dict.fromkeys(lookup for lookup in lookups if len(lookup.names) == depth))
            found.update(zip(some, self._resolve(at, depth, some), strict=True))
        return [found[lookup] for lookup in lookups]

    def _resolve(self, at: int, depth: int, lookups: Sequence[Lookup]) -> list[Resolved]:
        here = min(depth, DEEP)
        answers = [resolved(row, here) for row in self._followed("entity", at, here, lookups)]
        if here < depth:  # the past does not change, so several statements may follow a deep path
            there = [n for n, answer in enumerate(answers) if answer.record is not None]
            rest = [
                Lookup(w.families[here:], w.names[here:], answers[n].nodes[-1]) for n in there for w in [lookups[n]]
            ]
            for n, low in zip(there, self._resolve(at, depth - here, rest) if rest else [], strict=True):
                nodes = (*answers[n].nodes, *low.nodes)
                answers[n] = Resolved(nodes, low.record and low.record._replace(chain=nodes))
        return answers

    def _followed(self, table: str, at: int, depth: int, lookups: Sequence[Lookup]) -> list[Row]:
        values = [lookup_parameters(Lookup(w.families[:depth], w.names[:depth], w.start)) for w in lookups]
        named = self._many(["start", *columns_of(depth)], values)
        rows = self._fetch(self._texts.resolve_past(depth, table), {**named, "at": at})
        self._require(rows[0][0])
        return [row[1:] for row in rows]

    def by_id(self, at: int, ids: Sequence[int], *, docs: bool = True) -> list[Known | None]:
        text = self._sql.by_id if docs else self._sql.by_id_bare
        rows = self._kept(self._fetch(text, {"ids": self._listed(list(dict.fromkeys(ids))), "at": at}))
        known: dict[int, Known | None] = {}
        for wanted, group in groupby(rows, key=itemgetter(0)):
            known[wanted] = _known(wanted, list(group))
        return [known.get(i) for i in ids]

    def ways(self, at: int, ids: Sequence[int]) -> dict[int, Way]:
        fetched = self._fetch(self._sql.ways, {"ids": self._listed(list(dict.fromkeys(ids))), "at": at})
        rows = {row[0]: row[1:] for row in self._kept(fetched)}
        found = ways_down(ids, {i: row[0] for i, row in rows.items()})
        dead = {i for i, row in rows.items() if row[1] != LIVE}
        # an owned row has no scope version
        return {i: Way(way, dead.isdisjoint(way)) for i, way in found.items() if rows[i][2] is not None}

    def children(
        self, at: int, parent_id: int, kind: str, family: str, state: int, after: tuple[str, int], limit: int
    ) -> list[Child]:
        start = (after[0], _LAST if state == LIVE and after[0] else after[1])
        return list(map(child, self._below("entity", at, parent_id, (kind, family, state), start, limit)))

    def _below(
        self, table: str, at: int, parent_id: int, what: tuple[str, str, int], after: tuple[str, int], limit: int
    ) -> list[Row]:
        """Return a page of the rows of ``table`` that had this kind, family and state."""
        kind, family, state = what
        names = {"parent_id": parent_id, "kind": kind, "family": family, "state": state, "at": at}
        values = {**names, "after_key": after[0], "after_id": after[1], "page_size": limit}
        return self._kept(self._fetch(self._texts.below_past(table), values))

    def owned(self, at: int, owner_id: int, kind: str, after: str, limit: int) -> list[OwnedRecord]:
        rows = self._below("owned", at, owner_id, (kind, kind, LIVE), (after, _LAST if after else 0), limit)
        return [OwnedRecord(row[1], owner_id, row[2], row[3], *row[8:]) for row in rows]

    def related(self, at: int, from_ids: Sequence[int], kind: str) -> list[OwnedRecord]:
        named = {"at": at, "ids": self._listed(list(dict.fromkeys(from_ids))), "kind": kind}
        return [OwnedRecord(*row) for row in self._kept(self._fetch(self._sql.related, named))]

    def led(self, at: int, to_id: int, kind: str) -> list[OwnedRecord]:
        rows = self._kept(self._fetch(self._sql.led, {"at": at, "to_id": to_id, "kind": kind}))
        return [OwnedRecord(*row) for row in rows]

    def owned_by_name(
        self, at: int, owner_ids: Sequence[int], kind: str, names: Sequence[str]
    ) -> list[OwnedRecord | None]:
        # a row has its owner as parent, as an entity has its parent
        starts = [Node(i, "", "", 0, True, False) for i in owner_ids]
        lookups = [Lookup((kind,), (name,), start) for start, name in zip(starts, names, strict=True)]
        rows = zip(owner_ids, self._followed("owned", at, 1, lookups) if lookups else [], strict=True)
        return [None if row[0] is None else OwnedRecord(row[0], i, row[1], row[2], *row[6:]) for i, row in rows]

    def rows(self, at: int, low: int, high: int, kinds: Sequence[str] | None = None) -> list[PastRow]:
        named = None if kinds is None else self._listed(kinds)
        fetched = self._fetch(self._sql.rows, {"at": at, "low": low, "high": high, "kinds": named})
        return [PastRow(*row) for row in self._kept(fetched)]

    def last_id(self) -> int:
        return int(self._fetch("SELECT coalesce(max(entity_id), 0) FROM operation", {})[0][0])

    def history(self, at: int, entity_id: int, after: int, limit: int) -> list[Step]:
        rows = self._fetch(self._sql.history, {"id": entity_id, "at": at, "after": after, "page_size": limit})
        self.check(at)
        return [step(row) for row in rows]

    def check(self, at: int) -> None:
        self._require(self._fetch(self._sql.kept, {"at": at})[0][0])

    def since(self) -> int:
        return int(self._fetch("SELECT past_from FROM info", {})[0][0])

    def times(self, after: int, limit: int) -> list[tuple[int, int]]:
        return [(row[0], row[1]) for row in self._fetch(self._sql.times, {"after": after, "page_size": limit})]

    def later(self, after: int) -> tuple[int, int | None]:
        ((count, first),) = self._fetch(self._sql.later, {"after": after})
        return count, first

    def newest(self, until: int) -> Step | None:
        rows = self._fetch(self._sql.newest, {"until": until})
        return step(rows[0]) if rows else None

    def _kept(self, rows: list[Row]) -> list[Row]:
        """Return the rows without the column that shows whether the past is complete. Raises NotKept if it is not."""
        self._require(rows[0][0])
        return [row[1:] for row in rows if row[1] is not None]

    def _require(self, kept: object) -> None:
        if not kept:
            raise NotKept(self.since())


def _known(wanted: int, rows: list[Row]) -> Known | None:
    """Return an entity from the rows above it; None: an ancestor is gone, or the id belongs to an owned row."""
    if len(rows) > DEEPEST:
        raise too_deep(rows[-1][4], wanted)
    if rows[0][2] != ROOT_ID or rows[-1][6] is None:
        return None
    record = Record(tuple([node(row, 3) for row in rows]), *rows[-1][9:])
    return Known.of(record, [row[1] for row in rows])


def as_json(values: Sequence[int] | Sequence[str]) -> str:
    """Return a list as SQLite's parameter."""
    return json.dumps(list(values))


def rows_as_json(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return rows as SQLite's parameter."""
    return {"wanted": json.dumps([[row[one] for one in columns] for row in rows])}
