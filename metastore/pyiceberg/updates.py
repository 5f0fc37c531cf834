"""Apply a client's updates to a table's metadata."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssignUUIDUpdate,
    RemovePropertiesUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    TableUpdate,
    update_table_metadata,
)

from metastore.pyiceberg.numbering import numbered
from metastore.pyiceberg.room import with_room
from metastore.pyiceberg.sharing import shared

__all__ = ["created", "updated"]

_MISFITS: Final = (AssertionError, AttributeError, IndexError, LookupError, StopIteration, TypeError)
"""What PyIceberg raises for updates that do not fit, besides ValueError."""


def updated(
    metadata: TableMetadata, updates: tuple[TableUpdate, ...], location: str, held: TableMetadata | None = None
) -> TableMetadata:
    """Return the metadata, which the file ``location`` has, with the updates applied. Raises ValueError.

    ``held``: the table's metadata as the client has it; see `with_room`.
    """
    for update in updates:
        if isinstance(update, AssignUUIDUpdate) and update.uuid != metadata.table_uuid:
            # clients that hold the table would not know it any more
            raise ValueError(f"a table's UUID cannot change: it is {metadata.table_uuid}")
    base = with_room(metadata, updates, held)
    fitting = tuple(_there(base, numbered(base, updates)))
    try:
        return shared(update_table_metadata(base, fitting, metadata_location=location))
    except _MISFITS as error:
        raise ValueError(f"the updates do not fit the table{_why(error)}") from error


def created(nothing: TableMetadata, updates: tuple[TableUpdate, ...]) -> TableMetadata:
    """Return the metadata of the new table that the updates make of PyIceberg's empty metadata. Raises ValueError."""
    try:
        return shared(update_table_metadata(nothing, numbered(nothing, updates), enforce_validation=True))
    except _MISFITS as error:
        parts = "a schema, a partition spec, a sort order and a location"
        raise ValueError(f"a new table needs {parts}{_why(error)}") from error


def _there(metadata: TableMetadata, updates: tuple[TableUpdate, ...]) -> Iterator[TableUpdate]:
    """Yield the updates without the removals of properties and snapshots that are gone.

    Another writer may have removed them. Iceberg's Java library leaves them out, too.
    """
    has = set(metadata.properties)
    snapshots = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    for update in updates:
        match update:
            case RemovePropertiesUpdate():
                removals = [key for key in dict.fromkeys(update.removals) if key in has]
                has.difference_update(removals)
                yield RemovePropertiesUpdate(removals=removals)
            case RemoveSnapshotsUpdate():
                if there := [number for number in dict.fromkeys(update.snapshot_ids) if number in snapshots]:
                    snapshots.difference_update(there)
                    yield update.model_copy(update={"snapshot_ids": there})
            case _:
                if isinstance(update, SetPropertiesUpdate):
                    has.update(update.updates)
                elif isinstance(update, AddSnapshotUpdate):
                    snapshots.add(update.snapshot.snapshot_id)
                yield update


def _why(error: Exception) -> str:
    return f": {type(error).__name__}: {error}" if str(error) else ""
