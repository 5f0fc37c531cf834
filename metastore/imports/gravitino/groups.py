"""The lines of an export, one group for each entity: the entity, the rows that it owns, and its relations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final, NamedTuple

from metastore.transfer.lines import Body, EntityLine, Footer, OwnedLine, RelationLine
from metastore.transfer.parser import parse_header, parse_line

__all__ = ["SYSTEM_NAME", "Group", "Grouping", "grouped", "groups"]

SYSTEM_NAME: Final = "gravitino"
"""The name of the origin rows."""


class Group(NamedTuple):
    """An entity, with the lines of its rows and relations."""

    entity: EntityLine
    owned: list[OwnedLine]
    relations: list[RelationLine]

    @property
    def origin(self) -> OwnedLine | None:
        """The row with the entity's id in Gravitino; None if the entity was made here."""
        return next((one for one in self.owned if one.kind == "origin" and one.name == SYSTEM_NAME), None)


class Grouping:
    """Collects lines into groups, one line after another."""

    def __init__(self) -> None:
        self._group: Group | None = None

    def add(self, line: Body | Footer | None) -> Group | None:
        """Take the next line (None: the end), and return the group that ends before it."""
        group = self._group
        if isinstance(line, OwnedLine) and group is not None:
            group.owned.append(line)
        elif isinstance(line, RelationLine) and group is not None:
            group.relations.append(line)
        else:
            self._group = Group(line, [], []) if isinstance(line, EntityLine) else None
            return group
        return None


def grouped(lines: Iterable[Body | Footer]) -> Iterator[Group]:
    """Yield the groups of the lines of an export. A line that is not one of its rows ends a group."""
    grouping = Grouping()
    for line in lines:
        if (group := grouping.add(line)) is not None:
            yield group
    if (group := grouping.add(None)) is not None:
        yield group


def groups(file: BinaryIO) -> Iterator[Group]:
    """Yield the groups of a file that an export or an import wrote."""
    file.seek(0)
    header = parse_header(file.readline())
    return grouped(parse_line(text, header, checked=True) for text in file)
