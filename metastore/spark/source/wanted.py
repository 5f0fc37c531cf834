"""The rows that one part of a read needs."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Wanted"]


@dataclass(frozen=True)
class Wanted:
    """Rows of some kinds, in a range of ids or positions."""

    low: int
    """The first id, or the position after which changes are read."""
    high: int
    """The last id or position."""
    kinds: frozenset[str] | None = None
    """None: all kinds."""
    under: str = ""
    """The path of an entity: only it and all below are read. Only entities have a path."""
