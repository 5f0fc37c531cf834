"""Fill a Hive metastore on Derby: ``python -m tests.imports.hive_program WAREHOUSE KEY=VALUE …``, options of Spark."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

__all__: list[str] = []


def main(warehouse: str, *options: str) -> None:
    """Make a database with a table of Hive's own, one of Parquet, and a view."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.warehouse.dir", warehouse)
    for option in options:
        key, _, value = option.partition("=")
        builder = builder.config(key, value)
    session = builder.enableHiveSupport().getOrCreate()
    session.sql("CREATE DATABASE eu")
    session.sql(
        "CREATE TABLE eu.orders (id INT COMMENT 'the id', tags MAP<STRING, ARRAY<INT>>) COMMENT 'all' "
        "PARTITIONED BY (day STRING) STORED AS TEXTFILE TBLPROPERTIES ('owners' = 'ann,bob=chief')"
    )
    session.sql("CREATE TABLE eu.items (id BIGINT) USING parquet")
    session.sql("CREATE VIEW eu.big AS SELECT id FROM eu.items WHERE id > 1")
    session.stop()


main(*sys.argv[1:])
