"""The lane of reads: reads by path that travel together.

A batch looks a path up by its last name, below the parents that led there last time. One statement finds all names, and
checks in the same snapshot that their parents have not changed. If one has moved, or no parents are remembered, the
request reads its whole path by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from metastore.combine.lane import Handle, Lane, Resign, Tell
from metastore.deadlines import remaining
from metastore.errors import DeadlineExceeded
from metastore.operation.guards import key_under, parents_of
from metastore.operation.session import Session
from metastore.port.batches import Batches, Below
from metastore.port.records import ROOT, Lookup, Record, Resolved

__all__ = ["Finds", "batches", "below"]

_DEEPEST = 16
"""How many names a path may have to be looked up with others."""


class Finds:
    """The lane of reads. ``active``: the calls of the process that are under way."""

    def __init__(self, session: Session, lane: Lane[Below, Resolved], active: set[object]) -> None:
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

        return lane.result(lane.submit(wanted, ends), alone, self._together, _expired)

    def _together(self, handles: Sequence[Handle[Below, Resolved]]) -> Tell:
        wanted = {handle.request.asked: handle.request for handle in handles}
        found = dict(zip(wanted, batches(self._session).find_below(list(wanted.values())), strict=True))

        def tell() -> None:
            for handle in handles:
                answer = resolved(handle.request, found[handle.request.asked])
                if answer is not None:
                    handle.answer(answer)

        return tell


def batches(session: Session) -> Batches:
    """Return the session's backend, which sends batches."""
    return cast(Batches, session.backend)


def below(session: Session, lookup: Lookup) -> Below | None:
    """Return where to look for the last name of a path; None: its parents are unknown."""
    names = lookup.names
    if lookup.start is not ROOT or len(names) > _DEEPEST:
        return None
    parents = session.recent.at(parents_of(lookup)) if len(names) > 1 else ()
    if parents is None:
        return None
    return Below(parents, lookup.families[-1], key_under(parents[-1] if parents else ROOT, names[-1]))


def resolved(wanted: Below, found: Record | bool) -> Resolved | None:
    """Return what a batch found at a path; None: it must be read by itself."""
    if isinstance(found, Record):
        return Resolved(found.chain, found)
    return None if found else Resolved(wanted.parents, None, free=True)


def _expired() -> DeadlineExceeded:
    return DeadlineExceeded("the deadline passed before the database was asked; call again, with a longer one")
