"""The records of a run or a ramp as Spark data frames."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (its usual name)

from metastore.checker.clients import INCARNATION
from metastore.checker.operation import READS
from metastore.checker.records import OPERATIONS
from metastore.checker.spark_paths import readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read_operations", "read_parquet"]


def read_operations(spark: SparkSession, folders: Sequence[Path]) -> DataFrame:
    """Return the operations of all ``folders``. It has these columns besides those of the records:

    ``run`` (the index of its folder), ``ms`` (the time from call to return; null: it never returned), ``until`` (the
    time of the return, in seconds since 1970), ``last_path`` (the path of its entity then), ``looks`` (whether it is a
    read), ``lost`` (how many attempts lost). ``client`` is without the incarnation.
    """
    taken = F.col("end") - F.col("start")
    return (
        read_parquet(spark, folders, "operations", OPERATIONS)
        .withColumn("client", F.regexp_replace("client", INCARNATION, ""))
        .withColumn("ms", taken / 1e6)
        .withColumn("until", F.col("at") + taken / 1e9)
        .withColumn("last_path", F.coalesce("path_to", "path"))
        .withColumn("looks", (F.col("outcome") == "read") | F.col("action").isin(*sorted(READS)))
        .withColumn("lost", F.size("conflicts"))
    )


def read_parquet(spark: SparkSession, folders: Sequence[Path], name: str, schema: str) -> DataFrame:
    """Return the Parquet files ``name`` of all ``folders`` in one scan, with the folder's index as ``run``."""
    paths = [readable(folder / name) for folder in folders if (folder / name).is_dir()]
    if not paths:
        return spark.createDataFrame([], schema).withColumn("run", F.lit(0))
    frame = spark.read.schema(schema).parquet(*paths)
    if len(folders) == 1:
        return frame.withColumn("run", F.lit(0))
    parent = F.element_at(F.split(F.col("_metadata.file_path"), "/"), -3)
    run = reduce(lambda cases, numbered: cases.when(parent == numbered[1].name, numbered[0]), enumerate(folders), F)
    return frame.withColumn("run", run)
