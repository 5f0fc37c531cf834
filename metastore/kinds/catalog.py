"""The catalog: the second level. ``fold_case`` is fixed when it is created, for all names below it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

from metastore.arguments import shown
from metastore.errors import InvalidArgument
from metastore.kinds.change import Doc
from metastore.kinds.entity import Entity
from metastore.kinds.kind import Kind, as_stored
from metastore.names import clean_text, exact_text

__all__ = ["CATALOG", "CATALOG_TYPES", "Catalog"]

CATALOG_TYPES = ("relational", "fileset", "messaging", "model")


class Catalog(Entity):
    """A catalog. ``type`` is a label (relational, fileset, messaging, model); it restricts no kind."""

    type: Literal["relational", "fileset", "messaging", "model"]
    provider: str | None
    fold_case: bool

    doc_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"type": str, "provider": as_stored, "fold_case": bool}

    common_fields = (*Entity.common_fields, "in_use")

    @property
    def in_use(self) -> bool:
        return self.record.chain[-1].in_use


def _new_doc(*, type: Any, provider: Any = None, fold_case: Any = False) -> Doc:
    if not isinstance(type, str) or exact_text(type, "a type").lower() not in CATALOG_TYPES:
        raise InvalidArgument(f"a catalog's type must be one of {', '.join(CATALOG_TYPES)}, not {shown(type)}")
    if not isinstance(fold_case, bool):
        raise InvalidArgument(f"fold_case must be True or False, not {shown(fold_case)}")
    if provider is not None and not clean_text(provider, "a catalog's provider"):
        raise InvalidArgument("a catalog's provider must not be empty; leave it out instead")
    return {"type": exact_text(type, "a type").lower(), "provider": provider, "fold_case": fold_case}


def _replace_doc(old: Doc, *, type: Any, provider: Any = None, fold_case: Any = None) -> Doc:
    folds = old["fold_case"] if fold_case is None else fold_case
    if folds != old["fold_case"]:
        raise InvalidArgument("fold_case is fixed when the catalog is created; drop it and create another")
    return _new_doc(type=type, provider=provider, fold_case=folds)


CATALOG = Kind(
    "catalog",
    "catalog",
    ("metalake",),
    Catalog,
    new_doc=_new_doc,
    replace_doc=_replace_doc,
    container=True,
    can_be_disabled=True,
)
