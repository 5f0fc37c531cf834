"""The violations that ``verify`` finds, and the places of entities that it keeps in memory."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from metastore.errors import BackendUnavailable, DeadlineExceeded, MetastoreError
from metastore.kinds.registry import KINDS
from metastore.names import format_path
from metastore.port.conditions import ROOT_ID
from metastore.port.intents import CLAIMABLE, PENDING
from metastore.port.unreadable import reason

__all__ = ["UNAPPLIED", "Container", "Places", "Violation", "is_container", "surviving"]

UNAPPLIED = (PENDING, "failed", "unchanged", *CLAIMABLE)
"""The actions of operations that did not, or not yet, change anything: their rows have no position and no version."""


@dataclass(frozen=True)
class Violation:
    """A violation of an invariant in the database.

    ``invariant`` is its number in docs/correctness.md. ``path`` is where the entity is or was, if that is known.
    """

    invariant: int
    entity_id: int | None
    path: str | None
    message: str


_OF_A_ROW = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)


def surviving(violations: Iterable[Violation], entity_id: object, path: object) -> Iterator[Violation]:
    """Yield the violations of one row. A row that is too damaged to be checked is one violation, too."""
    try:
        yield from violations
    except (*_OF_A_ROW, MetastoreError) as error:
        if isinstance(error, BackendUnavailable | DeadlineExceeded):
            raise  # the database failed, and the row may be sound
        known = entity_id if isinstance(entity_id, int) else None
        where = path if isinstance(path, str) else None
        yield Violation(8, known, where, f"one of its rows cannot be checked: {reason(error)}")


class Container(NamedTuple):
    """The data that verify keeps in memory about an entity that can have children."""

    parent_id: int
    kind: str
    name: str
    fold: bool
    state: int


def is_container(kind: str) -> bool:
    """Return whether a kind can have children; for an unknown kind, assume so."""
    return kind not in KINDS or KINDS[kind].container


class Places:
    """The places of all entities: 16 bytes of memory for each, and an object for each that can have children."""

    def __init__(self, guards: Iterable[tuple[int, int, str, str, bool, int]]) -> None:
        """Take (id, parent_id, kind, name, fold, state) of all guard rows, ordered by id."""
        self.ids, self.parents = array("q"), array("q")
        self.containers: dict[int, Container] = {}
        for row_id, parent_id, kind, name, fold, state in guards:
            self.ids.append(row_id)
            self.parents.append(parent_id)
            if is_container(kind):
                self.containers[row_id] = Container(parent_id, kind, name, bool(fold), state)

    def index(self, entity_id: int) -> int | None:
        """Return the index of an id in ``ids`` and ``parents``; None: no such guard row."""
        at = bisect_left(self.ids, entity_id)
        return at if at < len(self.ids) and self.ids[at] == entity_id else None

    def __contains__(self, entity_id: int) -> bool:
        return self.index(entity_id) is not None

    def path(self, parent_id: int, name: str) -> str:
        """Return the path of ``name`` below ``parent_id``; it begins where the known chain of parents does."""
        names = [name]
        seen = set[int]()
        while parent_id != ROOT_ID and parent_id in self.containers and parent_id not in seen:
            seen.add(parent_id)
            names.append(self.containers[parent_id].name)
            parent_id = self.containers[parent_id].parent_id
        return format_path(reversed(names))

    def cycles(self) -> Iterator[Violation]:
        """Yield a violation for each chain of parents that is a cycle."""
        done = {ROOT_ID}
        for start in self.containers:
            trail: list[int] = []
            here = start
            while here not in done and here in self.containers:
                done.add(here)
                trail.append(here)
                here = self.containers[here].parent_id
            if here in trail:
                names = [self.containers[i].name for i in trail[trail.index(here) :]]
                yield Violation(2, here, format_path(reversed(names)), "it is below itself: no path leads to it")
