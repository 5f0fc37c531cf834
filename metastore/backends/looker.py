"""A waiter for a lease that looks again and again, on a backend that cannot wake it."""

from __future__ import annotations

import math
from collections.abc import Callable

from metastore.clock import Clock
from metastore.deadlines import remaining
from metastore.port.leases import ALIVE


class Looker:
    """Keeps the promise of :class:`metastore.port.leases.Waker`; ``pause`` is the time between two looks (seconds)."""

    def __init__(self, clock: Clock, may_take: Callable[[], bool], pause: Callable[[], float]) -> None:
        self._clock, self._may_take, self._pause = clock, may_take, pause

    def wait(self, seconds: float) -> None:
        ends = self._clock.monotonic() + min(seconds, ALIVE / 3_000_000)
        while (left := min(ends - self._clock.monotonic(), remaining(self._clock, math.inf))) > 0:
            if self._may_take():
                return
            self._clock.sleep(min(left, self._pause()))
