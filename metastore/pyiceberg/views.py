"""Iceberg views: a metadata file for those who read files, and a view of the store that shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchViewError, ViewAlreadyExistsError
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.typedef import Identifier, Properties
from pyiceberg.view import View
from pyiceberg.view.metadata import ViewHistoryEntry, ViewMetadata, ViewVersion

from metastore.clock import SYSTEM
from metastore.errors import EntityAlreadyExists
from metastore.kinds.view.document import SQL
from metastore.pyiceberg.columns import columns_of
from metastore.pyiceberg.entities import POINTER
from metastore.pyiceberg.files import delete_quietly
from metastore.pyiceberg.naming import errors_of_iceberg, missing_raises, no_namespace, shown
from metastore.store import Store

__all__ = ["Views", "new_view_metadata"]


class Views:
    """The Iceberg views below the catalog ``root``. ``io_of`` opens the file system of a location."""

    def __init__(self, store: Store, root: Identifier, io_of: Callable[[Properties, str], FileIO]) -> None:
        self._store = store
        self._root = root
        self._io_of = io_of

    def create(self, names: Identifier, metadata: ViewMetadata) -> View:
        """Write the view's metadata file and create the view; delete the file if that fails."""
        io = self._io_of({}, metadata.location)
        file = _write(io, metadata)
        try:
            self._create_entity(names, _fields(metadata, file))
        except (ViewAlreadyExistsError, NoSuchNamespaceError, ValueError):
            delete_quietly(io, [file])
            raise
        return View(names, metadata)

    def register(self, names: Identifier, location: str) -> View:
        """Create a view from its metadata file."""
        metadata = _read(self._io_of({}, location), location)
        self._create_entity(names, _fields(metadata, location))
        return View(names, metadata)

    def _create_entity(self, names: Identifier, fields: dict[str, Any]) -> None:
        with errors_of_iceberg(), missing_raises(no_namespace(names[:-1])):
            try:
                self._store.views.create((*self._root, *names), **fields)
            except EntityAlreadyExists as error:
                raise ViewAlreadyExistsError(f"View {shown(names)} already exists") from error

    def load(self, names: Identifier) -> View:
        """Return a view; one without a metadata file is no Iceberg view."""
        with errors_of_iceberg(), missing_raises(_no_view(names)):
            stored = self._store.views.load((*self._root, *names))
        location = stored.properties.get(POINTER)
        if location is None:
            raise NoSuchViewError(f"View is not an Iceberg view: {shown(names)}")
        return View(names, _read(self._io_of({}, location), location))

    def exists(self, names: Identifier) -> bool:
        """Whether there is such a view."""
        with errors_of_iceberg():
            return self._store.views.exists((*self._root, *names))

    def list(self, names: Identifier) -> list[Identifier]:
        """Return the views of a namespace."""
        with errors_of_iceberg(), missing_raises(no_namespace(names)):
            return [(*names, name) for name in self._store.views.names((*self._root, *names))]

    def drop(self, names: Identifier) -> None:
        """Drop a view."""
        with errors_of_iceberg():
            if not self._store.views.drop((*self._root, *names)):
                raise _no_view(names)


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
    return ViewMetadata(**fields)


def _fields(metadata: ViewMetadata, location: str) -> dict[str, Any]:
    """Return what ``views.create`` needs to show an Iceberg view."""
    version = next(v for v in metadata.versions if v.version_id == metadata.current_version_id)
    schema = next(s for s in metadata.schemas if s.schema_id == version.schema_id)
    return {
        "columns": columns_of(schema),
        "representations": [SQL(one.root.dialect, one.root.sql) for one in version.representations],
        "default_catalog": version.default_catalog,
        "default_schema": ".".join(version.default_namespace) or None,
        "comment": metadata.properties.get("comment"),
        "properties": {k: v for k, v in metadata.properties.items() if k != "comment"} | {POINTER: location},
    }


def _write(io: FileIO, metadata: ViewMetadata) -> str:
    """Write a view's metadata file, and return where it is."""
    number = len(metadata.version_log) - 1
    location = f"{metadata.location}/metadata/{number:05d}-{SYSTEM.operation_id()}.metadata.json"
    with io.new_output(location).create() as stream:
        stream.write(metadata.model_dump_json(by_alias=True, exclude_none=True).encode())
    return location


def _read(io: FileIO, location: str) -> ViewMetadata:
    """Return what a view's metadata file says."""
    with io.new_input(location).open() as stream:
        return ViewMetadata.model_validate_json(stream.read())
