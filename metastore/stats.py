"""``store.stats()``: figures from the database about the work of all clients, at one instant.

It reads little (at most the feed's newest 100,000 steps) and takes no locks, so a monitor may call it every minute.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from metastore.names import format_path
from metastore.port.stats import DatabaseStats, HotRow, LineRow, MarkRow

__all__ = ["HotEntity", "LineInfo", "MarkInfo", "Stats", "collect"]

_HOUR: Final = 3_600_000_000
_MOST: Final = 20
"""How many marks and hot entities the statistics have at most."""


@dataclass(frozen=True)
class MarkInfo:
    """The mark of an exclusive operation on a scope: other operations step aside for it."""

    entity_id: int
    """The entity that carries the mark."""
    path: str | None
    """The entity's present path; None: it was purged."""
    operation_id: str
    """The operation that set the mark."""
    held_seconds: float
    """The seconds since the mark was set."""
    expires_seconds: float
    """The seconds until the mark expires; negative: it has expired, this many seconds ago."""
    expired: bool
    """Whether the mark has expired. The next operation that meets an expired mark removes it."""


@dataclass(frozen=True)
class HotEntity:
    """An entity that was written often in the last hour."""

    entity_id: int
    """The entity's id."""
    path: str | None
    """The entity's present path; None: it was purged."""
    kind: str | None
    """The entity's kind; None: it was purged."""
    writes: int
    """The number of versions written of the entity, and of the rows that it owns (partitions, statistics)."""


@dataclass(frozen=True)
class LineInfo:
    """An entity for which transactions wait in line, because others write it all the time (docs/progress.md)."""

    entity_id: int
    """The entity's id."""
    path: str | None
    """The entity's present path; None: it was purged."""
    kind: str | None
    """The entity's kind; None: it was purged."""
    waiting: int
    """How many transactions have a ticket for it."""
    oldest_seconds: float
    """How long the first of them has waited (seconds)."""


@dataclass(frozen=True)
class Stats:
    """Figures from the database about the work of all clients."""

    pending: int
    """The number of intents on all entities that are announced, but not decided."""
    oldest_pending_seconds: float | None
    """How long the oldest intent has waited (seconds); None: no intent is pending."""
    marks: tuple[MarkInfo, ...]
    """The 20 marks that expire first."""
    hot: tuple[HotEntity, ...]
    """The 20 entities that were written most in the last hour, among the feed's newest 100,000 steps."""
    feed_lag_seconds: float | None
    """How long the oldest change that is committed, but not yet delivered, has waited (seconds); 0.0: there is none.
    None: not known, because the database hides the transactions of other roles (grant pg_read_all_stats).
    """
    undecided_positions: int | None
    """The number of committed changes that are not delivered yet; None: not known."""
    oldest_transaction_seconds: float | None
    """How long the oldest transaction that may write has run, anywhere in the PostgreSQL cluster (seconds). A gap in
    the feed may stay open until it ends. None: no such transaction, unknown, or not PostgreSQL.
    """
    multixact_members: int | None
    """About how many MultiXact members PostgreSQL keeps, of at most 2**32. None: not known, or not PostgreSQL."""
    multixact_age: int | None
    """The number of MultiXacts made in the cluster since the oldest one in use; it must stay below 2**31. None: not
    PostgreSQL.
    """
    format: int
    """The format of the tables."""
    lines: tuple[LineInfo, ...] = ()
    """The 20 lines whose first transaction has waited longest."""

    def as_json(self) -> dict[str, Any]:
        """Return the statistics as dictionaries, lists, numbers and strings."""
        values = asdict(self)
        return {**values, "marks": list(values["marks"]), "hot": list(values["hot"]), "lines": list(values["lines"])}


class _Backend(Protocol):
    def stats(self, since: int, limit: int) -> DatabaseStats: ...


def collect(backend: _Backend) -> Stats:
    """Read the statistics of the database, in one call."""
    rows = backend.stats(_HOUR, _MOST)
    return Stats(
        pending=rows.pending,
        oldest_pending_seconds=_ago(rows.now, rows.oldest_pending),
        marks=tuple(_mark(mark, rows.now) for mark in rows.marks),
        hot=tuple(HotEntity(h.entity_id, _path(h), h.kind, h.writes) for h in rows.hot),
        feed_lag_seconds=None if rows.undecided is None else _ago(rows.now, rows.undecided_since) or 0.0,
        undecided_positions=rows.undecided,
        oldest_transaction_seconds=_ago(rows.now, rows.oldest_transaction),
        multixact_members=rows.multixact_members,
        multixact_age=rows.multixact_age,
        format=rows.format,
        lines=tuple(
            LineInfo(one.entity_id, _path(one), one.kind, one.waiting, max(0, rows.now - one.oldest) / 1_000_000)
            for one in rows.lines
        ),
    )


def _ago(now: int, time: int | None) -> float | None:
    return None if time is None else max(0, now - time) / 1_000_000


def _mark(mark: MarkRow, now: int) -> MarkInfo:
    expires = (mark.marked_until - now) / 1_000_000
    held = max(0, now - mark.marked_at) / 1_000_000
    return MarkInfo(mark.entity_id, _path(mark), mark.operation_id, held, expires, expires < 0)


def _path(row: HotRow | LineRow | MarkRow) -> str | None:
    return None if row.names is None else format_path(row.names)
