"""Make the document with which an import replaces an existing one. Pure.

People work on the store meanwhile, and the file may come from another database. So columns keep their ids by name,
because tags and owners of columns refer to ids, and a counter never decreases. An existing alias of a model keeps its
version. A drop in steps continues.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from metastore.kinds.change import Doc
from metastore.kinds.registry import KINDS
from metastore.kinds.table.dropping import kept_dropping

__all__ = ["counted", "replaced", "with_aliases"]

_LAST: Final = "last_column_id"


def replaced(kind: str, old: Mapping[str, Any], new: Doc, *, ours: bool, follows: bool) -> Doc:
    """Return the document that replaces ``old``. ``ours``: the columns of ``new`` have the ids of this same table.

    ``follows``: ``new`` is a later state of the same entity, so only counters are merged.

    Raises DropPending for a column that is being dropped in steps.
    """
    known = KINDS.get(kind)
    if known is None:
        return new
    doc = {**new, **kept_dropping(new.get("columns", ()), old)} if ours else known.replaced_by(old, new)
    if _LAST in doc and _LAST in old:
        doc[_LAST] = max(doc[_LAST], old[_LAST])
    for name, field in known.entity.doc_fields.items():
        if field.joined is not None:
            keeps = field.joined is max or not follows
            doc[name] = field.joined(new[name], old[name]) if keeps else new[name]
    return doc


def counted(kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Doc:
    """Return ``old`` with its counters at least as high as those of ``new``, whose owned rows are added to it."""
    known = KINDS.get(kind)
    fields = {} if known is None else known.entity.doc_fields
    higher = {name: max(new[name], old[name]) for name, field in fields.items() if field.joined is max}
    return {**old, **higher}


def with_aliases(version: Mapping[str, Any], number: str, model: Mapping[str, Any]) -> Doc:
    """Return the document of a model's version with the aliases from its model."""
    return {**version, "aliases": sorted(alias for alias, to in model["aliases"].items() if str(to) == number)}
