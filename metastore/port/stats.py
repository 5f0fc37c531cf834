"""The rows and counts from which a backend makes the statistics of a database."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

NEWEST: Final = 100_000
"""How many of the feed's newest steps the statistics count."""


class MarkRow(NamedTuple):
    """A guard with a mark. Times are in microseconds since 1970."""

    entity_id: int
    names: tuple[str, ...] | None
    """The present path of its entity; None: the entity was purged."""
    operation_id: str
    marked_at: int
    marked_until: int


class HotRow(NamedTuple):
    """An entity, and how often it or its owned rows were written."""

    entity_id: int
    names: tuple[str, ...] | None
    kind: str | None
    writes: int


class LineRow(NamedTuple):
    """An entity for which transactions are in line. Times are in microseconds since 1970."""

    entity_id: int
    names: tuple[str, ...] | None
    kind: str | None
    waiting: int
    """The number of tickets."""
    oldest: int
    """The time at which the oldest ticket was taken."""


class DatabaseStats(NamedTuple):
    """The statistics that the database shows. Times are in microseconds since 1970."""

    now: int
    format: int
    pending: int
    oldest_pending: int | None
    """When the oldest pending intent was announced."""
    marks: tuple[MarkRow, ...]
    """The marks, ordered by expiry."""
    hot: tuple[HotRow, ...]
    """The entities that were written most often, in descending order."""
    undecided: int | None = 0
    """How many committed changes the feed does not deliver yet; None: unknown."""
    undecided_since: int | None = None
    """When the first of these changes was written."""
    oldest_transaction: int | None = None
    """When the oldest running transaction that may write began; None: no such transaction, or unknown."""
    multixact_members: int | None = None
    """About how many MultiXact members PostgreSQL keeps; None: unknown."""
    multixact_age: int | None = None
    """How many MultiXacts are newer than the oldest that may be in use; None: not PostgreSQL."""
    lines: tuple[LineRow, ...] = ()
    """The lines of tickets, ordered by the time of their oldest ticket."""


class Lost(NamedTuple):
    """An attempt that lost, as its process noted it; the time is in microseconds since 1970."""

    time: int
    verb: str
    cause: str
    principal: str | None
    entity_id: int | None
    expected: int | None
    """The version of the entity that it expected."""


@dataclass(frozen=True, slots=True)
class PoolUse:
    """The present use of a process's connections to the database."""

    size: int
    """How many connections the pool may have."""
    in_use: int
    """How many connections calls use."""
    waiting: int
    """How many calls wait for a connection."""


@dataclass(frozen=True, slots=True)
class CacheMember:
    """A process with a lease on the entities that it keeps. Times are in seconds, by the database's clock."""

    id: int
    host: str
    pid: int
    ttl: float
    joined: float
    """How long ago it joined."""
    renewed: float
    """How long ago it renewed its lease."""
    behind: int
    """How many announced changes it has not acknowledged."""
    waits: float
    """How long the writer of the oldest of these has waited; 0: no writer waits."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CacheStats:
    """The counts of a store's cache since the store was opened; all 0 without a cache."""

    hits: int = 0
    """Reads that were answered from memory."""
    misses: int = 0
    """Reads that went to the database."""
    evictions: int = 0
    """Entries that were removed because they changed, or to limit the cache's size."""
    waits: int = 0
    """Reads that joined a query of another read; with a lease, answers not kept because of an announced change."""
    fences: int = 0
    """How often the lease was over: always 0 in the validate mode."""
    clears: int = 0
    """How often everything was forgotten: too many changes at once, or another epoch of the feed."""
    entries: int = 0
    """The number of entries now."""
    bytes: int = 0
    """An estimate of its memory."""
