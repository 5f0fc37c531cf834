"""What one process's store saw of its own operations: counts, distributions, and where it hurts.

The session tells a :class:`Metrics` what happens; ``store.metrics()`` is a :class:`Snapshot` of it, a plain value.
Nothing here asks the database, and nothing raises. Every call takes one small lock; the three calls of an operation
that meets nobody cost about a microsecond together. A forked child starts from zero.

**Hot entities** are counted with the *space-saving* sketch (Metwally, Agrawal, El Abbadi, "Efficient Computation of
Frequent and Top-k Elements in Data Streams", ICDT 2005): 64 counters, and whoever is new takes over the smallest
one with its count. An entity with more than a 64th of all conflicts is always among them; a count is never too
small, and too large by at most ``overcount``.

**Concurrent committers** are estimated with Little's law. A failed attempt knows how many versions others committed
between its read and its failure. Their sum over all attempts of an operation is the number of others' commits while
it was under way; where as many operations end as begin, that is, on average, how many others were under way at a
time. So the estimate is 1 + the exponentially weighted mean, over the operations that end (each weighs 1/64), of
what was overtaken since the one before. It is a mean over *operations*: one hot entity among many quiet ones shows
in the hot entities, and hardly here. Waits between attempts count neither as time nor as commits: who is waiting is
not committing. (A single attempt's number + 1 would not do: with attempts of equal length it is 2, whether 4 or 64
compete, because of all that began before a commit none can succeed.)
"""

from __future__ import annotations

import os
import threading
import weakref
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final, Literal

from metastore.port.stats import PoolUse

__all__ = [
    "ATTEMPTS",
    "HOT",
    "INTENTS",
    "SECONDS",
    "Decided",
    "Distribution",
    "HotConflicts",
    "Metrics",
    "Resolution",
    "Snapshot",
]

ATTEMPTS: Final = (1, 2, 3, 4, 5, 8, 13, 21, 34, 55)
"""The upper bounds of the buckets for attempts per operation; one without a bound follows, here and below."""

SECONDS: Final = (*(0.0005 * 2**n for n in range(17)), 60.0)
"""For the time to commit: doubling from half a millisecond."""

INTENTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""For the intents that one helping commit resolved."""

HOT: Final = 64
"""How many entities are counted."""

_WEIGHT: Final = 1 / 64
"""Of the newest operation in the estimate of concurrent committers."""

Decided = Literal["self", "other", "value", "error"]
Resolution = Literal["applied", "not_applied", "unknown"]


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram."""

    bounds: tuple[float, ...]
    """The inclusive upper bounds of the buckets, ascending; the last bucket has none."""
    counts: tuple[int, ...]
    """How many values each bucket holds, which are above the bound before it; one more than there are bounds."""
    total: float
    """The sum of all values."""

    @property
    def count(self) -> int:
        """How many values there are."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class HotConflicts:
    """One of the entities on which most conflicts were met."""

    entity_id: int
    conflicts: int
    """How many, or fewer."""
    overcount: int
    """By how much ``conflicts`` is too large at most."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the process saw since the store was opened; what is *last seen* or *in flight* is of this moment."""

    in_flight: int
    """Operations that have begun and not ended."""
    operations: dict[str, dict[str, int]]
    """Operations that ended, by verb and by what decided them: self (its own commit), other (somebody's helping
    commit), value (nothing was to be committed), error."""
    attempts: dict[str, Distribution]
    """Attempts per operation, by verb; of operations that made at least one."""
    commit_seconds: dict[str, Distribution]
    """Seconds from the call to the commit, by verb; of operations decided by self or other."""
    conflicts: dict[str, dict[str, int]]
    """Attempts that lost, by verb and cause."""
    hot_entities: tuple[HotConflicts, ...]
    """The entities with most conflicts, the worst first; see the module."""
    announced: int
    """Operations that gave up trying alone and wrote down an intent."""
    batch_intents: Distribution
    """Intents that one helping commit of this process resolved."""
    pending_intents: int | None
    """Intents on an entity when one was last looked at; None: never."""
    pending_oldest_seconds: float | None
    """The age of the oldest of them then."""
    ambiguous: dict[str, int]
    """Commits whose answer was lost, by what became of them: applied, not_applied, unknown."""
    overtaken_versions: int
    """Versions that others committed between a failed attempt's read and its failure."""
    concurrent_committers: float
    """An estimate of how many operations, this one included, compete for the entity of one; see the module."""
    pool: PoolUse | None = None
    """The store's connections; None: it needs none."""

    def as_json(self) -> dict[str, Any]:
        """Return it as dictionaries, lists, numbers and strings."""
        found: dict[str, Any] = _plain(self)
        return found


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, tuple) else value


class _Buckets:
    """A histogram that grows."""

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
    """What is counted of one kind of operation."""

    __slots__ = ("attempts", "conflicts", "decided", "seconds")

    def __init__(self) -> None:
        self.decided: dict[str, int] = {}
        self.attempts = _Buckets(ATTEMPTS)
        self.seconds = _Buckets(SECONDS)
        self.conflicts: dict[str, int] = {}


class _Hot:
    """The space-saving sketch: for each entity its count, and by how much that is too large at most."""

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
        found = [HotConflicts(i, count, over) for i, (count, over) in self._counters.items()]
        return tuple(sorted(found, key=lambda h: (-h.conflicts, h.overcount, h.entity_id)))


class Metrics:
    """Records what one store's operations met. Thread-safe."""

    def __init__(self) -> None:
        self._reset()
        _ALL.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._in_flight = 0
        self._verbs: dict[str, _Verb] = {}
        self._hot = _Hot(HOT)
        self._announced = 0
        self._batches = _Buckets(INTENTS)
        self._pending: tuple[int, float] | None = None
        self._ambiguous: dict[str, int] = {}
        self._overtaken = 0
        self._overtaken_before = 0  # as far as it is in the mean
        self._others = 0.0

    def begun(self) -> None:
        """An operation begins."""
        with self._lock:
            self._in_flight += 1

    def ended(self) -> None:
        """An operation has ended, one way or another."""
        with self._lock:
            if self._in_flight:  # what began before a fork is not counted in the child
                self._in_flight -= 1

    def operation(self, verb: str, attempts: int, seconds: float, decided: Decided) -> None:
        """An operation has ended after ``attempts`` and ``seconds``; ``decided`` says by what."""
        with self._lock:
            seen = self._verb(verb)
            seen.decided[decided] = seen.decided.get(decided, 0) + 1
            if attempts > 0:
                seen.attempts.add(attempts)
            if decided in ("self", "other"):
                seen.seconds.add(seconds)
            if decided != "value":
                self._others += (self._overtaken - self._overtaken_before - self._others) * _WEIGHT
                self._overtaken_before = self._overtaken

    def conflict(self, verb: str, cause: str, entity_id: int | None = None) -> None:
        """An attempt lost, on an entity if that is known."""
        with self._lock:
            conflicts = self._verb(verb).conflicts
            conflicts[cause] = conflicts.get(cause, 0) + 1
            if entity_id is not None:
                self._hot.add(entity_id)

    def announced(self) -> None:
        """An operation wrote down an intent."""
        with self._lock:
            self._announced += 1

    def batch(self, size: int) -> None:
        """A helping commit of ours resolved ``size`` intents."""
        with self._lock:
            self._batches.add(size)

    def pending(self, count: int, oldest_seconds: float) -> None:
        """So many intents were seen pending on an entity, the oldest of this age."""
        with self._lock:
            self._pending = count, oldest_seconds

    def ambiguous(self, resolution: Resolution) -> None:
        """The answer to a commit was lost, and this came out."""
        with self._lock:
            self._ambiguous[resolution] = self._ambiguous.get(resolution, 0) + 1

    def overtaken(self, by: int) -> None:
        """Others committed ``by`` versions between the read of an attempt that failed, and its failure."""
        if by > 0:
            with self._lock:
                self._overtaken += by

    def _verb(self, verb: str) -> _Verb:
        seen = self._verbs.get(verb)
        if seen is None:
            seen = self._verbs[verb] = _Verb()
        return seen

    def snapshot(self) -> Snapshot:
        """Return all of it as it is at this moment."""
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
            )

    def counters(self) -> Counter[str]:
        """Return ``attempts`` and ``commits`` of operations that ended, ``conflicts_<cause>``, and ``unknown``."""
        found: Counter[str] = Counter()
        with self._lock:
            for seen in self._verbs.values():
                found["attempts"] += int(seen.attempts.total)
                found["commits"] += seen.decided.get("self", 0) + seen.decided.get("other", 0)
                for cause, count in seen.conflicts.items():
                    found[f"conflicts_{cause}"] += count
            found["unknown"] = sum(self._ambiguous.values())
        return +found


_ALL: weakref.WeakSet[Metrics] = weakref.WeakSet()


def _in_child() -> None:
    for metrics in list(_ALL):
        metrics._reset()  # noqa: SLF001  (our own; another thread of the parent may have held the lock)


os.register_at_fork(after_in_child=_in_child)
