"""A pool of connections, in which a call waits at most until its deadline.

Waiting calls are served in the order in which they came. Otherwise a thread that gives a connection back and asks again
could take it before the call that was woken. On a busy pool, a call could then wait until its deadline.

The pool does not count loans: a place belongs to a loan while the loan's block runs (:mod:`metastore.block`). So no
interrupt can make a connection unavailable for ever. If an interrupt keeps a loan from returning its connection, the
next call finds the place and ends the unfinished work. (SQLAlchemy's pool counts loans, and an interrupt between two of
its lines loses a place.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast
from weakref import finalize

from metastore.backends.sql.limits import Limits
from metastore.block import Block
from metastore.clock import SYSTEM, Waker, process_id
from metastore.deadlines import remaining
from metastore.port.stats import PoolUse

C = TypeVar("C")
Settle = Callable[[Any, type[BaseException] | None], bool]
_LOOKS: Final = 0.1
"""How often a waiting call looks by itself (seconds), because an interrupt may have hit the thread that wakes it."""


class Place:
    """A place for one connection."""

    __slots__ = ("connection", "generation", "loan", "settled", "wire")

    def __init__(self) -> None:
        self.connection: Any = None
        """None: no connection was opened yet, or it was closed."""
        self.generation: object = None
        self.wire: Any = None
        """Values of the backend that belong to the connection."""
        self.loan: Loan[Any] | None = None
        self.settled = True
        """Whether the last loan left no unfinished work."""

    @property
    def is_lent(self) -> bool:
        """Whether a loan has the place."""
        return self.loan is not None and self.loan.runs

    def close(self) -> None:
        """Close the connection."""
        connection, self.connection, self.wire = self.connection, None, None
        self.settled = True
        if connection is not None:
            connection.close()


class Loan(Block, Generic[C]):
    """A block with a connection for itself: ``with Loan(pool) as connection``."""

    __slots__ = ("place", "pool")
    place: Place

    def __init__(self, pool: WaitingPool) -> None:
        self.pool = pool

    def __enter__(self) -> C:
        pool = self.pool
        place = self.place = pool.take(self)
        try:
            pool.make_ready(place)
        except BaseException:
            pool.put_back(place)
            raise
        place.settled = False
        return cast(C, place.connection)

    def end(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pool, place = self.pool, self.place
        if pool.pid != process_id():
            return  # the block began before a fork, so the connection belongs to the parent
        try:
            if pool.settle(place.connection, kind):
                place.settled = True
            else:
                place.close()
        finally:
            pool.put_back(place)


class _Waiter(NamedTuple):
    """A call that waits for a place."""

    loan: Loan[Any]
    waker: Waker


class WaitingPool:
    """A pool that opens at most ``limits.size`` connections, and keeps them.

    Raises PoolExhausted if all are lent for too long.
    """

    def __init__(self, connect: Callable[[], Any], settle: Settle, limits: Limits, timeout: float) -> None:
        """``settle`` ends unfinished work, given the type of the loan's error; it returns whether to lend again.

        BaseException means that an interrupt kept the loan from reporting its end.
        """
        self.pid = process_id()
        self._connect, self.settle, self._limits = connect, settle, limits
        self._longest = timeout if limits.max_wait is None else limits.max_wait
        self._generation = object()
        self._changing = Lock()  # held while a place changes its owner
        self._places: list[Place] = []
        self._line: deque[_Waiter] = deque()
        # closes the connections of a store that was dropped without a close; the exit of a child must not end the
        # sessions of its parent
        finalize(self, _close, self._places, self.pid).atexit = False

    def use(self) -> PoolUse:
        """Return how many connections are in use."""
        lent = sum(place.is_lent for place in list(self._places))
        return PoolUse(self._limits.size, lent, sum(waiter.loan.runs for waiter in list(self._line)))

    def forget(self) -> None:
        """Never lend the present connections again."""
        self._generation = object()

    def close_idle(self) -> None:
        """Close the connections that are not lent."""
        with self._changing:
            for place in self._places:
                if not place.is_lent:
                    place.close()

    # --- the methods that a loan calls

    def take(self, loan: Loan[Any]) -> Place:
        """Return a place, which now belongs to the loan."""
        if not self._line:
            with self._changing:
                place = self._taken(loan)
            if place is not None:
                return place
        return self._waited(loan)

    def make_ready(self, place: Place) -> None:
        """Give a place a connection without unfinished work."""
        # not settled: an interrupt may have hit the end of the block, before it settled or closed the connection
        is_ready = place.connection is not None and (place.settled or self.settle(place.connection, BaseException))
        if not is_ready or place.generation is not self._generation:
            place.close()
        if place.connection is None:
            place.generation = self._generation  # set before the connect, because the generation may change meanwhile
            place.connection = self._connect()

    def put_back(self, place: Place) -> None:
        """End the use of a place, and give the place to the call that has waited longest."""
        place.loan = None
        if self._line:
            self._wake()

    def _taken(self, loan: Loan[Any]) -> Place | None:
        """Give the loan a place, preferably one whose unfinished work may block others; None if all are lent."""
        found = None
        for place in self._places:
            if place.loan is None or not place.loan.runs:
                found = place if found is None or not place.settled else found
        if found is None and len(self._places) < self._limits.size:
            self._places.append(found := Place())
        if found is not None:
            found.loan = loan
        return found

    def _waited(self, loan: Loan[Any]) -> Place:
        ends = SYSTEM.monotonic() + max(0.0, min(self._longest, remaining(SYSTEM, self._longest)))
        waiter = _Waiter(loan, SYSTEM.waker())
        self._line.append(waiter)
        try:
            while True:
                with self._changing:
                    while not self._line[0].loan.runs:  # an interrupt kept this call from leaving the line
                        self._line.popleft()
                    place = self._taken(loan) if self._line[0] is waiter else None
                if place is not None:
                    return place
                left = ends - SYSTEM.monotonic()
                if left <= 0:
                    raise self._limits.exhausted()
                waiter.waker.wait(min(left, _LOOKS))
        finally:
            self._line.remove(waiter)
            self._wake()

    def _wake(self) -> None:
        for waiter in list(self._line):
            if waiter.loan.runs:
                waiter.waker.wake()
                return


def _close(places: list[Place], pid: int) -> None:
    if pid == process_id():
        for place in places:
            place.close()
