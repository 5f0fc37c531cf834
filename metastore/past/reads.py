"""The reads of a backend at one position: what managers work on in a view of the past."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar
from uuid import UUID

from metastore.errors import InvalidArgument
from metastore.feed.position import gone
from metastore.operation.session import Session
from metastore.port.backend import Guards
from metastore.port.commit import LIVE, Commit
from metastore.port.past import NotKept, PastRow, PastRows
from metastore.port.records import Child, Known, Lookup, Node, Origin, OwnedRecord, Resolved, RowPage, Step

__all__ = ["PastReads", "reads_at"]

T = TypeVar("T")
_MOST = 10_000
"""How many parents a view remembers."""
_Parents = dict[tuple[Node, tuple[str, ...], tuple[str, ...]], tuple[Node, ...]]


@dataclass(frozen=True)
class PastReads:
    """Keeps the promises of :class:`metastore.port.backend.Reads`, as of the position ``at``.

    The past does not change, so that all guards hold, and a path to a parent leads to the same nodes again. A read
    raises HistoryGone when gc has removed what it needs.
    """

    session: Session
    at: int
    origin: Origin
    _parents: _Parents = field(default_factory=dict, compare=False, repr=False)
    """The nodes on the way to parents that were found, by start, families and names."""

    def identify(self) -> Origin:
        return self.origin

    def commit(self, commit: Commit) -> NoReturn:
        raise InvalidArgument("the past is read-only; write to the store, or go back with store.revert(…)")

    def resolve(self, lookups: Sequence[Lookup]) -> list[Resolved]:
        known = [self._parents.get((w.start, w.families[:-1], w.names[:-1]), ()) for w in lookups]
        rest = [_after(above, lookup) for above, lookup in zip(known, lookups, strict=True)]
        found = self._ask(lambda past: past.resolve(self.at, rest))
        whole = [_below(above, one) for above, one in zip(known, found, strict=True)]
        for lookup, one in zip(lookups, whole, strict=True):
            self._remember(lookup, one.nodes)
        return whole

    def _remember(self, lookup: Lookup, nodes: tuple[Node, ...]) -> None:
        above = len(lookup.names) - 1
        if 0 < above <= len(nodes) and len(self._parents) < _MOST:
            self._parents[lookup.start, lookup.families[:-1], lookup.names[:-1]] = nodes[:above]

    def by_id(self, ids: Sequence[int]) -> list[Known | None]:
        return self._ask(lambda past: past.by_id(self.at, ids))

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

    def gone(self, parent_id: int, kind: str, family: str, key: str) -> NoReturn:
        self.commit(_NOTHING)

    def owned(self, owner_id: int, kind: str, after: str, limit: int, guards: Guards) -> RowPage[OwnedRecord]:
        return RowPage(True, self._ask(lambda past: past.owned(self.at, owner_id, kind, after, limit)))

    def owned_by_name(self, owner_ids: Sequence[int], kind: str, names: Sequence[str]) -> list[OwnedRecord | None]:
        wanted = list(zip(owner_ids, names, strict=True))
        return self._ask(lambda past: [past.owned_by_name(self.at, owner, kind, name) for owner, name in wanted])

    def rows(self, low: int, high: int) -> list[PastRow]:
        """Return what had an id in a range, by id."""
        return self._ask(lambda past: past.rows(self.at, low, high))

    def related(self, target: Lookup | int, kind: str, *, above: bool, doc: bool) -> NoReturn:
        raise InvalidArgument(_NO_RELATIONS)

    def relating(
        self,
        to_id: int,
        kind: str,
        value: str | None,
        after: tuple[str, int, int],
        limit: int,
    ) -> NoReturn:
        raise InvalidArgument(_NO_RELATIONS)

    def relations(self, kind: str, slots: Sequence[tuple[int, int]]) -> NoReturn:
        raise InvalidArgument(_NO_RELATIONS)

    def history(self, entity_id: int, after: int, limit: int) -> list[Step]:
        return self._ask(lambda past: past.history(self.at, entity_id, after, limit))

    def _ask(self, question: Callable[[PastRows], T]) -> T:
        try:
            return question(self.session.backend.past)
        except NotKept as kept:
            raise gone(self.session, kept) from None


def _after(above: tuple[Node, ...], lookup: Lookup) -> Lookup:
    """Return what is left to look up below nodes that are known."""
    return Lookup(lookup.families[len(above) :], lookup.names[len(above) :], above[-1]) if above else lookup


def _below(above: tuple[Node, ...], found: Resolved) -> Resolved:
    """Return what was found below nodes that are known, with them."""
    nodes = (*above, *found.nodes)
    return Resolved(nodes, found.record and found.record._replace(chain=nodes)) if above else found


_NO_RELATIONS = "tags, policies, owners and grants of the past cannot be read; the feed has their changes"
_NOTHING = Commit(operation_id=UUID(int=0), principal=None)


def reads_at(session: Session, at: int) -> PastReads:
    """Return the reads of a position. Raises HistoryGone."""
    try:
        session.backend.past.check(at)
    except NotKept as kept:
        raise gone(session, kept) from None
    # not committed: today's store uses only the id of an entity of the past
    return PastReads(session, at, Origin(session.backend.origin.database, committed=False))
