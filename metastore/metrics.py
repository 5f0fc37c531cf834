"""The metrics of one process's store: counts and distributions of its own operations, and their hottest entities.

The session reports events to a :class:`Metrics`; ``store.metrics()`` returns a :class:`Snapshot` of these, a plain
value. No function here asks the database or raises an error. Each call takes one short lock; the three calls of an
operation without conflicts take about a microsecond together. A forked child starts from zero.

**Hot entities** are counted with the *space-saving* sketch (Metwally, Agrawal, El Abbadi, "Efficient Computation of
Frequent and Top-k Elements in Data Streams", ICDT 2005): 64 counters. A new entity takes over the counter with the
smallest count, and keeps this count. An entity with more than a 64th of all conflicts always has a counter. A count is
never too small, and it is too large by at most ``overcount``.

**Concurrent committers** are estimated with Little's law. A failed attempt knows how many versions others committed
between its read and its failure. The sum over all attempts of an operation is the number of commits by others while the
operation ran. If as many operations end as begin, this is the average number of other operations that ran at the same
time. So the estimate is 1 + the exponentially weighted mean of the versions by which each operation was overtaken; the
newest operation weighs 1/64. It is a mean over *operations*: one hot entity among many quiet ones shows in the hot
entities, but hardly here. Waits between attempts count neither as time nor as commits, because an operation that waits
does not commit. (The number of one attempt + 1 would be wrong: with attempts of equal length it is always 2, whether 4
or 64 clients compete, because no attempt that began before a commit can succeed after it.)
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, deque
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Final, Literal

from metastore.clock import SYSTEM, Clock, begins_again
from metastore.port.stats import CacheStats, Lost, PoolUse

__all__ = [
    "ATTEMPTS",
    "HOT",
    "INTENTS",
    "READ_SECONDS",
    "SECONDS",
    "Decided",
    "Distribution",
    "HotConflicts",
    "Metrics",
    "Resolution",
    "Snapshot",
]

ATTEMPTS: Final = (1, 2, 3, 4, 5, 8, 13, 21, 34, 55)
"""The upper bounds of the buckets for attempts per operation. Here and below, one bucket without a bound follows."""

SECONDS: Final = (*(0.0005 * 2**n for n in range(17)), 60.0)
"""The upper bounds for the time to commit (seconds): they double from half a millisecond."""

READ_SECONDS: Final = (0.000125, 0.00025, *SECONDS)
"""The upper bounds for the time of one read (seconds): an eighth of a millisecond comes first."""

INTENTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""The upper bounds for the intents that one helping commit resolved."""

HOT: Final = 64
"""How many hot entities are counted."""

_LOSSES: Final = 100
"""How many of the newest losses are kept."""

_WEIGHT: Final = 1 / 64
"""The weight of the newest operation in the estimate of concurrent committers."""

Decided = Literal["self", "other", "value", "error"]
Resolution = Literal["applied", "not_applied", "unknown"]


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram."""

    bounds: tuple[float, ...]
    """The inclusive upper bounds of the buckets, ascending. The last bucket has no bound."""
    counts: tuple[int, ...]
    """The number of values in each bucket, from above the previous bound. There is one more bucket than bounds."""
    total: float
    """The sum of all values."""

    @property
    def count(self) -> int:
        """The number of all values."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class HotConflicts:
    """One of the entities with the most conflicts."""

    entity_id: int
    conflicts: int
    """The number of conflicts, or an overestimate; see ``overcount``."""
    overcount: int
    """The amount by which ``conflicts`` may be too large."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The process's counts since the store was opened."""

    in_flight: int
    """Operations that have begun and not ended, at this moment."""
    operations: dict[str, dict[str, int]]
    """Operations that ended, by verb and by the cause of the end: self (its own commit), other (another client's
    helping commit), value (there was nothing to commit), error.
    """
    attempts: dict[str, Distribution]
    """Attempts per operation that made at least one, by verb."""
    commit_seconds: dict[str, Distribution]
    """Seconds from the call to the commit, by verb, of operations decided by self or other."""
    conflicts: dict[str, dict[str, int]]
    """Attempts that lost, by verb and cause."""
    hot_entities: tuple[HotConflicts, ...]
    """The entities with the most conflicts, in this order; see the module."""
    announced: int
    """Operations that wrote down an intent, after they lost alone."""
    batch_intents: Distribution
    """Intents that one helping commit of this process resolved."""
    pending_intents: int | None
    """The number of pending intents on the entity that was last checked for them; None: no entity was checked."""
    pending_oldest_seconds: float | None
    """The age of the oldest of these intents at that moment."""
    ambiguous: dict[str, int]
    """Commits whose answer was lost, by outcome: applied, not_applied, unknown."""
    overtaken_versions: int
    """Versions that others committed between a failed attempt's read and its failure."""
    concurrent_committers: float
    """An estimate of how many operations compete for one entity at a time; see the module."""
    read_seconds: dict[str, Distribution]
    """The duration of each read in seconds, by method; for a streaming listing, of each page."""
    feed_lag_seconds: dict[str, float]
    """By reader of the feed: the seconds since the moment up to which it has read all changes."""
    gc_backlog_seconds: float | None = None
    """How long deletable rows have waited: since the process's last complete gc began. None: it has begun no gc."""
    gc_deleted: dict[str, int] = field(default_factory=dict)
    """How many entities, versions and operations the complete runs of gc in this process have deleted."""
    pool: PoolUse | None = None
    """The use of the store's connection pool; None: it has no pool."""
    cache: CacheStats | None = None
    """The figures of the store's cache; None: it has no cache."""

    def as_json(self) -> dict[str, Any]:
        """Return the snapshot as dictionaries, lists, numbers and strings."""
        values: dict[str, Any] = _plain(self)
        return values


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, tuple) else value


class _Buckets:
    """A histogram to which values are added."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total: float = 0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def value(self) -> Distribution:
        return Distribution(self.bounds, tuple(self.counts), self.total)


class _Verb:
    """The counts of one verb."""

    __slots__ = ("attempts", "conflicts", "decided", "seconds")

    def __init__(self) -> None:
        self.decided: dict[str, int] = {}
        self.attempts = _Buckets(ATTEMPTS)
        self.seconds = _Buckets(SECONDS)
        self.conflicts: dict[str, int] = {}


class _Hot:
    """The space-saving sketch: for each entity, its count and the amount by which the count may be too large."""

    __slots__ = ("_counters", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._counters: dict[int, tuple[int, int]] = {}

    def add(self, entity_id: int) -> None:
        counters = self._counters
        count, overcount = counters.get(entity_id, (0, 0))
        if not count and len(counters) >= self._most:
            least = min(counters, key=lambda i: counters[i][0])
            count = overcount = counters.pop(least)[0]
        counters[entity_id] = count + 1, overcount

    def value(self) -> tuple[HotConflicts, ...]:
        entities = [HotConflicts(i, count, over) for i, (count, over) in self._counters.items()]
        return tuple(sorted(entities, key=lambda h: (-h.conflicts, h.overcount, h.entity_id)))


class Metrics:
    """Records the events of one store's operations. Thread-safe."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._reset()
        begins_again(self, Metrics._reset)  # another thread of the parent may hold the lock at the fork

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._in_flight = 0
        self._verbs: dict[str, _Verb] = {}
        self._hot = _Hot(HOT)
        self._losses: deque[Lost] = deque(maxlen=_LOSSES)
        self._announced = 0
        self._batches = _Buckets(INTENTS)
        self._pending: tuple[int, float] | None = None
        self._ambiguous: dict[str, int] = {}
        self._overtaken = 0
        self._overtaken_before = 0  # the part of ``_overtaken`` that the mean already contains
        self._others = 0.0
        self._reads: dict[str, _Buckets] = {}
        self._feed_read: dict[str, float] = {}
        self._gc_done: float | None = None  # when the last complete gc began, or else the first gc
        self._gc_deleted: Counter[str] = Counter()

    def begun(self) -> None:
        """Note that an operation begins."""
        with self._lock:
            self._in_flight += 1

    def ended(self) -> None:
        """Note that an operation has ended, with a result or an error."""
        with self._lock:
            if self._in_flight:  # 0 if the operation began before a fork, because the child counts from 0
                self._in_flight -= 1

    def operation(self, verb: str, attempts: int, seconds: float, decided: Decided) -> None:
        """Note the end of an operation, its number of ``attempts`` and its ``seconds``."""
        with self._lock:
            seen = self._verbs.get(verb) or self._verb(verb)
            seen.decided[decided] = seen.decided.get(decided, 0) + 1
            if attempts > 0:
                seen.attempts.add(attempts)
            if decided in ("self", "other"):
                seen.seconds.add(seconds)
            if decided != "value":
                self._others += (self._overtaken - self._overtaken_before - self._others) * _WEIGHT
                self._overtaken_before = self._overtaken

    def ended_operations(self) -> int:
        """Return how many operations have ended that may have changed the database."""
        with self._lock:
            return sum(n for verb in self._verbs.values() for decided, n in verb.decided.items() if decided != "value")

    def conflict(
        self,
        verb: str,
        cause: str,
        entity_id: int | None = None,
        expected: int | None = None,
        principal: str | None = None,
    ) -> None:
        """Note that an attempt of ``principal`` lost, and the entity and its expected version, if they are known."""
        self._losses.append(Lost(self._clock.micros(), verb, cause, principal, entity_id, expected))
        with self._lock:
            conflicts = self._verb(verb).conflicts
            conflicts[cause] = conflicts.get(cause, 0) + 1
            if entity_id is not None:
                self._hot.add(entity_id)

    def losses(self) -> list[Lost]:
        """Return the newest losses, the newest first."""
        return list(reversed(self._losses.copy()))  # copying a deque, and appending to it, are atomic

    def announced(self) -> None:
        """Note that an operation wrote down an intent."""
        with self._lock:
            self._announced += 1

    def batch(self, size: int) -> None:
        """Note that a helping commit of this process resolved ``size`` intents."""
        with self._lock:
            self._batches.add(size)

    def pending(self, count: int, oldest_seconds: float) -> None:
        """Note how many intents were pending on an entity, and the age of the oldest in seconds."""
        with self._lock:
            self._pending = count, oldest_seconds

    def ambiguous(self, resolution: Resolution) -> None:
        """Note the outcome of a commit whose answer was lost."""
        with self._lock:
            self._ambiguous[resolution] = self._ambiguous.get(resolution, 0) + 1

    def overtaken(self, by: int) -> None:
        """Note that others committed ``by`` versions between a failed attempt's read and its failure."""
        if by > 0:
            with self._lock:
                self._overtaken += by

    def read(self, method: str, seconds: float) -> None:
        """Note that a read has ended, with a result or an error, and how many ``seconds`` it took."""
        with self._lock:
            seen = self._reads.get(method)
            if seen is None:
                seen = self._reads[method] = _Buckets(READ_SECONDS)
            seen.add(seconds)

    def feed_read(self, reader: str, until: float) -> None:
        """Note the time up to which a reader of the feed has read all changes (seconds since 1970)."""
        with self._lock:
            self._feed_read[reader] = until

    def gc_begun(self) -> float:
        """Note that a gc begins; return the moment, for :meth:`gc_ended`."""
        now = self._clock.monotonic()
        with self._lock:
            if self._gc_done is None:
                self._gc_done = now
        return now

    def gc_ended(self, begun: float, **deleted: int) -> None:
        """Note that a gc is complete, and how many rows of each sort it deleted."""
        with self._lock:
            self._gc_done = begun
            self._gc_deleted.update(deleted)

    def _verb(self, verb: str) -> _Verb:
        seen = self._verbs.get(verb)
        if seen is None:
            seen = self._verbs[verb] = _Verb()
        return seen

    def snapshot(self) -> Snapshot:
        """Return the present values of all metrics."""
        now, moment = self._clock.micros() / 1_000_000, self._clock.monotonic()
        with self._lock:
            verbs = self._verbs
            count, oldest = self._pending or (None, None)
            return Snapshot(
                in_flight=self._in_flight,
                operations={verb: dict(seen.decided) for verb, seen in verbs.items() if seen.decided},
                attempts={verb: seen.attempts.value() for verb, seen in verbs.items() if seen.decided},
                commit_seconds={verb: seen.seconds.value() for verb, seen in verbs.items() if seen.decided},
                conflicts={verb: dict(seen.conflicts) for verb, seen in verbs.items() if seen.conflicts},
                hot_entities=self._hot.value(),
                announced=self._announced,
                batch_intents=self._batches.value(),
                pending_intents=count,
                pending_oldest_seconds=oldest,
                ambiguous=dict(self._ambiguous),
                overtaken_versions=self._overtaken,
                concurrent_committers=1.0 + self._others,
                read_seconds={method: seen.value() for method, seen in self._reads.items()},
                feed_lag_seconds={reader: max(0.0, now - until) for reader, until in self._feed_read.items()},
                gc_backlog_seconds=None if self._gc_done is None else moment - self._gc_done,
                gc_deleted=dict(self._gc_deleted),
            )

    def counters(self) -> Counter[str]:
        """Return ``attempts`` and ``commits`` of operations that ended, ``conflicts_<cause>``, and ``unknown``."""
        counts: Counter[str] = Counter()
        with self._lock:
            for seen in self._verbs.values():
                counts["attempts"] += int(seen.attempts.total)
                counts["commits"] += seen.decided.get("self", 0) + seen.decided.get("other", 0)
                for cause, count in seen.conflicts.items():
                    counts[f"conflicts_{cause}"] += count
            counts["unknown"] = sum(self._ambiguous.values())
        return +counts
