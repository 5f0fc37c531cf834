"""The combiner of one store: its lanes, and the choice of the requests that use them.

One lane is for reads and one for writes; each uses one connection at a time. Rare requests use no lane: a call under a
lease, with the caller's operation id or with a reason, a move, a transaction. :mod:`metastore.operation.once` runs
them. A request that a batch cannot decide goes to the full operation, :mod:`metastore.operation.operation`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metastore.combine.lane import Lane
from metastore.combine.reads import Finds
from metastore.combine.writes import Writes
from metastore.operation.request import Call, Request
from metastore.operation.session import Session
from metastore.port.batches import Batches
from metastore.port.records import Lookup, Resolved


class Combiner:
    """The lanes of one store; see the module. All sessions of the store share it."""

    def __init__(self, session: Session) -> None:
        active = set[object]()
        self.finds = Finds(session, Lane(session.clock), active)
        self.writes = Writes(session, Lane(session.clock), active)
        self.resolve: Callable[[Lookup], Resolved] = self.finds.resolve
        """Follow a path over live nodes as far as it leads."""
        self.perform: Callable[[Session, Request[Any], Call], Any] = self.writes.run
        """Run a request until it is committed, or ends with a value or an error."""

    @classmethod
    def of(cls, session: Session) -> Combiner | None:
        """Return the combiner of a store; None: batches bring no gain on its backend."""
        return cls(session) if isinstance(session.backend, Batches) else None
