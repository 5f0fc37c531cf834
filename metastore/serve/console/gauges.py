"""The contention page: this server's counters over the last minutes, and the figures of the database."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from metastore.charts.chart import Bar, Bars, Lines, Series, number
from metastore.clock import SYSTEM
from metastore.metrics import Snapshot
from metastore.serve.console.asked import bounded, url

if TYPE_CHECKING:
    from metastore.store import Store
    from metastore.store.losses import Loss

__all__ = ["Gauges"]

_KEPT: Final = 120
"""How many moments are kept: one a second, for two minutes."""
_DATABASE: Final = 10.0
"""How old the figures of the database may be (seconds): counting them costs more than a look at the feed."""
_MOST: Final = 50
_HOT: Final = 10
_CAUSES: Final[Mapping[str, str]] = {
    "self": "another change of the same entity",
    "ancestor": "a move, rename or drop above it",
    "name": "another entity that took the name",
    "not_empty": "children that a drop found",
    "read": "a change of an entity that a transaction had read",
    "pending": "announced changes, which come first",
    "marked": "an exclusive change that is next",
    "busy": "a lock that was not free in time",
    "ticket": "a transaction that is in line",
    "serialization": "a deadlock",
    "lease": "another holder of the lease",
    "lost": "a lost answer",
    "unavailable": "a server that was away",
}
"""The causes of lost attempts, in words; docs/metrics.md has all causes."""


class _Moment(NamedTuple):
    time: float
    commits: int
    conflicts: int
    helped: int
    changes: int


class Gauges:
    """The figures of one server. Any thread of the console may call it; only one at a time calls :meth:`count`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._moments: deque[_Moment] = deque(maxlen=_KEPT)
        self._changes = 0
        self._database: tuple[float, Mapping[str, Any]] | None = None

    def count(self, changes: int) -> None:
        """Note this moment, and how many changes the feed has had since the last one."""
        self._changes += changes
        self._note(self._store.metrics())

    def _note(self, seen: Snapshot) -> None:
        decided = Counter[str]()
        for by in seen.operations.values():
            decided.update(by)
        conflicts = sum(sum(causes.values()) for causes in seen.conflicts.values())
        commits, helped = decided["self"] + decided["other"], decided["other"]
        self._moments.append(_Moment(SYSTEM.monotonic(), commits, conflicts, helped, self._changes))

    def values(self) -> dict[str, Any]:
        """Return the values of the page."""
        seen = self._store.metrics()
        if not self._moments:
            self._note(seen)
        return {
            "now": self._now(),
            "charts": [self._rates(), self._feed(), _attempts(seen)],
            "conflicts": _conflicts(seen),
            "seen": seen,
            **self._of_database(),
        }

    def _now(self) -> dict[str, str]:
        """Return the rates of the last ten seconds."""
        last = self._moments[-1]
        first = next((one for one in self._moments if one.time >= last.time - 10.0), last)
        seconds = last.time - first.time
        if seconds <= 0:
            return {"commits": "–", "conflicts": "–", "changes": "–"}
        return {
            "commits": number((last.commits - first.commits) / seconds),
            "conflicts": number((last.conflicts - first.conflicts) / seconds),
            "changes": number((last.changes - first.changes) / seconds),
        }

    def _lines(self, of: str) -> tuple[tuple[float, float], ...]:
        moments = list(self._moments)
        if len(moments) < 2:
            return ()
        begin = moments[0].time
        return tuple(
            [
                (b.time - begin, max(0.0, (getattr(b, of) - getattr(a, of)) / max(b.time - a.time, 0.001)))
                for a, b in pairwise(moments)
            ]
        )

    def _extent(self) -> float:
        return self._moments[-1].time - self._moments[0].time

    def _rates(self) -> Lines:
        drawn = (
            Series("commits", self._lines("commits"), "work"),
            Series("conflicts", self._lines("conflicts"), "conflict"),
        )
        title = "Commits and conflicts of this server"
        return Lines("rates", title, "seconds", "a second", drawn, self._extent(), least=1.0)

    def _feed(self) -> Lines:
        drawn = (Series("changes", self._lines("changes"), "second"),)
        return Lines("feed", "Changes of everybody", "seconds", "a second", drawn, self._extent(), least=1.0)

    def _of_database(self) -> Mapping[str, Any]:
        """Return the figures of the database, at most ``_DATABASE`` seconds old."""
        known = self._database
        if known is None or SYSTEM.monotonic() - known[0] > _DATABASE:
            known = self._database = (SYSTEM.monotonic(), _read(self._store))
        return known[1]


def _read(store: Store) -> Mapping[str, Any]:
    drops = [one.to_dict() for one in bounded(store.drops.pending(), _MOST, 1.0)[0]]
    leases, more = bounded(store.leases.list(), _MOST, 1.0)
    stats = store.stats()
    return {
        "stats": stats,
        "hot": [(one, url("place", path=one.path, kind=one.kind)) for one in stats.hot[:_HOT] if one.path],
        "lines": [(one, url("place", path=one.path, kind=one.kind)) for one in stats.lines if one.path],
        "losses": _losses(store),
        "drops": drops,
        "leases": leases,
        "more_leases": more,
        "members": store.cache.members()[:_MOST],
        "pins": store.pins()[:_MOST],
    }


def _losses(store: Store) -> list[tuple[Loss, str, str, int]]:
    """Return (the newest loss, its cause in words, its address, the count) of each group of similar losses."""
    noted = store.losses(_MOST)
    alike = Counter([_alike(one) for one in noted])
    newest = {_alike(one): one for one in reversed(noted)}
    shown = sorted(newest.values(), key=lambda one: one.time, reverse=True)[:_HOT]
    return [
        (one, _CAUSES.get(one.cause, one.cause), url("place", path=one.path, kind=one.kind), alike[_alike(one)])
        for one in shown
    ]


def _alike(one: Loss) -> tuple[object, ...]:
    return one.principal, one.won_by, one.cause, one.entity_id


def _attempts(seen: Snapshot) -> Bars:
    counts = Counter[int]()
    bounds: tuple[float, ...] = ()
    for one in seen.attempts.values():
        bounds = one.bounds
        counts.update(dict(enumerate(one.counts)))
    total = sum(counts.values())
    bars = [
        Bar(label, counts[n], f"{label} attempts: {counts[n]:,} writes")
        for n, label in enumerate(_labels(bounds))
        if total
    ]
    while bars and not bars[-1].value:
        bars.pop()
    return Bars("attempts", "Attempts of a write, this server", "attempts", "writes", tuple(bars))


def _labels(bounds: tuple[float, ...]) -> list[str]:
    labels, before = [], 0
    for bound in bounds:
        labels.append(f"{bound:.0f}" if bound == before + 1 else f"{before + 1}–{bound:.0f}")
        before = int(bound)
    return [*labels, f">{before}"] if bounds else []


def _conflicts(seen: Snapshot) -> list[tuple[str, str, int]]:
    """Return (verb, cause, count) of lost attempts, the most frequent first."""
    rows = [
        (verb, _CAUSES.get(cause, cause), n) for verb, causes in seen.conflicts.items() for cause, n in causes.items()
    ]
    return sorted(rows, key=lambda row: -row[2])[:_HOT]
