"""The tables of the data source: their columns, and batches of their rows.

``entities``  what was live at the position: id, kind, path, document and audit
``owned``     partitions, statistics and other rows of live entities
``versions``  each step of history, with the document after it
``changes``   the feed: each step without its document
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from metastore.feed.feed import position_of, steps_between
from metastore.kinds.secret import masked
from metastore.names import format_path
from metastore.operation.session import Session
from metastore.past.reads import PastReads
from metastore.port.commit import LIVE, ROOT_ID
from metastore.port.past import PastRow
from metastore.port.records import Step

__all__ = ["BY_ID", "BY_POSITION", "DDL", "ranges", "rows_by_id", "rows_by_position"]

_AUDIT = "created_by STRING, created_at TIMESTAMP, modified_by STRING, modified_at TIMESTAMP"
_TOLD = "comment STRING, properties MAP<STRING, STRING>, document STRING"
_CHANGES = """position STRING, operation_id STRING, principal STRING, kind STRING, entity_id BIGINT, action STRING,
  path_before STRING, path_after STRING, version BIGINT, changes STRING, time TIMESTAMP"""
DDL: Final = {
    "entities": f"id BIGINT, kind STRING, path STRING, name STRING, version BIGINT, {_TOLD}, {_AUDIT}",
    "owned": f"id BIGINT, owner_id BIGINT, owner_path STRING, kind STRING, name STRING, version BIGINT, {_TOLD},"
    f" {_AUDIT}",
    "versions": f"{_CHANGES}, document STRING",
    "changes": _CHANGES,
}
"""The columns of each table, as Spark's DDL."""

BY_ID, BY_POSITION = ("entities", "owned"), ("versions", "changes")

_TIME: Final = pa.timestamp("us", tz="UTC")
_TYPES: Final = {"STRING": pa.string(), "BIGINT": pa.int64(), "TIMESTAMP": _TIME}
_WINDOW: Final = 5_000
"""How many ids, or changes, one batch has at most."""


def _schema(table: str) -> pa.Schema:
    fields = []
    for column in DDL[table].replace("MAP<STRING, STRING>", "MAP").split(","):
        name, kind = column.split()
        fields.append(pa.field(name, pa.map_(pa.string(), pa.string()) if kind == "MAP" else _TYPES[kind]))
    return pa.schema(fields)


def rows_by_id(
    session: Session, table: str, at: int, low: int, high: int, kinds: frozenset[str] | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``table`` whose ids are in a range, as of a position. Raises HistoryGone."""
    reads, schema = PastReads(session, at, session.backend.origin), _schema(table)
    above = _Above(reads)
    for begin in range(low, high, _WINDOW):
        rows = [row for row in reads.rows(begin, min(high, begin + _WINDOW)) if row.state == LIVE]
        rows = [row for row in rows if (row.owner_id is None) == (table == "entities")]
        rows = [row for row in rows if kinds is None or row.kind in kinds]
        above.look_up({row.parent_id for row in rows})
        found = [_told(row, names) for row in rows if (names := above.names(row.parent_id)) is not None]
        if found:
            yield pa.RecordBatch.from_pylist(found, schema=schema)


class _Above:
    """The paths of what rows stand below; None for what was not live."""

    def __init__(self, reads: PastReads) -> None:
        self._reads = reads
        self._names: dict[int, tuple[str, ...] | None] = {ROOT_ID: ()}

    def look_up(self, ids: set[int]) -> None:
        new = sorted(ids - self._names.keys())
        for one, known in zip(new, self._reads.by_id(new) if new else (), strict=True):
            live = known is not None and known.live
            self._names[one] = tuple(n.name for n in known.record.chain) if known is not None and live else None

    def names(self, entity_id: int) -> tuple[str, ...] | None:
        return self._names[entity_id]


def _told(row: PastRow, above: tuple[str, ...]) -> dict[str, Any]:
    text = masked(row.doc)
    doc = json.loads(text)
    return {
        "id": row.id,
        "owner_id": row.owner_id,
        "owner_path": format_path(above) if row.owner_id is not None else None,
        "kind": row.kind,
        "path": format_path((*above, row.name)),
        "name": row.name,
        "version": row.version,
        "comment": doc.get("comment"),
        "properties": list((doc.get("properties") or {}).items()),
        "document": text,
        "created_by": row.created_by,
        "created_at": row.created_at,
        "modified_by": row.modified_by,
        "modified_at": row.modified_at,
    }


def rows_by_position(
    session: Session, table: str, low: int, high: int, kinds: frozenset[str] | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``table`` after position ``low`` up to ``high``. Raises HistoryGone."""
    schema, epoch, some = _schema(table), session.backend.feed_start()[0], list[dict[str, Any]]()
    for step in steps_between(session.backend, session.clock, low, high, together=False):
        if kinds is None or step.kind in kinds:
            some.append(_step(step, epoch))
        if len(some) == _WINDOW:
            yield pa.RecordBatch.from_pylist(some, schema=schema)
            some = []
    if some:
        yield pa.RecordBatch.from_pylist(some, schema=schema)


def _step(step: Step, epoch: str) -> dict[str, Any]:
    return {
        "position": position_of(epoch, step.seq or 0, step.operation_id),
        "operation_id": str(step.operation_id),
        "principal": step.principal,
        "kind": step.kind,
        "entity_id": step.entity_id,
        "action": step.action,
        "path_before": step.path_before,
        "path_after": step.path_after,
        "version": step.version,
        "changes": None if step.changes is None else masked(step.changes),
        "time": step.time,
        "document": None if step.doc is None else masked(step.doc),
    }


def ranges(low: int, high: int, parts: int) -> Sequence[tuple[int, int]]:
    """Split a range of numbers into at most ``parts``."""
    size = max(1, -(-(high - low) // max(1, parts)))
    return [(begin, min(high, begin + size)) for begin in range(low, high, size)]
