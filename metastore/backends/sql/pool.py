"""A pool of connections in which a call waits until its deadline, and no longer.

SQLAlchemy's pool, with a queue that knows the call's deadline, and serves the calls that wait in the order in which
they came. Without an order, a thread that gives a connection back and asks again takes it before the woken one. On a
busy pool a call could then wait until its deadline.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Final

from sqlalchemy.pool import QueuePool
from sqlalchemy.util.queue import Empty, Queue

from metastore.backends.sql.limits import Limits
from metastore.clock import SYSTEM
from metastore.deadlines import remaining
from metastore.port.stats import PoolUse

__all__ = ["WaitingPool"]

_LONGEST: Final = 2**31 - 1


class _Queue(Queue[Any]):
    """Idle connections. A call that waits for one never waits past its deadline."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._changing = threading.Lock()
        self._line: deque[threading.Lock] = deque()
        """A lock for each call that waits; the first one's is open."""

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return len(self._line)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not block:
            return super().get(block, timeout)
        longest = _LONGEST if timeout is None else timeout
        ends = SYSTEM.monotonic() + max(0.0, min(longest, remaining(SYSTEM, longest)))
        turn = self._line_up()
        try:
            if not turn.acquire(timeout=max(0.0, ends - SYSTEM.monotonic())):
                raise Empty
            return super().get(block, max(0.0, ends - SYSTEM.monotonic()))
        finally:
            self._leave(turn)

    def _line_up(self) -> threading.Lock:
        turn = threading.Lock()
        with self._changing:
            if self._line:
                turn.acquire()
            self._line.append(turn)
        return turn

    def _leave(self, turn: threading.Lock) -> None:
        """Leave the line; the first one lets the next have its turn."""
        with self._changing:
            first = self._line[0] is turn
            self._line.remove(turn)
            if first and self._line:
                self._line[0].release()


class WaitingPool(QueuePool):
    """A pool of at most ``limits.size`` connections, all of which are kept."""

    _queue_class = _Queue

    def __init__(self, connect: Any, limits: Limits, timeout: float) -> None:
        wait = timeout if limits.max_wait is None else limits.max_wait
        super().__init__(connect, limits.size, 0, wait, use_lifo=True, reset_on_return=None)

    def use(self, idle: int = 0) -> PoolUse:
        """Return what is in use; ``idle`` of the connections that were taken out are not."""
        queue: Any = self._pool
        return PoolUse(self.size(), max(0, self.checkedout() - idle), queue.waiting)
