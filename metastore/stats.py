"""``store.stats()``: what the database itself shows of everybody's work, at one instant.

It asks little (at most the feed's newest 100,000 steps), and locks nothing: it may be asked every minute.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from metastore.names import format_path
from metastore.port.stats import DatabaseStats, HotRow, MarkRow

__all__ = ["HotEntity", "MarkInfo", "Stats", "collect"]

_HOUR: Final = 3_600_000_000
_MOST: Final = 20
"""How many marks and hot entities are shown."""


@dataclass(frozen=True)
class MarkInfo:
    """An exclusive operation that is announced on a scope: others step aside for it."""

    entity_id: int
    """The entity that carries the mark."""
    path: str | None
    """Where that is now; None: it was purged."""
    operation_id: str
    """Whose mark it is."""
    held_seconds: float
    """How long ago it was set."""
    expires_seconds: float
    """How long until anybody may take it away; negative: since when."""
    expired: bool
    """Whether anybody may. Whoever meets it next does."""


@dataclass(frozen=True)
class HotEntity:
    """An entity that was written often in the last hour."""

    entity_id: int
    """Its id."""
    path: str | None
    """Where it is now; None: it was purged."""
    kind: str | None
    """What it is; None: it was purged."""
    writes: int
    """How many versions were made of it and of the rows that it owns (partitions, statistics)."""


@dataclass(frozen=True)
class Stats:
    """The database's side of things."""

    pending: int
    """Intents that are announced and not decided, of all entities."""
    oldest_pending_seconds: float | None
    """How long the oldest of them has been waiting; None: there is none."""
    marks: tuple[MarkInfo, ...]
    """The 20 marks that expire first."""
    hot: tuple[HotEntity, ...]
    """The 20 entities written most in the last hour, by the newest 100,000 steps."""
    feed_lag_seconds: float | None
    """How long the oldest change has been waiting that is committed and not delivered; 0.0: none has; None: not known,
    because the database hides other roles' transactions (grant pg_read_all_stats)."""
    undecided_positions: int | None
    """How many changes wait so; None: not known."""
    oldest_transaction_seconds: float | None
    """How long the oldest transaction has been running, anywhere in PostgreSQL's cluster, that may write: a gap in
    the feed can stay open for as long. None: there is none, it is not known, or the database is no PostgreSQL."""
    multixact_members: int | None
    """MultiXact members that PostgreSQL keeps, of 2**32; about. None: it does not say, or it is no PostgreSQL."""
    multixact_age: int | None
    """MultiXacts made since the oldest one that may be in use, of 2**31, in the cluster. None: it is no PostgreSQL."""
    format: int
    """The format of the tables."""

    def as_json(self) -> dict[str, Any]:
        """Return it as dictionaries, lists, numbers and strings."""
        found = asdict(self)
        return {**found, "marks": list(found["marks"]), "hot": list(found["hot"])}


class _Backend(Protocol):
    def stats(self, since: int, limit: int) -> DatabaseStats: ...


def collect(backend: _Backend) -> Stats:
    """Ask the database, once."""
    found = backend.stats(_HOUR, _MOST)
    return Stats(
        pending=found.pending,
        oldest_pending_seconds=_ago(found.now, found.oldest_pending),
        marks=tuple(_mark(mark, found.now) for mark in found.marks),
        hot=tuple(HotEntity(h.entity_id, _path(h), h.kind, h.writes) for h in found.hot),
        feed_lag_seconds=None if found.undecided is None else _ago(found.now, found.undecided_since) or 0.0,
        undecided_positions=found.undecided,
        oldest_transaction_seconds=_ago(found.now, found.oldest_transaction),
        multixact_members=found.multixact_members,
        multixact_age=found.multixact_age,
        format=found.format,
    )


def _ago(now: int, time: int | None) -> float | None:
    return None if time is None else max(0, now - time) / 1_000_000


def _mark(mark: MarkRow, now: int) -> MarkInfo:
    expires = (mark.marked_until - now) / 1_000_000
    held = max(0, now - mark.marked_at) / 1_000_000
    return MarkInfo(mark.entity_id, _path(mark), mark.operation_id, held, expires, expires < 0)


def _path(row: HotRow | MarkRow) -> str | None:
    return None if row.names is None else format_path(row.names)
