"""Decide by the clocks, at the time of each read, what a member may still answer from memory: the fence.

A lease is over when any of three clocks says so. The monotonic clock stands still while a machine sleeps. Boottime is
not available everywhere. Only the wall clock goes on in a virtual machine that was stopped and copied; if it goes back
behind the lease's beginning, nothing is known, and the lease is over too. A flag that a timer sets would be stale in a
process that was stopped: it would answer before the timer runs.
"""

from __future__ import annotations

from metastore.cache.entries import Entries
from metastore.cache.entry import Entry
from metastore.clock import Clock, Instant

__all__ = ["CacheLease"]


class CacheLease:
    """One registration's entries, and until when they may be used. Another registration has another object.

    So a thread that stood still between its look at the entries and at the clocks finds this lease over, whatever its
    process has registered since.
    """

    __slots__ = ("boot", "clocks", "entries", "mono", "serving", "used", "wall", "wall_from")

    def __init__(self, clock: Clock, kept: Entries) -> None:
        self.clocks = clock.readers()
        self.entries, self.used = kept.all, kept.used
        self.serving = False
        """What is read may be kept: the oldest transaction is younger than the registration."""
        self.end()

    def note(self, entry: Entry) -> None:
        """Note that an entry was used, once until that is counted."""
        if not entry.used:
            entry.used = True
            self.used.append(entry)

    def end(self) -> None:
        """Let it be over."""
        self.mono = self.boot = self.wall = self.wall_from = 0.0

    def last(self, since: Instant, ttl: float) -> None:
        """Let it last for ``ttl`` seconds from ``since``, an instant *before* the request that renewed it was sent."""
        self.mono, self.boot, self.wall = since.monotonic + ttl, since.boottime + ttl, since.wall + ttl
        self.wall_from = since.wall

    def holds(self) -> bool:
        """Whether it lasts still, by every clock."""
        monotonic, boottime, wall = self.clocks
        return monotonic() < self.mono and boottime() < self.boot and self.wall_from <= wall() < self.wall
