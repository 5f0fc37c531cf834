"""A token bucket, which limits a process's retries: at once, and per second after that.

When a database becomes unavailable, the attempts of all clients fail at the same moment. Backoff spreads the retries,
but does not reduce their number. A bucket for the whole process limits that number, whatever the number of threads.
"""

from __future__ import annotations

import math
import os
import threading

from metastore.clock import Clock
from metastore.errors import InvalidArgument


class TokenBucket:
    """At most ``capacity + per_second * t`` grants in any ``t`` seconds. Thread-safe; full at first.

    It has no queue: it keeps only the instant at which the bucket is full again if no caller comes (the "theoretical
    arrival time" of the generic cell rate algorithm). Raises InvalidArgument for a capacity below 1, or a rate that is
    not a positive number.
    """

    def __init__(self, capacity: float, per_second: float, clock: Clock) -> None:
        if capacity < 1 or not 0 < per_second < math.inf:
            raise InvalidArgument(f"a bucket holds 1 or more, and its rate is positive, not {capacity}, {per_second}")
        self._clock = clock
        self._each = 1.0 / per_second
        self._ahead = (capacity - 1) * self._each
        self._full_at = -math.inf
        self._new_lock()

    def _new_lock(self) -> None:
        self._lock, self._pid = threading.Lock(), os.getpid()

    def take(self, longest: float = math.inf) -> float:
        """Take a token; return how many seconds the caller must wait for it, usually 0.0.

        Future tokens are promised in the order of the calls. If the wait would be longer than ``longest`` seconds, no
        token is taken, and the caller gives up. This method itself never waits.
        """
        if os.getpid() != self._pid:  # a forked child: a thread of the parent may have held the lock
            self._new_lock()
        with self._lock:
            now = self._clock.monotonic()
            full_at = max(self._full_at, now)
            wait = max(0.0, full_at - self._ahead - now)
            if wait <= longest:
                self._full_at = full_at + self._each
            return wait
