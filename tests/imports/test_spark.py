"""Import from the catalogs that a Spark session sees, written by its executors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra [spark]")

import metastore as ms
from metastore.imports.spark import import_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def session(tmp_path: Path) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    if "JAVA_HOME" not in os.environ:
        pytest.skip("needs Java: make java")
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.warehouse.dir", f"{tmp_path}/warehouse")
    session = builder.config("spark.sql.catalogImplementation", "in-memory").getOrCreate()
    session.sql("CREATE DATABASE IF NOT EXISTS eu")
    session.sql(
        "CREATE TABLE eu.orders (id INT COMMENT 'the id', day STRING) USING parquet PARTITIONED BY (day) COMMENT 'all'"
    )
    session.sql("CREATE VIEW eu.big AS SELECT id FROM eu.orders WHERE id > 1")
    yield session
    for name in ("VIEW eu.big", "TABLE eu.orders", "DATABASE eu"):
        session.sql(f"DROP {name}")


def test_tables_and_views_come_over_and_again_nothing_changes(sqlite_url: str, session: SparkSession) -> None:
    done = import_spark(sqlite_url, session, "lake")
    assert (done.written, done.failures) == (2, [])
    again = import_spark(sqlite_url, session, "lake")
    assert (again.written, again.left) == (0, 2)
    session.sql("ALTER TABLE eu.orders ADD COLUMNS (more DOUBLE)")
    assert import_spark(sqlite_url, session, "lake").written == 1
    with ms.open(sqlite_url) as store:
        table = store.tables.load("lake.spark_catalog.eu.orders")
        assert {c.name: (c.type, c.comment) for c in table.columns} == {
            "id": ("int", "the id"),
            "more": ("double", None),
            "day": ("string", None),
        }
        assert (table.partitioning, table.format, table.comment) == (("day",), "parquet", "all")
        assert table.location is not None
        view = store.views.load("lake.spark_catalog.eu.big")
        assert "id > 1" in view.representations[0].text
        assert [column.name for column in view.columns] == ["id"]
        assert list(store.verify()) == []
