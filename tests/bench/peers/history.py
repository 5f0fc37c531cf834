"""What the history checker finds in the folders that were recorded."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from metastore.errors import MetastoreError
from tests.bench.peers.measure import Check
from tests.servers.listening import Missing

__all__ = ["checker"]


@contextmanager
def checker() -> Iterator[Check]:
    """Give a check by rule, on a Spark that is started for it. Raises Missing where there is none."""
    if importlib.util.find_spec("pyspark") is None:
        raise Missing("the package pyspark is missing (pip install -e '.[spark]')")
    from pyspark.sql import SparkSession

    from metastore.checker.check import check
    from metastore.checker.gather import gather
    from metastore.spark.context import spark_context

    def counted(url: str, folder: Path) -> Counter[str]:
        gather(spark, folder, url)
        return Counter(check(spark, folder).counts)

    try:
        context = spark_context("local[2]", {"spark.sql.shuffle.partitions": "2"})
        started = context.__enter__()
    except MetastoreError as reason:
        raise Missing(str(reason)) from None
    spark = SparkSession(started)
    try:
        yield counted
    finally:
        spark.stop()
        context.__exit__(None, None, None)
