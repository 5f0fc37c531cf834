"""The parts of a write of relations: columns, values, events, removals. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from metastore.columns.column import find as find_column
from metastore.errors import EntityNotFound, InvalidArgument
from metastore.kinds.relation import Relation, relation_doc
from metastore.kinds.table.dropping import MARKER, check_free
from metastore.kinds.tag import clean_value
from metastore.names import format_path
from metastore.port.records import Node, Record
from metastore.port.relations import NO_COLUMN, RelationRecord
from metastore.port.unreadable import naming
from metastore.port.writes import Event, Relate

Judge = Callable[[Record, Record, str, int], None]
"""A check of the target, the attached entity, the value and the column's id: raises InvalidArgument if they do not fit.
"""


def no_judge(target: Record, other: Record, value: str, column: int) -> None:
    """Accept every relation."""


def clean_value_of(value: object) -> str | None:
    """Return the value of a relation, if it has one. Raises InvalidArgument."""
    return None if value is None else clean_value(value)


def event_of(relation: Relation, action: str, target: str, other: str) -> Event:
    """Return the event of a relation between two paths: the object's first, then the other end's."""
    path, far = (other, target) if relation.to_the_object else (target, other)
    before, after = (None if action == "create" else path), (None if action == "drop" else path)
    return Event(relation.name, action, before, after, other_path=far)


def removal(row: RelationRecord, event: Event) -> Relate:
    """Return the write that removes a relation."""
    doc = relation_doc(row.to_id, row.column_id, row.value)
    return Relate(*row.key, row.to_id, row.version, doc, event, row.id, removes=True)


def column_id(target: Record, names: tuple[str, ...] | None) -> int:
    """Return the id of a column. Raises EntityNotFound; InvalidArgument for a kind without columns."""
    if names is None:
        return NO_COLUMN
    here = target.chain[-1]
    doc, found = naming(partial(_found, target.doc, names), here.kind, here.id, target.version)
    if doc.get("columns") is None:
        raise InvalidArgument(f"{target.path} is a {here.kind}, which has no columns")
    if found is None:
        check_free(doc, tuple([n.name for n in target.chain]), names)
        path = f"{target.path}.{format_path(names)}"
        raise EntityNotFound(path, f"{target.path} has no column {format_path(names)}; load it and look again")
    return found


def _found(text: str, names: tuple[str, ...]) -> tuple[dict[str, Any], int | None]:
    doc = {**json.loads(text)}
    node = find_column(doc.get("columns") or [], names)
    return doc, None if node is None else int(node["id"])


def column_paths(doc: str | None, here: Node | None, *, dropping: bool = False) -> dict[int, tuple[str, ...]]:
    """Return the path of every column, including fields of structs, by the column's id.

    ``dropping``: include the columns that are being dropped in steps. Raises UnreadableRow, which names the entity
    ``here``, if its document is damaged.
    """
    return naming(partial(_column_paths, doc, dropping), here and here.kind, here and here.id, None)


def _column_paths(doc: str | None, dropping: bool) -> dict[int, tuple[str, ...]]:
    found: dict[int, tuple[str, ...]] = {}
    decoded = json.loads(doc or "{}")
    noted = [one["node"] for one in decoded.get(MARKER) or ()] if dropping else []
    waiting: list[tuple[tuple[str, ...], Mapping[str, Any]]]
    waiting = [((), node) for node in (*(decoded.get("columns") or ()), *noted)]
    while waiting:
        above, node = waiting.pop()
        found[node["id"]] = names = (*above, node["name"])
        waiting += [(names, below) for below in node.get("fields", ())]
    return found
