"""Iceberg views: each has a metadata file for Iceberg's readers, and a view of the store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pyiceberg.exceptions import NoSuchViewError, ViewAlreadyExistsError
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.typedef import Identifier
from pyiceberg.view import View
from pyiceberg.view.metadata import ViewHistoryEntry, ViewMetadata, ViewVersion

from metastore.clock import SYSTEM
from metastore.errors import DropPending, EntityAlreadyExists, OperationIdReused, VersionConflict
from metastore.kinds.change import EntityChange, RemoveProperty, SetComment, SetProperty
from metastore.kinds.table.changes import AddColumn, DropColumn
from metastore.kinds.view.changes import RemoveRepresentation, SetDefaultCatalog, SetDefaultSchema, SetRepresentation
from metastore.kinds.view.document import SQL
from metastore.kinds.view.kind import View as StoredView
from metastore.pyiceberg.columns import columns_of
from metastore.pyiceberg.entities import POINTER
from metastore.pyiceberg.files import (
    check_text,
    deleted_if_refused,
    read_current,
    read_text,
)
from metastore.pyiceberg.naming import errors_of_iceberg, missing_raises, no_namespace, shown
from metastore.pyiceberg.once import Once
from metastore.pyiceberg.places import Places, check_moved
from metastore.pyiceberg.rights import is_of_user, require_alter, tried
from metastore.pyiceberg.view_updates import ViewRequirement, ViewUpdate, check_view, updated_view
from metastore.store import Store

__all__ = ["Views", "new_view_metadata"]


class Views:
    """The Iceberg views below the catalog ``root``."""

    def __init__(self, store: Store, root: Identifier, places: Places, once: Once) -> None:
        self._store = store
        self._root = root
        self._places = places
        self._once = once

    def create(self, names: Identifier, metadata: ViewMetadata, options: dict[str, Any]) -> View:
        """Write the view's metadata file and create the view; delete the file if the store refuses that."""
        io = self._places.io({}, metadata.location)
        file = _write(io, metadata, f"{metadata.location}/metadata")
        self._create_entity(names, metadata, file, options, deleted_if_refused(io, [file]))
        return View(names, metadata)

    def read(self, location: str) -> ViewMetadata:
        """Return the metadata in a view's metadata file."""
        return _read(self._places.io({}, location), location)

    def register(self, names: Identifier, metadata: ViewMetadata, location: str, options: dict[str, Any]) -> View:
        """Create a view from its metadata, which the file ``location`` has."""
        self._create_entity(names, metadata, location, options, nullcontext())
        return View(names, metadata)

    def _create_entity(
        self,
        names: Identifier,
        metadata: ViewMetadata,
        location: str,
        options: dict[str, Any],
        files: AbstractContextManager[None],
    ) -> None:
        with errors_of_iceberg(), missing_raises(no_namespace(names[:-1])):
            try:
                with files:
                    self._store.views.create((*self._root, *names), **_fields(metadata, location), **options)
            except EntityAlreadyExists as error:
                raise ViewAlreadyExistsError(f"View {shown(names)} already exists") from error

    def require_right(self, names: Identifier) -> None:
        """Raise ForbiddenError unless the user may create a view, ViewAlreadyExistsError if the name is taken."""
        if is_of_user(self._store):
            with errors_of_iceberg(), missing_raises(no_namespace(names[:-1])), tried(self._store) as tx:
                try:
                    tx.views.create((*self._root, *names))
                except EntityAlreadyExists as error:
                    raise ViewAlreadyExistsError(f"View {shown(names)} already exists") from error

    def load(self, names: Identifier) -> tuple[View, str]:
        """Return a view, and the location of its metadata file. A view without such a file is not an Iceberg view."""
        _, metadata, location = self._current(names)
        return View(names, metadata), location

    def _stored(self, names: Identifier) -> StoredView:
        with errors_of_iceberg(), missing_raises(_no_view(names)):
            stored = self._store.views.load((*self._root, *names))
        if POINTER not in stored.properties:
            raise NoSuchViewError(f"View is not an Iceberg view: {shown(names)}")
        return stored

    def _current(self, names: Identifier) -> tuple[StoredView, ViewMetadata, str]:
        def named() -> tuple[StoredView, str]:
            stored = self._stored(names)
            return stored, stored.properties[POINTER]

        return read_current(named, self.read)

    def replace(
        self, names: Identifier, requirements: Sequence[ViewRequirement], updates: Sequence[ViewUpdate]
    ) -> tuple[View, str]:
        """Apply updates to the newest metadata, write it to a new file, and swap the pointer.

        Repeat until that succeeds.
        """

        def attempt() -> tuple[View, str]:
            while (done := self._replaced(names, requirements, updates)) is None:
                pass  # try again: another writer won, so some writer makes progress
            return done

        return self._once.guard(attempt, lambda: self.load(names))

    def _replaced(
        self, names: Identifier, requirements: Sequence[ViewRequirement], updates: Sequence[ViewUpdate]
    ) -> tuple[View, str] | None:
        stored, metadata, location = self._current(names)
        options = self._once.begin()
        if options is None:
            return View(names, metadata), location
        with errors_of_iceberg(), missing_raises(_no_view(names)):
            require_alter(self._store, stored)
        check_view(metadata, requirements)
        after = updated_view(metadata, updates)
        if is_of_user(self._store):
            check_moved(metadata.location, after.location)
            # a user may have replaced the file's content; the store's pointer to it is reliable
            check_moved(location.rpartition("/metadata/")[0] or location, after.location)
        folder = f"{after.location}/metadata"
        if self._places.of_users and after.location == metadata.location:
            folder = location.rpartition("/")[0]  # an operator does not write into a folder that a user's file names
        io = self._places.io({}, folder)
        file = _write(io, after, folder)
        try:
            with errors_of_iceberg(VersionConflict), missing_raises(_no_view(names)), deleted_if_refused(io, [file]):
                self._store.views.alter(stored, *_changes(stored, _fields(after, file), location), **options)
        except (VersionConflict, OperationIdReused):
            return None
        # the replaced file stays, because the history names it, and perhaps another view does
        return View(names, after), file

    def rename(self, names: Identifier, new: Identifier, options: dict[str, Any]) -> None:
        """Rename or move a view."""
        stored = self._stored(names)
        with errors_of_iceberg(), missing_raises(_no_view(names)):
            try:
                self._store.views.rename(stored, (*self._root, *new), **options)
            except EntityAlreadyExists as error:
                raise ViewAlreadyExistsError(f"View {shown(new)} already exists") from error

    def exists(self, names: Identifier) -> bool:
        """Whether a view exists. While it is dropped in steps, it does not exist."""
        try:
            self._stored(names)
        except (NoSuchViewError, DropPending):
            return False
        return True

    def all(self, names: Identifier) -> list[Identifier]:
        """Return the views of a namespace."""
        with errors_of_iceberg(), missing_raises(no_namespace(names)):
            views = self._store.views.list((*self._root, *names))
            return [(*names, view.name) for view in views if POINTER in view.properties]

    def page(self, names: Identifier, size: int | None, token: str | None) -> tuple[list[str], str | None]:
        """Return the names of one page of :meth:`all`, and the token of the next one; without a size, all."""
        if size is None:
            return [view[-1] for view in self.all(names)], None
        with errors_of_iceberg(), missing_raises(no_namespace(names)):
            page = self._store.views.page((*self._root, *names), size=size, token=token)
        return [view.name for view in page.items if POINTER in view.properties], page.next_token

    def drop(self, names: Identifier) -> None:
        """Drop a view."""

        def attempt(options: dict[str, Any]) -> None:
            stored = self._stored(names)
            with errors_of_iceberg():
                if not self._store.views.drop(stored, **options):
                    raise _no_view(names)

        self._once.run(attempt, lambda: None)


def _no_view(names: Identifier) -> NoSuchViewError:
    return NoSuchViewError(f"View does not exist: {shown(names)}")


def new_view_metadata(location: str, schema: Schema, version: ViewVersion, properties: dict[str, str]) -> ViewMetadata:
    """Return the metadata of a new view whose only version is ``version``."""
    entry = ViewHistoryEntry(**{"timestamp-ms": version.timestamp_ms, "version-id": version.version_id})
    fields: dict[str, Any] = {
        "view-uuid": str(SYSTEM.operation_id()),
        "format-version": 1,
        "location": location,
        "schemas": [schema],
        "current-version-id": version.version_id,
        "versions": [version],
        "version-log": [entry],
        "properties": properties,
    }
    metadata = ViewMetadata(**fields)
    _current(metadata)  # raises before the file is written
    return metadata


def _current(metadata: ViewMetadata) -> tuple[ViewVersion, Schema]:
    """Return a view's current version and its schema. Raises ValueError if the metadata lacks one of them."""
    version = next((v for v in metadata.versions if v.version_id == metadata.current_version_id), None)
    if version is None:
        raise ValueError(f"current-version-id: the view has no version {metadata.current_version_id}")
    schema = next((s for s in metadata.schemas if s.schema_id == version.schema_id), None)
    if schema is None:
        raise ValueError(f"schema-id: the view has no schema {version.schema_id}")
    return version, schema


def _fields(metadata: ViewMetadata, location: str) -> dict[str, Any]:
    """Return the arguments of ``views.create`` for an Iceberg view."""
    version, schema = _current(metadata)
    return {
        "columns": columns_of(schema),
        "representations": [SQL(one.root.dialect, one.root.sql) for one in version.representations],
        "default_catalog": version.default_catalog,
        "default_schema": ".".join(version.default_namespace) or None,
        "comment": metadata.properties.get("comment"),
        "properties": {k: v for k, v in metadata.properties.items() if k != "comment"} | {POINTER: location},
    }


def _changes(stored: StoredView, fields: dict[str, Any], location: str) -> list[EntityChange]:
    """Return the changes of one commit: the swap of the pointer, and the parts of a view that the store shows."""
    properties: dict[str, str] = fields["properties"]
    changes: list[EntityChange] = [SetProperty(POINTER, properties[POINTER], expected=location)]
    changes += [SetProperty(key, value) for key, value in properties.items() if key != POINTER]
    changes += [RemoveProperty(key) for key in stored.properties if key not in properties]
    changes += [DropColumn((column.name,)) for column in stored.columns]
    changes += [AddColumn((c.name,), c.type, nullable=c.nullable, comment=c.comment) for c in fields["columns"]]
    queries: list[SQL] = fields["representations"]
    gone = {query.dialect for query in stored.representations} - {query.dialect for query in queries}
    changes += [RemoveRepresentation(dialect) for dialect in sorted(gone)]
    changes += [SetRepresentation(query.dialect, query.text) for query in queries]
    changes += [SetDefaultCatalog(fields["default_catalog"]), SetDefaultSchema(fields["default_schema"])]
    return [*changes, SetComment(fields["comment"])]


def _write(io: FileIO, metadata: ViewMetadata, folder: str) -> str:
    """Write a view's metadata file into a folder, and return its location."""
    number = len(metadata.version_log) - 1
    location = f"{folder}/{number:05d}-{SYSTEM.operation_id()}.metadata.json"
    text = metadata.model_dump_json(by_alias=True, exclude_none=True).encode()
    check_text(io, location, text)
    with io.new_output(location).create() as stream:
        stream.write(text)
    return location


def _read(io: FileIO, location: str) -> ViewMetadata:
    """Return the metadata in a view's metadata file."""
    return ViewMetadata.model_validate_json(read_text(io, location))
