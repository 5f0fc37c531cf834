"""The tables of the memory model: rows in dictionaries, and the questions about them.

The rows have the columns of :mod:`metastore.backends.sql.tables`. No table has an index: every question walks over all
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

from metastore.port.backend import LONGEST_QUIET, MOST_AHEAD, QUIET
from metastore.port.conditions import DROPPED, DROPPING, LIVE, PURGING
from metastore.port.format import RESTORED, SCHEMA_FORMAT
from metastore.port.intents import PENDING
from metastore.port.leases import LeaseRow, Staged
from metastore.port.past import ConsumerRow, PinRow
from metastore.port.records import Node, OwnedRecord, Step
from metastore.port.relations import RelationKey, RelationRecord
from metastore.port.secret_keys import KeyRow

T = TypeVar("T")
OwnedKey = tuple[int, str, str]

TAKEN = (LIVE, DROPPING)
"""The states of entities that hold their name, and make their parent not empty."""


class Stand(NamedTuple):
    """An entity's place: its parent, name and state. ``dropped_at`` is None unless it was dropped."""

    id: int
    parent_id: int
    kind: str
    family: str
    name: str
    key: str
    fold: bool
    state: int
    in_use: bool
    scope_version: int
    dropped_at: int | None
    mark: UUID | None = None
    marked_at: int | None = None
    marked_until: int | None = None
    quiet_until: int | None = None

    @property
    def node(self) -> Node:
        """The entity as a step of a path."""
        return Node(self.id, self.kind, self.name, self.scope_version, self.in_use, self.fold)

    def others_turn(self, now: int) -> bool:
        """Whether others have their turn. A turn that would last too long dates from before the clock was set back."""
        return self.mark is None and now < (self.quiet_until or 0) <= now + LONGEST_QUIET

    def lapsed(self, now: int) -> bool:
        """Whether the mark may be cleared: its time is over, or it was set before the clock was set back."""
        return (self.marked_until or 0) < now or (self.marked_at or 0) > now + MOST_AHEAD

    def unmarked(self, now: int) -> Stand:
        """Return the guard without its mark, with the others' turn that follows the mark."""
        held = min(now, self.marked_until or now) - (self.marked_at or now)
        quiet = now + min(max(QUIET, held), LONGEST_QUIET)
        return self._replace(mark=None, marked_at=None, marked_until=None, quiet_until=quiet)


class Ticket(NamedTuple):
    """A place in an entity's line; it counts from ``since`` on."""

    time: int
    patience: int
    since: int


class Body(NamedTuple):
    """An entity's version, document and times."""

    version: int
    doc: str
    created_by: str | None
    created_at: int
    modified_by: str | None
    modified_at: int


@dataclass(frozen=True)
class Tables:
    """All tables. Rows are never changed, only replaced."""

    stands: dict[int, Stand]
    bodies: dict[int, Body] = field(default_factory=dict)
    owned: dict[OwnedKey, OwnedRecord] = field(default_factory=dict)
    """By owner, kind and name."""
    relations: dict[RelationKey, RelationRecord] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    """In the order of their positions; rows without a position may be anywhere."""
    leases: dict[str, LeaseRow] = field(default_factory=dict)
    waiters: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    """By lease and ticket: the owner, and the time until which the waiter counts as alive."""
    staged: dict[UUID, Staged] = field(default_factory=dict)
    pins: dict[str, PinRow] = field(default_factory=dict)
    consumers: dict[str, ConsumerRow] = field(default_factory=dict)
    tickets: dict[tuple[int, int], Ticket] = field(default_factory=dict)
    """By entity and number. The number 0 is not a ticket: until ``since``, others have their turn there."""
    secret_keys: dict[int, KeyRow] = field(default_factory=dict)
    drawn: dict[str, int] = field(
        default_factory=lambda: {"id": 0, "seq": 0, "forgotten": 0, "past_from": 0, "ticket": 0, "restored": 0}
    )

    def copy(self) -> Tables:
        """Return tables that can be changed without changing these."""
        return Tables(**{name: copy(table) for name, table in vars(self).items()})

    def draw(self, what: str) -> int:
        """Return the next id or position."""
        self.drawn[what] += 1
        return self.drawn[what]

    def row(self, row_id: int | None) -> Body | OwnedRecord | RelationRecord | None:
        """Return the row that exists under an id."""
        if row_id in self.bodies:
            return self.bodies[row_id]
        rows: Iterable[OwnedRecord | RelationRecord] = chain(self.owned.values(), self.relations.values())
        return next((row for row in rows if row.id == row_id), None)

    def row_of(self, operation_id: UUID) -> Step | None:
        """Return the first row of an operation."""
        return next((s for s in self.steps if s.operation_id == operation_id and s.ordinal == 0), None)

    def pending(self, entity_id: int) -> list[Step]:
        """Return an entity's intents, oldest first."""
        pending = [s for s in self.steps if s.entity_id == entity_id and s.action == PENDING]
        return sorted(pending, key=lambda s: (s.time, s.operation_id))

    def replace_step(self, old: Step, new: Step) -> None:
        """Replace the row of an operation; the new one comes last."""
        self.steps.remove(old)
        self.steps.append(new)

    def children(self, parent_id: int) -> Iterator[Stand]:
        """Yield the children of ``parent_id`` in any state."""
        return (s for s in self.stands.values() if s.parent_id == parent_id)

    def live_child(self, parent_id: int, family: str, key: str) -> Stand | None:
        """Return the one live child of this name."""
        return self.child_named(parent_id, family, key, (LIVE,))

    def child_named(self, parent_id: int, family: str, key: str, states: tuple[int, ...]) -> Stand | None:
        """Return the one child of this name in one of ``states``."""
        named = (s for s in self.children(parent_id) if (s.family, s.key) == (family, key))
        return next((s for s in named if s.state in states), None)


def _writer(step: Step, restored: int) -> int | None:
    if step.seq is None:
        return None
    return RESTORED if step.seq <= restored else SCHEMA_FORMAT


class MemorySnapshot:
    """The implementation of :class:`metastore.port.snapshot.TableSnapshot` on a copy of the tables."""

    def __init__(self, tables: Tables, collected_seq: int) -> None:
        self._tables, self._collected_seq = tables, collected_seq

    def rows(
        self, table: str, columns: Sequence[str], order: Sequence[str], only: Sequence[int] | None = None
    ) -> Iterator[tuple[Any, ...]]:
        rows = [row for row in self._all(table) if row[order[0]] is not None]
        if only is not None:
            rows = [row for row in rows if row[order[0]] in set(only)]
        # a missing value sorts before the others
        rows.sort(key=lambda row: [(row[column] is not None, row[column]) for column in order])
        return (tuple([row[column] for column in columns]) for row in rows)

    def below(self, parent_ids: Sequence[int], columns: Sequence[str], *, gone: bool) -> Iterator[tuple[Any, ...]]:
        states = (LIVE, DROPPED, PURGING, DROPPING) if gone else (LIVE,)
        by = ("parent_id", "family", "key", "id")
        rows = self.rows("guard", ("state", *columns), by, parent_ids)
        return (row[1:] for row in rows if row[0] in states)

    def _all(self, table: str) -> list[dict[str, Any]]:
        tables = self._tables
        restored = tables.drawn["restored"]
        overs = {(s.entity_id, s.version) for s in tables.steps if s.action == "takeover"}
        waiters = tables.waiters.items()
        found: dict[str, Callable[[], list[dict[str, Any]]]] = {
            "guard": lambda: [row._asdict() for row in tables.stands.values()],
            "entity": lambda: [{"id": i, **body._asdict()} for i, body in tables.bodies.items()],
            "owned": lambda: [row._asdict() for row in tables.owned.values()],
            "relation": lambda: [row._asdict() for row in tables.relations.values()],
            "operation": lambda: [
                {**step._asdict(), "generation": None, "writer": _writer(step, restored)} for step in tables.steps
            ],
            "cache_member": list,  # a lease cache is for PostgreSQL only
            "cache_announcement": list,
            "lease": lambda: [{**r._asdict(), "took_over": (r.id, r.token) in overs} for r in tables.leases.values()],
            "lease_waiter": lambda: [
                {"name": n, "ticket": t, "owner": owner, "alive_until": u} for (n, t), (owner, u) in waiters
            ],
            "staged": lambda: [row._asdict() for row in tables.staged.values()],
            "pin": lambda: [row._asdict() for row in tables.pins.values()],
            "consumer": lambda: [row._asdict() for row in tables.consumers.values()],
            "ticket": lambda: [
                {"entity_id": i, "number": number, **one._asdict()} for (i, number), one in tables.tickets.items()
            ],
            "secret_key": lambda: [row._asdict() for row in tables.secret_keys.values()],
            "info": lambda: [
                {
                    "id": 1,
                    "collected_seq": self._collected_seq,
                    "forgotten": tables.drawn["forgotten"],
                    "past_from": tables.drawn["past_from"],
                }
            ],
        }
        return found[table]()

    def numbers(self) -> tuple[int, int]:
        return self._tables.drawn["id"], self._tables.drawn["seq"]

    def cached(self) -> list[str]:
        return []

    def damaged(self) -> Iterator[str]:
        return iter(())

    def not_utf8(self) -> Iterator[tuple[str, int | None, str]]:
        return iter(())


class Work(Protocol):
    """A function that lets a change work on the tables while no other change does."""

    def __call__(self, work: Callable[[Tables, int], T], /) -> T: ...
