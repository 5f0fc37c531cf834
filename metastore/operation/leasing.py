"""The leases of an operation: the conditions on its commits, and the error if a lease is lost."""

from __future__ import annotations

from metastore.errors import LeaseLost, MetastoreError
from metastore.operation.record import OperationRow, detail
from metastore.operation.request import Call
from metastore.operation.session import Session
from metastore.port.commit import Commit, Conflicted, Unknown
from metastore.port.conditions import LeaseToken
from metastore.retry.reactions import REACTIONS, Reaction
from metastore.retry.runner import Conflict


class OwnLeases:
    """The leases of one operation. Before it reports a lease as lost, it reads the operation's row."""

    def __init__(self, session: Session, row: OperationRow, call: Call) -> None:
        self._session, self._row, self._call = session, row, call

    def tokens(self) -> tuple[LeaseToken, ...]:
        """Return the tokens that a commit requires. Raises LeaseLost."""
        try:
            return self._call.tokens()
        except LeaseLost:
            self._row.lease_lost()
            raise

    def refused(self) -> MetastoreError:
        """Return the error for a commit that found another token."""
        self._row.lease_lost()
        return self._call.refused()

    def check(self) -> None:
        """Check the leases of an operation that writes nothing: it must hold them too. Raises LeaseLost, Conflict."""
        leases = self.tokens()
        if not leases:
            return
        outcome = self._session.backend.commit(Commit(self._session.clock.operation_id(), None, leases=leases))
        if isinstance(outcome, Conflicted):
            if REACTIONS[outcome.cause].other is not Reaction.RAISE:
                raise Conflict(outcome.cause, detail(outcome))
            raise self.refused()
        if isinstance(outcome, Unknown):
            raise Conflict("lost", "the answer was lost")
