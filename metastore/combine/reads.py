"""The lane of reads: send reads by path together.

A batch looks a path up by its last name, below the parents that led there last time. One statement finds all names, and
checks in the same snapshot that these parents have not moved. If one has moved, a second message follows its paths from
the root. If no parents are remembered, the request reads its whole path by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from metastore.combine.handle import Handle, Resign
from metastore.combine.lane import Lane, Tell
from metastore.deadlines import remaining
from metastore.errors import DeadlineExceeded
from metastore.operation.guards import key_under, parents_of
from metastore.operation.session import Session
from metastore.port.batches import Batches, Below
from metastore.port.records import ROOT, Lookup, Node, Record, Resolved

_DEEPEST = 16
"""How many names a path may have at most to be looked up together with others."""


class Find(NamedTuple):
    """A path to look up, and the place where its last name was last seen."""

    path: Lookup
    below: Below


class Finds:
    """The lane of reads. ``active``: the process's calls that are under way."""

    def __init__(self, session: Session, lane: Lane[Find, Resolved], active: set[object]) -> None:
        self._session = session
        self._lane = lane
        self._active = active

    def resolve(self, lookup: Lookup) -> Resolved:
        """Follow a path over live nodes as far as it leads."""
        me = object()
        self._active.add(me)
        try:
            return self._resolve(lookup)
        finally:
            self._active.discard(me)

    def _resolve(self, lookup: Lookup) -> Resolved:
        session, lane = self._session, self._lane
        term = lane.lead() if len(self._active) == 1 else None
        if term is not None:
            try:
                return session.resolve_alone(lookup)
            finally:
                lane.leave(term)
        wanted = below(session, lookup)
        if wanted is None:
            return session.resolve_alone(lookup)
        ends = session.clock.monotonic() + remaining(session.clock, session.policy.deadline)

        def alone(_: Resign) -> Resolved:
            if session.clock.monotonic() >= ends:
                raise _expired()
            return session.resolve_alone(lookup)

        return lane.result(lane.submit(Find(lookup, wanted), ends), alone, self._together, _expired)

    def _together(self, handles: Sequence[Handle[Find, Resolved]]) -> Tell:
        answers = found_together(self._session, [handle.request for handle in handles])

        def tell() -> None:
            for handle, answer in zip(handles, answers, strict=True):
                handle.answer(answer)

        return tell


def found_together(session: Session, wanted: Sequence[Find]) -> list[Resolved]:
    """Return the result of each path."""
    asked = {one.below.asked: one.below for one in wanted}
    found = dict(zip(asked, batches(session).find_below(list(asked.values())), strict=True)) if asked else {}
    moved = list(dict.fromkeys([one.path for one in wanted if found[one.below.asked] is True]))
    again = dict(zip(moved, session.backend.resolve(moved), strict=True)) if moved else {}
    for path, there in again.items():
        session.recent.note_parents(path, there.nodes)
    return [again.get(one.path) or _resolved(one.below, found[one.below.asked]) for one in wanted]


def _resolved(where: Below, found: Record | bool) -> Resolved:
    if isinstance(found, Record):
        return Resolved(found.chain, found)
    return Resolved(where.parents, None, free=True)


def batches(session: Session) -> Batches:
    """Return the session's backend as one that sends batches."""
    return cast(Batches, session.backend)


def below(session: Session, lookup: Lookup) -> Below | None:
    """Return the place to look for a path's last name; None if its parents are unknown, too many, or not from ROOT."""
    names = lookup.names
    if lookup.start is not ROOT or len(names) > _DEEPEST:
        return None
    parents = session.recent.at(parents_of(lookup)) if len(names) > 1 else ()
    if parents is None:
        return None
    return below_parents(parents, lookup)


def below_parents(parents: tuple[Node, ...], path: Lookup) -> Below:
    """Return the place to look for the last name of a path whose parents are known."""
    return Below(parents, path.families[-1], key_under(parents[-1] if parents else ROOT, path.names[-1]))


def _expired() -> DeadlineExceeded:
    return DeadlineExceeded("the deadline passed before the database was asked; call again, with a longer one")
