"""A pool of connections in which a call waits until its deadline, and no longer.

SQLAlchemy's pool, with a queue that knows the call's deadline and counts the calls that wait in it.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from sqlalchemy.pool import QueuePool
from sqlalchemy.util.queue import Queue

from metastore.backends.sql.limits import Limits
from metastore.clock import SYSTEM
from metastore.deadlines import remaining
from metastore.port.stats import PoolUse

__all__ = ["WaitingPool"]

_LONGEST: Final = 2**31 - 1


class _Queue(Queue[Any]):
    """Idle connections; a call that waits for one waits no longer than it may take."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.waiting = 0
        self._counting = threading.Lock()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not block:
            return super().get(block, timeout)
        longest = _LONGEST if timeout is None else timeout
        self._count(1)
        try:
            return super().get(block, max(0.0, min(longest, remaining(SYSTEM, longest))))
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        with self._counting:
            self.waiting += more


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
