"""Iceberg views: a metadata file for those who read files, and a view of the store that shows it."""

from __future__ import annotations

from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.view.metadata import ViewHistoryEntry, ViewMetadata, ViewVersion

from metastore.clock import SYSTEM
from metastore.kinds.view.document import SQL
from metastore.kinds.view.kind import View
from metastore.pyiceberg.columns import columns_of
from metastore.pyiceberg.entities import POINTER

__all__ = ["new_view_metadata", "read_view", "view_fields", "view_pointer", "write_view"]


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


def view_pointer(view: View) -> str | None:
    """Return where the view's metadata file is; None: it is no Iceberg view."""
    return view.properties.get(POINTER)


def view_fields(metadata: ViewMetadata, location: str) -> dict[str, Any]:
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


def write_view(io: FileIO, metadata: ViewMetadata) -> str:
    """Write a view's metadata file, and return where it is."""
    number = len(metadata.version_log) - 1
    location = f"{metadata.location}/metadata/{number:05d}-{SYSTEM.operation_id()}.metadata.json"
    with io.new_output(location).create() as stream:
        stream.write(metadata.model_dump_json(by_alias=True, exclude_none=True).encode())
    return location


def read_view(io: FileIO, location: str) -> ViewMetadata:
    """Return what a view's metadata file says."""
    with io.new_input(location).open() as stream:
        return ViewMetadata.model_validate_json(stream.read())
