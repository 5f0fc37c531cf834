"""What a backend counts for the statistics of a database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

__all__ = ["NEWEST", "DatabaseStats", "HotRow", "MarkRow", "PoolUse"]


NEWEST: Final = 100_000
"""How many of the feed's newest steps are looked at."""


class MarkRow(NamedTuple):
    """A guard that carries a mark."""

    entity_id: int
    names: tuple[str, ...] | None
    """Where it is now, from the root; None: it was purged."""
    operation_id: str
    marked_at: int
    marked_until: int


class HotRow(NamedTuple):
    """An entity, and how often it or a row that it owns was written."""

    entity_id: int
    names: tuple[str, ...] | None
    kind: str | None
    writes: int


class DatabaseStats(NamedTuple):
    """The database's side of things. Times are microseconds since 1970, spans microseconds."""

    now: int
    format: int
    pending: int
    oldest_pending: int | None
    """When the oldest pending intent was announced."""
    marks: tuple[MarkRow, ...]
    """The soonest to expire first."""
    hot: tuple[HotRow, ...]
    """The most written first."""
    undecided: int | None = 0
    """Changes that are committed and that the feed does not deliver yet; None: not known."""
    undecided_since: int | None = None
    """When the first of them was written."""
    oldest_transaction: int | None = None
    """When the oldest running transaction began that may write; None: there is none, or it is not known."""
    multixact_members: int | None = None
    multixact_age: int | None = None


@dataclass(frozen=True, slots=True)
class PoolUse:
    """A process's connections to the database, at this moment."""

    size: int
    """How many there may be."""
    in_use: int
    """How many a call has."""
    waiting: int
    """How many calls wait for one."""
