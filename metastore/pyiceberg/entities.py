"""Show an Iceberg table in the store: its columns, location, format, properties, and the pointer to its metadata."""

from __future__ import annotations

from typing import Any, Final

from pyiceberg.table.metadata import TableMetadata

from metastore.kinds.change import EntityChange, RemoveProperty, SetComment, SetProperty
from metastore.kinds.table.changes import AddColumn, DropColumn, SetLocation
from metastore.kinds.table.kind import Table
from metastore.pyiceberg.columns import column_changes, columns_of

__all__ = [
    "FORMAT",
    "POINTER",
    "UUID_OF",
    "fields_of",
    "fresh_columns",
    "pointer_changes",
    "pointer_of",
    "schema_changes",
]

POINTER: Final = "metadata_location"
"""The property that names the current metadata file. A commit is the compare-and-swap of its value."""
_PREVIOUS: Final = "previous_metadata_location"
_SNAPSHOT: Final = "current_snapshot_id"
_OPERATION: Final = "current_snapshot_operation"
UUID_OF: Final = "table_uuid"
FORMAT: Final = "iceberg"
_COMMENT: Final = "comment"
_OWN: Final = frozenset({POINTER, _PREVIOUS, _SNAPSHOT, _OPERATION, UUID_OF})
"""Properties that the catalog writes. A table's own property of this name is only in its metadata file."""


def pointer_of(table: Table) -> str | None:
    """Return the location of a table's metadata file; None if it is not an Iceberg table."""
    return table.properties.get(POINTER) if table.format == FORMAT else None


def fields_of(metadata: TableMetadata, location: str, previous: str | None = None) -> dict[str, Any]:
    """Return the arguments of ``tables.create`` for an Iceberg table."""
    return {
        "columns": columns_of(metadata.schema()),
        "location": metadata.location,
        "format": FORMAT,
        "comment": metadata.properties.get(_COMMENT),
        "properties": _properties(metadata, location, previous),
    }


def _properties(metadata: TableMetadata, location: str, previous: str | None) -> dict[str, str]:
    shown = {key: str(value) for key, value in metadata.properties.items() if key not in _OWN and key != _COMMENT}
    snapshot = metadata.current_snapshot()
    own = {
        POINTER: location,
        _PREVIOUS: previous,
        UUID_OF: str(metadata.table_uuid),
        _SNAPSHOT: None if metadata.current_snapshot_id is None else str(metadata.current_snapshot_id),
        _OPERATION: None if snapshot is None or snapshot.summary is None else snapshot.summary.operation.value,
    }
    return shown | {key: value for key, value in own.items() if value is not None}


def pointer_changes(
    before: TableMetadata, before_location: str, after: TableMetadata, location: str
) -> tuple[EntityChange, ...]:
    """Return the changes of one commit, except those of columns. The swap of the pointer comes first."""
    old = _properties(before, before_location, None)
    new = _properties(after, location, before_location)
    changes: list[EntityChange] = [SetProperty(POINTER, location, expected=before_location)]
    changes += [SetProperty(key, value) for key, value in new.items() if key != POINTER and old.get(key) != value]
    changes += [RemoveProperty(key) for key in old if key not in new]
    if before.location != after.location:
        changes.append(SetLocation(after.location))
    if before.properties.get(_COMMENT) != after.properties.get(_COMMENT):
        changes.append(SetComment(after.properties.get(_COMMENT)))
    return tuple(changes)


def schema_changes(before: TableMetadata, after: TableMetadata) -> tuple[EntityChange, ...]:
    """Return the changes of columns of one commit."""
    return column_changes(before.schema(), after.schema()) if before.schema() != after.schema() else ()


def fresh_columns(entity: Table, after: TableMetadata) -> tuple[EntityChange, ...]:
    """Return changes that replace all columns, for a table whose columns differ from its metadata."""
    dropped = [DropColumn((column.name,)) for column in entity.columns]
    added = [AddColumn((c.name,), c.type, nullable=c.nullable, comment=c.comment) for c in columns_of(after.schema())]
    return (*dropped, *added)
