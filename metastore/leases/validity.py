"""How long a holder may believe that it holds.

Counted from *before* the request was sent that got or renewed the lease, so that a slow answer is at the holder's
cost; and on three clocks, of which the fastest counts: the monotonic one stands still while a machine sleeps, boottime
is not everywhere, and the wall clock is the only one that goes on in a virtual machine that was stopped and copied.
A clock that jumps ahead ends a lease early, which costs work and harms nobody.
"""

from __future__ import annotations

from typing import NamedTuple

from metastore.clock import Clock

__all__ = ["Instant", "Validity"]


class Instant(NamedTuple):
    """One moment on three clocks, in seconds."""

    monotonic: float
    boottime: float
    wall: float

    @classmethod
    def now(cls, clock: Clock) -> Instant:
        """Look at all three."""
        return cls(clock.monotonic(), clock.boottime(), clock.micros() / 1_000_000)


class Validity:
    """The time of one lease, by its holder's clocks."""

    def __init__(self, clock: Clock, ttl: float, since: Instant) -> None:
        self._clock = clock
        self._ttl = ttl
        self._since = since

    def left(self) -> float:
        """Return how many seconds are left, 0 or less when it is over."""
        now, since = Instant.now(self._clock), self._since
        return self._ttl - max(now.monotonic - since.monotonic, now.boottime - since.boottime, now.wall - since.wall)
