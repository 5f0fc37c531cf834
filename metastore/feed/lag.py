"""How far the reader of a feed is behind: noted as it reads, so that it takes no query.

A reader has read all changes up to a moment: that of the last change that it took, or the present one where the feed
ended. Its lag is the time since that moment. It grows while the reader works, and while it
does not come back. So it is an upper bound of how late a change arrives.
"""

from __future__ import annotations

from collections.abc import Iterator

from metastore.clock import Clock
from metastore.kinds.entity import Change
from metastore.metrics import Metrics

__all__ = ["noted"]


def noted(
    changes: Iterator[Change], limit: int | None, reader: str, metrics: Metrics, clock: Clock
) -> Iterator[Change]:
    """Yield ``changes``, at most ``limit``; note under the name ``reader`` up to when they have been read."""
    count = 0
    for count, change in enumerate(changes, 1):  # noqa: B007  (the number of the last one is used)
        metrics.feed_read(reader, change.time.timestamp())
        yield change
    if limit is None or count < limit:
        metrics.feed_read(reader, clock.micros() / 1_000_000)
