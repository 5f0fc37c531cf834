"""The tables of the data source: their columns, and batches of their rows.

``entities``  the entities that were live at the position: id, kind, path, document and audit
``owned``     partitions, statistics and other rows of live entities
``relations`` tags, policies, owners, memberships, grants and declared ones, whose both ends are live
``versions``  each step of history, with the document after it
``changes``   the feed: each step without its document
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from metastore.errors import InvalidArgument
from metastore.feed.feed import position_of, steps_between
from metastore.kinds.drop import DROP
from metastore.kinds.partition import PARTITION
from metastore.kinds.partition_statistic import PARTITION_STATISTIC, belongs
from metastore.kinds.secret import masked
from metastore.managers.drops.parts import marked_by
from metastore.managers.relations.writes import column_paths
from metastore.names import format_path, parse_path
from metastore.operation.guards import key_under
from metastore.operation.session import Session
from metastore.past.reads import PastReads, reads_from
from metastore.port.conditions import LIVE, ROOT_ID
from metastore.port.past import PastRow
from metastore.port.records import ROOT, Node, Step
from metastore.spark.source.wanted import Wanted

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
    if columns is not None and len(set(columns)) < len(columns):
        raise InvalidArgument(f"the option columns names one twice: {', '.join(columns)}")
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
    reads, schema = reads_from(session, at, session.backend.origin), _schema(ddl(table, columns))
    above, told_by = _Above(reads), {"entities": _entities, "owned": _owned, "relations": _relations}[table]
    kinds = None if wanted.kinds is None else sorted(wanted.kinds)
    for begin in range(wanted.low, wanted.high + 1, _WINDOW):
        rows = reads.rows(begin, min(wanted.high + 1, begin + _WINDOW), kinds)
        rows = [row for row in rows if row.state == LIVE and _table_of(row) == table]
        above.look_up({row.parent_id for row in rows} | {row.other_id for row in rows if row.other_id is not None})
        rows, told = told_by(rows, above, wanted.under)
        if rows:
            yield _batch(rows, told | _documents(rows, schema.names), schema)


def _batch(rows: Sequence[PastRow | Step], told: Mapping[str, Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the columns of ``schema``: from ``told`` if it has them, else from the rows' fields."""
    columns = [told[f.name] if f.name in told else [*map(attrgetter(f.name), rows)] for f in schema]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _table_of(row: PastRow) -> str:
    return "entities" if row.owner_id is None else "owned" if row.other_id is None else "relations"


class _Above:
    """The paths of the rows' parents; None for a parent that was not live."""

    def __init__(self, reads: PastReads) -> None:
        self._reads = reads
        self._chains: dict[int, tuple[Node, ...] | None] = {ROOT_ID: (ROOT,)}
        """The nodes from the root down to the parent."""
        self._paths: dict[int, str | None] = {ROOT_ID: ""}
        """Paths with a dot at the end."""

    def look_up(self, ids: set[int]) -> None:
        new = sorted(ids - self._chains.keys())
        for one, known in zip(new, self._reads.by_id(new) if new else (), strict=True):
            self._chains[one] = (ROOT, *known.record.chain) if known is not None and known.live else None
            names = self.names(one)
            self._paths[one] = None if names is None else f"{format_path(names)}."

    def names(self, entity_id: int) -> tuple[str, ...] | None:
        chain = self._chains[entity_id]
        return None if chain is None else tuple(node.name for node in chain[1:])

    def is_under(self, entity_id: int, name: str, under: Sequence[str]) -> bool:
        """Whether a name below an entity is at or below a path, as the catalog compares names."""
        chain = self._chains[entity_id] or ()
        names = [*(node.name for node in chain[1:]), name]
        pairs = zip(chain, names, under, strict=False)
        return len(names) >= len(under) and all(key_under(node, a) == key_under(node, b) for node, a, b in pairs)

    def path(self, entity_id: int, name: str) -> str | None:
        """Return the path of a name below an entity; None if the entity is not live."""
        above = self._paths[entity_id]
        return None if above is None else above + (name if name.isidentifier() else format_path((name,)))

    def hidden(self, rows: Sequence[PastRow]) -> set[int]:
        """Return the ids of drops in steps, of partitions in such drops, and of statistics without a partition."""
        told = [row for row in rows if row.kind == PARTITION_STATISTIC.name]
        owners, names = [row.parent_id for row in told], [row.name for row in told]
        partitions = self._reads.owned_by_name(owners, PARTITION.name, names) if told else []
        lost = {
            row.id
            for row, one in zip(told, partitions, strict=True)
            if one is None or marked_by(one) or not belongs(row.id, one.id)
        }
        dropped = {row.id for row in rows if row.kind == PARTITION.name and marked_by(row)}
        return lost | dropped | {row.id for row in rows if row.kind == DROP.name}

    def columns(self, ids: set[int]) -> dict[int, Collection[int]]:
        """Return the ids of the columns of each table."""
        known = zip(ids, self._reads.by_id(list(ids)) if ids else (), strict=True)
        return {table: column_paths(one.record.doc, one.record.chain[-1]).keys() if one else () for table, one in known}


_Told = tuple[list[PastRow], dict[str, list[Any]]]
"""The table's rows, and its columns that are not fields of the rows."""


def _entities(rows: Sequence[PastRow], above: _Above, under: str) -> _Told:
    paths = [above.path(row.parent_id, row.name) for row in rows]
    wanted = parse_path(under) if under else ()
    some = [
        (row, path)
        for row, path in zip(rows, paths, strict=True)
        if path is not None and (not wanted or above.is_under(row.parent_id, row.name, wanted))
    ]
    return [row for row, _ in some], {"path": [path for _, path in some]}


def _owned(rows: Sequence[PastRow], above: _Above, under: str) -> _Told:
    del under  # only entities are selected by path
    hidden = above.hidden(rows)
    live = [(r, names) for r in rows if (names := above.names(r.parent_id)) is not None and r.id not in hidden]
    return [row for row, _ in live], {"owner_path": [format_path(names) for _, names in live]}


def _relations(rows: Sequence[PastRow], above: _Above, under: str) -> _Told:
    del under
    ends = [(row, above.names(row.parent_id), above.names(row.other_id or ROOT_ID)) for row in rows]
    there = [(row, a, b, json.loads(row.doc)) for row, a, b in ends if a and b and a[0] == b[0]]
    columns = above.columns({row.parent_id for row, *_, doc in there if doc["column_id"]})
    live = [one for one in there if not (column := one[-1]["column_id"]) or column in columns[one[0].parent_id]]
    return [row for row, *_ in live], {
        "from_id": [row.parent_id for row, *_ in live],
        "from_path": [format_path(path) for _, path, *_ in live],
        "to_id": [row.other_id for row, *_ in live],
        "to_path": [format_path(path) for _, _, path, _ in live],
        "column_id": [doc["column_id"] or None for *_, doc in live],
        "value": [doc["value"] or None for *_, doc in live],
    }


def _documents(rows: Sequence[PastRow], names: Sequence[str]) -> dict[str, list[Any]]:
    """Return the columns that come from documents. They are parsed only if a column needs it."""
    if not {"document", "comment", "properties"}.intersection(names):
        return {}
    texts = [masked(row.doc) for row in rows]
    if not {"comment", "properties"}.intersection(names):
        return {"document": texts}
    docs = [json.loads(text) for text in texts]
    properties = [list((doc.get("properties") or {}).items()) for doc in docs]
    return {"document": texts, "comment": [doc.get("comment") for doc in docs], "properties": properties}


def rows_by_position(
    session: Session, table: str, columns: Sequence[str] | None, wanted: Wanted
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``table`` that are wanted: after position ``low`` up to ``high``. Raises HistoryGone."""
    schema, epoch = _schema(ddl(table, columns)), session.backend.feed_start()[0]
    steps = steps_between(session.backend, session.clock, wanted.low, wanted.high, together=False)
    fitting = (step for step in steps if wanted.kinds is None or step.kind in wanted.kinds)
    while some := list(islice(fitting, _WINDOW)):
        yield _batch(some, _steps(some, epoch, schema.names), schema)


def _steps(steps: Sequence[Step], epoch: str, names: Sequence[str]) -> dict[str, list[Any]]:
    """Return the columns that are not fields of steps."""
    told: dict[str, Callable[[Step], str | None]] = {
        "position": lambda step: position_of(epoch, step.seq or 0, step.operation_id),
        "operation_id": lambda step: str(step.operation_id),
        "changes": lambda step: None if step.changes is None else masked(step.changes),
        "document": lambda step: None if step.doc is None else masked(step.doc),
    }
    return {name: [*map(told[name], steps)] for name in names if name in told}


def ranges(low: int, high: int, parts: int) -> Sequence[tuple[int, int]]:
    """Split a range of numbers into at most ``parts``."""
    size = max(1, -(-(high - low) // max(1, parts)))
    return [(begin, min(high, begin + size)) for begin in range(low, high, size)]
