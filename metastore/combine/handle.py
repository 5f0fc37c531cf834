"""One request that waits in a lane: its stays in the queue and in batches, and its answer.

A stay begins when the request is put into the queue. It ends in one of three ways: the request gets its answer, its
batch puts it back for another stay, or it goes alone. Two threads decide about a stay: the request's and a leader's. An
interrupt may hit either thread between any two lines. So each decision is one atomic step, after which the other thread
has everything it needs to continue.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, Generic, Literal, Self, TypeVar

from metastore.block import Block
from metastore.clock import Waker

Q = TypeVar("Q")
A = TypeVar("A")

Resign = Callable[[], None]
"""Let the next leader begin."""
BY_AGE: Final = attrgetter("number")
"""The sort key of waiting requests: the oldest comes first."""

_NOTHING: Final[Any] = object()
_ALONE: Final[Any] = object()


class Term:
    """The time in which one thread leads. One thread ends it: the leader, or a thread that takes over."""

    __slots__ = ("_open", "batch")

    def __init__(self) -> None:
        self._open = [None]
        self.batch: Batch | None = None
        """The batch that its leader sends."""

    def end(self) -> bool:
        """End the term; return False if another thread has ended it. (Popping from a list is atomic.)"""
        try:
            self._open.pop()
        except IndexError:
            return False
        return True


_Fate = Literal["left", "leads"] | Term
"""The fate of a waiting request: it gave up, it leads the next batch, or the leader of a term took it."""


class _Stay:
    """One stay of a request in the queue, and in the batch that takes it. (``setdefault`` is atomic.)"""

    __slots__ = ("_after", "_fate", "term")

    def __init__(self) -> None:
        self._fate: dict[None, tuple[_Fate]] = {}
        self._after: dict[None, Any] = {}
        self.term = Term()
        """The term in which the request leads, if it was elected."""

    def decide(self, fate: _Fate) -> bool:
        """Take the request out of the queue; return False if another thread did, perhaps with the same decision."""
        mine = (fate,)  # a new tuple: if two threads elect the request, only one succeeds
        return self._fate.setdefault(None, mine) is mine

    @property
    def waits(self) -> bool:
        """Whether the request waits in the queue."""
        return not self._fate

    @property
    def leads(self) -> bool:
        """Whether the request was elected."""
        return self._fate.get(None) == ("leads",)

    @property
    def left(self) -> bool:
        """Whether the request gave up."""
        return self._fate.get(None) == ("left",)

    def is_in(self, term: Term) -> bool:
        """Whether the leader of this term took the request."""
        return self._fate.get(None, (None,))[0] is term

    @property
    def is_forsaken(self) -> bool:
        """Whether an interrupt kept the leader that took the request from ending its batch."""
        fate = self._fate.get(None, (None,))[0]
        return isinstance(fate, Term) and fate.batch is not None and not fate.batch.runs

    def end(self) -> None:
        """End the stay without an answer; the request goes alone, unless its batch has put it back."""
        self._after.setdefault(None, _ALONE)

    @property
    def is_over(self) -> bool:
        """Whether the request goes alone."""
        return self._after.get(None) is _ALONE

    def following(self) -> _Stay | None:
        """Let the request wait in the queue once more; return None if it goes alone, because its time is over."""
        after = self._after.setdefault(None, _Stay())
        return None if after is _ALONE else after

    def newest(self) -> _Stay:
        """Return the newest stay: the next one, if the batch has put the request back; otherwise this one."""
        after = self._after.get(None, _ALONE)
        return self if after is _ALONE else after


class Handle(Generic[Q, A]):
    """One waiting request, and its answer."""

    __slots__ = ("_error", "_value", "_waker", "ends", "number", "request", "stay")

    def __init__(self, request: Q, ends: float, number: int, waker: Waker) -> None:
        self.request = request
        self.ends = ends
        """The instant at which the request gives up, by the clock's ``monotonic``."""
        self.number = number
        self._waker = waker
        self.stay = _Stay()
        self._value: Any = _NOTHING
        self._error: BaseException | None = None

    @property
    def waits(self) -> bool:
        """Whether the request waits in the queue."""
        return self.stay.waits

    @property
    def leads(self) -> bool:
        """Whether it was elected."""
        return self.stay.leads

    def answer(self, value: A) -> None:
        """Let the request return ``value``."""
        self._value = value
        self._waker.wake()

    def fail(self, error: BaseException) -> None:
        """Let the request raise ``error``, which belongs to this request only."""
        # without the traceback, whose frames refer to the whole batch and would keep the batch in memory
        self._error = error.with_traceback(None)
        self._waker.wake()

    @property
    def answered(self) -> bool:
        """Whether the request has its answer or its error."""
        return self._value is not _NOTHING or self._error is not None

    def catch_up(self) -> None:
        """Continue with the next stay, in case an interrupt stopped the leader that put the request back."""
        newest = self.stay.newest()
        if newest is not self.stay:
            self.stay = newest

    @property
    def goes_on(self) -> bool:
        """Whether the request's thread can continue: it has its answer, leads, or goes alone."""
        return self.answered or self.stay.leads or self.stay.is_over

    def take(self, alone: Callable[[Resign], A]) -> A:
        """Return the answer, or raise the error; if there is neither, return the result of ``alone``."""
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # avoid a cycle: the frame would hold its own error
        if self._value is _NOTHING:
            return alone(_nothing)
        value: A = self._value
        return value


class Batch(Block):
    """The requests that the leader of a term took. When it ends, those without an answer go alone."""

    __slots__ = ("members", "term")

    def __init__(self, term: Term) -> None:
        self.term = term
        self.members: dict[Handle[Any, Any], None] = {}

    def __enter__(self) -> Self:
        self.term.batch = self
        return self

    def end(self, *_: object) -> None:
        for member in self.members:
            if member.stay.is_in(self.term) and not member.answered:
                member.stay.end()
                member._waker.wake()  # noqa: SLF001  (our own)


def _nothing() -> None:
    """Do nothing, because another thread leads."""
