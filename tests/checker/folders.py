"""Histories as record folders, made by Spark: as long as one likes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType, _parse_datatype_string

from metastore.checker.records import ENTITIES, EVENTS, OPERATIONS
from tests.checker.lanes import Lane, Step, plant

__all__ = ["write"]

_BATCH = 5_000
Row = dict[str, Any]


def write(spark: SparkSession, folder: Path, count: int, lanes: int, *, fault: str | None = None) -> None:
    """Write a history of ``count`` operations, with a ``fault`` in its middle."""
    each = count // lanes
    kinds = (("op", OPERATIONS), ("event", EVENTS), ("entity", ENTITIES))
    schema = "what string, " + ", ".join(f"{what} struct<{_fields(columns)}>" for what, columns in kinds)

    def make(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _batches(_rows(Lane(number, lanes), each, fault if number == 0 else None), arrow)

    arrow = to_arrow_schema(_struct(schema))
    numbers = spark.range(0, lanes, 1, min(lanes, 8))
    numbers.mapInArrow(make, schema).write.parquet(str(folder / "made"))
    made = spark.read.parquet(str(folder / "made"))
    for what, name in (("op", "operations"), ("event", "feed"), ("entity", "tables")):
        made.where(f"what = '{what}'").select(f"{what}.*").write.parquet(str(folder / name))
    (folder / "run.json").write_text(json.dumps({"since": Lane(0, lanes).since()}))


def _rows(lane: Lane, count: int, fault: str | None) -> Iterator[tuple[str, Row]]:
    for event in lane.setup():
        yield "event", event
    for step in _with(fault, lane.steps(count), count):
        yield "op", step.operation
        for event in step.events:
            yield "event", event
    for entity in lane.tables():
        yield "entity", entity


def _with(fault: str | None, steps: Iterator[Step], count: int) -> Iterator[Step]:
    """Plant a fault in the middle."""
    if fault is None:
        yield from steps
        return
    for _ in range(count // 2):
        yield next(steps)
    rest = list(steps)
    plant(fault, rest, 0)
    yield from rest


def _batches(rows: Iterator[tuple[str, Row]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    some: list[Row] = []
    for what, row in rows:
        some.append({"what": what, what: row})
        if len(some) == _BATCH:
            yield pa.RecordBatch.from_pylist(some, schema=schema)
            some = []
    if some:
        yield pa.RecordBatch.from_pylist(some, schema=schema)


def _fields(columns: str) -> str:
    return ", ".join(
        f"{field.name}: {field.dataType.simpleString()}" for field in _struct(columns.replace(" not null", ""))
    )


def _struct(schema: str) -> StructType:
    found = _parse_datatype_string(schema)
    assert isinstance(found, StructType)
    return found
