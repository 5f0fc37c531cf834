"""Check one relation: its history, its key, and that both its ends were live whenever it was written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from metastore.kinds.registry import RELATIONSHIPS
from metastore.kinds.relation import relation_doc, relation_named
from metastore.port.conditions import LIVE
from metastore.port.relations import ONLY
from metastore.verify.history import ChainReader, Link, time_problem
from metastore.verify.steps import AUDIT, Made, Place
from metastore.verify.violations import Places, Violation

__all__ = ["COLUMNS", "check_relation", "was_deleted"]

COLUMNS = ("id", "from_id", "kind", "slot", "column_id", "value", "to_id", "version", *AUDIT)
"""The columns of a row that ``check_relation`` reads."""


def check_relation(row: tuple[Any, ...], second: object, reader: ChainReader, places: Places) -> Iterator[Violation]:
    """Yield the violations of one relation. A relation with a missing end is not a violation: no reader sees it."""
    row_id, from_id, kind, slot, column_id, value, to_id, version, *made = row
    path = reader.first_path
    if second is not None or row_id in places:
        yield Violation(8, row_id, path, "a relation and something else have one id")
    if kind in RELATIONSHIPS and slot != (ONLY if relation_named(kind).exclusive else to_id):
        yield Violation(13, row_id, path, f"a relation {kind} in the slot {slot}, so another one could exist beside it")
    if from_id in places and to_id in places and path is None:
        yield Violation(8, row_id, None, f"a relation {kind} that no operation made")
    for what, micros in zip(("created", "modified"), made[:2], strict=True):
        if problem := time_problem(what, micros):
            yield Violation(8, row_id, path, problem)
    place = Place(from_id, str(row_id), None, LIVE, kind, str(row_id))
    doc = relation_doc(to_id, column_id, value)
    yield from reader.check(path or kind, kind, version, doc, {"owner": from_id, "state": LIVE}, place, Made(*made))


def was_deleted(link: Link, places: Places) -> bool:
    """Whether gc may have deleted the relation with this last step, because it had lost an end, or its column."""
    gone = any(end is None or end not in places for end in (link.owner_id, link.other_id))
    return gone or json.loads(link.doc or "{}").get("column_id", 0) != 0
