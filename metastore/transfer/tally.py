"""Count and sum the lines of an export as they are written or read."""

from __future__ import annotations

from metastore.kinds.registry import kind_named
from metastore.port.conditions import LIVE
from metastore.transfer.digest import Sum, of_entity, of_owned, of_relation
from metastore.transfer.lines import Body, EntityLine, Footer, OwnedLine, RelationLine

__all__ = ["Tally"]


class Tally:
    """The counts and the two sums of the lines so far."""

    def __init__(self) -> None:
        self.entities = self.owned = self.relations = self.operations = 0
        self.owned_after = 0
        """How many owned rows and relations followed the last entity."""
        self._content, self._checksum = Sum(), Sum()
        self._dead: set[int] = set()
        self._owner: EntityLine | None = None
        self._live = True

    def add(self, line: Body, raw: bytes) -> None:
        """Count one more line; ``raw`` is its text."""
        self._checksum.add(raw)
        if isinstance(line, EntityLine):
            self._entity(line)
        elif isinstance(line, OwnedLine):
            self.owned += 1
            self.owned_after += 1
            if self._live and self._owner is not None:
                self._content.add(of_owned(self._owner.names, self._owner.family, line.kind, line.name, line.doc))
        elif isinstance(line, RelationLine):
            self.relations += 1
            self.owned_after += 1
            if self._live and self._owner is not None and line.to is not None:
                ends = (self._owner.names, self._owner.family, line.kind, line.to)
                self._content.add(of_relation(*ends, line.column, line.value))
        else:
            self.operations += 1

    def _entity(self, line: EntityLine) -> None:
        self.entities += 1
        self.owned_after = 0
        self._owner = line
        row = line.row
        self._live = not row or (row["state"] == LIVE and row["parent_id"] not in self._dead)
        if self._live:
            self._content.add(of_entity(line.names, line.family, line.kind, line.in_use, line.doc))
        elif kind_named(line.kind).container:
            self._dead.add(row["id"])

    def footer(self) -> Footer:
        """Return the last line of the export for the lines so far."""
        sums = self._content.hexdigest(), self._checksum.hexdigest()
        return Footer(self.entities, self.owned, self.operations, *sums, self.relations)
