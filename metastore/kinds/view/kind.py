"""The view: a query with a name, in one or several dialects. It shares its namespace with tables."""

from __future__ import annotations

from functools import partial

from metastore.columns.column import Column, decode_columns
from metastore.kinds.entity import Entity
from metastore.kinds.field import doc_field
from metastore.kinds.kind import COMMON_CHANGES, Kind
from metastore.kinds.table import changes as table_changes
from metastore.kinds.table.document import stored_columns
from metastore.kinds.view import changes as view_changes
from metastore.kinds.view.document import SQL, clean_default, decode_representations, stored_representations

__all__ = ["VIEW", "View"]

_clean_default_catalog = partial(clean_default, what="a default catalog")
_clean_default_schema = partial(clean_default, what="a default schema")


class View(Entity):
    """A view. Incomplete names in its queries are looked up in the default catalog and schema."""

    columns: tuple[Column, ...] = doc_field(beside=stored_columns, several=True, decode=decode_columns)
    representations: tuple[SQL, ...] = doc_field(stored_representations, several=True, decode=decode_representations)
    default_catalog: str | None = doc_field(_clean_default_catalog, default=None)
    default_schema: str | None = doc_field(_clean_default_schema, default=None)


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
    changes=COMMON_CHANGES + _VIEW_CHANGES,
    since=2,
)
