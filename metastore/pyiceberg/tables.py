"""Iceberg tables: the tables of the store that have a metadata file."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyiceberg.catalog import LOCATION
from pyiceberg.exceptions import (
    CommitFailedException,
    ForbiddenError,
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import EMPTY_DICT, Identifier

from metastore.errors import DropPending, EntityAlreadyExists, VersionConflict
from metastore.kinds.table.kind import Table as StoredTable
from metastore.pyiceberg.attempts import Current
from metastore.pyiceberg.entities import FORMAT, POINTER, fields_of, fresh_columns, pointer_changes, pointer_of
from metastore.pyiceberg.files import (
    delete_quietly,
    deleted_if_refused,
    files_of,
    read_current,
    read_metadata,
    write_metadata,
)
from metastore.pyiceberg.layouts import check_writable
from metastore.pyiceberg.namespaces import Namespaces
from metastore.pyiceberg.naming import errors_of_iceberg, missing_raises, namespace_names, no_namespace, no_table, shown
from metastore.pyiceberg.neighbours import Neighbours
from metastore.pyiceberg.once import Once
from metastore.pyiceberg.places import Places, check_beside, check_moved, check_own_metadata, check_same_place
from metastore.pyiceberg.rights import is_of_user, require_alter, tried, user_of
from metastore.pyiceberg.sharers import may_have_sharers
from metastore.store import Store

__all__ = ["Loader", "Tables", "taken_raises"]

_LOG = logging.getLogger("metastore.pyiceberg")


class Tables:
    """The Iceberg tables below the catalog ``root``."""

    def __init__(
        self,
        store: Store,
        root: Identifier,
        namespaces: Namespaces,
        places: Places,
        once: Once,
        neighbours: Neighbours,
    ) -> None:
        self._neighbours = neighbours
        self._store = store
        self._root = root
        self._namespaces = namespaces
        self._places = places
        self._once = once

    def path(self, names: Identifier) -> Identifier:
        """Return a table's path in the store."""
        return (*self._root, *names)

    def entity(self, names: Identifier) -> StoredTable:
        """Return a table as the store has it. Raises NoSuchTableError, NoSuchIcebergTableError."""
        namespace_names(names[:-1])
        with errors_of_iceberg(), missing_raises(no_table(names)):
            entity = self._store.tables.load(self.path(names))
        if entity.format != FORMAT:
            raise NoSuchIcebergTableError(f"Table is not an Iceberg table: {shown(names)}")
        return entity

    def current(self, names: Identifier, *, writing: bool = False) -> Current:
        """Return a table with its metadata.

        Raises ForbiddenError for a file of another location, for users, and for operators that write where users write.
        """

        def named() -> tuple[StoredTable, str]:
            found = self.entity(names)
            return found, _pointer(found, names)

        def read(place: str) -> TableMetadata:
            return read_metadata(self._places.io(EMPTY_DICT, place), place)

        entity, metadata, location = read_current(named, read)
        if entity.location is not None and (is_of_user(self._store) or (writing and self._places.of_users)):
            check_same_place(entity.location, metadata.location)
        return Current(entity, metadata, location)

    def pointer_and_place(self, names: Identifier) -> tuple[str, str | None]:
        """Return the locations of a table's metadata file and of the table, as the store has them. It reads no file."""
        entity = self.entity(names)
        return _pointer(entity, names), entity.location

    def exists(self, names: Identifier) -> bool:
        """Whether a table exists and is an Iceberg table. While a table is dropped in steps, it does not exist."""
        try:
            self.entity(names)
        except (NoSuchTableError, NoSuchNamespaceError, DropPending):
            return False
        return True

    def all(self, names: Identifier) -> list[Identifier]:
        """Return the Iceberg tables of a namespace."""
        with errors_of_iceberg(), missing_raises(no_namespace(names)):
            tables = self._store.tables.list(self.path(names))
            return [(*names, table.name) for table in tables if pointer_of(table)]

    def page(self, names: Identifier, size: int | None, token: str | None) -> tuple[list[str], str | None]:
        """Return the names of one page of :meth:`all`, and the token of the next page; without a size, all."""
        if size is None:
            return [table[-1] for table in self.all(names)], None
        with errors_of_iceberg(), missing_raises(no_namespace(names)):
            page = self._store.tables.page(self.path(names), size=size, token=token)
        return [table.name for table in page.items if pointer_of(table)], page.next_token

    def create(self, names: Identifier, metadata: TableMetadata, location: str, options: dict[str, Any]) -> None:
        """Write the metadata file of a new table and create the table; delete the file if the store refuses that."""
        io = self._places.io(metadata.properties, location)
        write_metadata(io, metadata, location)
        with self._creating(names), deleted_if_refused(io, [location]):
            self._store.tables.create(self.path(names), **fields_of(metadata, location), **options)

    def try_create(self, names: Identifier) -> None:
        """Raise the errors that the creation of a table would raise. Nothing is written."""
        with self._creating(names), tried(self._store) as tx:
            tx.tables.create(self.path(names))

    def require_right(self, names: Identifier, *, overwrite: bool = False) -> None:
        """Raise ForbiddenError unless the user may create a table, or with ``overwrite`` alter the existing one."""
        if not is_of_user(self._store):
            return
        if overwrite:
            with errors_of_iceberg():
                require_alter(self._store, self.entity(names))
        else:
            self.try_create(names)

    @contextmanager
    def _creating(self, names: Identifier) -> Iterator[None]:
        with errors_of_iceberg(), missing_raises(no_namespace(names[:-1])), taken_raises(names):
            yield

    def register(
        self, names: Identifier, location: str, options: dict[str, Any], *, overwrite: bool, replaces: str | None = None
    ) -> TableMetadata:
        """Create a table from a metadata file; with ``overwrite``, give the file to the existing table.

        ``replaces``: the metadata file that the table must still have.
        """
        current = self.current(names) if overwrite else None
        if current is not None and replaces not in (None, current.location):
            raise CommitFailedException(f"{shown(names)} has another metadata file by now: {current.location}")
        user = user_of(self._store)
        if user is not None and current is not None:
            check_moved(current.metadata.location, location)
        metadata = read_metadata(self._places.io(EMPTY_DICT, location), location)
        # PyIceberg can read a table of a format that it cannot write, but a server must write it to answer a load
        if self._places.serves:
            check_writable(metadata)
            self._places.check_metadata(metadata)
        self._namespaces.require(names[:-1])
        if user is not None:  # a user wrote this file, which may name the folder of another table
            if current is None:
                above = self._namespaces.properties(names[:-1]).get(LOCATION)
                places = (location, metadata.location)
                folders = [self._places.check_chosen(place, names, above, user) for place in places]
                check_own_metadata(metadata)
                options = options | self._once.take(*folders)
            else:
                check_moved(current.metadata.location, metadata.location)
                check_own_metadata(metadata)
        elif self._places.of_users:
            check_beside(metadata.location, location)
        if current is not None:
            self._overwrite(current, metadata, location, options)
        else:
            with self._creating(names):
                self._store.tables.create(self.path(names), **fields_of(metadata, location), **options)
        return metadata

    def _overwrite(self, current: Current, metadata: TableMetadata, location: str, options: dict[str, Any]) -> None:
        with errors_of_iceberg():
            changes = pointer_changes(current.metadata, current.location, metadata, location)
            columns = fresh_columns(current.entity, metadata)
            self._store.tables.alter(current.entity, *changes, *columns, **options)

    def drop(self, names: Identifier) -> None:
        """Drop a table; its files stay."""

        def attempt(options: dict[str, Any]) -> None:
            entity = self.entity(names)
            with errors_of_iceberg():
                if not self._store.tables.drop(entity, **options):
                    raise no_table(names)

        self._once.run(attempt, lambda: None)

    def purge(self, names: Identifier) -> None:
        """Remove a table for good, then delete its files, unless another table may have them too.

        Raises ForbiddenError if another live table lies in its folder.
        """

        def attempt(options: dict[str, Any]) -> None:
            current = self.current(names, writing=True)
            with errors_of_iceberg():
                is_shared = self._neighbours.are_more_than(1, current.metadata.location)
            if is_shared:
                # check the right first, so that a user without it learns nothing
                with errors_of_iceberg(), tried(self._store) as tx:
                    tx.tables.drop(current.entity)
                raise ForbiddenError(
                    f"another table lies in the folder of {shown(names)}, {current.metadata.location[:200]!r}: a purge "
                    "could delete its files; drop without a purge, which leaves all files"
                )
            with errors_of_iceberg(VersionConflict):
                # a commit that came meanwhile has files that are not in this metadata
                if not self._store.tables.purge(current.entity, expected_version=current.entity.version, **options):
                    raise no_table(names)
            io = self._places.io(current.metadata.properties, current.location)
            # a server deletes no file outside the table's location, because it may belong to another table
            io = self._places.below(io, current.metadata.location)
            files = files_of(io, current.metadata, current.location)
            place = current.metadata.location
            if may_have_sharers(self._store, current.entity, current.metadata, files):
                _LOG.warning("the files of %s in %.200r stay: another table may have them", shown(names), place)
                return
            if self._neighbours.may_be_more_than(0, place):
                _LOG.warning("the files of %s stay: another table may lie in its folder, %.200r", shown(names), place)
                return
            delete_quietly(io, files)

        self._once.run(attempt, lambda: None)

    def move(self, old: Identifier, new: Identifier) -> None:
        """Rename or move a table; its files stay where they are, and none of them is read."""

        def attempt(options: dict[str, Any]) -> None:
            entity = self.entity(old)
            self._namespaces.require(new[:-1])
            with errors_of_iceberg(), missing_raises(no_table(old)), taken_raises(new):
                self._store.tables.rename(entity, self.path(new), **options)

        self._once.run(attempt, lambda: None)


@contextmanager
def taken_raises(*names: Identifier) -> Iterator[None]:
    """Raise TableAlreadyExistsError if the name of one of these tables is taken."""
    try:
        yield
    except EntityAlreadyExists as error:
        raise TableAlreadyExistsError(f"Table {', '.join(map(shown, names))} already exists") from error


class Loader:
    """Read one table again for each attempt of a commit."""

    def __init__(self, tables: Tables, names: Identifier) -> None:
        self._tables = tables
        self._names = names

    def __call__(self) -> Current:
        return self._tables.current(self._names, writing=True)


def _pointer(entity: StoredTable, names: Identifier) -> str:
    location = pointer_of(entity)
    if location is None:
        raise NoSuchTableError(f"Table property {POINTER} is missing: {shown(names)}")
    return location
