"""Columns that are being dropped in steps: the document keeps them apart from its columns until the drop ends.

    {"dropping": [{"operation": id, "place": n, "node": node}, …]}

So every reader sees the table without the column, at no cost. The name stays taken, and a change that names the column
raises DropPending. A document has the key only while a column is being dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from metastore.columns.column import Node, find
from metastore.errors import DropPending, InvalidArgument
from metastore.kinds.change import Doc, EntityChange, not_found
from metastore.names import Path, format_path, parse_path

__all__ = [
    "MARKER",
    "BeginColumnDrop",
    "FinishColumnDrop",
    "FinishPartitionDrop",
    "RollBackColumnDrop",
    "check_free",
    "kept_dropping",
]

MARKER = "dropping"
"""The key in a table's document of the columns that are being dropped. In a partition's document, the key of the
operation that drops it.
"""

Names = tuple[str, ...]


def check_free(doc: Mapping[str, Any], entity: Names, names: Sequence[str]) -> None:
    """Raise DropPending if ``names``, the path of a column, is that of a column being dropped, or is below one."""
    for one in doc.get(MARKER, ()):
        if names and one["node"]["name"] == names[0]:
            raise DropPending(UUID(one["operation"]), path=format_path((*entity, names[0])))


def kept_dropping(nodes: Iterable[Node], old: Mapping[str, Any]) -> Doc:
    """Return the columns being dropped in ``old``, which a document that replaces it keeps.

    Raises DropPending if one of ``nodes`` has a pending name, or a pending id: the column may have been renamed since.
    """
    if MARKER not in old:
        return {}
    taken = {node["name"] for node in nodes} | {node["id"] for node in nodes}
    for one in old[MARKER]:
        if taken & {one["node"]["name"], one["node"]["id"]}:
            raise DropPending(UUID(one["operation"]), path=format_path((one["node"]["name"],)))
    return {MARKER: old[MARKER]}


@dataclass(frozen=True)
class BeginColumnDrop(EntityChange):
    """Take a column out of the table until its drop ends or is rolled back. ``tables.begin_drop`` writes this."""

    path: Path
    operation: str

    def apply(self, doc: Doc, path: Names) -> None:
        names = parse_path(self.path)
        node = _column(doc, path, names)
        place = doc["columns"].index(node)
        doc["columns"].remove(node)
        doc.setdefault(MARKER, []).append({"operation": self.operation, "place": place, "node": node})


@dataclass(frozen=True)
class RollBackColumnDrop(EntityChange):
    """Put a column back in its place, or at the end if there are fewer columns now."""

    path: Path
    column_id: int

    def apply(self, doc: Doc, path: Names) -> None:
        one = _taken_out(doc, self.column_id)
        if one is not None:
            doc["columns"].insert(one["place"], one["node"])


@dataclass(frozen=True)
class FinishColumnDrop(EntityChange):
    """Forget a column whose data is destroyed. It cannot be brought back."""

    path: Path
    column_id: int

    def apply(self, doc: Doc, path: Names) -> None:
        _taken_out(doc, self.column_id)


@dataclass(frozen=True)
class FinishPartitionDrop(EntityChange):
    """Say, in the event that deletes a partition, that its data is destroyed. It cannot be brought back."""


def _column(doc: Doc, entity: Names, names: Names) -> Node:
    if len(names) != 1:
        raise InvalidArgument(f"{format_path(names)} is a nested field; only whole columns are dropped in steps")
    check_free(doc, entity, names)
    node = find(doc["columns"], names)
    if node is None:
        raise not_found(entity, "column", format_path(names))
    return node


def _taken_out(doc: Doc, column_id: int) -> Doc | None:
    """Remove the note of a column that is being dropped, and return it; None: no note."""
    noted = doc.get(MARKER, [])
    note: Doc | None = next((one for one in noted if one["node"]["id"] == column_id), None)
    rest = [one for one in noted if one is not note]
    doc.pop(MARKER, None)
    if rest:
        doc[MARKER] = rest
    return note
