"""The changes of a table as lines that a person reads. Pure.

    + speed double                    a new column                   ~ id int -> long      a new type
    + partition month=8               a new partition                - partition month=1   a removed partition
    + property crawl.header = true    a property                     ~ location file:///a -> file:///b
    - old (in no file any more; kept)                                ! id long in the files (int is kept)

A line that begins with ``!`` or contains "kept" shows a difference that is not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from metastore.columns.column import Column
from metastore.kinds.change import EntityChange, RemoveProperty, SetProperty
from metastore.kinds.table.changes import AddColumn, RetypeColumn, SetColumnNullable, SetFormat, SetLocation
from metastore.names import format_path

__all__ = ["column_lines", "lines_of", "partition_lines"]

_MOST: Final = 20
"""How many partitions are named; the others are only counted."""


def column_lines(columns: Iterable[Column]) -> Iterator[str]:
    """Yield the columns of a new table."""
    return (f"+ {column.name} {column.type}{'' if column.nullable else ' not null'}" for column in columns)


def lines_of(
    changes: Iterable[EntityChange], types: Mapping[str, str], properties: Mapping[str, str], place: tuple[str, str]
) -> Iterator[str]:
    """Yield a line for each change of a table with these types, properties, format and location."""
    for change in changes:
        match change:
            case AddColumn(path, kind, nullable=nullable):
                yield f"+ {format_path(path)} {kind}{'' if nullable else ' not null'}"
            case RetypeColumn(path, kind):
                yield f"~ {format_path(path)} {types.get(path[0], '?')} -> {kind}"
            case SetColumnNullable(path, nullable):
                yield f"~ {format_path(path)} {'not null -> nullable' if nullable else 'nullable -> not null'}"
            case SetProperty(key, value):
                there = properties.get(key)
                sign, before = ("+", "") if there is None else ("~", f"{there} -> ")
                yield f"{sign} property {key} = {before}{value}"
            case RemoveProperty(key):
                yield f"- property {key}"
            case SetFormat(value):
                yield f"~ format {place[0]} -> {value}"
            case SetLocation(value):
                yield f"~ location {place[1]} -> {value}"
            case _:
                yield f"~ {change!r}"


def partition_lines(parts: Iterable[str], replaced: frozenset[str], removed: Iterable[str]) -> Iterator[str]:
    """Yield a line for each partition that is added, changed or removed; at most twenty of each."""
    parts = list(parts)
    for sign, names in (
        ("+", [name for name in parts if name not in replaced]),
        ("~", [name for name in parts if name in replaced]),
        ("-", list(removed)),
    ):
        yield from (f"{sign} partition {name}" for name in names[:_MOST])
        if len(names) > _MOST:
            yield f"{sign} {len(names) - _MOST} more partitions"
