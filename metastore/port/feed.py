"""The operations of a backend for the change feed, and how a reader hears about new changes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol
from uuid import UUID

from metastore.port.records import RowPage, Step
from metastore.port.snapshot import Watermark
from metastore.port.touched import Touched

__all__ = ["Feed", "Hearing"]


class Hearing(Protocol):
    """Hears hints about new changes."""

    def wait(self, seconds: float) -> bool:
        """Return True when a hint came; False after ``seconds``."""
        ...


class Feed(Protocol):
    """The change feed: the committed steps, in serialization order."""

    def feed(self, after: int, limit: int, *, docs: bool = True, changes: bool = True) -> RowPage[Step]:
        """Return at most ``limit`` decided steps with a position greater than ``after``, ordered by position.

        ``held`` is False if later steps exist that are not decided yet: ask again. Without ``docs``, only the
        steps of relations have their documents. Without ``changes`` too, no step has its changes either.
        """
        ...

    def steps_at(self, positions: Sequence[int]) -> list[Step]:
        """Return the steps that are at these positions, ordered by position, with their documents."""
        ...

    def touched(self, after: int, gaps: Sequence[int], limit: int) -> Touched:
        """Return the decided steps after a position, at most ``limit`` and one more, and those that fill ``gaps``."""
        ...

    def hearing(self) -> AbstractContextManager[Hearing | None]:
        """Hear hints while the block runs; None: no hint can be heard."""
        ...

    def hint(self, *, send: bool) -> bool:
        """Tell followers of the feed about new changes; False: nobody hears it.

        Without ``send``, it only asks whether somebody would hear it.
        """
        ...

    def feed_start(self) -> tuple[str, int]:
        """Return the epoch and the last position that gc has removed."""
        ...

    def event_at(self, seq: int) -> tuple[UUID | None, bool]:
        """Return which operation has a position, and whether this is a replica, which may not have it yet."""
        ...

    def watermark(self) -> Watermark:
        """Return how far positions have been drawn by now."""
        ...

    def decided(self, watermark: Watermark) -> bool:
        """Whether each position up to a watermark is decided: a snapshot from now on shows all that were committed."""
        ...
