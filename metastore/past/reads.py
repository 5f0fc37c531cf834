"""The reads of a backend at one position, which the managers of a view of the past use."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar
from uuid import UUID

from metastore.errors import InvalidArgument
from metastore.feed.feed import newest_up_to, number_in
from metastore.feed.position import gone
from metastore.operation.dropping import dropping_named
from metastore.operation.session import Session
from metastore.port.backend import Guards
from metastore.port.commit import Commit
from metastore.port.conditions import LIVE
from metastore.port.owning import read_owning
from metastore.port.past import NotKept, PastRow, PastRows, Way
from metastore.port.records import Child, Known, Lookup, Node, Origin, OwnedRecord, Resolved, RowPage, Step
from metastore.port.relations import (
    NO_COLUMN,
    ONLY,
    End,
    Owning,
    Related,
    Relating,
    RelationRecord,
    end_of_known,
    incoming_order,
    outgoing_order,
)

__all__ = ["READ_ONLY", "PastReads", "reads_at", "reads_from"]

READ_ONLY = "the past is read-only; write to the store, or go back with store.revert(…)"
T = TypeVar("T")
_MOST = 10_000
"""How many parents a view remembers."""
_Parents = dict[tuple[Node, tuple[str, ...], tuple[str, ...]], tuple[Node, ...]]


@dataclass(frozen=True)
class PastReads:
    """The reads of :class:`metastore.port.backend.Reads`, as of the position ``at``.

    The past does not change, so all guards hold, and a path to a parent always leads to the same nodes. A read raises
    HistoryGone if gc has removed rows that it needs, or if another server answers that may lack some of them.
    """

    session: Session
    at: int
    origin: Origin
    position: str
    """The position of the newest change up to ``at``. Each server that answers must have this change."""
    _runs: set[str | None]
    """The runs of servers that are known to have this change."""
    _parents: _Parents = field(default_factory=dict, compare=False, repr=False)
    """The nodes on the paths to parents that were found, by start, families and names."""
    _led: dict[tuple[int, str, bool], list[RelationRecord]] = field(default_factory=dict, compare=False, repr=False)
    """The relations to the entity that was listed last, in order."""

    def identify(self) -> Origin:
        return self.origin

    def commit(self, commit: Commit) -> NoReturn:
        raise InvalidArgument(READ_ONLY)

    def resolve(self, lookups: Sequence[Lookup]) -> list[Resolved]:
        known = [self._parents.get((w.start, w.families[:-1], w.names[:-1]), ()) for w in lookups]
        rest = [_after(above, lookup) for above, lookup in zip(known, lookups, strict=True)]
        resolved = self._ask(lambda past: past.resolve(self.at, rest))
        whole = [_below(above, one) for above, one in zip(known, resolved, strict=True)]
        for lookup, one in zip(lookups, whole, strict=True):
            self._remember(lookup, one.nodes)
        return whole

    def _remember(self, lookup: Lookup, nodes: tuple[Node, ...]) -> None:
        above = len(lookup.names) - 1
        if 0 < above <= len(nodes) and len(self._parents) < _MOST:
            self._parents[lookup.start, lookup.families[:-1], lookup.names[:-1]] = nodes[:above]

    def by_id(self, ids: Sequence[int], *, docs: bool = True) -> list[Known | None]:
        return self._ask(lambda past: past.by_id(self.at, ids, docs=docs))

    def ways(self, ids: Sequence[int]) -> dict[int, Way]:
        """Return the nodes that led to each entity, in any state; leave out entities that did not exist."""
        return self._ask(lambda past: past.ways(self.at, ids))

    def hold(self, guards: Guards) -> bool:
        return True

    def has_children(self, entity_id: int, besides: Sequence[int] = ()) -> NoReturn:
        self.commit(_NOTHING)

    def children(
        self,
        parent_id: int,
        kind: str,
        family: str,
        state: int,
        after: tuple[str, int],
        limit: int,
        guards: Guards,
    ) -> RowPage[Child]:
        rows = self._ask(lambda past: past.children(self.at, parent_id, kind, family, state, after, limit))
        return RowPage(True, rows)

    def names(
        self, parent_id: int, kind: str, family: str, after: str, limit: int, guards: Guards
    ) -> RowPage[tuple[str, str]]:
        page = self.children(parent_id, kind, family, LIVE, (after, 0), limit, guards)
        return RowPage(True, [(child.key, child.node.name) for child in page.rows])

    def named(self, parent_id: int, family: str, key: str, guards: Guards) -> RowPage[Child]:
        return dropping_named(self.children, parent_id, family, key)

    def gone(self, parent_id: int, kind: str, family: str, key: str) -> NoReturn:
        self.commit(_NOTHING)

    def owned(self, owner_id: int, kind: str, after: str, limit: int, guards: Guards) -> RowPage[OwnedRecord]:
        return RowPage(True, self._ask(lambda past: past.owned(self.at, owner_id, kind, after, limit)))

    def owned_by_name(self, owner_ids: Sequence[int], kind: str, names: Sequence[str]) -> list[OwnedRecord | None]:
        return self._ask(lambda past: past.owned_by_name(self.at, owner_ids, kind, names))

    def owning(self, target: Lookup | int, kinds: tuple[str, str], names: Sequence[str]) -> Owning | None:
        return read_owning(self, target, kinds, names)

    def rows(self, low: int, high: int, kinds: Sequence[str] | None = None) -> list[PastRow]:
        """Return the rows whose ids lie in a range, ordered by id."""
        return self._ask(lambda past: past.rows(self.at, low, high, kinds))

    def related(self, target: Lookup | int, kind: str, *, above: bool, doc: bool) -> Related | None:
        if isinstance(target, int):
            (known,) = self.by_id([target])
            record, end = (None if known is None else known.record), end_of_known(known)
        else:
            (resolved,) = self.resolve([target])
            record, end = resolved.record, End(resolved.nodes, live=True)
        if record is None:
            return None
        froms = [node.id for node in record.chain] if above else [record.chain[-1].id]
        rows = self._from(froms, kind)
        ends = self.by_id([row.to_id for row in rows]) if rows else []
        return Related(end, record.doc if doc else None, list(zip(rows, map(end_of_known, ends), strict=True)))

    def relating(
        self, to_id: int, kind: str, value: str | None, after: tuple[str, int, int], limit: int
    ) -> Relating | None:
        (known,) = self.by_id([to_id])
        if known is None:
            return None
        if (to_id, kind, False) not in self._led:
            self._led.clear()  # keep only one listing, to save memory
            rows = [_relation(row) for row in self._ask(lambda past: past.led(self.at, to_id, kind))]
            self._led[to_id, kind, False] = sorted(rows, key=incoming_order)
        led = self._led[to_id, kind, False]
        begin = bisect_right(led, after, key=incoming_order)
        page = [row for row in led[begin:] if value in (None, row.value)][:limit]
        return Relating(end_of_known(known), self._with_ends(page))

    def related_page(self, from_id: int, kind: str, after: tuple[int, int, str], limit: int) -> Relating | None:
        (known,) = self.by_id([from_id])
        if known is None:
            return None
        if (from_id, kind, True) not in self._led:
            self._led.clear()
            self._led[from_id, kind, True] = sorted(self._from([from_id], kind))
        led = self._led[from_id, kind, True]
        begin = bisect_right(led, after, key=outgoing_order)
        page = led[begin : begin + limit]
        ends = self.by_id([row.to_id for row in page]) if page else []
        return Relating(
            end_of_known(known), [(row, end_of_known(end), None) for row, end in zip(page, ends, strict=True)]
        )

    def _with_ends(self, rows: Sequence[RelationRecord]) -> list[tuple[RelationRecord, End, str | None]]:
        ends = self.by_id([row.from_id for row in rows]) if rows else []
        return [
            (row, end_of_known(end), end.record.doc if end is not None and row.column_id != NO_COLUMN else None)
            for row, end in zip(rows, ends, strict=True)
        ]

    def relations(self, kind: str, slots: Sequence[tuple[int, int]]) -> list[RelationRecord]:
        records = list[RelationRecord]()
        wanted = set(slots)
        for row in self._from(list(dict.fromkeys(i for i, _ in slots)), kind):
            records += [row._replace(slot=slot) for slot in {ONLY, row.to_id} if (row.from_id, slot) in wanted]
        return records

    def _from(self, from_ids: Sequence[int], kind: str) -> list[RelationRecord]:
        """Return the relations from these entities, in the order of ``from_ids``."""
        at = {i: n for n, i in enumerate(from_ids)}
        rows = self._ask(lambda past: past.related(self.at, from_ids, kind)) if from_ids else []
        return [_relation(row) for row in sorted(rows, key=lambda row: (at[row.owner_id], row.name))]

    def history(self, entity_id: int, after: int, limit: int) -> list[Step]:
        return self._ask(lambda past: past.history(self.at, entity_id, after, limit))

    def _ask(self, question: Callable[[PastRows], T]) -> T:
        backend = self.session.backend
        while True:
            try:
                answer = question(backend.past)
            except NotKept as kept:
                raise gone(self.session, kept) from None
            if not self.check():
                return answer
            # read again, because the previous server may have answered

    def check(self) -> bool:
        """Check that the answering server has all changes up to the position. Raises HistoryGone.

        Return whether this run of a server answers for the first time.
        """
        run = self.session.backend.origin.run
        if run in self._runs:
            return False
        number_in(self.session.backend, self.position)
        self._runs.add(run)
        return True


def _after(above: tuple[Node, ...], lookup: Lookup) -> Lookup:
    """Return the lookup of the rest of a path, below known nodes."""
    return Lookup(lookup.families[len(above) :], lookup.names[len(above) :], above[-1]) if above else lookup


def _below(above: tuple[Node, ...], resolved: Resolved) -> Resolved:
    """Return a result from below known nodes, with these nodes in front."""
    nodes = (*above, *resolved.nodes)
    return Resolved(nodes, resolved.record and resolved.record._replace(chain=nodes)) if above else resolved


def _relation(row: OwnedRecord) -> RelationRecord:
    """Return a relation from the row of its history, whose document has the other end."""
    doc = json.loads(row.doc)
    to_id, column, value = doc["other_id"], doc["column_id"], doc["value"]
    return RelationRecord(row.owner_id, row.kind, to_id, column, value, row.id, to_id, row.version, *row[6:])


_NOTHING = Commit(operation_id=UUID(int=0), principal=None)


def reads_at(session: Session, at: int) -> PastReads:
    """Return the reads of a position. Raises HistoryGone."""
    try:
        session.backend.past.check(at)
    except NotKept as kept:
        raise gone(session, kept) from None
    # marked as not committed, because the present store must use only the id of an entity of the past
    return reads_from(session, at, Origin(session.backend.origin.database, committed=False))


def reads_from(session: Session, at: int, origin: Origin) -> PastReads:
    """Return the reads of a position that is kept. The entities that they return have this origin."""
    run = session.backend.origin.run
    return PastReads(session, at, origin, newest_up_to(session.backend, at), {run})
