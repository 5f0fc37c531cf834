"""Check the format version, partitions and sort order of a new table, before a file is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from pyiceberg.exceptions import ValidationError
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate, UpgradeFormatVersionUpdate
from pyiceberg.typedef import Properties

__all__ = ["check_added", "check_layout", "check_versions", "check_writable", "format_version"]

_WRITABLE: Final = (1, 2)
"""The table formats whose metadata PyIceberg can write."""
_UNWRITABLE: Final = 3
"""The format version that PyIceberg can read, but not write."""


def format_version(properties: Properties) -> Literal[1, 2]:
    """Return the format version that a new table's properties name.

    Raises NotImplementedError for version 3, as PyIceberg does; ValidationError for a value that is not a version.
    """
    wanted = str(properties.get(TableProperties.FORMAT_VERSION, TableProperties.DEFAULT_FORMAT_VERSION))
    if wanted not in ("1", "2", "3"):
        raise ValidationError(f"format-version: {wanted[:20]!r} does not exist; use 1 or 2")
    if wanted == "3":
        raise _not_writable()
    return 1 if wanted == "1" else 2


def check_writable(metadata: TableMetadata) -> None:
    """Raise NotImplementedError for a table whose metadata PyIceberg can read, but not write."""
    if metadata.format_version not in _WRITABLE:
        raise _not_writable()


def check_versions(updates: Iterable[TableUpdate]) -> None:
    """Raise NotImplementedError for an update to a format whose metadata PyIceberg cannot write yet."""
    if any(isinstance(one, UpgradeFormatVersionUpdate) and one.format_version == _UNWRITABLE for one in updates):
        raise _not_writable()


def _not_writable() -> NotImplementedError:
    return NotImplementedError("format-version: PyIceberg cannot write tables of version 3 yet; use 1 or 2")


def check_layout(metadata: TableMetadata) -> None:
    """Raise ValidationError for a transform that does not fit its column. Other readers could not load the table."""
    metadata.spec().check_compatible(metadata.schema())
    metadata.sort_order().check_compatible(metadata.schema())


def check_added(before: TableMetadata, after: TableMetadata) -> None:
    """Raise ValidationError for a new partition spec or sort order that does not fit the columns of a table."""
    for spec in after.partition_specs:
        if spec not in before.partition_specs:
            spec.check_compatible(after.schema())
    for order in after.sort_orders:
        if order not in before.sort_orders:
            order.check_compatible(after.schema())
