"""Remember what this process read in lock files, and decide which holders and waiters are dead.

Two clocks decide; either suffices, because they only say who may take over. By the wall clock, a lease is over when it
expired more than ``max_drift`` ago; this holds at the first look, if clocks differ by less. By the monotonic clock, it
is over when this process has seen no renewal for the ttl and ``max_drift``, whatever the wall clocks say. The server's
clock is not used.

The same holds for waiters. A waiter whose time is further ahead than waiters write it counts as dead, so that a wrong
clock blocks no other waiter.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from metastore.clock import Clock
from metastore.leases.objects.lock_file import Holding, LockFile, Waiter

__all__ = ["ALIVE", "Watch"]

ALIVE = 15.0
"""How long a waiter counts as alive after it showed itself (seconds)."""
_MICROS = 1_000_000
_MOST = 1000


class _Sight(NamedTuple):
    holder: tuple[str, int, int] | None
    holder_since: float
    waiters: dict[str, tuple[int, float]]
    """By ticket: the waiter's ``until``, and when this process first read it."""


class Watch:
    """What one process has read in lock files."""

    def __init__(self, clock: Clock, max_drift: float) -> None:
        self._clock, self._drift = clock, max_drift
        self._sights: dict[str, _Sight] = {}

    def note(self, file: LockFile) -> None:
        """Remember a file that was read just now."""
        now, before = self._clock.monotonic(), self._sights.pop(file.name, None)
        holder = None if file.holding is None else _pulse(file.holding)
        known = before is not None and before.holder == holder
        old = {} if before is None else before.waiters
        waiters = {
            w.ticket: old[w.ticket] if w.ticket in old and old[w.ticket][0] == w.until else (w.until, now)
            for w in file.waiting
        }
        since = before.holder_since if known and before is not None else now
        self._sights[file.name] = _Sight(holder, since, waiters)
        with suppress(StopIteration, RuntimeError):  # another thread removes entries too
            while len(self._sights) > _MOST:
                self._sights.pop(next(iter(self._sights)), None)

    def left(self, name: str, held: Holding) -> float:
        """Return the seconds that the holder has left; 0 or less: the next process may take over."""
        left = (held.expires_at - self._clock.micros()) / _MICROS + self._drift
        sight = self._sights.get(name)
        if held.ttl is not None and sight is not None and sight.holder == _pulse(held):
            unchanged = self._clock.monotonic() - sight.holder_since
            left = min(left, held.ttl / _MICROS + self._drift - unchanged)
        return left

    def alive(self, file: LockFile) -> tuple[Waiter, ...]:
        """Return the waiters that are alive, in the order of arrival."""
        return tuple([waiter for waiter in file.waiting if self._is_alive(file.name, waiter)])

    def _is_alive(self, name: str, waiter: Waiter) -> bool:
        left = (waiter.until - self._clock.micros()) / _MICROS
        sight = self._sights.get(name)
        until, since = (0, 0.0) if sight is None else sight.waiters.get(waiter.ticket, (0, 0.0))
        if until == waiter.until and self._clock.monotonic() - since > ALIVE + self._drift:
            return False
        return -self._drift < left <= ALIVE + self._drift


def _pulse(held: Holding) -> tuple[str, int, int]:
    return held.id, held.renewals, held.expires_at
