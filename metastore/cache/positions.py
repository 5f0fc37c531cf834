"""Note which positions of the feed a cache has applied. Pure: one thread at a time calls it.

A position is *applied* when the entries that it changes are evicted. Positions become visible out of order: a number
may be drawn early and committed late. So all positions up to ``last`` are applied except the ``missing`` ones. Each
query asks for those again, and no read waits for them. The position of a rollback never comes: it is given up when all
transactions that could have drawn it are over.
"""

from __future__ import annotations

from metastore.port.snapshot import Watermark
from metastore.port.touched import Touched

__all__ = ["MOST", "Positions"]

MOST = 1000
"""How many changes or gaps are applied one by one; with more, the cache forgets everything."""


class Positions:
    """The positions that are applied, in one epoch of the feed."""

    def __init__(self, epoch: str, last: int) -> None:
        self._epoch = epoch
        self.last = last
        self.missing: set[int] = set()
        self.stubborn = False
        """A position was missing twice: now a watermark is needed, which tells when to give it up."""
        self.watermark: Watermark | None = None

    def apply(self, answer: Touched, asked_after: int) -> bool:
        """Note the positions of an answer; False: the answer does not hold all changes, so forget everything.

        The query asked for all positions after ``asked_after``, and for all that were missing then. Answers may come in
        any order: an older one takes nothing back.
        """
        if answer.epoch != self._epoch or answer.collected > asked_after:
            return False
        if self.missing and answer.collected >= min(self.missing):
            return False
        seen = {row.seq for row in answer.rows}
        newest = max(seen, default=0)
        if sum(seq > asked_after for seq in seen) > MOST or newest - self.last > 2 * MOST:
            return False
        before = self.missing - seen
        self.missing = before | (set(range(self.last + 1, newest)) - seen)
        self.last = max(self.last, newest)
        self._give_up(answer.oldest)
        self.stubborn = bool(before & self.missing) and self.watermark is None
        return len(self.missing) <= MOST

    def _give_up(self, oldest: int) -> None:
        """Forget missing positions that can no longer come: the answer would show them."""
        watermark = self.watermark
        if watermark is not None and oldest > watermark.transaction:
            self.missing = {seq for seq in self.missing if seq > watermark.position}
            self.watermark = None
