"""Read the names and places of all live entities of a metalake, without documents, and report the orphans.

It keeps one entry in memory for each live entity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from metastore.errors import InvalidArgument
from metastore.imports.gravitino.report import Report
from metastore.imports.gravitino.source import Row, Source
from metastore.imports.gravitino.things import BELOW_METALAKE, BELOW_SCHEMA, CATALOG, METALAKE, SCHEMA, Shape
from metastore.imports.gravitino.values import DAMAGED, Key
from metastore.kinds.registry import KINDS
from metastore.names import clean_name

__all__ = ["IsTaken", "Place", "Tree", "nothing_is_taken"]

_SHOWN: Final = 5
"""How many orphans of one parent are named."""
Names = tuple[str, ...]
Place = tuple[str, Names]
"""A family and names: only one entity can have both."""
IsTaken = Callable[[Key, Names], bool]
"""Whether a place belongs to an entity that was made here, and is not the same as the given one of Gravitino."""


def nothing_is_taken(_key: Key, _names: Names) -> bool:
    """Return False, for an empty store."""
    return False


class Tree:
    """The place of each live entity whose whole chain is live."""

    def __init__(self, source: Source, metalake: Row, report: Report, is_taken: IsTaken) -> None:
        """Read a metalake."""
        self._source, self._report, self._is_taken = source, report, is_taken
        self.id = METALAKE.key(metalake)
        self.names: dict[Key, Names] = {}
        self.left: set[Key] = set()
        """Entities that exist but are not imported: the report names each, or an ancestor."""
        self._taken: dict[Place, Key] = {}
        self._add(("metalake", self.id), (), METALAKE.name(metalake))
        for shape in BELOW_METALAKE:
            self._read(shape, "metalake")
        self._read(CATALOG, "metalake")
        self._read(SCHEMA, "catalog")
        for shape in BELOW_SCHEMA:
            self._read(shape, "schema")

    def _read(self, shape: Shape, above: str) -> None:
        orphans: dict[int, list[str]] = {}
        for row in self._source.rows(shape.table, metalake_id=self.id):
            try:
                key, parent = (shape.kind, shape.key(row)), (above, int(row[f"{above}_id"]))
            except DAMAGED as error:
                what = f"{shape.kind} {row.get(f'{shape.prefix}_name')!r}: its row has no usable id"
                self._report.find("unreadable", f"{what} ({type(error).__name__})")
                continue
            if key in self.names or key in self.left:
                self._report.find("double", f"{shape.kind} {shape.name(row)!r} ({key[1]})", "the first row was taken")
            elif parent in self.names:
                self._add(key, self.names[parent], shape.name(row))
            elif parent in self.left:
                self.left.add(key)
            else:
                orphans.setdefault(parent[1], []).append(f"{shape.name(row)!r} ({key[1]})")
        for gone, names in orphans.items():
            self._report.find("orphan", _orphans(shape.kind, f"{above} {gone}", names))

    def _add(self, key: Key, parent: Names, name: str) -> None:
        try:
            names = (*parent, clean_name(name))
        except InvalidArgument as error:
            self._report.find("unreadable", f"{key[0]} {key[1]}: {error}")
            self.left.add(key)
            return
        place = (KINDS[key[0]].family, names)
        if self._is_taken(key, names):
            what = f"{key[0]} {'.'.join(names)} ({key[1]}): another one of this name was made here"
            self._report.find("taken", what, "left out, with all below it; rename one of them")
            self.left.add(key)
            return
        other = self._taken.setdefault(place, key)
        if other == key:
            self.names[key] = names
        else:
            self._report.find(
                "taken", f"{key[0]} {'.'.join(names)} ({key[1]}): {other[0]} {other[1]} has the name already"
            )
            self.left.add(key)

    def forget(self, key: Key) -> None:
        """Leave out an entity that cannot be read, and all below it."""
        names, lost = self.names.get(key, ()), [key]
        if key[0] in ("metalake", "catalog", "schema"):
            depth = len(names)
            lost += [other for other, at in self.names.items() if len(at) > depth and at[:depth] == names]
        for one in lost:
            self.names.pop(one, None)
            self.left.add(one)

    def ids(self, kind: str) -> set[int]:
        """Return the ids of all entities of a kind."""
        return {key[1] for key in self.names if key[0] == kind}

    def exists(self, key: Key) -> bool:
        """Whether an object is imported; True for columns, which are looked up with their tables."""
        return key[0] == "column" or key in self.names

    def is_left(self, key: Key) -> bool:
        """Whether an object exists but is not imported."""
        return key in self.left

    def schemas(self) -> Iterator[tuple[Key, Names]]:
        """Yield the schemas."""
        return ((key, names) for key, names in self.names.items() if key[0] == "schema")


def _orphans(kind: str, parent: str, names: list[str]) -> str:
    """Return the message about the entities of one parent that is gone; it names only some of many."""
    if len(names) == 1:
        return f"{kind} {names[0]}: its {parent} is gone"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{len(names)} of kind {kind}: their {parent} is gone: {', '.join(names[:_SHOWN])}{more}"
