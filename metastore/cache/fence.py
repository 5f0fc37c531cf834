"""The fence: decide at each read, by the clocks, whether a member may still answer from memory.

A lease is over when any of three clocks says so. The monotonic clock stops while a machine sleeps. Boottime is not
available everywhere. Only the wall clock advances while a virtual machine is stopped and copied. If the wall clock is
before the lease's start, it was set back, and the lease is over, too. A flag that a timer sets would not suffice: a
process that was stopped could answer before its timer runs.
"""

from __future__ import annotations

from metastore.cache.entries import Entries
from metastore.cache.entry import Entry
from metastore.clock import Clock, Instant

__all__ = ["CacheLease"]


class CacheLease:
    """The entries of one registration, and the time until which they may be used. Each registration has its own object.

    So a thread that slept between its look at the entries and its look at the clocks finds this lease over, even if its
    process has registered again since.
    """

    __slots__ = ("boot", "clocks", "entries", "mono", "serving", "used", "wall", "wall_from")

    def __init__(self, clock: Clock, kept: Entries) -> None:
        self.clocks = clock.readers()
        self.entries, self.used = kept.all, kept.used
        self.serving = False
        """Whether answers may be kept: all transactions older than the registration are over."""
        self.end()

    def note(self, entry: Entry) -> None:
        """Note the use of an entry, at most once until the uses are counted."""
        if not entry.used:
            entry.used = True
            self.used.append(entry)

    def end(self) -> None:
        """End the lease now."""
        self.mono = self.boot = self.wall = self.wall_from = 0.0

    def last(self, since: Instant, ttl: float) -> None:
        """Make the lease last for ``ttl`` seconds from ``since``, an instant *before* the renewal was sent."""
        self.mono, self.boot, self.wall = since.monotonic + ttl, since.boottime + ttl, since.wall + ttl
        self.wall_from = since.wall

    def holds(self) -> bool:
        """Whether the lease still lasts, by every clock."""
        monotonic, boottime, wall = self.clocks
        return monotonic() < self.mono and boottime() < self.boot and self.wall_from <= wall() < self.wall
