"""Commit to Iceberg tables: the compare-and-swap of the pointer to a table's metadata file.

An attempt reads the table, applies the client's updates to its newest metadata, writes a new metadata file, and swaps
the pointer in one commit of the store. The loser deletes its file and tries again. From the second attempt on it
holds a lease that is named after the table, in the order of arrival: so writers of one table pass one after the other.
The lease only orders them. The swap alone decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import Properties

from metastore.clock import SYSTEM
from metastore.errors import (
    EntityAlreadyExists,
    EntityNotFound,
    InvalidArgument,
    LeaseHeld,
    OutcomeUnknown,
    VersionConflict,
)
from metastore.kinds.change import EntityChange
from metastore.kinds.table.kind import Table
from metastore.pyiceberg.columns import columns_of
from metastore.pyiceberg.entities import fresh_columns, pointer_changes, schema_changes
from metastore.pyiceberg.files import delete_quietly, next_location, write_metadata
from metastore.pyiceberg.rebase import rebase

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["Commits", "Committed", "Current", "TableCommit"]

_PATIENCE = 600.0
"""How long a commit tries to win (seconds): far longer than its place in the queue takes."""
_TTL = 10.0
"""How long the queue waits for a writer that died (seconds)."""


@dataclass(frozen=True)
class Current:
    """An Iceberg table as it is: its entity, and its metadata with the file that has it."""

    entity: Table
    metadata: TableMetadata
    location: str


@dataclass(frozen=True)
class TableCommit:
    """What a client wants of one table: ``load`` reads the table, and is called again for each attempt."""

    load: Callable[[], Current]
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]


@dataclass(frozen=True)
class Committed:
    """The metadata of a table after a commit, and the file that has it."""

    metadata: TableMetadata
    location: str


@dataclass(frozen=True)
class _Prepared:
    """One attempt at one table, whose files are written and whose pointer is not."""

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
    def swap(self) -> tuple[EntityChange, ...]:
        """The changes of the commit but those of columns."""
        return pointer_changes(self.current.metadata, self.current.location, self.metadata, self.location)

    @property
    def changes(self) -> tuple[EntityChange, ...]:
        """All changes of the commit."""
        return (*self.swap, *schema_changes(self.current.metadata, self.metadata))


class Commits:
    """Commits to the Iceberg tables of one store. ``io_of`` opens the file system of a table."""

    def __init__(self, store: Store, io_of: Callable[[Properties, str], FileIO]) -> None:
        self._store = store
        self._io_of = io_of

    def commit(self, commits: Sequence[TableCommit]) -> list[Committed]:
        """Commit to one table, or to several at once: all or none.

        Raises CommitFailedException if a requirement fails that an append cannot be rebased over,
        CommitStateUnknownException if the database did not answer whether the swap happened.
        """
        ends = SYSTEM.monotonic() + _PATIENCE
        with ExitStack() as queue:
            while SYSTEM.monotonic() < ends:
                attempts = self._prepare(commits)
                if self._swapped(attempts):
                    for attempt in attempts:
                        delete_quietly(attempt.io, list(attempt.replaced))
                    return [Committed(attempt.metadata, attempt.location) for attempt in attempts]
                queue.close()
                self._wait_in_line(queue, attempts, ends - SYSTEM.monotonic())
        raise CommitFailedException(f"the table did not stand still for {_PATIENCE:.0f} seconds; try again later")

    def _prepare(self, commits: Sequence[TableCommit]) -> list[_Prepared]:
        attempts: list[_Prepared] = []
        try:
            for commit in commits:
                attempts.append(self._attempt(commit))  # noqa: PERF401  (those before a failing one have files to delete)
        except BaseException:
            _discard(attempts)
            raise
        return attempts

    def _attempt(self, commit: TableCommit) -> _Prepared:
        current = commit.load()
        io = self._io_of(current.metadata.properties, current.location)
        rebased = rebase(io, current.metadata, commit.requirements, commit.updates)
        written = list(rebased.written)
        try:
            after = update_table_metadata(
                current.metadata, rebased.updates, metadata_location=current.location, enforce_validation=False
            )
            if after == current.metadata:
                return _Prepared(current, io, current.metadata, current.location, (), ())
            location = next_location(after, current.location)
            written.append(location)
            write_metadata(io, after, location)
        except BaseException:
            delete_quietly(io, written)
            raise
        return _Prepared(current, io, after, location, tuple(written), rebased.replaced)

    def _swapped(self, attempts: list[_Prepared]) -> bool:
        """Swap the pointers in one commit. False: another commit was first, and the files are deleted."""
        operation = SYSTEM.operation_id()
        try:
            self._swap([attempt for attempt in attempts if attempt.is_change], operation)
        except VersionConflict:
            _discard(attempts)
            return False
        except EntityNotFound as error:
            _discard(attempts)
            raise NoSuchTableError(f"Table does not exist: {error.path}") from error
        except OutcomeUnknown:
            return self._settled(attempts, operation)
        except BaseException:
            _discard(attempts)
            raise
        return True

    def _swap(self, attempts: list[_Prepared], operation: UUID) -> None:
        if len(attempts) == 1:
            self._swap_one(attempts[0], operation)
        elif attempts:
            with self._store.transaction() as tx:
                for attempt in attempts:
                    tx.tables.alter(attempt.current.entity, *attempt.changes)

    def _swap_one(self, attempt: _Prepared, operation: UUID) -> None:
        entity = attempt.current.entity
        try:
            self._store.tables.alter(entity, *attempt.changes, operation_id=operation)
        except (EntityAlreadyExists, InvalidArgument, EntityNotFound):
            columns = schema_changes(attempt.current.metadata, attempt.metadata)
            if not columns or entity.columns == columns_of(attempt.current.metadata.schema()):
                raise
            # another program altered the columns in the store; those of the metadata hold
            self._store.tables.alter(entity, *attempt.swap, *fresh_columns(entity, attempt.metadata))

    def _settled(self, attempts: list[_Prepared], operation: UUID) -> bool:
        """Find out what became of a swap whose answer was lost; its operation id tells, whatever came after it."""
        try:
            state = self._store.outcome(operation).state
        except Exception as error:
            raise CommitStateUnknownException(
                "the database did not answer whether the commit happened; the files are kept; load the table to see"
            ) from error
        if state == "committed":
            return True
        raise CommitStateUnknownException(
            f"the commit has the state {state}; the files are kept; load the table to see whether it happened"
        )

    def _wait_in_line(self, queue: ExitStack, attempts: list[_Prepared], patience: float) -> None:
        names = sorted(f"iceberg/{attempt.current.entity.id}" for attempt in attempts)
        try:
            queue.enter_context(self._store.leases.acquire_many(names, ttl=_TTL, timeout=max(patience, 1.0)))
        except LeaseHeld as error:
            raise CommitFailedException(str(error)) from error


def _discard(attempts: Sequence[_Prepared]) -> None:
    """Delete the files of attempts that did not commit. The client's own files stay: it may use them again."""
    for attempt in attempts:
        delete_quietly(attempt.io, list(attempt.written))
