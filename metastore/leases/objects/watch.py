"""Remember the lock files that this process has read, and decide which holders and waiters are dead.

Two clocks decide, and either suffices, because they only decide who may take over. By the wall clock, a lease is over
when it expired more than ``max_drift`` ago; this works at the first look, if clocks differ by less. By the monotonic
clock, a lease is over when this process has seen no renewal for the ttl plus ``max_drift``, whatever the wall clocks
say. The server's clock is not used.

The same holds for waiters. A waiter whose time is further ahead than any waiter may write counts as dead, so a wrong
clock cannot block other waiters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from metastore.clock import Clock
from metastore.leases.objects.lock_file import Holding, LockFile

__all__ = ["ALIVE", "Waiter", "Watch"]

V = TypeVar("V")
ALIVE = 15.0
"""How long a waiter counts as alive after it wrote its ticket (seconds)."""
_MICROS = 1_000_000
_MOST = 1000


class Waiter(NamedTuple):
    """A process that waits, and counts as alive until ``until`` (µs). Tickets sort in the order of arrival."""

    ticket: str
    until: int


class _Sight(NamedTuple):
    holder: tuple[str, int, int] | None
    since: float


class Watch:
    """The lock files and queues that one process has read, and when."""

    def __init__(self, clock: Clock, max_drift: float) -> None:
        self._clock, self._drift = clock, max_drift
        self._sights: dict[str, _Sight] = {}
        self._queues: dict[str, dict[Waiter, float]] = {}
        """By lease: the waiters, each with the time at which this process first read the waiter with this ``until``."""

    def note(self, file: LockFile) -> None:
        """Remember a file that was read just now."""
        before, holder = self._sights.pop(file.name, None), None if file.holding is None else _pulse(file.holding)
        is_known = before is not None and before.holder == holder
        since = before.since if before is not None and is_known else self._clock.monotonic()
        _put(self._sights, file.name, _Sight(holder, since))

    def note_queue(self, name: str, waiters: Sequence[Waiter]) -> None:
        """Remember a queue that was read just now."""
        now, old = self._clock.monotonic(), self._queues.pop(name, {})
        if waiters:
            _put(self._queues, name, {waiter: old.get(waiter, now) for waiter in waiters})

    def left(self, name: str, held: Holding) -> float:
        """Return the seconds that the holder has left; 0 or less: the next process may take over."""
        left = (held.expires_at - self._clock.micros()) / _MICROS + self._drift
        sight = self._sights.get(name)
        if held.ttl is not None and sight is not None and sight.holder == _pulse(held):
            unchanged = self._clock.monotonic() - sight.since
            left = min(left, held.ttl / _MICROS + self._drift - unchanged)
        return left

    def is_alive(self, name: str, waiter: Waiter) -> bool:
        """Whether a waiter counts as alive, according to the tickets that this process has read."""
        left = (waiter.until - self._clock.micros()) / _MICROS
        since = self._queues.get(name, {}).get(waiter, math.inf)
        if self._clock.monotonic() - since > ALIVE + self._drift:
            return False
        return -self._drift < left <= ALIVE + self._drift


def _pulse(held: Holding) -> tuple[str, int, int]:
    return held.id, held.renewals, held.expires_at


def _put(entries: dict[str, V], key: str, value: V) -> None:
    """Add an entry, and keep the newest thousand."""
    entries[key] = value
    with suppress(StopIteration, RuntimeError):  # another thread may remove entries, too
        while len(entries) > _MOST:
            entries.pop(next(iter(entries)), None)
