"""Whole tables at one instant, and the watermark that shows which positions of the feed such a snapshot contains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol


class Watermark(NamedTuple):
    """The positions of the feed that were drawn by one instant; see :meth:`metastore.port.feed.Feed.watermark`."""

    position: int
    """The last position that was drawn."""
    transaction: int
    """The id of a transaction that began after every transaction that drew a position up to this one."""


class TableSnapshot(Protocol):
    """All tables as they were at one instant; see :meth:`metastore.port.backend.Backend.snapshot`."""

    def rows(
        self, table: str, columns: Sequence[str], order: Sequence[str], only: Sequence[int] | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """Yield ``columns`` of each row of ``table``, in the order of the columns ``order``.

        With ``only``, the first of the columns ``order`` has one of these ids. Tables and columns are named as in the
        schema (those of the catalog are in :data:`metastore.port.restore.COLUMNS`). Rows without a value in that first
        column are left out. Text is ordered by code point; NULLs come first or last. Booleans may be 0 and 1, UUIDs may
        be strings. Several iterators may be read at the same time.
        """

    def below(self, parent_ids: Sequence[int], columns: Sequence[str], *, gone: bool) -> Iterator[tuple[Any, ...]]:
        """Yield ``columns`` of the guard rows below these parents, ordered by parent, family, key and id.

        Only rows of live entities; with ``gone``, only those of all others. Values are as in :meth:`rows`.
        """

    def numbers(self) -> tuple[int, int]:
        """Return the last id and the last position that were drawn, or later ones."""

    def cached(self) -> list[str]:
        """Return the sequences with a cache, whose numbers come out of order: a session draws several at once."""

    def damaged(self) -> Iterator[str]:
        """Yield the findings of the database's own check of its file. Only SQLite has such a check."""

    def not_utf8(self) -> Iterator[tuple[str, int | None, str]]:
        """Yield table, id and column of each text that is not UTF-8. Only SQLite can store such a text."""
