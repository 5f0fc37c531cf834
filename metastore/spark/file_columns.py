"""Find the columns of a table in its files. Pure.

A catalog column is read from the file column that has its first name (:mod:`metastore.spark.readable`), with the type
that the crawler saw. A cast makes it the catalog's type. The same holds for nested fields. A file's column belongs to
one column of the catalog, the oldest that claims it: if ``a`` is renamed and a new ``a`` is added, the new one is
empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metastore.columns.column import Column, with_fields
from metastore.columns.types import Nested, Type, parse
from metastore.spark.readable import Readable

__all__ = ["FileColumn", "file_columns", "file_layout"]


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A ``column`` of the catalog, and its ``source``, the column as the files have it; None if no file has it."""

    column: Column
    source: Column | None


def file_columns(readable: Readable) -> list[FileColumn]:
    """Return the table's columns, in order, each with its column in the files."""
    columns, names = readable.table.columns, readable.names
    if readable.seen is None:
        return [FileColumn(column, _renamed(column, None, names)) for column in columns]
    seen = _seen(readable)
    owners: dict[str, Column] = {}
    for column in sorted(columns, key=lambda c: c.id or 0):
        name = _name(column, names)
        if name in seen:
            owners.setdefault(name, column)
    return [
        FileColumn(column, _renamed(column, parse(seen[name]), names) if owners.get(name) is column else None)
        for column in columns
        for name in [_name(column, names)]
    ]


def file_layout(readable: Readable, sources: Sequence[FileColumn]) -> list[Column]:
    """Return all columns of the files, in their order, without those that are in folders' names."""
    known = {column.source.name: column.source for column in sources if column.source is not None}
    if readable.seen is None:
        return list(known.values())
    keys = {key for values in (readable.folders or {}).values() for key in values}
    seen = _seen(readable)
    return [known.get(name) or Column(name, seen[name]) for name in seen if name not in keys]


def _seen(readable: Readable) -> dict[str, str]:
    """Return the types of the files' columns by name, in their order."""
    columns: Mapping[str, Any] = (readable.seen or {}).get("columns", {})
    return {name: column["type"] for name, column in columns.items() if not column.get("missing")}


def _name(column: Column, names: Mapping[int, str]) -> str:
    return column.name if column.id is None else names.get(column.id, column.name)


def _renamed(column: Column, kind: Type | None, names: Mapping[int, str]) -> Column:
    """Return ``column`` under its name in the files, with the type ``kind``, else its own type."""
    plain = Column(_name(column, names), "int")
    ours = parse(column.type)
    if not isinstance(ours, Nested) or (kind is not None and kind.name != ours.name):
        return Column(plain.name, column.type if kind is None else str(kind))
    theirs = {part.name: part.type for part in kind.fields} if isinstance(kind, Nested) else {}
    parts = [_renamed(part, theirs.get(_name(part, names)), names) for part in column.fields]
    return with_fields(plain, ours.name, parts)
