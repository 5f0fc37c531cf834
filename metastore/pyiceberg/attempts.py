"""What a client wants to commit to Iceberg tables, and one attempt at each table: its files and its changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate

from metastore.errors import VersionConflict
from metastore.kinds.change import EntityChange
from metastore.kinds.table.kind import Table
from metastore.pyiceberg.columns import columns_of
from metastore.pyiceberg.entities import fields_of, fresh_columns, pointer_changes, pointer_of, schema_changes

if TYPE_CHECKING:
    from metastore.transaction.transaction import Transaction

__all__ = ["Created", "Current", "Prepared", "TableCommit", "TableCreation"]


@dataclass(frozen=True)
class Current:
    """The current state of an Iceberg table: its entity, its metadata, and the location of its metadata file."""

    entity: Table
    metadata: TableMetadata
    location: str


@dataclass(frozen=True)
class TableCommit:
    """The changes that a client wants to make to one table.

    ``load`` reads the table, and is called again for each attempt. ``held``: the table's metadata as the client has it;
    None: unknown.
    """

    load: Callable[[], Current]
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]
    held: TableMetadata | None = None


@dataclass(frozen=True)
class TableCreation:
    """A table that a commit creates. ``absent`` raises if the table exists already, or cannot be created.

    ``take`` claims the table's folder: no other request can use it from then on.
    """

    path: tuple[str, ...]
    load: Callable[[], Current]
    absent: Callable[[], None]
    take: Callable[[], object]
    metadata: TableMetadata


@dataclass(frozen=True)
class Prepared:
    """One attempt at one table. Its files are written, but its pointer is not swapped yet."""

    load: Callable[[], Current]
    current: Current
    io: FileIO
    metadata: TableMetadata
    location: str
    written: tuple[str, ...]
    replaced: tuple[str, ...]

    @property
    def is_change(self) -> bool:
        return self.location != self.current.location

    @property
    def changes(self) -> tuple[EntityChange, ...]:
        """The changes of the commit: the swap of the pointer, and the parts of the table that the store shows."""
        before, after, entity = self.current.metadata, self.metadata, self.current.entity
        swap = pointer_changes(before, self.current.location, after, self.location)
        columns = schema_changes(before, after)
        if columns and entity.columns != columns_of(before.schema()):
            # others altered the columns in the store, so the columns of the file replace them
            columns = fresh_columns(entity, after)
        return (*swap, *columns)

    @property
    def queue(self) -> str:
        """The name of the lease that orders the writers of the table."""
        return f"iceberg/{self.current.entity.id}"

    def apply(self, tx: Transaction) -> None:
        """Swap the pointer. If the commit only checks this table, raise VersionConflict if the table has changed."""
        if self.is_change:
            tx.tables.alter(self.current.entity, *self.changes)
        else:
            _require_same(self, tx.tables.load(self.current.entity))


@dataclass(frozen=True)
class Created:
    """One attempt at a new table, whose metadata file is written."""

    load: Callable[[], Current]
    path: tuple[str, ...]
    io: FileIO
    metadata: TableMetadata
    location: str
    replaced: tuple[str, ...] = ()
    is_change: bool = True
    queue: str | None = None

    @property
    def written(self) -> tuple[str, ...]:
        return (self.location,)

    def apply(self, tx: Transaction) -> None:
        """Create the table."""
        tx.tables.create(self.path, **fields_of(self.metadata, self.location))


def _require_same(attempt: Prepared, now: Table) -> None:
    """Raise VersionConflict if a table has changed that the commit checks but does not change."""
    if (pointer := pointer_of(now)) != attempt.location:
        raise VersionConflict(now.path, attempt.location, pointer)
