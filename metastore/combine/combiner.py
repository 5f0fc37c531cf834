"""The combiner of one store: its lanes, and which requests take them.

One lane is for reads and one for writes, each with one connection at a time. Rare requests take no lane: a call under a
lease or with the caller's operation id, a move, a transaction. The full operation
(:mod:`metastore.operation.operation`) runs them, and every request that a batch cannot decide.
"""

from __future__ import annotations

from typing import TypeVar

from metastore.combine.lane import Lane
from metastore.combine.reads import Finds
from metastore.combine.writes import Writes
from metastore.operation.request import Call, Request
from metastore.operation.session import Session
from metastore.port.batches import Batches
from metastore.port.records import Lookup, Resolved

__all__ = ["Combiner"]

T = TypeVar("T")


class Combiner:
    """The lanes of one store; see the module. All sessions of the store share it."""

    def __init__(self, session: Session) -> None:
        active = set[object]()
        self._finds = Finds(session, Lane(session.clock), active)
        self._writes = Writes(session, Lane(session.clock), active)

    @classmethod
    def of(cls, session: Session) -> Combiner | None:
        """Return the combiner of a store; None if its backend gains nothing by batches."""
        return cls(session) if isinstance(session.backend, Batches) else None

    def resolve(self, lookup: Lookup) -> Resolved:
        """Follow a path over live nodes as far as it leads."""
        return self._finds.resolve(lookup)

    def perform(self, session: Session, request: Request[T], call: Call) -> T:
        """Run ``request`` until it is committed, or settled on a value or an error."""
        return self._writes.run(session, request, call)
