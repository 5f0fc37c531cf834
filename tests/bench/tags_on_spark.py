"""Attach a tag to 100,000 tables with ten values each, from Spark's executors; a part of the bench of governance."""

from __future__ import annotations

import os
import sys

from metastore.spark.java import find_java
from metastore.store import Store
from tests.bench.core.setting import CATALOG, Setting
from tests.bench.figures import Bar, reported
from tests.bench.timing import seconds

__all__ = ["ON_SPARK", "measure"]

ON_SPARK = {"attach_many_on_spark_per_s": reported, "attach_many_on_spark_again": Bar("<=", 0.0)}
_VALUES = 10


def measure(setting: Setting, store: Store, url: str, tables: int) -> None:
    """Measure one run of the job, and that the same job again attaches nothing. The lake has tables ``t…``."""
    from pyspark.sql import SparkSession

    from metastore.spark import attach_many

    os.environ.setdefault("JAVA_HOME", find_java())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    store.tags.create("lake.spark")
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        row = f"concat('{CATALOG}.s.t', id div {_VALUES}) AS target, concat('v', id % {_VALUES}) AS value"
        frame = spark.sql(f"SELECT {row} FROM range(0, {tables * _VALUES}, 1, 8)")
        attached = list[int]()
        took = seconds(lambda: attached.append(attach_many(frame, "lake.spark", url=url)))
        assert attached == [tables * _VALUES]
        setting.figures.record("attach_many_on_spark_per_s", [attached[0] / took])
        setting.figures.record("attach_many_on_spark_again", [float(attach_many(frame, "lake.spark", url=url))])
    finally:
        spark.stop()
