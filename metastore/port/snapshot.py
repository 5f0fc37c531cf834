"""What is asked of a database as a whole, at one instant, and when everything before an instant is decided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

__all__ = ["TableSnapshot", "Watermark"]


class Watermark(NamedTuple):
    """Everything that was drawn before one instant; see :meth:`metastore.port.backend.Backend.watermark`."""

    position: int
    """The last position that was drawn."""
    transaction: int
    """Whoever drew one of them began before this transaction."""


class TableSnapshot(Protocol):
    """All tables as they were at one instant; see :meth:`metastore.port.backend.Backend.snapshot`."""

    def rows(
        self, table: str, columns: Sequence[str], order: Sequence[str], only: Sequence[int] | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """Yield ``columns`` of each row of ``table`` that has a value in the first column of ``order``.

        With ``only``: one of these values, which are ids.
        Tables and columns are those of :mod:`metastore.backends.sql.tables`. The rows are ordered by
        the columns ``order``, text by code point; where NULLs stand among the others is open.
        Booleans may come as 0 and 1, UUIDs as strings. Several may be read at the same time.
        """
        ...

    def below(self, parent_ids: Sequence[int], columns: Sequence[str], *, gone: bool) -> Iterator[tuple[Any, ...]]:
        """Yield ``columns`` of the guard rows below these parents, by parent, family, key and id.

        Only live ones, unless ``gone``. As for :meth:`rows`.
        """
        ...

    def numbers(self) -> tuple[int, int]:
        """Return the last id and the last position that were drawn, or later ones."""
        ...

    def cached(self) -> list[str]:
        """Return the sequences of which a session draws several numbers at once, so that they come out of order."""
        ...
