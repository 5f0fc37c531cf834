"""Check that the rows of a file with ids are consistent, because a restore writes them unchanged.

Otherwise the database would refuse rows in the middle of the restore, or have relations that lead nowhere. It keeps in
memory the id of each row, and for each entity two more entries in sets: its id and 16 bytes for its place.
"""

from __future__ import annotations

from hashlib import blake2b

from metastore.errors import InvalidArgument
from metastore.kinds.kind import to_json
from metastore.names import format_path
from metastore.port.conditions import LIVE
from metastore.port.relations import NO_COLUMN
from metastore.transfer.lines import EntityLine, RelationLine

__all__ = ["Ids", "check_column", "column_at"]


class Ids:
    """The ids in a file: those of its entities, and those to which its relations lead."""

    def __init__(self) -> None:
        self._taken = set[int]()
        """The ids of all rows so far."""
        self._entities = set[int]()
        self._places = set[bytes]()
        self._wanted: dict[int, str] = {}
        """The ids of entities that relations name, but that have not been read yet; each with one such relation."""

    def entity(self, line: EntityLine, path: str) -> None:
        """Note an entity. Raises InvalidArgument if another entity has its id, or is live in its place."""
        row = line.row
        self.take(row["id"], path)
        self._entities.add(row["id"])
        self._wanted.pop(row["id"], None)
        if row["state"] == LIVE:
            text = to_json([row["parent_id"], line.family, row["key"]])
            place = blake2b(text.encode(), digest_size=16).digest()
            if place in self._places:
                raise InvalidArgument(f"the file has {path} twice")
            self._places.add(place)

    def take(self, row_id: int, what: str) -> None:
        """Note the id of an entity, an owned row or a relation. Raises InvalidArgument if another one has it."""
        if row_id in self._taken:
            raise InvalidArgument(f"{what}: another line of the file has its id {row_id}")
        self._taken.add(row_id)

    def leads_to(self, row_id: int, what: str) -> None:
        """Note that a relation leads to an entity."""
        if row_id not in self._entities:
            self._wanted.setdefault(row_id, what)

    def finish(self) -> None:
        """Raise InvalidArgument for a relation to an entity that the file does not have."""
        for row_id, what in self._wanted.items():
            raise InvalidArgument(f"{what} leads to the id {row_id}, and the file has no entity with this id")


def check_column(line: RelationLine, owner: EntityLine) -> None:
    """Raise InvalidArgument if a relation's column is not the one at its path, or never existed."""
    column = line.row["column_id"]
    if line.column is None:
        known = column == NO_COLUMN or 0 < column <= owner.doc.get("last_column_id", 0)
    else:
        known = column == column_at(line.column, owner.doc.get("columns", ()))
    if not known:
        named = "" if line.column is None else f", which is not {format_path(line.column)}"
        what = f"the relation {line.kind} of {format_path(owner.names)}"
        raise InvalidArgument(f"{what} goes from the column {column}{named}")


def column_at(path: tuple[str, ...], columns: object) -> object:
    """Return the id of a column, or of a field in one; None: there is none at this path."""
    found: object = None
    for name in path:
        one = next((one for one in _objects(columns) if one.get("name") == name), None)
        if one is None:
            return None
        found, columns = one.get("id"), one.get("fields", ())
    return found


def _objects(value: object) -> list[dict[str, object]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list | tuple) else []
