"""The database as a value, and the time: one call of the port leads from one value to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any, NamedTuple

from metastore.backends.memory.backend import MemoryBackend
from metastore.backends.memory.tables import Tables
from metastore.clock import Clock
from metastore.errors import MetastoreError
from metastore.port.records import Origin
from metastore.port.relations import Related, Relating

__all__ = ["ORIGIN", "READS", "START", "WRITES", "Answer", "Call", "Database", "Raised", "WorldClock", "frozen"]

START = 1_767_225_600_000_000
"""When everything begins: 2026-01-01, in microseconds since 1970."""
ORIGIN = Origin("world")
"""All processes are on one database, and know it."""
WRITES = ("commit", "write_down", "help", "mark")
"""Calls whose answer can be lost: they return Unknown then."""
READS = frozenset(
    {"resolve", "by_id", "hold", "has_children", "children", "named", "names", "gone", "owned", "owned_by_name"}
    | {"history", "event_at", "unbroken", "feed", "feed_start"}
    | {"rights", "scopes", "resolve_rights", "resolve_holding", "by_id_holding", "children_chosen", "names_chosen"}
    | {"related", "related_page", "relating", "relations", "owning"}
    | {"now", "dropped_before", "purging", "below", "pending", "steps", "marked", "turn", "line"}
    | {"find_below"}
)
"""Calls that change nothing, so that the value stays as it is."""


class Call(NamedTuple):
    """One call of the port."""

    name: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.args))})"


class Raised(NamedTuple):
    """An error as an answer."""

    error: Exception


Answer = Any


class WorldClock(Clock):
    """The database's clock: it stands still until the scheduler says otherwise."""

    def __init__(self) -> None:
        self.at = START

    def monotonic(self) -> float:
        return (self.at - START) / 1_000_000

    def micros(self) -> int:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += round(seconds * 1_000_000)

    def uniform(self, low: float, high: float) -> float:
        return low


def frozen(value: Any) -> Any:
    """Return something hashable that is equal for equal answers."""
    if isinstance(value, Raised):
        return type(value.error).__name__, str(value.error)
    try:
        hash(value)
    except TypeError:
        return _frozen(value)
    return value  # most are: nothing in it can change


def _frozen(value: Any) -> Any:
    """Return a hashable copy of a value that has a list or a dictionary somewhere."""
    if isinstance(value, list | tuple):
        return getattr(value, "_make", tuple)([frozen(v) for v in value])
    if isinstance(value, dict):
        return frozenset((key, frozen(v)) for key, v in value.items())
    if isinstance(value, Related | Relating):
        return tuple([frozen(getattr(value, field.name)) for field in fields(value)])
    return value


class Database:
    """All values that the memory backend has had, each under a number."""

    def __init__(self, make: Callable[[Clock], MemoryBackend]) -> None:
        self.clock = WorldClock()
        self.backend = make(self.clock)
        self.backend._origin = ORIGIN
        self._numbers: dict[Any, int] = {}
        self._values: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return len(self._values)

    def tables(self, number: int) -> Tables:
        tables = self._values[number]["_tables"]
        assert isinstance(tables, Tables)
        return tables

    def show(self, number: int, now: int) -> MemoryBackend:
        """Return the backend with this value, to look at."""
        self.backend.__dict__.update(self._values[number])
        self.clock.at = now
        return self.backend

    def call(self, number: int, now: int, call: Call) -> tuple[int, Answer]:
        """Return the number of the value after ``call``, and its answer."""
        backend = self.show(number, now)
        if call.name not in READS:
            backend._tables = backend._tables.copy()
        try:
            answer = attrgetter(call.name)(backend)(*call.args, **dict(call.kwargs))
        except MetastoreError as error:
            answer = Raised(error)
        return (number if call.name in READS else self.keep()), answer

    def keep(self) -> int:
        """Return the number of the backend's present value."""
        value = {k: v for k, v in vars(self.backend).items() if k not in ("_clock", "_lock")}
        key = tuple([_key(v) for v in value.values()])
        number = self._numbers.setdefault(key, len(self._values))
        if number == len(self._values):
            self._values.append(value)
        return number


def _key(value: Any) -> Any:
    if not isinstance(value, Tables):
        return value
    entities = (value.stands.values(), value.bodies.items(), value.owned.items(), value.steps, value.drawn.items())
    leases = (value.leases.items(), value.waiters.items(), value.staged.items(), value.tickets.items())
    return tuple([frozenset(part) for part in (*entities, *leases, value.relations.items())])
