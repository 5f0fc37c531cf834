"""Updates of a view, as the Iceberg REST specification writes them, applied to its metadata."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.view.metadata import ViewHistoryEntry, ViewMetadata, ViewVersion

__all__ = ["ViewRequirement", "ViewUpdate", "check_view", "updated_view"]

_LAST = -1
"""An id that means the schema or version that the same request added last."""


class ViewRequirement(BaseModel):
    """The view must have this UUID."""

    type: Literal["assert-view-uuid"]
    uuid: str


class _AssignUuid(BaseModel):
    action: Literal["assign-uuid"]
    uuid: str


class _UpgradeFormat(BaseModel):
    action: Literal["upgrade-format-version"]
    format_version: int = Field(alias="format-version", ge=1, le=1)


class _AddSchema(BaseModel):
    action: Literal["add-schema"]
    added: Schema = Field(alias="schema")


class _SetLocation(BaseModel):
    action: Literal["set-location"]
    location: str = Field(min_length=1)


class _SetProperties(BaseModel):
    action: Literal["set-properties"]
    updates: dict[str, str]


class _RemoveProperties(BaseModel):
    action: Literal["remove-properties"]
    removals: list[str]


class _AddVersion(BaseModel):
    action: Literal["add-view-version"]
    view_version: ViewVersion = Field(alias="view-version")


class _SetVersion(BaseModel):
    action: Literal["set-current-view-version"]
    view_version_id: int = Field(alias="view-version-id")


ViewUpdate = Annotated[
    _AssignUuid
    | _UpgradeFormat
    | _AddSchema
    | _SetLocation
    | _SetProperties
    | _RemoveProperties
    | _AddVersion
    | _SetVersion,
    Field(discriminator="action"),
]


def check_view(metadata: ViewMetadata, requirements: Iterable[ViewRequirement]) -> None:
    """Raise CommitFailedException if a requirement does not hold."""
    for requirement in requirements:
        if requirement.uuid.lower() != metadata.view_uuid.lower():
            raise CommitFailedException(
                f"Requirement failed: view UUID does not match: {requirement.uuid} != {metadata.view_uuid}"
            )


def updated_view(metadata: ViewMetadata, updates: Iterable[ViewUpdate]) -> ViewMetadata:
    """Return the metadata with the updates applied. Raises ValueError for an update that does not fit."""
    for update in updates:
        metadata = metadata.model_copy(update=_changed(update, metadata))
    return metadata


def _changed(update: ViewUpdate, metadata: ViewMetadata) -> dict[str, Any]:
    """Return the fields of the metadata that an update changes."""
    # stays empty for a UUID, which cannot change, and for a format, of which there is only one
    changed: dict[str, Any] = {}
    match update:
        case _AssignUuid(uuid=uuid) if uuid.lower() != metadata.view_uuid.lower():
            raise ValueError(f"a view's UUID cannot change: it is {metadata.view_uuid}")
        case _AddSchema():
            changed = {"schemas": _with_schema(metadata, update.added)}
        case _SetLocation(location=location):
            changed = {"location": location.rstrip("/")}
        case _SetProperties(updates=updates):
            changed = {"properties": metadata.properties | updates}
        case _RemoveProperties(removals=removals):
            changed = {"properties": {k: v for k, v in metadata.properties.items() if k not in removals}}
        case _AddVersion(view_version=version):
            changed = {"versions": [*metadata.versions, _fitting(metadata, version)]}
        case _SetVersion(view_version_id=number):
            changed = _current(metadata, number)
    return changed


def _with_schema(metadata: ViewMetadata, schema: Schema) -> list[Schema]:
    """Return the view's schemas with ``schema`` as the last one; it gets a new id unless the view has it already."""
    same = next((s for s in metadata.schemas if s == schema), None)
    if same is not None:
        return [*[s for s in metadata.schemas if s is not same], same]
    number = max((s.schema_id for s in metadata.schemas), default=-1) + 1
    return [*metadata.schemas, schema.model_copy(update={"schema_id": number})]


def _fitting(metadata: ViewMetadata, version: ViewVersion) -> ViewVersion:
    """Return the new version with a schema that the view has, and an id that no other version has."""
    if version.schema_id == _LAST:
        version = version.model_copy(update={"schema_id": metadata.schemas[-1].schema_id})
    if all(version.schema_id != s.schema_id for s in metadata.schemas):
        raise ValueError(f"the version has the schema {version.schema_id}, which the view does not have")
    taken = {v.version_id for v in metadata.versions}
    return version.model_copy(update={"version_id": max(taken) + 1}) if version.version_id in taken else version


def _current(metadata: ViewMetadata, number: int) -> dict[str, Any]:
    """Return the fields of the metadata whose current version is ``number``."""
    if number == _LAST:
        number = metadata.versions[-1].version_id
    version = next((v for v in metadata.versions if v.version_id == number), None)
    if version is None:
        raise ValueError(f"the view has no version {number}")
    entry = ViewHistoryEntry(**{"timestamp-ms": version.timestamp_ms, "version-id": number})
    return {"current_version_id": number, "version_log": [*metadata.version_log, entry]}
