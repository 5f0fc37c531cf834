"""The view: a query with a name, in one or several dialects. It shares its space of names with tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from metastore.columns.column import Column, decode_columns
from metastore.kinds.entity import Entity
from metastore.kinds.kind import COMMON_CHANGES, Kind, as_stored
from metastore.kinds.table import changes as table_changes
from metastore.kinds.view import changes as view_changes
from metastore.kinds.view.document import SQL, decode_representations, replace_view_doc, view_doc

__all__ = ["VIEW", "View"]


class View(Entity):
    """A view. Names in its representations that are not whole are looked up in the default catalog and schema."""

    columns: tuple[Column, ...]
    representations: tuple[SQL, ...]
    default_catalog: str | None
    default_schema: str | None

    doc_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "columns": decode_columns,
        "representations": decode_representations,
        "default_catalog": as_stored,
        "default_schema": as_stored,
    }


_VIEW_CHANGES = (
    table_changes.AddColumn,
    table_changes.RenameColumn,
    table_changes.DropColumn,
    table_changes.RetypeColumn,
    table_changes.MoveColumn,
    table_changes.SetColumnComment,
    table_changes.SetColumnNullable,
    view_changes.SetRepresentation,
    view_changes.RemoveRepresentation,
    view_changes.SetDefaultCatalog,
    view_changes.SetDefaultSchema,
)

VIEW = Kind(
    "view",
    "table",
    ("schema",),
    View,
    new_doc=view_doc,
    replace_doc=replace_view_doc,
    changes=COMMON_CHANGES + _VIEW_CHANGES,
    since=2,
)
