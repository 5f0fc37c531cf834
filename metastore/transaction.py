"""Several operations as one commit, with validated reads.

Nothing is sent before the end, so nothing is locked while Python runs. At the end everything
that was read must still be as it was, or nothing is written. That makes transactions strictly
serializable: reads are validated, absent names and listings included, at the instant of the
commit (design 4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeVar

from metastore.errors import InvalidArgument, VersionConflict
from metastore.managers.every import Managers
from metastore.overlay import Overlay
from metastore.retry.policy import RetryPolicy
from metastore.retry.runner import Conflict, run
from metastore.session import Call, Session

__all__ = ["Transaction", "run_transaction"]

T = TypeVar("T")
_SAME_AGAIN = ("serialization", "lost")
"""Conflicts that say nothing of what was read: the same commit is sent again."""


class Transaction(Managers):
    """The managers of a store, whose operations become one commit when the block ends.

    Times and versions of what it returns are provisional until then. Raises VersionConflict at
    the end if something that was read has changed; an exception in the block writes nothing.
    """

    def __init__(self, session: Session, call: Call) -> None:
        self._outer = session
        self._call = call
        principal = session.principal if call.principal is None else call.principal
        self._overlay = Overlay(session.backend, session.clock, principal)
        self._over = False
        inner = Session(self._overlay, session.clock, session.policy, principal, trusting=False)
        super().__init__(inner)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.commit()
        self._over = True

    def commit(self) -> None:
        """Send the commit; a second call is InvalidArgument."""
        if self._over:
            raise InvalidArgument("this transaction is over; begin another")
        self._over = True
        policy = _policy(self._outer, self._call)
        ends = self._outer.clock.monotonic() + policy.deadline
        run(lambda _: self._send(ends), policy, self._outer.clock, lambda: "the transaction")

    def _send(self, ends: float) -> None:
        commit = self._overlay.commit_value(self._outer.clock.operation_id())
        if not commit.writes and not commit.reads:
            return
        try:
            self._outer.commit(commit, ends)
        except Conflict as conflict:
            if conflict.cause in _SAME_AGAIN:
                raise
            raise _error(conflict) from None


def _policy(session: Session, call: Call) -> RetryPolicy:
    return session.policy if call.deadline is None else replace(session.policy, deadline=float(call.deadline))


def _error(conflict: Conflict) -> VersionConflict:
    return VersionConflict(
        "the transaction",
        None,
        None,
        f"the transaction was not applied: what it read has changed ({conflict.cause}: {conflict.detail}); "
        "run it again, or use store.run(fn), which does",
    )


def run_transaction(session: Session, fn: Callable[[Transaction], T], call: Call) -> T:
    """Run ``fn`` in a transaction, again and again until it commits; return what it returned."""

    def attempt(_: int) -> T:
        transaction = Transaction(session, call)
        result = fn(transaction)
        try:
            transaction.commit()
        except VersionConflict as conflict:
            raise Conflict("read", str(conflict)) from None
        return result

    return run(attempt, _policy(session, call), session.clock, lambda: "the transaction")
