"""Writes that travel together: one kind of write in a batch, and one statement for it.

A batch takes two messages. The first finds what is named by a path. Then each request's own function decides, as it
does alone, on what was found; changes of one entity are decided one after the other, in the order in which they came.
The second message commits all of it: each entity by its own guards and its own compare-and-swap, each operation with
its own version, history and operation id.

A request whose entity had another version gets the newest one with the answer, and goes into the next batch. After
``ROUNDS`` lost batches it is announced, as one that lost alone. Whatever else a batch meets, it leaves to the full
operation, which decides again by itself: a mark, a guard that broke, a pending intent, a document that the database
refuses. A batch whose answer was lost leaves each of its requests to the full operation too, which resolves it by its
operation id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from metastore.combine.alters import Alters
from metastore.combine.lane import Handle, Lane, Tell
from metastore.combine.singles import Creates, Drops
from metastore.combine.waiting import AGAIN, ROUNDS, Waiting, waiting
from metastore.deadlines import until
from metastore.operation.request import Call, Request
from metastore.operation.session import Session
from metastore.port.batches import Batches

__all__ = ["KINDS", "Writes"]

T = TypeVar("T")
Waiter = Handle[Waiting[Any], Any]

KINDS: Final = ("alter", "create", "drop")
"""What travels together: the requests' verbs."""


class Writes:
    """The lane of writes."""

    def __init__(self, backend: Batches, lane: Lane[Waiting[Any], Any]) -> None:
        self._lane = lane
        self._together: dict[str, Callable[[Sequence[Waiter]], Tell]] = {
            "alter": Alters(backend).send,
            "create": Creates(backend).send,
            "drop": Drops(backend).send,
        }

    def waiting(self, session: Session, request: Request[T], call: Call) -> Waiting[T] | None:
        """Return a request as one that may travel with others; None if it cannot."""
        return waiting(session, request, call) if request.verb in self._together else None

    def run(self, one: Waiting[T]) -> T:
        """Return the result of a request, or raise its error."""
        verb, metrics = one.request.verb, one.session.metrics
        metrics.begun()
        try:
            with until(one.ends):
                while True:
                    answer = self._lane.run(verb, one, one.ends, one.alone, self._together[verb], one.expired)
                    if answer is not AGAIN:
                        result: T = answer
                        return result
                    if one.lost >= ROUNDS:
                        return one.alone(_stay)
        finally:
            metrics.ended()


def _stay() -> None:
    """Resign where nobody leads."""
