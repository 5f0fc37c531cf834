"""Show an Iceberg schema as columns of the store, and the difference of two schemas as changes of columns.

Iceberg's field ids identify the fields. So a renamed field stays one column, with the id that the store gave it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    FixedType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
)

from metastore.columns.column import Column
from metastore.kinds.change import EntityChange
from metastore.kinds.table.changes import (
    FIRST,
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    RetypeColumn,
    SetColumnComment,
    SetColumnNullable,
)

__all__ = ["column_changes", "columns_of", "spell"]

Names = tuple[str, ...]

_ATOMIC: Final = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "time": "time",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
    "timestamp_ns": "timestamp(9)",
    "timestamptz_ns": "timestamptz(9)",
    "string": "string",
    "uuid": "uuid",
    "binary": "binary",
}


def columns_of(schema: Schema) -> tuple[Column, ...]:
    """Return the columns that show an Iceberg schema."""
    return tuple(_column(field) for field in schema.fields)


def column_changes(before: Schema, after: Schema) -> tuple[EntityChange, ...]:
    """Return the changes that turn the columns of ``before`` into those of ``after``."""
    return tuple(_struct_changes((), before.fields, after.fields))


def spell(kind: IcebergType) -> str:
    """Return an Iceberg type in the store's language. A type that the store does not know becomes an external one."""
    if isinstance(kind, StructType):
        fields = ", ".join(f"{_quoted(f.name)}: {spell(f.field_type)}{_null(f.required)}" for f in kind.fields)
        return f"struct<{fields}>"
    if isinstance(kind, ListType):
        return f"list<{spell(kind.element_type)}{_null(kind.element_required)}>"
    if isinstance(kind, MapType):
        return f"map<{spell(kind.key_type)},{spell(kind.value_type)}{_null(kind.value_required)}>"
    if isinstance(kind, DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    if isinstance(kind, FixedType):
        return f"fixed({len(kind)})"
    known = _ATOMIC.get(str(kind))
    return known if known is not None else f'external("{str(kind).replace(chr(34), chr(34) * 2)}")'


def _null(required: bool) -> str:
    return " not null" if required else ""


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _column(field: NestedField) -> Column:
    return Column(field.name, spell(field.field_type), nullable=not field.required, comment=field.doc)


def _struct_changes(
    above: Names, before: Sequence[NestedField], after: Sequence[NestedField]
) -> Iterator[EntityChange]:
    """Yield the changes of the fields of one struct (or of the table) whose path is ``above``."""
    new = {field.field_id: field for field in after}
    old = {field.field_id: field for field in before}
    for field in before:
        if field.field_id not in new:
            yield DropColumn((*above, field.name))
    kept = [field for field in before if field.field_id in new]
    yield from _renames(above, [(field.name, new[field.field_id].name) for field in kept])
    for field in kept:
        yield from _field_changes((*above, new[field.field_id].name), field, new[field.field_id])
    order = [new[field.field_id].name for field in kept]
    for place, field in enumerate(after):
        previous = after[place - 1].name if place else FIRST
        if field.field_id not in old:
            yield _added(above, field, previous)
            order.insert(place, field.name)
        elif order[place] != field.name:
            yield MoveColumn((*above, field.name), previous)
            order.remove(field.name)
            order.insert(place, field.name)


def _added(above: Names, field: NestedField, after: str) -> AddColumn:
    column = _column(field)
    return AddColumn((*above, field.name), column.type, nullable=column.nullable, comment=column.comment, after=after)


def _renames(above: Names, pairs: Iterable[tuple[str, str]]) -> Iterator[EntityChange]:
    """Yield the renames in an order in which each new name is free; a cycle of names goes through a temporary name."""
    waiting = {old: new for old, new in pairs if old != new}
    while waiting:
        free = [old for old, new in waiting.items() if new not in waiting]
        for old in free:
            yield RenameColumn((*above, old), waiting.pop(old))
        if not free:
            old = next(iter(waiting))
            between = _between(old, waiting)
            yield RenameColumn((*above, old), between)
            waiting[between] = waiting.pop(old)


def _between(name: str, taken: dict[str, str]) -> str:
    """Return a name that no field of the cycle has."""
    candidate = f"{name[:200]}~"
    while candidate in taken or candidate in taken.values():
        candidate += "~"
    return candidate


def _field_changes(path: Names, old: NestedField, new: NestedField) -> Iterator[EntityChange]:
    if (old.doc or None) != (new.doc or None):
        yield SetColumnComment(path, new.doc or None)
    if old.required != new.required:
        yield SetColumnNullable(path, not new.required)
    yield from _type_changes(path, old.field_type, new.field_type)


def _type_changes(path: Names, old: IcebergType, new: IcebergType) -> Iterator[EntityChange]:
    """Yield the changes of one type: those of its parts if it is nested, else a new type."""
    if isinstance(old, StructType) and isinstance(new, StructType):
        yield from _struct_changes(path, old.fields, new.fields)
    elif isinstance(old, ListType) and isinstance(new, ListType):
        yield from _field_changes((*path, "element"), old.element_field, new.element_field)
    elif isinstance(old, MapType) and isinstance(new, MapType):
        yield from _type_changes((*path, "key"), old.key_type, new.key_type)
        yield from _field_changes((*path, "value"), old.value_field, new.value_field)
    elif spell(old) != spell(new):
        yield RetypeColumn(path, spell(new))
