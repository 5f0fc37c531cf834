"""Judge reads of one value that one writer changes: is there an order in which each read shows the newest write?

All instants are of the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Seen", "not_linear"]


class Seen(NamedTuple):
    """A read or a write: when it began, when it returned, and the value."""

    began: float
    ended: float
    value: object


def not_linear(writes: Sequence[Seen], reads: Sequence[Seen]) -> list[Seen]:
    """Return the reads that show what was over before they began, or less than a read that ended before them.

    ``writes`` came one after the other; the first of them was over before all reads. Each read takes the oldest write
    that it can show: after all that ended before it, so that later reads are as free as possible.
    """
    began, ended = [w.began for w in writes], [w.ended for w in writes]
    under_way: list[tuple[float, int]] = []
    least, wrong = 0, []
    for read in sorted(reads):
        while under_way and under_way[0][0] < read.began:
            least = max(least, heapq.heappop(under_way)[1])
        first = max(least, bisect_left(ended, read.began) - 1)
        last = bisect_right(began, read.ended)
        shown = next((n for n in range(first, last) if writes[n].value == read.value), None)
        if shown is None:
            wrong.append(read)
        else:
            heapq.heappush(under_way, (read.ended, shown))
    return wrong
