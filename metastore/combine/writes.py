"""The lane of writes: the choice of requests for a batch, and the ways in which a request leaves its batch.

:mod:`metastore.combine.batch` has the work of a batch. A request can leave its batch in these ways:

* Its entity had another version: the answer brings the newest version, and the request goes with the next batch. After
  ``ROUNDS`` lost batches the full operation announces it, as it does for a change that lost alone.
* Intents are pending on its entity: the next batch resolves them in the same commit, before its own requests, as a
  helper does.
* The batch met a mark, a broken guard, or a document that the database refuses: the full operation decides again.
* The answer to the batch was lost: the full operation of each request looks its operation id up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from metastore.combine.batch import BatchSender
from metastore.combine.chain import chain_for
from metastore.combine.decided import Waiter
from metastore.combine.handle import Resign
from metastore.combine.lane import Lane, Tell, Together
from metastore.combine.waiting import Waiting, waiting
from metastore.deadlines import until
from metastore.operation.once import once
from metastore.operation.request import Call, Request
from metastore.operation.session import Session

T = TypeVar("T")

VERBS: Final = frozenset(("alter", "create", "rename", "drop"))
"""The verbs of the requests that can be part of a batch."""


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
        why = call.reason or session.reason
        if not travels or why or call.lease is not None or call.operation_id is not None:
            return once(session, request, call)
        chain = chain_for(session, request) if session.chains else None
        if chain is not None and (one := waiting(session, request, call)) is not None:
            return self._with_others(one, chain.lane, chain.together)
        me, lane = object(), self._lane
        self._active.add(me)
        try:
            term = lane.lead() if len(self._active) == 1 else None
            if term is None:
                one = waiting(session, request, call)
                return (
                    once(session, request, call) if one is None else self._with_others(one, lane, self._messages.send)
                )
            try:
                return once(session, request, call, lambda: lane.leave(term))
            finally:
                lane.leave(term)
        finally:
            self._active.discard(me)

    def _with_others(self, one: Waiting[T], lane: Lane[Any, Any], send: Together[Any, Any]) -> T:
        metrics = one.session.metrics

        def alone(_: Resign) -> T:  # without until(): the clean-up may need time after the call's deadline
            return one.alone(lambda: None)

        def together(handles: Sequence[Waiter]) -> Tell:
            with until(one.ends):
                return send(handles)

        metrics.begun()
        try:
            result: T = lane.result(lane.submit(one, one.ends), alone, together, one.expired)
            return result
        except BaseException as error:
            if not isinstance(error, Exception):  # an interrupt, or a cancelled task
                one.interrupted(error)
            raise
        finally:
            metrics.ended()
