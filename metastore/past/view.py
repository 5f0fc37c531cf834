"""A view of the past: the managers of all kinds, as of one position."""

from __future__ import annotations

from metastore.managers.all import Managers
from metastore.operation.session import ManagerSession, Session
from metastore.past.reads import READ_ONLY, PastReads, reads_at

__all__ = ["Past", "past_at"]


class Past(Managers):
    """A read-only view of the store at a position: ``store.at(…).tables.load(path)``.

    Paths lead where they led then. If the caller gives an entity, only its id is used. A call that writes raises
    InvalidArgument. A read raises HistoryGone if gc has removed rows that it needs: choose a later position, and keep
    it with ``store.pin``.
    """

    def __init__(self, session: Session, reads: PastReads) -> None:
        bound = ManagerSession(reads, session.clock, session.policy, session.principal, outer=session)
        bound.read_only = READ_ONLY
        super().__init__(bound)
        self._reads = reads

    @property
    def position(self) -> str:
        """The position, for ``store.at``, ``store.pin`` and the feed."""
        return self._reads.position

    def __repr__(self) -> str:
        return f"<Past {self._reads.at}>"


def past_at(session: Session, at: int) -> Past:
    """Return the view of a position. Raises HistoryGone."""
    return Past(session, reads_at(session, at))
