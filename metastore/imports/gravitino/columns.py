"""Keep the ids of columns from one import to the next, so that tags and owners of a column stay on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

__all__ = ["Columns", "keep_ids"]

Doc = dict[str, Any]


@dataclass(frozen=True)
class Columns:
    """The store's ids of a table's columns, by Gravitino's ids; and the nested columns, as an import left them."""

    ids: Mapping[int, int] = field(default_factory=dict)
    nested: Mapping[int, Doc] = field(default_factory=dict)
    """By the store's ids."""
    last: int = 0


def keep_ids(doc: Doc, theirs: Sequence[int], before: Columns | None) -> tuple[Doc, Columns]:
    """Return a table's document in which known columns have their old ids, and the ids of all columns."""
    if before is None:
        ids = {key: column["id"] for key, column in zip(theirs, doc["columns"], strict=True)}
        return doc, Columns(ids, {}, doc["last_column_id"])
    fresh = count(before.last + 1)
    columns, ids = [], {}
    for key, column in zip(theirs, doc["columns"], strict=True):
        known = before.ids.get(key)
        old = None if known is None else before.nested.get(known, {"id": known})
        columns.append(_numbered(column, old, fresh))
        ids[key] = columns[-1]["id"]
    last = max(before.last, next(fresh) - 1)
    return {**doc, "columns": columns, "last_column_id": last}, Columns(ids, {}, last)


def _numbered(column: Doc, old: Doc | None, fresh: Iterator[int]) -> Doc:
    """Return a column with the ids of an old one, for the fields whose names agree."""
    made = {**column, "id": next(fresh) if old is None else old["id"]}
    if "fields" in column:
        there = {one["name"]: one for one in (old or {}).get("fields", ())}
        made["fields"] = [_numbered(one, there.get(one["name"]), fresh) for one in column["fields"]]
    return made
