"""The tables of the data source: their columns, and batches of their rows.

``entities``  what was live at the position: id, kind, path, document and audit
``owned``     partitions, statistics and other rows of live entities
``relations`` tags, policies, owners, memberships, grants and declared ones, whose both ends are live
``versions``  each step of history, with the document after it
``changes``   the feed: each step without its document
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from metastore.errors import InvalidArgument
from metastore.feed.feed import position_of, steps_between
from metastore.kinds.secret import masked
from metastore.names import format_path
from metastore.operation.session import Session
from metastore.past.reads import PastReads
from metastore.port.commit import LIVE, ROOT_ID
from metastore.port.past import PastRow
from metastore.port.records import Step
from metastore.spark.source.filters import Wanted

__all__ = ["BY_ID", "BY_POSITION", "DDL", "ddl", "ranges", "rows_by_id", "rows_by_position"]

_AUDIT = "created_by STRING, created_at TIMESTAMP, modified_by STRING, modified_at TIMESTAMP"
_TOLD = "comment STRING, properties MAP<STRING, STRING>, document STRING"
_END = f"column_id BIGINT, value STRING, version BIGINT, {_AUDIT}"
_CHANGES = """position STRING, operation_id STRING, principal STRING, kind STRING, entity_id BIGINT, action STRING,
  path_before STRING, path_after STRING, version BIGINT, changes STRING, time TIMESTAMP"""
DDL: Final = {
    "entities": f"id BIGINT, kind STRING, path STRING, name STRING, version BIGINT, {_TOLD}, {_AUDIT}",
    "owned": f"id BIGINT, owner_id BIGINT, owner_path STRING, kind STRING, name STRING, version BIGINT, {_TOLD},"
    f" {_AUDIT}",
    "relations": f"id BIGINT, kind STRING, from_id BIGINT, from_path STRING, to_id BIGINT, to_path STRING, {_END}",
    "versions": f"{_CHANGES}, document STRING",
    "changes": _CHANGES,
}
"""The columns of each table, as Spark's DDL."""

BY_ID, BY_POSITION = ("entities", "owned", "relations"), ("versions", "changes")

_TIME: Final = pa.timestamp("us", tz="UTC")
_TYPES: Final = {"STRING": pa.string(), "BIGINT": pa.int64(), "TIMESTAMP": _TIME}
_WINDOW: Final = 5_000
"""How many ids, or changes, one batch has at most."""


def ddl(table: str, columns: Sequence[str] | None) -> str:
    """Return the columns of a table as Spark's DDL; ``columns``: only these. Raises InvalidArgument."""
    if table not in DDL:
        raise InvalidArgument(f"there is no table {table!r}; known are {', '.join(DDL)}")
    known = {one.split()[0]: one.strip() for one in _split(DDL[table])}
    unknown = [name for name in columns or () if name not in known]
    if unknown:
        raise InvalidArgument(f"{table} has no column {unknown[0]!r}; it has {', '.join(known)}")
    return ", ".join(known[name] for name in (known if columns is None else columns))


def _split(columns: str) -> list[str]:
    return [
        one.replace("MAP;", "MAP<STRING, STRING>") for one in columns.replace("MAP<STRING, STRING>", "MAP;").split(",")
    ]


def _schema(columns: str) -> pa.Schema:
    fields = []
    for column in _split(columns):
        name, kind = column.strip().split(maxsplit=1)
        fields.append(pa.field(name, pa.map_(pa.string(), pa.string()) if kind.startswith("MAP") else _TYPES[kind]))
    return pa.schema(fields)


def rows_by_id(
    session: Session, table: str, columns: Sequence[str] | None, at: int, wanted: Wanted
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``table`` that are wanted, as of a position. Raises HistoryGone."""
    reads, schema = PastReads(session, at, session.backend.origin), _schema(ddl(table, columns))
    above, told = _Above(reads), {"entities": _entity, "owned": _owned, "relations": _related}[table]
    kinds = None if wanted.kinds is None else sorted(wanted.kinds)
    for begin in range(wanted.low, wanted.high + 1, _WINDOW):
        rows = [r for r in reads.rows(begin, min(wanted.high + 1, begin + _WINDOW), kinds) if r.state == LIVE]
        rows = [row for row in rows if _table_of(row) == table]
        above.look_up({row.parent_id for row in rows} | {row.other_id for row in rows if row.other_id is not None})
        told_rows = [one for row in rows if (one := told(row, above, schema.names)) is not None]
        told_rows = [
            one for one in told_rows if not wanted.prefix or one.get("path", wanted.prefix).startswith(wanted.prefix)
        ]
        if told_rows:
            yield pa.RecordBatch.from_pylist(told_rows, schema=schema)


def _table_of(row: PastRow) -> str:
    return "entities" if row.owner_id is None else "owned" if row.other_id is None else "relations"


class _Above:
    """The paths of what rows stand below; None for what was not live."""

    def __init__(self, reads: PastReads) -> None:
        self._reads = reads
        self._names: dict[int, tuple[str, ...] | None] = {ROOT_ID: ()}
        self._paths: dict[int, str | None] = {ROOT_ID: ""}
        """With the point that follows."""

    def look_up(self, ids: set[int]) -> None:
        new = sorted(ids - self._names.keys())
        for one, known in zip(new, self._reads.by_id(new) if new else (), strict=True):
            live = known is not None and known.live
            names = tuple(n.name for n in known.record.chain) if known is not None and live else None
            self._names[one] = names
            self._paths[one] = None if names is None else f"{format_path(names)}."

    def names(self, entity_id: int) -> tuple[str, ...] | None:
        return self._names[entity_id]

    def path(self, entity_id: int, name: str) -> str | None:
        """Return the path of what has a name below an entity; None: that is not live."""
        above = self._paths[entity_id]
        return None if above is None else above + format_path((name,))


def _entity(row: PastRow, above: _Above, names: Sequence[str]) -> dict[str, Any] | None:
    path = above.path(row.parent_id, row.name)
    if path is None:
        return None
    told = _with_doc(row, names)
    told["path"], told["name"] = path, row.name
    return told


def _owned(row: PastRow, above: _Above, names: Sequence[str]) -> dict[str, Any] | None:
    path = above.names(row.parent_id)
    if path is None:
        return None
    return _with_doc(row, names) | {"owner_id": row.owner_id, "owner_path": format_path(path), "name": row.name}


def _related(row: PastRow, above: _Above, names: Sequence[str]) -> dict[str, Any] | None:
    del names
    from_path, to_path = above.names(row.parent_id), above.names(row.other_id or ROOT_ID)
    if not from_path or not to_path or from_path[0] != to_path[0]:
        return None
    doc = json.loads(row.doc)
    ends = {"from_id": row.parent_id, "from_path": format_path(from_path), "to_id": row.other_id}
    more = {"to_path": format_path(to_path), "column_id": doc["column_id"] or None, "value": doc["value"] or None}
    return _audit(row) | ends | more


def _audit(row: PastRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "kind": row.kind,
        "version": row.version,
        "created_by": row.created_by,
        "created_at": row.created_at,
        "modified_by": row.modified_by,
        "modified_at": row.modified_at,
    }


def _with_doc(row: PastRow, names: Sequence[str]) -> dict[str, Any]:
    """Return what all rows with a document have. It is parsed only for the columns that need it."""
    text = masked(row.doc)
    told = _audit(row)
    told["document"] = text
    if "comment" in names or "properties" in names:
        doc = json.loads(text)
        told |= {"comment": doc.get("comment"), "properties": list((doc.get("properties") or {}).items())}
    return told


def rows_by_position(
    session: Session, table: str, columns: Sequence[str] | None, wanted: Wanted
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``table`` that are wanted: after position ``low`` up to ``high``. Raises HistoryGone."""
    schema, epoch, some = _schema(ddl(table, columns)), session.backend.feed_start()[0], list[dict[str, Any]]()
    for step in steps_between(session.backend, session.clock, wanted.low, wanted.high, together=False):
        fits = wanted.kinds is None or step.kind in wanted.kinds
        if fits and wanted.since <= step.time <= wanted.until:
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
