"""Read the names and places of all live entities of a metalake, without documents, and name the orphans.

Memory: one entry for each live entity.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from metastore.errors import InvalidArgument
from metastore.imports.gravitino.links import Key
from metastore.imports.gravitino.report import Report
from metastore.imports.gravitino.source import Row, Source
from metastore.imports.gravitino.things import BELOW_METALAKE, BELOW_SCHEMA, CATALOG, METALAKE, SCHEMA, Shape
from metastore.names import clean_name

__all__ = ["Tree"]

Names = tuple[str, ...]
_FAMILIES: Final = {"view": "table"}


class Tree:
    """Where each live entity stands whose whole chain is live."""

    def __init__(self, source: Source, metalake: Row, report: Report) -> None:
        self._source, self._report = source, report
        self.id = METALAKE.key(metalake)
        self.names: dict[Key, Names] = {}
        self._taken: dict[tuple[str, Names], Key] = {}
        root = ("metalake", self.id)
        self._add(root, (), METALAKE.name(metalake))
        for shape in BELOW_METALAKE:
            self._read(shape, "metalake", "metalake_id")
        self._read(CATALOG, "metalake", "metalake_id")
        self._read(SCHEMA, "catalog", "catalog_id")
        for shape in BELOW_SCHEMA:
            self._read(shape, "schema", "schema_id")

    def _read(self, shape: Shape, above: str, column: str) -> None:
        for row in self._source.rows(shape.table, metalake_id=self.id):
            parent = self.names.get((above, int(row[column])))
            key = (shape.kind, shape.key(row))
            if parent is None:
                self._report.find(
                    "orphan", f"{shape.kind} {shape.name(row)!r} ({key[1]}): its {above} {row[column]} is gone"
                )
            else:
                self._add(key, parent, shape.name(row))

    def _add(self, key: Key, parent: Names, name: str) -> None:
        try:
            names = (*parent, clean_name(name))
        except InvalidArgument as error:
            self._report.find("unreadable", f"{key[0]} {key[1]}: {error}")
            return
        place = (_FAMILIES.get(key[0], key[0]), names)
        other = self._taken.setdefault(place, key)
        if other == key:
            self.names[key] = names
        else:
            self._report.find(
                "taken", f"{key[0]} {'.'.join(names)} ({key[1]}): {other[0]} {other[1]} has the name already"
            )

    def forget(self, key: Key) -> None:
        """Leave an entity out that cannot be read."""
        self.names.pop(key, None)

    def ids(self, kind: str) -> set[int]:
        """Return the ids of all entities of a kind."""
        return {key[1] for key in self.names if key[0] == kind}

    def exists(self, key: Key) -> bool:
        """Whether an object is there; columns are looked for with their tables."""
        return key[0] == "column" or key in self.names

    def schemas(self) -> Iterator[tuple[Key, Names]]:
        """Yield the schemas."""
        return ((key, names) for key, names in self.names.items() if key[0] == "schema")
