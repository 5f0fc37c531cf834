"""The lane of writes: which requests travel together, and what becomes of those that do not.

What a batch does is in :mod:`metastore.combine.batch`. A request whose entity had another version gets the newest one
with the answer, and goes with the next batch. After ``ROUNDS`` lost batches it is announced, as one that lost alone.
Where intents are pending, the next batch carries them: it resolves them in the same commit, before its own requests, as
a helper does. Whatever else a batch meets, it leaves to the full operation, which decides again by itself: a mark, a
guard that broke, a document that the database refuses. A batch whose answer was lost leaves each of its requests to the
full operation too, which resolves it by its operation id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from metastore.combine.batch import BatchSender
from metastore.combine.decided import Waiter
from metastore.combine.lane import Lane, Resign, Tell, Term
from metastore.combine.waiting import Waiting, waiting
from metastore.deadlines import until
from metastore.operation.operation import Operation
from metastore.operation.request import Call, Request
from metastore.operation.session import Session

__all__ = ["VERBS", "Writes"]

T = TypeVar("T")

VERBS: Final = frozenset(("alter", "create", "rename", "drop"))
"""What travels together: the requests' verbs."""


class Writes:
    """The lane of writes. ``active``: the calls of the process that are under way.

    (A forked child may count some of its parent's.)
    """

    def __init__(self, session: Session, lane: Lane[Waiting[Any], Any], active: set[object]) -> None:
        self._lane = lane
        self._clock = session.clock
        self._active = active
        self._messages = BatchSender(session, lane.back)

    def run(self, session: Session, request: Request[T], call: Call) -> T:
        """Return the result of a request, or raise its error."""
        travels = request.verb in VERBS and request.where is not None
        if not travels or call.lease is not None or call.operation_id is not None:
            return Operation(session, request, call).run()
        me = object()
        self._active.add(me)
        try:
            return self._run(session, request, call)
        finally:
            self._active.discard(me)

    def _run(self, session: Session, request: Request[T], call: Call) -> T:
        term = self._lane.lead() if len(self._active) == 1 else None
        if term is not None:
            return self._alone(session, request, call, term)
        one = waiting(session, request, call)
        return Operation(session, request, call).run() if one is None else self._with_others(one)

    def _alone(self, session: Session, request: Request[T], call: Call, term: Term) -> T:
        try:
            return Operation(session, request, call, None, lambda: self._lane.leave(term)).run()
        finally:
            self._lane.leave(term)

    def _with_others(self, one: Waiting[T]) -> T:
        metrics, lane = one.session.metrics, self._lane

        def alone(_: Resign) -> T:  # with no deadline around it: what it leaves behind it withdraws after its own
            return one.alone(lambda: None)

        def together(handles: Sequence[Waiter]) -> Tell:
            with until(one.ends):
                return self._messages.send(handles)

        metrics.begun()
        try:
            result: T = lane.result(lane.submit(one, one.ends), alone, together, one.expired)
            return result
        except BaseException as error:
            if not isinstance(error, Exception):  # an interrupt, a task that is cancelled
                one.interrupted(error)
            raise
        finally:
            metrics.ended()
