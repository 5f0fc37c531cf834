"""Import from the catalogs that a Spark session sees, written by its executors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra [spark]")

import metastore as ms
from metastore.imports.places import Place
from metastore.imports.spark import Described, _namespaces, _tables, _writer, import_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    spark.sql("CREATE DATABASE IF NOT EXISTS eu")
    spark.sql(
        "CREATE TABLE eu.orders (id INT COMMENT 'the id', day STRING) USING parquet PARTITIONED BY (day) COMMENT 'all'"
    )
    spark.sql("CREATE VIEW eu.big AS SELECT id FROM eu.orders WHERE id > 1")
    yield spark
    for name in ("VIEW eu.big", "TABLE eu.orders", "DATABASE eu"):
        spark.sql(f"DROP {name}")


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


def test_what_people_did_here_stays(sqlite_url: str, session: SparkSession) -> None:
    """A table that was changed or made here is left alone, and named if it differs from the one there."""
    table, view = "lake.spark_catalog.eu.orders", "lake.spark_catalog.eu.big"
    with ms.open(sqlite_url, principal="ann") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.spark_catalog", type="relational")
        own = store.tables.create(view, parents=True, comment="mine")
        assert [import_spark(sqlite_url, session, "lake").written for _ in range(2)] == [1, 0]
        mine = store.tables.alter(table, ms.SetComment("mine"), ms.AddColumn("pii", "string"))
        done = import_spark(sqlite_url, session, "lake")
        assert (done.written, done.left, len(done.failures)) == (0, 1, 1)
        session.sql("ALTER TABLE eu.orders ADD COLUMNS (more DOUBLE)")
        done = import_spark(sqlite_url, session, "lake")
        assert (done.written, done.left) == (0, 0)
        assert sorted(done.failures) == [
            "table spark_catalog.eu.orders: it was changed both here and in Spark; it stays unchanged here",
            f"view spark_catalog.eu.big: {view} already exists",
        ]
        assert [store.tables.load(table), store.tables.load(view)] == [mine, own]
        session.sql("ALTER VIEW eu.big AS SELECT id FROM eu.orders WHERE id > 2")
        store.tables.drop(own)
        store.views.create(view, comment="mine")
        store.tables.rename(table, "renamed")
        done = import_spark(sqlite_url, session, "lake")
        assert "it was not created by an import of the same name" in " ".join(done.failures)
        assert (done.written, store.views.load(view).comment) == (0, "mine")
        store.tables.drop("lake.spark_catalog.eu.renamed")
        assert (import_spark(sqlite_url, session, "lake").written, store.tables.exists(table)) == (0, False)


def test_a_namespace_that_is_dropped_there_meanwhile_is_named(session: SparkSession) -> None:
    failures = list[str]()
    assert _tables(session, ("spark_catalog", "gone"), failures) == []
    assert list(_namespaces(session, ("nowhere",), failures)) == []
    assert [one.partition(": ")[0] for one in failures] == ["spark_catalog.gone", "nowhere"]


def test_a_repeated_task_makes_nothing_again(sqlite_url: str) -> None:
    place = Place(("lake", "c", "s", "t"), known=False)
    one = Described("table", place.path[1:], (), None, {}, (), None, None, None, place, ms.new_operation_id())
    with ms.open(sqlite_url, principal="import spark") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        store.schemas.create("lake.c.s")
        lease = store.leases.acquire("import")
        write = _writer(sqlite_url, ("lake",), lease.name, lease.token)
        assert list(write([one])) == [True]
        store.tables.drop("lake.c.s.t")
        list(write([one]))  # the same operation
        assert not store.tables.exists("lake.c.s.t")
        taken = one._replace(place=place._replace(taken_by=("lake", "c", "s", "T")), operation=ms.new_operation_id())
        assert list(write([taken])) == ["table c.s.t: 'T' of the other catalog already has this name here"]
        store.leases.break_(lease.name)
        with pytest.raises(ms.LeaseLost):
            list(write([one._replace(operation=ms.new_operation_id())]))


@pytest.mark.long
@pytest.mark.spark
def test_the_command_imports_a_hive_metastore(java: Path, sqlite_url: str, tmp_path: Path) -> None:
    """Hive's jars are Spark's own, and the metastore is a Derby database in a folder."""
    database = f"spark.hadoop.javax.jdo.option.ConnectionURL=jdbc:derby:;databaseName={tmp_path}/hive;create=true"
    options = ["spark.sql.catalogImplementation=hive", database, f"spark.sql.warehouse.dir={tmp_path}/warehouse"]
    fill = [sys.executable, "-m", "tests.imports.hive_program", f"{tmp_path}/warehouse", *options]
    environment = {**os.environ, "JAVA_HOME": str(java), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(Path.cwd())}
    subprocess.run(fill, check=True, env=environment, cwd=tmp_path, timeout=300, capture_output=True)
    words = ["import", "spark", "--from", "local[2]", "--into", "lake"]
    for option in options:
        words += ["--option", option]
    command = [sys.executable, "-m", "metastore", "--url", sqlite_url, *words, "--json"]
    done = subprocess.run(
        command, check=False, env=environment, cwd=tmp_path, timeout=300, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)
    assert (said["written"], said["failures"]) == (3, [])
    with ms.open(sqlite_url) as store:
        orders = store.tables.load("lake.spark_catalog.eu.orders")
        assert [(c.name, c.type) for c in orders.columns] == [
            ("id", "int"),
            ("tags", "map<string,list<int>>"),
            ("day", "string"),
        ]
        assert (orders.partitioning, orders.comment, orders.format) == (("day",), "all", "hive")
        assert orders.properties["owners"] == "ann,bob=chief"
        assert store.tables.load("lake.spark_catalog.eu.items").format == "parquet"
        assert "id > 1" in store.views.load("lake.spark_catalog.eu.big").representations[0].text
        assert store.schemas.exists("lake.spark_catalog.default")
