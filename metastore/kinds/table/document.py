"""The document of a table: its columns, its layout, its location and its format.

    {"columns": [node, …], "last_column_id": n, "partitioning": [text, …], "distribution": text | null,
     "sort_orders": [text, …], "indexes": [{"name", "columns", "type"}, …], "location": text | null,
     "format": text | null}

Columns are nodes of :mod:`metastore.columns.column`; the texts of the layout are those of
:mod:`metastore.kinds.table.layout`. Everything in a document was checked before it was stored, so references in the
layout always name an existing column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from metastore.columns.column import Column, Node, reconcile
from metastore.errors import InvalidArgument
from metastore.kinds.table.dropping import kept_dropping
from metastore.kinds.table.layout import (
    EVEN,
    Index,
    check_distribution,
    check_indexes,
    check_partitioning,
    check_sort_orders,
    references,
    renamed,
)
from metastore.names import clean_text, format_path, parse_path

__all__ = [
    "clean_format",
    "clean_location",
    "layout_references",
    "rename_references",
    "stored_columns",
    "stored_distribution",
    "stored_indexes",
    "stored_partitioning",
    "stored_sort_orders",
]

Doc = dict[str, Any]


def stored_columns(columns: Iterable[Column], draft: Doc, old: Mapping[str, Any]) -> list[Node]:
    """Return the nodes of ``columns``, and add ``last_column_id`` to ``draft``. Columns of ``old`` keep their ids."""
    draft.update(reconcile(old, columns))
    nodes: list[Node] = draft["columns"]
    draft.update(kept_dropping(nodes, old))
    return nodes


def stored_partitioning(texts: Iterable[str], draft: Doc, _: object) -> list[str]:
    """Return the canonical spelling of each text; the columns that it names must be in ``draft``."""
    return check_partitioning(texts, draft["columns"])


def stored_distribution(text: str | None, draft: Doc, _: object) -> str | None:
    """Return the canonical spelling of ``text``; the columns that it names must be in ``draft``."""
    return check_distribution(text, draft["columns"])


def stored_sort_orders(texts: Iterable[str], draft: Doc, _: object) -> list[str]:
    """Return the canonical spelling of each text; the columns that it names must be in ``draft``."""
    return check_sort_orders(texts, draft["columns"])


def stored_indexes(indexes: Iterable[Index], draft: Doc, _: object) -> list[Doc]:
    """Return ``indexes`` as a document stores them; the columns that they name must be in ``draft``."""
    return check_indexes(indexes, draft["columns"])


def clean_location(location: object) -> str | None:
    """Return ``location`` if it is None or a string that is not blank, or raise InvalidArgument."""
    return _optional(location, "a location")


def clean_format(format: object) -> str | None:
    """Return ``format`` in lower case, or None. Raises InvalidArgument for a blank string or another type."""
    text = _optional(format, "a format")
    return text and text.lower()


def _optional(value: object, what: str) -> str | None:
    if value is None:
        return None
    text = clean_text(value, what)
    if not text.strip():
        raise InvalidArgument(f"{what} must not be blank; None means that there is none")
    return text


def layout_references(doc: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each reference of the layout to a column: the place of the reference in words, and the column's path."""
    texts = [("the partitioning", t) for t in doc.get("partitioning", ())]
    texts += [("the distribution", t) for t in (doc.get("distribution"),) if t not in (None, EVEN)]
    texts += [("the sort order", t) for t in doc.get("sort_orders", ())]
    for what, text in texts:
        for names in references(text):
            yield f"{what} {text!r}", names
    for index in doc.get("indexes", ()):
        for path in index["columns"]:
            yield f"the index {index['name']!r}", parse_path(path)


def rename_references(doc: Doc, old: tuple[str, ...], new: tuple[str, ...]) -> None:
    """Replace ``old`` by ``new``, in place, in each reference of the layout to the column ``old`` or a field below."""
    for key in ("partitioning", "sort_orders"):
        if key in doc:
            doc[key] = [renamed(text, old, new) for text in doc[key]]
    if doc.get("distribution") not in (None, EVEN):
        doc["distribution"] = renamed(doc["distribution"], old, new)
    for index in doc.get("indexes", ()):
        index["columns"] = [_renamed_path(path, old, new) for path in index["columns"]]


def _renamed_path(path: str, old: tuple[str, ...], new: tuple[str, ...]) -> str:
    names = parse_path(path)
    return format_path(new + names[len(old) :]) if names[: len(old)] == old else path
