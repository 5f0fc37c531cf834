"""Whole tables at one instant, and the watermark that says which positions of the feed such a snapshot shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol


class Watermark(NamedTuple):
    """How far positions of the feed were drawn at one instant; see :meth:`metastore.port.feed.Feed.watermark`."""

    position: int
    """The last position that was drawn."""
    transaction: int
    """The id of a transaction that began after every transaction that drew a position up to this one."""


class TableSnapshot(Protocol):
    """All tables as they were at one instant; see :meth:`metastore.port.backend.Backend.snapshot`."""

    def rows(
        self, table: str, columns: Sequence[str], order: Sequence[str], only: Sequence[int] | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """Yield ``columns`` of each row of ``table`` that has a value in the first column of ``order``.

        With ``only``, that value is one of these ids. Tables and columns have the names that the schema gives them
        (those of the catalog are in :data:`metastore.port.restore.COLUMNS`). The rows are ordered by the columns
        ``order``, text by code point; NULLs come first or last. Booleans may be 0 and 1, UUIDs may be strings. Several
        iterators may be read at the same time.
        """

    def below(self, parent_ids: Sequence[int], columns: Sequence[str], *, gone: bool) -> Iterator[tuple[Any, ...]]:
        """Yield ``columns`` of the guard rows below these parents, ordered by parent, family, key and id.

        Only rows of live entities; with ``gone``, those of all others too. Values are as in :meth:`rows`.
        """

    def numbers(self) -> tuple[int, int]:
        """Return the last id and the last position that were drawn, or later ones."""

    def cached(self) -> list[str]:
        """Return the sequences with a cache: a session draws several numbers at once, so they come out of order."""

    def damaged(self) -> Iterator[str]:
        """Yield what the database's own check of its file finds. Only SQLite has one."""

    def not_utf8(self) -> Iterator[tuple[str, int | None, str]]:
        """Yield table, id and column of each text that is not UTF-8. Only SQLite can hold one."""
