"""Note how far the reader of a feed is behind while it reads, so that this figure takes no query.

A reader has read all changes up to a moment: that of the last change that it took, or, at the end of the feed, the
present. Its lag is the time since that moment. The lag grows while the reader works, and until it reads again. So it is
an upper bound of a change's delay.
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
    """Yield ``changes``, at most ``limit``; note under the name ``reader`` the time up to which they have been read."""
    count = 0
    for count, change in enumerate(changes, 1):  # noqa: B007  (the number of the last one is used)
        metrics.feed_read(reader, change.time.timestamp())
        yield change
    if limit is None or count < limit:
        metrics.feed_read(reader, clock.micros() / 1_000_000)
