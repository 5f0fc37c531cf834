"""Measure how long a holder may believe that it holds a lease.

The time starts *before* the request that acquires or renews the lease is sent, so a slow answer shortens it. Three
clocks measure it, and the one that shows the most time passed decides. The monotonic clock stops while a machine
sleeps; boottime is not available everywhere; only the wall clock advances while a virtual machine is stopped and
copied. A clock that jumps ahead ends a lease early, which costs work but does no harm.
"""

from __future__ import annotations

from metastore.clock import Clock, Instant

__all__ = ["Instant", "Validity"]


class Validity:
    """The time that a lease lasts, by its holder's clocks."""

    def __init__(self, clock: Clock, ttl: float, since: Instant) -> None:
        self._clock = clock
        self.ttl = ttl
        self.since = since

    def left(self) -> float:
        """Return the seconds that are left; 0 or less: the lease is over."""
        now, since = Instant.now(self._clock), self.since
        return self.ttl - max(now.monotonic - since.monotonic, now.boottime - since.boottime, now.wall - since.wall)
