"""The parts of a write of relations: columns, values, events, removals. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from metastore.columns.column import find as find_column
from metastore.errors import EntityNotFound, InvalidArgument
from metastore.kinds.relation import Relation, relation_doc
from metastore.kinds.table.dropping import MARKER, check_free
from metastore.kinds.tag import clean_value
from metastore.names import format_path
from metastore.port.records import Record
from metastore.port.relations import NO_COLUMN, RelationRecord
from metastore.port.unreadable import naming
from metastore.port.writes import Event, Relate

Judge = Callable[[Record, Record, str, int], None]
"""A check of the target, the attached entity, the value and the column's id: raises InvalidArgument if they do not fit.
"""


def no_judge(target: Record, other: Record, value: str, column: int) -> None:
    """Refuse nothing."""


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
    doc = naming(partial(json.loads, target.doc), here.kind, here.id, target.version)
    columns = doc.get("columns")
    if columns is None:
        raise InvalidArgument(f"{target.path} is a {target.chain[-1].kind}, which has no columns")
    node = find_column(columns, names)
    if node is None:
        check_free(doc, tuple([n.name for n in target.chain]), names)
        path = f"{target.path}.{format_path(names)}"
        raise EntityNotFound(path, f"{target.path} has no column {format_path(names)}; load it and look again")
    return int(node["id"])


def column_paths(doc: str | None) -> dict[int, tuple[str, ...]]:
    """Return the path of every column, of fields of structs too, by the column's id."""
    found: dict[int, tuple[str, ...]] = {}
    waiting: list[tuple[tuple[str, ...], Mapping[str, Any]]] = [
        ((), node) for node in json.loads(doc or "{}").get("columns") or ()
    ]
    while waiting:
        above, node = waiting.pop()
        found[node["id"]] = names = (*above, node["name"])
        waiting += [(names, below) for below in node.get("fields", ())]
    return found


def is_dropping(doc: str | None, wanted: int) -> bool:
    """Whether the column with an id, or the one that it is a field of, is being dropped in steps."""
    noted = json.loads(doc or "{}").get(MARKER) or ()
    return _has([one["node"] for one in noted], wanted)


def _has(nodes: Iterable[Mapping[str, Any]], wanted: int) -> bool:
    return any(node["id"] == wanted or _has(node.get("fields", ()), wanted) for node in nodes)
