"""The operations of a backend for the change feed, and how a reader learns of new changes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol
from uuid import UUID

from metastore.port.records import RowPage, Step
from metastore.port.snapshot import Watermark
from metastore.port.touched import Touched


def on_timeline(epoch: str, timeline: int) -> str:
    """Return the epoch of a feed on a timeline of its database: a server that takes over begins a new timeline.

    The new timeline may lack changes of the previous one. The first timeline has the epoch of the database itself.
    """
    return epoch if timeline == 1 else f"{epoch}t{timeline:08x}"


def database_of(epoch: str) -> str:
    """Return the part of an epoch that all timelines of a database share."""
    return epoch.partition("t")[0]


class Hearing(Protocol):
    """A listener for hints about new changes."""

    def wait(self, seconds: float) -> bool:
        """Return True when a hint comes; False after ``seconds``."""


class Feed(Protocol):
    """The change feed: the committed steps, in serialization order."""

    def feed(self, after: int, limit: int, *, docs: bool = True, changes: bool = True) -> RowPage[Step]:
        """Return at most ``limit`` decided steps with a position greater than ``after``, ordered by position.

        ``held`` is False if there are later steps that are not decided yet: read again. Without ``docs``, only the
        steps of relations have documents. Without ``changes``, no step has its changes either.
        """

    def steps_at(self, positions: Sequence[int]) -> list[Step]:
        """Return the steps at these positions, ordered by position, with their documents."""

    def touched(self, after: int, gaps: Sequence[int], limit: int) -> Touched:
        """Return at most ``limit`` + 1 decided steps after a position, and the steps that fill ``gaps``."""

    def hearing(self) -> AbstractContextManager[Hearing | None]:
        """Listen for hints while the block runs. Yield None if no hints arrive: the reader must ask at intervals."""

    def hint(self, *, send: bool) -> bool:
        """Notify followers of the feed of new changes; return False if no follower listens.

        Without ``send``, only ask whether a follower listens.
        """

    def feed_start(self) -> tuple[str, int]:
        """Return the epoch and the last position that gc has removed. See :func:`on_timeline`."""

    def unbroken(self, seq: int) -> bool:
        """Whether no position is missing among the steps just before a position.

        A position is missing if its commit failed, or if a fail-over lost it. True on a replica.
        """

    def event_at(self, seq: int) -> tuple[UUID | None, bool]:
        """Return the operation that has a position, and whether this is a replica, which may not have it yet."""

    def watermark(self) -> Watermark:
        """Return the last position that was drawn, and how to know when all positions up to it are decided."""

    def decided(self, watermark: Watermark) -> bool:
        """Whether each position up to a watermark is decided: later snapshots show every committed step up to it."""
