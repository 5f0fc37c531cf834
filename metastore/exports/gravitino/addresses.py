"""Find each entity's place in Gravitino: its id there, and the ids of the metalake, catalog and schema above it.

An imported entity keeps Gravitino's id. Any other entity gets an id that is computed from the store's id, so that every
export gives the same one. It keeps one entry in memory for each entity.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from metastore.imports.gravitino.groups import Group
from metastore.imports.gravitino.identity import made_id
from metastore.imports.gravitino.things import BELOW_METALAKE, BELOW_SCHEMA, CATALOG, METALAKE, SCHEMA, Shape

__all__ = ["SHAPES", "Address", "Addresses"]

Names = tuple[str, ...]
SHAPES: Final = {shape.kind: shape for shape in (METALAKE, CATALOG, SCHEMA, *BELOW_METALAKE, *BELOW_SCHEMA)}
_ABOVE: Final = ("metalake", "catalog", "schema")


class Address(NamedTuple):
    """Gravitino's id of an entity, and the ids above it, the metalake's first."""

    shape: Shape
    id: int
    above: tuple[int, ...]

    @property
    def ids(self) -> dict[str, int]:
        """The columns with the ids above, and with its own id."""
        above = {f"{kind}_id": key for kind, key in zip(_ABOVE, self.above, strict=False)}
        return {**above, f"{self.shape.prefix}_id": self.id}


class Addresses:
    """The addresses of the exported entities, by kind and names."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, Names], Address] = {}
        self._taken: set[tuple[str, int]] = set()

    def add(self, group: Group) -> Address | str:
        """Return the address of an entity whose parent was added before; or why Gravitino has none."""
        line = group.entity
        shape, depth = SHAPES.get(line.kind), len(line.names) - 1
        if shape is None:
            return f"Gravitino has no {line.kind}"
        if depth != _depth(shape):
            return f"a {line.kind} cannot be on level {depth + 1} there"
        above: tuple[int, ...] = ()
        if depth:
            parent = self._of.get((_ABOVE[depth - 1], line.names[:-1]))
            if parent is None:
                return f"its {_ABOVE[depth - 1]} is left out"
            above = (*parent.above, parent.id)
        address = Address(shape, self._id(group), above)
        self._taken.add((line.kind, address.id))
        self._of[line.kind, line.names] = address
        return address

    def forget(self, kind: str, names: Names) -> None:
        """Leave out an entity that has no row in Gravitino."""
        del self._of[kind, names]

    def parent_is_there(self, names: Names) -> bool:
        """Whether the parent of these names is exported."""
        return len(names) == 1 or (_ABOVE[len(names) - 2], names[:-1]) in self._of

    def get(self, kind: str, names: Names) -> Address | None:
        """Return the address of an entity; None if it is left out."""
        return self._of.get((kind, names))

    def _id(self, group: Group) -> int:
        """Return the id that the entity had in Gravitino, or a new one.

        A copy has the origin of its original, so it gets a new id.
        """
        line, origin = group.entity, group.origin
        if origin is not None and (line.kind, int(origin.doc["key"])) not in self._taken:
            return int(origin.doc["key"])
        return made_id(line.kind, line.row["id"], line.audit["created_at"])


def _depth(shape: Shape) -> int:
    return 3 if shape in BELOW_SCHEMA else 1 if shape in BELOW_METALAKE else _ABOVE.index(shape.kind)
