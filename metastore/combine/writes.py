"""Writes that travel together: one kind of write in a batch, and one statement for it.

A batch takes two messages. The first finds what is named by a path. Then each request's own function decides, as it
does alone, on what was found; changes of one entity are decided one after the other, in the order in which they came.
The second message commits all of it: each entity by its own guards and its own compare-and-swap, each operation with
its own version, history and operation id.

A request whose entity had another version gets the newest one with the answer, and is sent once more at once. After
``ROUNDS`` lost batches it is announced, as one that lost alone. Where intents are pending, the next batch carries them:
it resolves them in the same commit, before its own requests, as a helper does. Whatever else a batch meets, it leaves
to the full operation, which decides again by itself: a mark, a guard that broke, a document that the database refuses.
A batch whose answer was lost leaves each of its requests to the full operation too, which resolves it by its operation
id.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from metastore.combine.alters import Alters
from metastore.combine.lane import Handle, Lane, Resign, Tell, Term
from metastore.combine.singles import Creates, Drops
from metastore.combine.waiting import Waiting, waiting
from metastore.deadlines import until
from metastore.operation.hot import Bounded
from metastore.operation.operation import Operation
from metastore.operation.request import Call, Request
from metastore.operation.session import Session

__all__ = ["KINDS", "Writes"]

T = TypeVar("T")
Waiter = Handle[Waiting[Any], Any]

KINDS: Final = ("alter", "create", "drop")
"""What travels together: the requests' verbs."""


_STAYS = 1.0
"""How long after a lost attempt what it was about counts as contended (seconds)."""


class Writes:
    """The lane of writes."""

    def __init__(self, session: Session, lane: Lane[Waiting[Any], Any]) -> None:
        self._lane = lane
        self._clock = session.clock
        self._active: set[object] = set()
        """The requests of this process that are under way. (A forked child may count some of its parent's.)"""
        self._last_lost = -math.inf
        self._contended: Bounded[float] = Bounded()
        """Until when what a request is about counts as contended, because an attempt lost there."""
        self._together: dict[str, Callable[[Sequence[Waiter]], Tell]] = {
            "alter": Alters(session).send,
            "create": Creates(session).send,
            "drop": Drops(session).send,
        }

    def run(self, session: Session, request: Request[T], call: Call) -> T:
        """Return the result of a request, or raise its error."""
        travels = request.verb in self._together and request.where is not None
        if not travels or call.lease is not None or call.operation_id is not None:
            return Operation(session, request, call).run()
        me = object()
        self._active.add(me)
        try:
            return self._run(session, request, call)
        finally:
            self._active.discard(me)

    def _run(self, session: Session, request: Request[T], call: Call) -> T:
        # where an attempt lost lately, one that goes alone would be announced after one more: others may come along
        quiet = len(self._active) == 1 or self._last_lost < session.clock.monotonic() - _STAYS
        term = self._lane.lead() if quiet else None
        if term is not None:
            return self._alone(session, request, call, term)
        one = waiting(session, request, call)
        return Operation(session, request, call).run() if one is None else self._with_others(one)

    def _alone(self, session: Session, request: Request[T], call: Call, term: Term) -> T:
        def lost() -> None:
            self._note(waiting(session, request, call))
            self._lane.leave(term)

        try:
            return Operation(session, request, call, None, lost).run()
        finally:
            self._lane.leave(term)

    def _with_others(self, one: Waiting[T]) -> T:
        verb, metrics, lane = one.request.verb, one.session.metrics, self._lane
        together = self._together[verb]

        def alone(resign: Resign) -> T:
            def lost() -> None:
                self._note(one)
                resign()

            return one.alone(lost)

        metrics.begun()
        try:
            with until(one.ends):
                if (self._contended.get(one.key) or 0.0) < one.started:
                    result: T = lane.run(verb, one, one.ends, alone, together, one.expired)
                else:  # alone it would be announced after one lost attempt
                    result = lane.result(lane.submit(verb, one, one.ends), alone, together, one.expired)
                return result
        except BaseException as error:
            if not isinstance(error, Exception):  # an interrupt, a task that is cancelled
                one.interrupted(error)
            raise
        finally:
            if one.lost:
                self._note(one)
            metrics.ended()

    def _note(self, one: Waiting[Any] | None) -> None:
        self._last_lost = self._clock.monotonic()
        if one is not None:
            self._contended.set(one.key, self._last_lost + _STAYS)
