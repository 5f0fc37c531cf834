"""The table: its columns, and the layout of its data."""

from __future__ import annotations

from metastore.columns.column import Column, decode_columns
from metastore.kinds.entity import Entity
from metastore.kinds.field import doc_field
from metastore.kinds.kind import COMMON_CHANGES, Kind
from metastore.kinds.table import changes as table_changes
from metastore.kinds.table.document import (
    clean_format,
    clean_location,
    stored_columns,
    stored_distribution,
    stored_indexes,
    stored_partitioning,
    stored_sort_orders,
)
from metastore.kinds.table.layout import Index, decode_indexes

__all__ = ["TABLE", "Table"]


class Table(Entity):
    """A table. Partitioning, distribution and sort orders are strings in their canonical form.

    A new field takes two lines: its declaration here, and its keyword in ``Tables.create`` with the same default. Give
    it a default and ``later=True``, because the tables of older databases do not have it.
    """

    columns: tuple[Column, ...] = doc_field(beside=stored_columns, several=True, decode=decode_columns)
    partitioning: tuple[str, ...] = doc_field(beside=stored_partitioning, several=True, decode=tuple)
    distribution: str | None = doc_field(beside=stored_distribution, default=None)
    sort_orders: tuple[str, ...] = doc_field(beside=stored_sort_orders, several=True, decode=tuple)
    indexes: tuple[Index, ...] = doc_field(beside=stored_indexes, several=True, decode=decode_indexes)
    location: str | None = doc_field(clean_location, default=None)
    format: str | None = doc_field(clean_format, default=None)


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
    changes=COMMON_CHANGES + _TABLE_CHANGES,
)
