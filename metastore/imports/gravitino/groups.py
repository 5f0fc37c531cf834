"""The lines of an export, one group for each entity: the entity, the rows that it owns, and its relations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

from metastore.transfer.lines import EntityLine, OwnedLine, RelationLine
from metastore.transfer.parser import parse_header, parse_line

__all__ = ["SYSTEM_NAME", "Group", "groups"]

SYSTEM_NAME: Final = "gravitino"
"""The name of the origin rows."""


class Group(NamedTuple):
    """An entity, and what follows it in the file."""

    entity: EntityLine
    owned: list[OwnedLine]
    relations: list[RelationLine]

    @property
    def origin(self) -> OwnedLine | None:
        """The row that says what the entity was in Gravitino; None: it was made here."""
        return next((one for one in self.owned if one.kind == "origin" and one.name == SYSTEM_NAME), None)


def groups(file: BinaryIO) -> Iterator[Group]:
    """Yield the groups of a file that an export or an import wrote. A line that is not an entity ends the last."""
    file.seek(0)
    header = parse_header(file.readline())
    group: Group | None = None
    for text in file:
        line = parse_line(text, header, checked=True)
        if isinstance(line, OwnedLine) and group is not None:
            group.owned.append(line)
        elif isinstance(line, RelationLine) and group is not None:
            group.relations.append(line)
        else:
            if group is not None:
                yield group
            group = Group(line, [], []) if isinstance(line, EntityLine) else None
