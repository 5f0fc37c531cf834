"""Statistics of a table with blobs of any type. PyIceberg knows two types, and refuses a table with any other one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union, get_args

from pydantic import Field
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile
from pyiceberg.table.update import SetStatisticsUpdate, TableUpdate

__all__ = ["AnyStatistics", "AnyUpdate", "SetAnyStatistics"]


class _AnyBlob(BlobMetadata):
    type: str  # type: ignore[assignment]


class AnyStatistics(StatisticsFile):
    """A file of statistics, with blobs of any type."""

    blob_metadata: list[_AnyBlob] = Field(alias="blob-metadata")  # type: ignore[assignment]


class SetAnyStatistics(SetStatisticsUpdate):
    """The update that sets these statistics."""

    statistics: AnyStatistics

    @classmethod
    def of(cls, update: SetStatisticsUpdate) -> SetAnyStatistics:
        """Return the same update in this class."""
        return cls.model_validate(update.model_dump(by_alias=True))


if TYPE_CHECKING:
    AnyUpdate = TableUpdate
else:
    _PLAIN = get_args(get_args(TableUpdate)[0])
    AnyUpdate = Annotated[
        Union[tuple(SetAnyStatistics if one is SetStatisticsUpdate else one for one in _PLAIN)],  # noqa: UP007
        Field(discriminator="action"),
    ]
    """An update of a table, as a client of the REST protocol sends it."""
