"""The checker's two passes: functions from Arrow batches to Arrow batches, which Spark runs over sorted rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from metastore.checker.event import Event
from metastore.checker.finding import Finding
from metastore.checker.operation import ClientOperation
from metastore.checker.records import Lost, Seen
from metastore.checker.sweep import Sweep
from metastore.checker.tree import Named, Placed, Tree

__all__ = [
    "EVENT_COLUMNS",
    "FOUND",
    "FOUND_COLUMNS",
    "MOST",
    "OPERATION_COLUMNS",
    "PLACED_COLUMNS",
    "TREE",
    "replayed",
    "swept",
]

EVENT_COLUMNS: Final = Event._fields
OPERATION_COLUMNS: Final = ClientOperation._fields
PLACED_COLUMNS: Final = Placed._fields
FOUND_COLUMNS: Final = ("rule", "message", "operations", "count")

FOUND: Final = "rule string, message string, operations array<string>, count long"
"""A finding. After the first :data:`MOST` of a rule, one row without a message counts the others."""
_PLACED: Final = (
    "seq long, operation_id string, principal string, entity_id long, version long, gone boolean, exclusive boolean, "
    "names array<struct<parent_id: long, family: string, name: string, entity_id: long>>"
)
TREE: Final = f"what string, {_PLACED}, kind string, path string, {FOUND}"
"""Three kinds of rows: ``placed`` events, entities that are ``live`` at the end, and findings (``found``)."""
MOST: Final = 100
_BATCH: Final = 10_000

_found = pa.struct(
    [
        ("rule", pa.string()),
        ("message", pa.string()),
        ("operations", pa.list_(pa.string())),
        ("count", pa.int64()),
    ]
)
_name = pa.struct(
    [("parent_id", pa.int64()), ("family", pa.string()), ("name", pa.string()), ("entity_id", pa.int64())]
)
_TREE = pa.schema(
    [
        ("what", pa.string()),
        ("seq", pa.int64()),
        ("operation_id", pa.string()),
        ("principal", pa.string()),
        ("entity_id", pa.int64()),
        ("version", pa.int64()),
        ("gone", pa.bool_()),
        ("exclusive", pa.bool_()),
        ("names", pa.list_(_name)),
        ("kind", pa.string()),
        ("path", pa.string()),
        *[(field.name, field.type) for field in _found],
    ]
)
_FOUND = pa.schema(list(_found))
Row = dict[str, Any]


class _Few:
    """The first findings of each rule, and the number of all."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def rows(self, findings: Iterable[Finding]) -> Iterator[Row]:
        for finding in findings:
            self._seen[finding.rule] += 1
            if self._seen[finding.rule] <= MOST:
                yield {
                    "rule": finding.rule,
                    "message": finding.message,
                    "operations": list(finding.operations),
                    "count": 1,
                }

    def rest(self) -> Iterator[Row]:
        for rule, count in self._seen.items():
            if count > MOST:
                yield {"rule": rule, "message": None, "operations": [], "count": count - MOST}


def replayed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Replay the feed: rows with the columns :data:`EVENT_COLUMNS`, sorted by ``seq``."""
    return _batched(_replayed(batches), _TREE)


def _replayed(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    tree, few = Tree(), _Few()
    for row in _rows(batches):
        placed, findings = tree.apply(Event._make(row))
        yield {"what": "placed", **placed._asdict(), "names": [name._asdict() for name in placed.names]}
        for finding in few.rows(findings):
            yield {"what": "found", **finding}
    for entity_id, kind, path, version in tree.live():
        yield {"what": "live", "entity_id": entity_id, "kind": kind, "path": path, "version": version}
    for finding in few.rest():
        yield {"what": "found", **finding}


def swept(since: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the pass over the operations: rows with the columns :data:`OPERATION_COLUMNS`, sorted by ``start``.

    Rows without a client come first: events of writers without recorded calls, or with calls of another clock.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        few = _Few()
        yield from _batched(few.rows(_findings(batches, since)), _FOUND)
        yield from _batched(few.rest(), _FOUND)

    return run


def _findings(batches: Iterable[pa.RecordBatch], since: int) -> Iterator[Finding]:
    sweep = Sweep(since)
    for row in _rows(batches):
        *operation, conflicts, reads, events = row
        placed = tuple([_placed(event) for event in events or ()])
        if operation[0] is None:
            sweep.place(placed)
            continue
        lost = tuple([Lost(**one) for one in conflicts or ()])
        seen = tuple([Seen(**one) for one in reads or ()])
        yield from sweep.take(ClientOperation._make((*operation, lost, seen, placed)))
    yield from sweep.close()


def _placed(event: Row) -> Placed:
    names = tuple([Named(**name) for name in event["names"] or ()])
    return Placed(**{**event, "names": names})


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*[column.to_pylist() for column in batch.columns], strict=True)


def _batched(rows: Iterator[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    some: list[Row] = []
    for row in rows:
        some.append(row)
        if len(some) >= _BATCH:
            yield pa.RecordBatch.from_pylist(some, schema=schema)
            some = []
    if some:
        yield pa.RecordBatch.from_pylist(some, schema=schema)
