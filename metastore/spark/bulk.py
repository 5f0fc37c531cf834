"""Write and read relations and statistics in bulk, from and to data frames. The executors write to the store.

Each task commits its rows in chunks. It skips a chunk that is committed already, so a task that runs again changes
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from metastore.arguments import shown
from metastore.errors import InvalidArgument
from metastore.kinds.partition_statistic import PARTITION_STATISTIC
from metastore.kinds.statistic import STATISTIC
from metastore.spark.context import workers_like_us
from metastore.spark.once import new_write, once
from metastore.spark.source.source import open_here, register_source
from metastore.store import Store
from metastore.transaction.transaction import Transaction

__all__ = ["attach_many", "set_statistics", "statistics"]

_CHUNK: Final = 500
"""How many statistics one commit has at most."""
_TAGS: Final = 1000
"""How many tags one commit has at most."""
_ROW: Final = ("target", "kind", "column", "value")
Rows = Iterator[dict[str, Any]]


def attach_many(
    frame: DataFrame,
    tag: str,
    *,
    url: str | None = None,
    relation: str = "tags",
    principal: str | None = None,
) -> int:
    """Attach a tag to the objects that the rows name, from the executors; return how many attachments are new.

    ``frame`` has the column ``target`` (a path). Optional columns: ``kind`` (else a table), ``column`` (of the table)
    and ``value``; all are strings. ``relation``: ``tags``, or the name of a declared one. The executors open ``url``
    (None: their METASTORE_URL; ``env:NAME``: their variable of that name). If Spark repeats a failed task, the
    attachments of its first run are not counted. Raises InvalidArgument for other columns, and Spark's error, which
    names the reason, for a row that the store refuses.
    """
    unknown = set(frame.columns) - set(_ROW)
    if unknown or "target" not in frame.columns:
        raise InvalidArgument(f"the columns are target, and kind, column and value; not {', '.join(frame.columns)}")

    named = new_write()

    def write(rows: Rows) -> int:
        with open_here(url, principal) as store:
            return attach_rows(store, named, rows, tag, relation)

    return _written(frame, write)


def attach_rows(store: Store, named: str, rows: Rows, tag: str, relation: str) -> int:
    """Attach the rows of one task of :func:`attach_many`; return how many attachments are new."""

    def attach(tx: Transaction, rows: list[dict[str, Any]]) -> int:
        if (bad := next((row for row in rows if row.get("target") is None), None)) is not None:
            raise InvalidArgument(f"the row {shown(bad)} has no target; leave it out")
        manager: Any = tx.tags if relation == "tags" else tx.relations(relation)
        return int(manager.attach_many(tag, [{k: v for k, v in row.items() if v is not None} for row in rows]))

    return sum(new or 0 for _, new in once(store, named, rows, _TAGS, attach))


def statistics(spark: SparkSession, *, url: str | None = None, at: str | None = None) -> DataFrame:
    """Return all statistics as a data frame: ``path`` (STRING), ``partition`` (STRING), ``name``, ``json`` (STRING).

    ``partition`` is NULL for a statistic of the whole entity. ``json`` is the value as JSON text: ``from_json`` and
    ``get_json_object`` read it, ``set_statistics`` writes it. ``at``: a position or time (None: now).
    """
    register_source(spark)
    kinds = f"{STATISTIC.name},{PARTITION_STATISTIC.name}"
    reader = spark.read.format("metastore").option("table", "owned").option("kinds", kinds)
    for name, value in (("url", url), ("at", at)):
        reader = reader if value is None else reader.option(name, value)
    with workers_like_us(spark.sparkContext):
        return reader.load().mapInArrow(_told, "path STRING, partition STRING, name STRING, json STRING")


def _told(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    names = ("path", "partition", "name", "json")
    for batch in batches:
        values = [one for row in batch.to_pylist() for one in _values(row)]
        columns = [pa.array([row[n] for row in values], pa.string()) for n in range(len(names))]
        yield pa.RecordBatch.from_arrays(columns, list(names))


def _values(row: dict[str, Any]) -> Iterator[tuple[str, str | None, str, str]]:
    values = json.loads(row["document"])["values"]
    if row["kind"] == PARTITION_STATISTIC.name:
        for name, value in values.items():
            yield row["owner_path"], row["name"], name, json.dumps(value)
    else:
        is_custom = row["name"].startswith("custom-") and set(values) == {"value"}
        yield row["owner_path"], None, row["name"], json.dumps(values["value"] if is_custom else values)


def set_statistics(frame: DataFrame, *, url: str | None = None, principal: str | None = None) -> int:
    """Set users' statistics, from the executors; return how many rows were applied.

    ``frame`` has the columns ``path``, ``name`` (it begins with ``custom-``) and either ``value``, of any type that a
    statistic may have, or ``json`` (STRING), the value as JSON text. Optional columns: ``kind`` (else a table) and
    ``partition``. Other statistics stay. Raises InvalidArgument for other columns, and Spark's error, which names the
    reason, for a row that the store refuses.
    """
    columns = set(frame.columns)
    if not {"path", "name"} <= columns or len(columns & {"value", "json"}) != 1 or columns - _STATISTIC:
        raise InvalidArgument(
            f"the columns are path, name, value or json, and kind and partition; not {', '.join(frame.columns)}"
        )
    by_target = frame.repartition("path").sortWithinPartitions("path")

    named = new_write()

    def write(rows: Rows) -> int:
        with open_here(url, principal) as store:
            return sum(count for count, _ in once(store, named, rows, _CHUNK, _set_all))

    return _written(by_target, write)


_STATISTIC: Final = frozenset({"path", "name", "value", "json", "kind", "partition"})


def _set_all(tx: Transaction, rows: list[dict[str, Any]]) -> None:
    def target(row: dict[str, Any]) -> tuple[str, str, str]:
        return row["path"], row.get("kind") or "table", row.get("partition") or ""

    for (path, kind, partition), some in groupby(sorted(rows, key=target), target):
        values = {row["name"]: json.loads(row["json"]) if "json" in row else row["value"] for row in some}
        tx.statistics.set(path, values, partition=partition or None, kind=kind)


def _written(frame: DataFrame, write: Callable[[Rows], int]) -> int:
    """Let the executors write the rows of each partition; return the sum of their results."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist(maps_as_pydicts="strict"))
        yield pa.RecordBatch.from_arrays([pa.array([write(rows)], pa.int64())], ["written"])

    with workers_like_us(frame.sparkSession.sparkContext):
        return sum(row.written for row in frame.mapInArrow(task, "written LONG").collect())
