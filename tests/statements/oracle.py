"""The memory model, one operation after the other: it finds the orders that explain the observed results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from metastore.backends.memory.backend import MemoryBackend
from metastore.backends.memory.tables import MemorySnapshot, Tables
from metastore.port.records import Origin
from metastore.retry.policy import RetryPolicy
from metastore.store import Store
from tests.interleaving.oracle import OracleClock, Which
from tests.interleaving.process import URL, Hand, Outcome, first_of
from tests.statements.content import COLUMNS, ORDER, Content, content_of
from tests.statements.operations import Operation, outcome_of

__all__ = ["Oracle", "Prepare"]

Prepare = Callable[[Store], Mapping[str, Any]]
"""Makes what a program starts from; returns what is in hand."""
_SETUP = 15


class _Point(NamedTuple):
    tables: Tables
    now: int
    outcome: Outcome | None
    content: Content


@cache
def _prepared(prepare: Prepare) -> tuple[Tables, int, Mapping[str, Any], Origin]:
    clock = OracleClock()
    clock.process = _SETUP
    backend = MemoryBackend(clock)
    given = prepare(Store(URL, backend, RetryPolicy(), "setup", clock))
    return backend._tables, clock.at, given, backend.origin


class Oracle:
    """Sequential executions of a program's operations, each prefix once."""

    def __init__(self, processes: tuple[tuple[Operation, ...], ...], prepare: Prepare, ordered: bool) -> None:
        self._processes, self._ordered = processes, ordered
        self._clock = OracleClock()
        self._backend = MemoryBackend(self._clock)
        self._backend._tables, self._clock.at, self._given, self._backend._origin = _prepared(prepare)
        self._points: dict[tuple[Which, ...], _Point] = {(): self._now(None)}
        self._explained: dict[Any, bool] = {}

    @property
    def first(self) -> Content:
        """What there is after the setup."""
        return self._points[()].content

    def explains(
        self, outcomes: Mapping[Which, Outcome], before: Mapping[Which, frozenset[Which]], content: Content
    ) -> bool:
        """Whether one of the orders that real time allows gives what was seen.

        An operation that was not applied is not among ``outcomes``.
        """
        seen = content if self._ordered else content.unordered()
        key = (tuple(outcomes.items()), tuple(before.items()), seen)
        if key not in self._explained:
            self._explained[key] = any(self._orders((), outcomes, before, seen))
        return self._explained[key]

    def _orders(
        self,
        prefix: tuple[Which, ...],
        outcomes: Mapping[Which, Outcome],
        before: Mapping[Which, frozenset[Which]],
        seen: Content,
    ) -> Iterator[bool]:
        point = self._point(prefix)
        if prefix and outcomes[prefix[-1]] != point.outcome:
            return
        left = [w for w in outcomes if w not in prefix]
        if not left:
            yield point.content == seen
        for which in left:
            due = before[which] | {(which[0], n) for n in range(first_of(self._processes[which[0]], which[1]))}
            if due.isdisjoint(left):
                yield from self._orders((*prefix, which), outcomes, before, seen)

    def _point(self, prefix: tuple[Which, ...]) -> _Point:
        if prefix not in self._points:
            before = self._point(prefix[:-1])
            process, number = prefix[-1]
            self._backend._tables = before.tables.copy()
            clock = self._clock
            clock.at, clock.process, clock.drawn = before.now, process, 100 * number
            store = Store(URL, self._backend, RetryPolicy(), f"p{process}", clock)
            hand = Hand(store, dict(self._given))
            operation = self._processes[process][number]
            self._points[prefix] = self._now(outcome_of(lambda: operation.run(hand)))
        return self._points[prefix]

    def _now(self, outcome: Outcome | None) -> _Point:
        tables = self._backend._tables
        snapshot = MemorySnapshot(tables, 0)
        content = content_of({t: list(snapshot.rows(t, columns, ORDER[t])) for t, columns in COLUMNS.items()})
        return _Point(tables, self._clock.at, outcome, content if self._ordered else content.unordered())
