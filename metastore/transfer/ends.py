"""Check the relations of a file without ids: both ends are in the file, and of kinds that the relation can have.

It keeps in memory the paths that relations lead to. If a kind is unknown here, it also keeps the families on the path.
"""

from __future__ import annotations

from metastore.errors import InvalidArgument
from metastore.kinds.registry import KINDS
from metastore.kinds.relation import Relation
from metastore.kinds.tag import clean_value
from metastore.names import format_path
from metastore.transfer.lines import EntityLine, RelationLine
from metastore.transfer.rows import column_at

__all__ = ["End", "Ends"]

End = tuple[str | None, tuple[str, ...]]
"""The kind and the names of an entity to which a relation leads."""


class Ends:
    """The ends of relations that have not been found in the file yet."""

    def __init__(self) -> None:
        self.wanted: dict[End, str] = {}
        """By kind and path: one relation that leads there."""
        self.families: dict[End, tuple[str, ...]] = {}
        """The families of the names on the paths to ends of unknown kinds."""

    def relation(self, relation: Relation, line: RelationLine, owner: EntityLine) -> None:
        """Note a relation. Raises InvalidArgument for a wrong kind, a column that is not there, a wrong value."""
        assert line.to is not None
        assert line.to_kind is not None
        what = f"the relation {line.kind} of {format_path(owner.names)}"
        relation.check_end(owner.kind, far=False)
        relation.check_end(line.to_kind, far=True)
        if line.value:
            clean_value(line.value)
        if line.column is not None:
            if not relation.columns:
                raise InvalidArgument(f"{what} cannot go from a column")
            if column_at(line.column, owner.doc.get("columns")) is None:
                raise InvalidArgument(f"{what} goes from the column {format_path(line.column)}, which it does not have")
        self.wanted.setdefault((line.to_kind, line.to), what)

    def entity(self, line: EntityLine) -> None:
        """Note an entity of the file."""
        end = line.kind, line.names
        if self.wanted.pop(end, None) is not None and line.kind not in KINDS:
            self.families[end] = (*line.under, line.family)

    def finish(self) -> None:
        """Raise InvalidArgument for a relation to an entity that the file does not have."""
        for (kind, names), what in self.wanted.items():
            raise InvalidArgument(f"{what} leads to the {kind} {format_path(names)}, which the file does not have")
