"""The catalog: the second level of the tree. ``fold_case`` is fixed at creation, and holds for all names below."""

from __future__ import annotations

from typing import Any, Literal

from metastore.arguments import boolean, shown
from metastore.errors import InvalidArgument
from metastore.kinds.entity import Entity
from metastore.kinds.field import doc_field
from metastore.kinds.kind import Kind
from metastore.names import clean_text, exact_text

__all__ = ["CATALOG", "CATALOG_TYPES", "Catalog"]

CATALOG_TYPES = ("relational", "fileset", "messaging", "model")


def _clean_type(type: Any) -> str:
    if not isinstance(type, str) or exact_text(type, "a type").lower() not in CATALOG_TYPES:
        raise InvalidArgument(f"a catalog's type must be one of {', '.join(CATALOG_TYPES)}, not {shown(type)}")
    return exact_text(type, "a type").lower()


def _clean_provider(provider: Any) -> str | None:
    if provider is not None and not clean_text(provider, "a catalog's provider"):
        raise InvalidArgument("a catalog's provider must not be empty; leave it out instead")
    return None if provider is None else str(provider)


def _clean_fold_case(fold_case: Any) -> bool:
    return boolean(fold_case, "fold_case")


class Catalog(Entity):
    """A catalog. ``type`` is a label (relational, fileset, messaging, model); it restricts no kind."""

    type: Literal["relational", "fileset", "messaging", "model"] = doc_field(_clean_type, decode=str)
    provider: str | None = doc_field(_clean_provider, default=None)
    fold_case: bool = doc_field(_clean_fold_case, default=False, decode=bool, fixed=True)

    common_fields = (*Entity.common_fields, "in_use")

    @property
    def in_use(self) -> bool:
        """Whether the catalog admits writes below it; ``store.catalogs.disable`` refuses them."""
        return self.record.chain[-1].in_use


CATALOG = Kind("catalog", "catalog", ("metalake",), Catalog, container=True, can_be_disabled=True)
