"""Spark on the catalog: a snapshot beside COPY of the same rows, a stream of changes, the memory of the driver."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import psutil
import psycopg
from pyspark.sql import SparkSession

from metastore.spark import register_source
from tests.bench.core.setting import Setting
from tests.bench.time.lakes import Lakes
from tests.bench.timing import interleaved, ratios, seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["lake_of", "measure"]

_COLUMNS = "id,kind,path,version,document,created_by,created_at,modified_by,modified_at"
_COPY = """COPY (SELECT g.id, g.kind, 'lake.sales.s.' || g.name, e.version, e.doc, e.created_by, e.created_at,
  e.modified_by, e.modified_at FROM guard g JOIN entity e ON e.id = g.id) TO STDOUT"""


def lake_of(lakes: Lakes, *, full: bool) -> str:
    """Return a lake of so many tables."""
    return lakes.lake(s=(1_000_000 if full else 30_000, 1))


def measure(setting: Setting, lakes: Lakes, *, full: bool) -> None:
    """Measure with two executors of one machine."""
    url, count = lake_of(lakes, full=full), 1_000_000 if full else 30_000
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register_source(spark)
    catalog = {"url": url, "partitions": "2"}
    entities = spark.read.format("metastore").options(table="entities", columns=_COLUMNS, **catalog)
    try:
        given = interleaved(
            {"spark": lambda: count / seconds(lambda: _nowhere(entities.load())), "copy": lambda: count / _copied(url)},
            3,
        )
        setting.figures.record("spark_snapshot_vs_copy", ratios(given["spark"], given["copy"]))
        setting.figures.record("spark_snapshot_rows_per_s", given["spark"])
        before = _resident()
        stream = spark.readStream.format("metastore").options(table="changes", maxChanges=str(count // 10), **catalog)
        taken = [count / seconds(lambda: _streamed(stream)) for _ in range(3)]
        setting.figures.record("spark_stream_rows_per_s", taken)
        setting.figures.record("spark_driver_rss_growth_mb", [(_resident() - before) / 1e6])
    finally:
        spark.stop()
        lakes.leave(url)


def _nowhere(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _copied(url: str) -> float:
    def copy() -> None:
        with psycopg.connect(url.replace("+psycopg", "")) as connection, connection.cursor().copy(_COPY) as rows:
            for _ in rows:
                pass

    return seconds(copy)


def _streamed(stream: Any) -> None:
    """Read all changes in ten micro-batches."""
    stream.load().writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()


def _resident() -> int:
    """Return the memory of this process: the driver's Python half, which plans reads."""
    return int(psutil.Process().memory_info().rss)
