"""Changes of a view's queries, and of the catalog and schema in which their names are looked up.

Dialects are independent: if two callers change two different dialects at once, both succeed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from metastore.kinds.change import Doc, EntityChange, not_found
from metastore.kinds.view.document import SQL, clean_default, clean_dialect

__all__ = ["RemoveRepresentation", "SetDefaultCatalog", "SetDefaultSchema", "SetRepresentation"]

Names = tuple[str, ...]


@dataclass(frozen=True)
class SetRepresentation(EntityChange):
    """Set the view's query in one dialect; an existing query is replaced."""

    dialect: str
    text: str
    since: ClassVar[int] = 2

    def apply(self, doc: Doc, path: Names) -> None:
        query = SQL(self.dialect, self.text)
        doc["representations"][query.dialect] = query.text


@dataclass(frozen=True)
class RemoveRepresentation(EntityChange):
    """Remove the view's query in one dialect. Raises EntityNotFound if the view has none."""

    dialect: str
    since: ClassVar[int] = 2

    def apply(self, doc: Doc, path: Names) -> None:
        dialect = clean_dialect(self.dialect)
        if doc["representations"].pop(dialect, None) is None:
            raise not_found(path, "representation", dialect)


@dataclass(frozen=True)
class SetDefaultCatalog(EntityChange):
    """Set the catalog in which names are looked up; None removes it."""

    name: str | None
    since: ClassVar[int] = 2

    def apply(self, doc: Doc, path: Names) -> None:
        doc["default_catalog"] = clean_default(self.name, "a default catalog")


@dataclass(frozen=True)
class SetDefaultSchema(EntityChange):
    """Set the schema in which names are looked up; None removes it."""

    name: str | None
    since: ClassVar[int] = 2

    def apply(self, doc: Doc, path: Names) -> None:
        doc["default_schema"] = clean_default(self.name, "a default schema")
