"""The plain memory model, one operation after the other: it finds the orders that explain the observed results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from metastore.backends.memory.backend import MemoryBackend
from metastore.backends.memory.tables import Tables
from metastore.kinds.entity import Entity
from metastore.port.backend import Backend
from metastore.port.conditions import PURGING
from metastore.retry.policy import RetryPolicy
from metastore.store import Store
from tests.interleaving.process import URL, Foreign, Hand, Op, Outcome, first_of, operation_id, outcome_of
from tests.interleaving.world import Database, WorldClock

__all__ = ["Oracle", "OracleClock", "Seen", "Which", "applied", "content", "referred"]

Which = tuple[int, int]
"""Process and number of an operation."""
_NOBODY = 1 << 40
"""The id of nothing."""


class OracleClock(WorldClock):
    """Draws the operation ids of one process; a process that waits, waits as long as it may."""

    process, drawn = 0, 0

    def uniform(self, low: float, high: float) -> float:
        return high

    def operation_id(self) -> UUID:
        self.drawn += 1
        return operation_id(self.process, self.drawn)


class Seen(NamedTuple):
    """What is to be explained."""

    outcomes: Mapping[Which, Outcome | None]
    """Of each operation that was applied, or failed on its merits; None: nobody was told."""
    optional: frozenset[Which]
    """Those that may or may not have been applied."""
    before: Mapping[Which, frozenset[Which]]
    """Which operations had returned before one began."""
    history: tuple[Any, ...]
    content: Any


class _Point(NamedTuple):
    fields: dict[str, Any]
    now: int
    outcome: Outcome | None
    history: tuple[Any, ...]
    content: Any
    hands: Mapping[int, Mapping[str, Any]]
    """What each process has in hand."""


class Oracle:
    """Sequential executions from one value of the database, each prefix once.

    An entity in hand is only a reference here. The oracle reads it again before each operation, so that no result can
    rest on what the entity says of itself. One of another database refers to nothing.
    """

    def __init__(self, db: Database, first: int, now: int, ops: tuple[tuple[Op, ...], ...], given: Any) -> None:
        self._clock = OracleClock()
        self._backend = MemoryBackend(self._clock)
        self._ops, self._given = ops, given
        fields = vars(db.show(first, now))
        fields = {k: v for k, v in fields.items() if k not in ("_clock", "_lock")}
        tables = fields["_tables"]
        self._points: dict[tuple[Which, ...], _Point] = {
            (): _Point(fields, now, None, applied(tables), content(tables), {})
        }

    def explains(self, seen: Seen) -> tuple[Which, ...] | None:
        """Return an order of the operations that gives what was seen; None: there is none."""
        return next(self._orders((), seen), None)

    def did(self, order: tuple[Which, ...]) -> tuple[Any, ...]:
        """Return what the last of the operations is told, and writes, in this order."""
        point, before = self._point(order), self._point(order[:-1])
        return point.outcome, *[row[2:] for row in point.history[len(before.history) :]]

    def _orders(self, prefix: tuple[Which, ...], seen: Seen) -> Iterator[tuple[Which, ...]]:
        point = self._point(prefix)
        if prefix:
            told = seen.outcomes[prefix[-1]]
            if told is not None and told != point.outcome:
                return
        if point.history != seen.history[: len(point.history)]:
            return
        left = [w for w in seen.outcomes if w not in prefix]
        if point.content == seen.content and point.history == seen.history and seen.optional.issuperset(left):
            yield prefix
        for which in left:
            process, number = which
            earlier = [(process, n) for n in range(first_of(self._ops[process], number))]
            due = (set(earlier) | seen.before[which]) - seen.optional
            if due.isdisjoint(left):
                yield from self._orders((*prefix, which), seen)

    def _point(self, prefix: tuple[Which, ...]) -> _Point:
        if prefix not in self._points:
            before = self._point(prefix[:-1])
            process, number = prefix[-1]
            self._backend.__dict__.update(before.fields | {"_tables": before.fields["_tables"].copy()})
            clock = self._clock
            clock.at, clock.process, clock.drawn = before.now, process, 100 * number
            store = Store(URL, self._backend, RetryPolicy(), f"p{process}", clock)
            held = before.hands.get(process, self._given)
            hand = Hand(store, {key: referred(self._backend, value) for key, value in held.items()})
            outcome = outcome_of(lambda: self._ops[process][number].run(hand))
            fields = {k: v for k, v in vars(self._backend).items() if k not in ("_clock", "_lock")}
            tables = fields["_tables"]
            hands = {**before.hands, process: hand.given}
            self._points[prefix] = _Point(fields, clock.at, outcome, applied(tables), content(tables), hands)
        return self._points[prefix]


def referred(backend: Backend, value: object) -> object:
    """Return what is in hand as it is now."""
    entity = value.entity if isinstance(value, Foreign) else value
    if not isinstance(entity, Entity):
        return value
    if isinstance(value, Foreign):
        *above, last = entity.record.chain
        return type(entity)(entity.record._replace(chain=(*above, last._replace(id=_NOBODY)), live=False))
    (known,) = backend.by_id([entity.id])
    record = entity.record._replace(live=False) if known is None else known.record._replace(live=known.live)
    return type(entity)(record)


def applied(tables: Tables) -> tuple[Any, ...]:
    """Return what was applied, in the order of the feed, without ids and times."""
    rows = sorted((s for s in tables.steps if s.seq is not None), key=lambda s: s.seq or 0)
    names = _names(s.entity_id for s in rows)
    return tuple(
        [
            (s.principal, names[s.entity_id], s.version, s.kind, s.action, s.path_before, s.path_after, s.doc, s.in_use)
            for s in rows
        ]
    )


def content(tables: Tables) -> frozenset[Any]:
    """Return what is there, without ids, times and scope versions; what is gone for good is left to gc."""
    names = _names(s.entity_id for s in sorted(tables.steps, key=lambda s: s.seq or 0) if s.seq is not None)
    stands = [s for s in tables.stands.values() if s.state != PURGING]
    rows = [row for row in tables.owned.values() if row.owner_id in {s.id for s in stands}]
    return (
        frozenset(
            (names.get(s.id), names.get(s.parent_id), s.kind, s.name, s.key, s.state, s.in_use)
            + ((body.version, body.doc, body.created_by, body.modified_by) if (body := tables.bodies.get(s.id)) else ())
            for s in stands
        )
        | frozenset(
            (names.get(r.id), names.get(r.owner_id), r.kind, r.name, r.version, r.doc, r.created_by, r.modified_by)
            for r in rows
        )
        | frozenset(
            (names.get(r.id), names.get(r.from_id), r.kind, names.get(r.to_id), r.value, r.version, r.modified_by)
            for r in tables.relations.values()
        )
    )


def _names(ids: Iterable[int | None]) -> dict[int | None, int]:
    """Return a number for each id, in the order in which they appear."""
    names: dict[int | None, int] = {}
    for one in ids:
        names.setdefault(one, len(names))
    return names
