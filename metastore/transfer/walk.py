"""Walk the tree in one snapshot, level by level: parents before their children, in chunks.

It keeps in memory one object for each entity that can have children, of two levels at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from metastore.errors import EntityNotFound
from metastore.kinds.registry import kind_named
from metastore.port.conditions import LIVE, ROOT_ID
from metastore.port.snapshot import TableSnapshot
from metastore.port.unreadable import too_deep

__all__ = ["GuardRow", "Visit", "batched", "find", "walk"]

T = TypeVar("T")

_CHUNK = 500
_PARENTS = 200
"""For how many parents one statement reads the children."""


class GuardRow(NamedTuple):
    """The guard row of an entity, which has its place and its state."""

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
    mark: Any
    marked_at: int | None
    marked_until: int | None
    quiet_until: int | None


class _Spot(NamedTuple):
    """An entity that can have children: the names and the families on the path to it."""

    names: tuple[str, ...]
    families: tuple[str, ...]


class Visit(NamedTuple):
    """An entity that was found, and the names and families on the path to it."""

    row: GuardRow
    names: tuple[str, ...]
    under: tuple[str, ...]


def batched(items: Iterable[T], count: int) -> Iterator[list[T]]:
    """Yield the items in lists of ``count``."""
    rest = iter(items)
    while batch := list(islice(rest, count)):
        yield batch


def find(snapshot: TableSnapshot, entity_id: int, path: str) -> tuple[GuardRow, tuple[str, ...]]:
    """Return a live entity's row and its names. Raises EntityNotFound."""
    names: list[str] = []
    seen: set[int] = set()
    guard: GuardRow | None = None
    while entity_id != ROOT_ID:
        row = next(iter(snapshot.rows("guard", GuardRow._fields, ("id",), [entity_id])), None)
        above = None if row is None else GuardRow(*row)
        if above is None or above.state != LIVE:
            raise EntityNotFound(path, f"{path} was dropped meanwhile; load it again")
        guard = guard or above
        names.append(above.name)
        if above.id in seen:
            raise too_deep(guard.kind, guard.id)
        seen.add(above.id)
        entity_id = above.parent_id
    assert guard is not None
    return guard, tuple(reversed(names))


def walk(snapshot: TableSnapshot, root: GuardRow | None, *, gone: bool) -> Iterator[list[Visit]]:
    """Yield ``root`` and all below (None: everything) in chunks, each by id. ``gone``: also dropped entities."""
    level = {ROOT_ID: _Spot((), ())}
    if root is not None:
        yield [Visit(root, (root.name,), ())]
        level = {root.id: _Spot((root.name,), (root.family,))} if kind_named(root.kind).container else {}
    while level:
        below: dict[int, _Spot] = {}
        for parents in batched(level, _PARENTS):
            rows = (GuardRow(*row) for row in snapshot.below(parents, GuardRow._fields, gone=gone))
            for chunk in batched(rows, _CHUNK):
                visits = [_visit(row, level[row.parent_id]) for row in sorted(chunk)]
                for row, names, under in visits:
                    if kind_named(row.kind).container:
                        below[row.id] = _Spot(names, (*under, row.family))
                yield visits
        level = below


def _visit(row: GuardRow, parent: _Spot) -> Visit:
    return Visit(row, (*parent.names, row.name), parent.families)
