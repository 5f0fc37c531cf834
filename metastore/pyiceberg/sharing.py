"""Table metadata with cheap copies, which share its parts: PyIceberg copies metadata many times.

PyIceberg makes deep copies of a table's metadata: 19 for an append, each with all snapshots. No code changes a part in
place. This includes PyIceberg's own updates, which read the original and copy afterwards. So a shallow copy is enough,
and an append to a table of 100 snapshots takes a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import ConfigDict, Field, PrivateAttr, TypeAdapter
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1, TableMetadataV2, TableMetadataV3

from metastore.pyiceberg.statistics import AnyStatistics
from metastore.pyiceberg.unknown import Unknown, unknown_fields, with_unknown

__all__ = ["parsed", "shared", "upgraded"]

_WITH_UNKNOWN: Final = ConfigDict(populate_by_name=True, frozen=True, extra="allow")
"""Unknown top-level fields stay in the metadata, and are written again. `unknown` keeps those at deeper levels."""


class SharedMetadataV1(TableMetadataV1):
    """Metadata of format version 1 that is never copied deeply."""

    model_config = _WITH_UNKNOWN
    _unknown: Unknown = PrivateAttr(default_factory=dict)
    statistics: list[AnyStatistics] = Field(default_factory=list)  # type: ignore[assignment]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a shallow copy with some fields replaced; ``deep`` is ignored."""
        return super().model_copy(update=_known(type(self), update or {}))

    def model_dump_json(self, *arguments: Any, **options: Any) -> str:
        """Return the metadata as JSON, with the fields that PyIceberg does not know."""
        return with_unknown(super().model_dump_json(*arguments, **options), self._unknown)

    def __eq__(self, other: object) -> bool:
        """Whether the other metadata, shared or not, has the same fields."""
        return isinstance(other, TableMetadataV1) and _same_fields(self, other)

    def __hash__(self) -> int:
        """Return a hash that is the same for equal metadata."""
        return hash((self.table_uuid, self.last_updated_ms))


class SharedMetadataV2(TableMetadataV2):
    """Metadata of format version 2 that is never copied deeply."""

    model_config = _WITH_UNKNOWN
    _unknown: Unknown = PrivateAttr(default_factory=dict)
    statistics: list[AnyStatistics] = Field(default_factory=list)  # type: ignore[assignment]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a shallow copy with some fields replaced; ``deep`` is ignored."""
        return super().model_copy(update=_known(type(self), update or {}))

    def model_dump_json(self, *arguments: Any, **options: Any) -> str:
        """Return the metadata as JSON, with the fields that PyIceberg does not know."""
        return with_unknown(super().model_dump_json(*arguments, **options), self._unknown)

    def __eq__(self, other: object) -> bool:
        """Whether the other metadata, shared or not, has the same fields."""
        return isinstance(other, TableMetadataV2) and _same_fields(self, other)

    def __hash__(self) -> int:
        """Return a hash that is the same for equal metadata."""
        return hash((self.table_uuid, self.last_updated_ms))


_SHARED: Final = (SharedMetadataV1, SharedMetadataV2)


def _same_fields(one: TableMetadataV1 | TableMetadataV2, other: TableMetadataV1 | TableMetadataV2) -> bool:
    """Compare the fields; for metadata of one class, also those that PyIceberg does not know."""
    same = type(one) is not type(other) or one.model_extra == other.model_extra
    return same and all(getattr(one, name) == getattr(other, name) for name in type(one).model_fields)


def _known(cls: type[TableMetadata], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that this version has. Copies get fields of other versions too, such as a row id."""
    others = TableMetadataV3.model_fields.keys() - cls.model_fields.keys()
    return {name: value for name, value in fields.items() if name not in others}


def shared(metadata: TableMetadata) -> TableMetadata:
    """Return the same metadata, with copies that share its parts."""
    match metadata:
        case SharedMetadataV1() | SharedMetadataV2():
            return metadata
        case TableMetadataV1():
            return SharedMetadataV1.model_construct(**_known(SharedMetadataV1, dict(metadata)))
        case TableMetadataV2():
            return SharedMetadataV2.model_construct(**_known(SharedMetadataV2, dict(metadata)))
        case _:
            return metadata


def upgraded(metadata: TableMetadata, before: TableMetadata) -> TableMetadata:
    """Return the same metadata, shared, with the unknown fields of ``before``, from which PyIceberg made it.

    For another format version, PyIceberg makes new metadata from only the fields that it knows.
    """
    made = shared(metadata)
    if type(made) is type(before) or not (isinstance(made, _SHARED) and isinstance(before, _SHARED)):
        return made
    has = {field.alias for field in type(made).model_fields.values()}
    more = {name: value for name, value in (before.model_extra or {}).items() if name not in has}
    made = made.model_copy(update=more)
    made._unknown = before._unknown  # noqa: SLF001  (it has just been made)
    return made


_ANY: Final[TypeAdapter[TableMetadata]] = TypeAdapter(
    Annotated[SharedMetadataV1 | SharedMetadataV2 | TableMetadataV3, Field(discriminator="format_version")]
)


def parsed(text: bytes) -> TableMetadata:
    """Return the table metadata in a JSON text. Raises ValueError."""
    metadata = _ANY.validate_json(text)
    if isinstance(metadata, _SHARED):
        metadata._unknown = unknown_fields(text, metadata.model_dump_json())  # noqa: SLF001  (it has just been made)
    return metadata
