"""The table: columns, and how its data is laid out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from metastore.columns.column import Column, decode_columns
from metastore.kinds.entity import Entity
from metastore.kinds.kind import COMMON_CHANGES, Kind, as_stored
from metastore.kinds.table import changes as table_changes
from metastore.kinds.table.document import replace_table_doc, table_doc
from metastore.kinds.table.layout import Index, decode_indexes

__all__ = ["TABLE", "Table"]


class Table(Entity):
    """A table. Partitioning, distribution and sort orders are strings in their canonical form."""

    columns: tuple[Column, ...]
    partitioning: tuple[str, ...]
    distribution: str | None
    sort_orders: tuple[str, ...]
    indexes: tuple[Index, ...]
    location: str | None
    format: str | None

    doc_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "columns": decode_columns,
        "partitioning": tuple,
        "distribution": as_stored,
        "sort_orders": tuple,
        "indexes": decode_indexes,
        "location": as_stored,
        "format": as_stored,
    }


_TABLE_CHANGES = (
    table_changes.AddColumn,
    table_changes.RenameColumn,
    table_changes.DropColumn,
    table_changes.RetypeColumn,
    table_changes.MoveColumn,
    table_changes.SetColumnComment,
    table_changes.SetColumnDefault,
    table_changes.SetColumnNullable,
    table_changes.SetAutoIncrement,
    table_changes.AddIndex,
    table_changes.DropIndex,
    table_changes.SetLocation,
    table_changes.SetFormat,
)

TABLE = Kind(
    "table",
    "table",
    ("schema",),
    Table,
    new_doc=table_doc,
    replace_doc=replace_table_doc,
    changes=COMMON_CHANGES + _TABLE_CHANGES,
)
