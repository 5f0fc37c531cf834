"""Apply a client's updates to a table's metadata."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssignUUIDUpdate,
    RemovePartitionStatisticsUpdate,
    RemovePropertiesUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    SetPartitionStatisticsUpdate,
    SetPropertiesUpdate,
    SetStatisticsUpdate,
    TableUpdate,
    update_table_metadata,
)

from metastore.pyiceberg.layouts import check_added, check_versions
from metastore.pyiceberg.numbering import numbered
from metastore.pyiceberg.room import with_room
from metastore.pyiceberg.sharing import shared, upgraded
from metastore.pyiceberg.statistics import SetAnyStatistics

__all__ = ["created", "updated"]

T = TypeVar("T", int, str)
_MISFITS: Final = (AssertionError, AttributeError, IndexError, LookupError, StopIteration, TypeError)
"""The errors, besides ValueError, that PyIceberg raises for updates that do not fit the metadata."""


def updated(
    metadata: TableMetadata, updates: tuple[TableUpdate, ...], location: str, held: TableMetadata | None = None
) -> TableMetadata:
    """Return the metadata, which the file ``location`` has, with the updates applied. Raises ValueError.

    ``held``: the table's metadata as the client has it; see `with_room`.
    """
    for update in updates:
        if isinstance(update, AssignUUIDUpdate) and update.uuid != metadata.table_uuid:
            # clients that have loaded the table would take it for a different table
            raise ValueError(f"a table's UUID cannot change: it is {metadata.table_uuid}")
    check_versions(updates)
    base = with_room(metadata, updates, held)
    fitting = tuple(_there(base, numbered(base, updates)))
    try:
        after = upgraded(update_table_metadata(base, fitting, metadata_location=location), metadata)
    except _MISFITS as error:
        raise ValueError(f"the updates do not fit the table{_why(error)}") from error
    check_added(metadata, after)
    return after


def created(nothing: TableMetadata, updates: tuple[TableUpdate, ...]) -> TableMetadata:
    """Return the metadata of the new table that the updates make from PyIceberg's empty metadata. Raises ValueError."""
    check_versions(updates)
    try:
        return shared(update_table_metadata(nothing, numbered(nothing, updates), enforce_validation=True))
    except _MISFITS as error:
        parts = "a schema, a partition spec, a sort order and a location"
        raise ValueError(f"a new table needs {parts}{_why(error)}") from error


def _there(metadata: TableMetadata, updates: tuple[TableUpdate, ...]) -> Iterator[TableUpdate]:
    """Yield the updates without removals of properties, snapshots and statistics that no longer exist.

    Another writer may have removed them. Iceberg's Java library ignores such removals, too.
    """
    has = _Removable(metadata)
    for update in updates:
        kept = has.without_gone(update)
        if kept is not None:
            has.add(kept)
            yield SetAnyStatistics.of(kept) if isinstance(kept, SetStatisticsUpdate) else kept


class _Removable:
    """The parts of a table that updates remove, while they are applied one by one."""

    def __init__(self, metadata: TableMetadata) -> None:
        self._properties = set(metadata.properties)
        self._snapshots = {snapshot.snapshot_id for snapshot in metadata.snapshots}
        self._statistics = {one.snapshot_id for one in metadata.statistics}
        self._of_partitions = {one.snapshot_id for one in metadata.partition_statistics}

    def without_gone(self, update: TableUpdate) -> TableUpdate | None:
        """Return an update without removals of missing parts, and note its other removals; None if nothing is left."""
        match update:
            case RemovePropertiesUpdate():
                removals = _taken(update.removals, self._properties)
                return RemovePropertiesUpdate(removals=removals)
            case RemoveSnapshotsUpdate():
                there = _taken(update.snapshot_ids, self._snapshots)
                return update.model_copy(update={"snapshot_ids": there}) if there else None
            case RemoveStatisticsUpdate():
                return update if _taken([update.snapshot_id], self._statistics) else None
            case RemovePartitionStatisticsUpdate():
                return update if _taken([update.snapshot_id], self._of_partitions) else None
            case _:
                return update

    def add(self, update: TableUpdate) -> None:
        """Note the parts that an update adds."""
        match update:
            case SetPropertiesUpdate():
                self._properties.update(update.updates)
            case AddSnapshotUpdate():
                self._snapshots.add(update.snapshot.snapshot_id)
            case SetStatisticsUpdate():
                self._statistics.add(update.statistics.snapshot_id)
            case SetPartitionStatisticsUpdate():
                self._of_partitions.add(update.partition_statistics.snapshot_id)


def _taken(wanted: Iterable[T], there: set[T]) -> list[T]:
    """Remove the wanted items from ``there``, and return those that it had."""
    found = [one for one in dict.fromkeys(wanted) if one in there]
    there.difference_update(found)
    return found


def _why(error: Exception) -> str:
    return f": {type(error).__name__}: {error}" if str(error) else ""
