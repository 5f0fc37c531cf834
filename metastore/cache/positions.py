"""Note which positions of the feed a cache has applied. Pure. Only one thread at a time may call this.

A position is *applied* when the entries that it changes are evicted. Positions become visible out of order: a
transaction may draw a number early and commit late. So all positions up to ``last`` are applied, except the ``missing``
ones. Each query asks for these again, and no read waits for them. The position of a rolled-back transaction never
appears: it is given up when all transactions that could have drawn it are over.
"""

from __future__ import annotations

from metastore.port.snapshot import Watermark
from metastore.port.touched import Touched

__all__ = ["MOST", "Positions"]

MOST = 1000
"""How many changes or gaps are applied one by one. If there are more, the cache forgets everything."""


class Positions:
    """The positions that are applied, in one epoch of the feed."""

    def __init__(self, epoch: str, last: int) -> None:
        self._epoch = epoch
        self.last = last
        self.missing: set[int] = set()
        self.stubborn = False
        """Whether a position was missing twice. A watermark is then needed, to know when to give the position up."""
        self.watermark: Watermark | None = None

    def apply(self, answer: Touched, asked_after: int) -> bool:
        """Note the positions of an answer.

        Return False if the answer is of another epoch or lacks changes, or if too many positions are new or missing.
        Then the cache must forget everything.
        The query asked for all positions after ``asked_after``, and for all that were missing then. Answers may arrive
        in any order: an older one undoes nothing.
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
        """Forget missing positions that can no longer appear: the transactions that could draw them were over."""
        watermark = self.watermark
        if watermark is not None and oldest > watermark.transaction:
            self.missing = {seq for seq in self.missing if seq > watermark.position}
            self.watermark = None
