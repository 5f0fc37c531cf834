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

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from metastore.clock import Clock
from metastore.combine.alters import Alters
from metastore.combine.lane import Handle, Lane, Resign, Tell
from metastore.combine.singles import Creates, Drops
from metastore.combine.waiting import Waiting, waiting
from metastore.deadlines import until
from metastore.operation.hot import _Bounded
from metastore.operation.request import Call, Request
from metastore.operation.session import Session
from metastore.port.backend import Intents
from metastore.port.batches import Batches

__all__ = ["KINDS", "Writes"]

T = TypeVar("T")
Waiter = Handle[Waiting[Any], Any]

KINDS: Final = ("alter", "create", "drop")
"""What travels together: the requests' verbs."""


_STAYS = 1.0
"""How long after a lost attempt what it was about counts as contended (seconds)."""


class Writes:
    """The lane of writes."""

    def __init__(self, backend: Batches, intents: Intents, lane: Lane[Waiting[Any], Any], clock: Clock) -> None:
        self._lane = lane
        self._clock = clock
        self._contended: _Bounded[float] = _Bounded()
        """Until when what a request is about counts as contended, because an attempt lost there."""
        self._together: dict[str, Callable[[Sequence[Waiter]], Tell]] = {
            "alter": Alters(backend, intents, clock).send,
            "create": Creates(backend).send,
            "drop": Drops(backend).send,
        }

    def waiting(self, session: Session, request: Request[T], call: Call) -> Waiting[T] | None:
        """Return a request as one that may travel with others; None if it cannot."""
        return waiting(session, request, call) if request.verb in self._together else None

    def run(self, one: Waiting[T]) -> T:
        """Return the result of a request, or raise its error."""
        verb, metrics, lane = one.request.verb, one.session.metrics, self._lane
        together, alone = self._together[verb], partial(self._alone, one)
        metrics.begun()
        try:
            with until(one.ends):
                if (self._contended.get(one.key) or 0.0) < one.started:
                    answer = lane.run(verb, one, one.ends, alone, together, one.expired)
                else:  # alone it would be announced after one lost attempt
                    answer = lane.result(lane.submit(verb, one, one.ends), alone, together, one.expired)
                result: T = answer
                return result
        except Exception:
            raise
        except BaseException as interrupt:
            one.interrupted(interrupt)
            raise
        finally:
            if one.lost:
                self._note(one)
            metrics.ended()

    def _alone(self, one: Waiting[T], resign: Resign) -> T:
        def lost() -> None:
            self._note(one)
            resign()

        return one.alone(lost)

    def _note(self, one: Waiting[Any]) -> None:
        self._contended.set(one.key, self._clock.monotonic() + _STAYS)
