"""Tags and statistics are written from the executors, and a task that runs again changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import metastore as ms
from metastore.spark import attach_many, register_source, set_statistics, statistics
from metastore.spark.bulk import attach_rows
from metastore.spark.source.source import open_here
from tests.contract.authorized import prepare

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.each_run_on("postgres")
TABLES = 40


@pytest.fixture
def lake(url: str) -> str:
    """Give the URL of a database with tables, a tag and a partition."""
    with ms.open(url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        schema = store.schemas.create("m.c.s")
        rows = [{"name": f"t{n}", "columns": [ms.Column("a", "int")]} for n in range(TABLES)]
        store.tables.create_many(schema, rows)
        store.tags.create("m.pii", allowed_values=("high", "low"))
        store.partitions.create("m.c.s.t0", "p", values={"a": "1"})
    return url


@pytest.mark.only_whole
def test_tags_are_attached_from_the_executors(
    spark: SparkSession, lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[Any] = [(f"m.c.s.t{n}", "a" if n % 2 else None, "high") for n in range(TABLES)]
    frame = spark.createDataFrame(rows, "target STRING, column STRING, value STRING").repartition(4)
    failed = tmp_path / "failed"

    @contextmanager
    def lost_once(url: str | None, principal: str | None) -> Iterator[ms.Store]:
        """Fail a task once, after its rows are written, as a machine that is lost."""
        with open_here(url, principal) as store:
            yield store
        if not failed.exists():
            failed.touch()
            raise RuntimeError("this machine is lost")

    with monkeypatch.context() as patched:
        patched.setattr("metastore.spark.bulk.open_here", lost_once)
        assert attach_many(frame, "m.pii", url=lake) < TABLES  # what the lost task wrote is not counted
    assert failed.exists()
    assert attach_many(frame, "m.pii", url=lake) == 0  # the whole job again
    with ms.open(lake) as store:
        there = {(one.target_path, one.column, one.value) for one in store.tags.targets("m.pii")}
        assert there == {(path, None if column is None else column, value) for path, column, value in rows}
        assert store.verify() == []
    with pytest.raises(ms.InvalidArgument, match="the columns are"):
        attach_many(frame.withColumnRenamed("target", "table"), "m.pii", url=lake)


def test_a_denial_that_a_task_writes_ends_what_a_user_does(sqlite_url: str) -> None:
    """By the rows that a task of attach_many has; a user's own rows need the user's right."""
    with ms.open(sqlite_url) as store:
        lake = prepare(store)
        lake.reader()
        lake.role("writer", ("modify_table", "catalog", "lake.sales"))
        ann = store.as_user("ann@corp")
        held = ann.tables.alter("lake.sales.eu.orders", ms.SetComment("before"))
        rows = [{"target": "lake.writer", "kind": "role", "value": "deny:modify_table"}]
        with pytest.raises(ms.PermissionDenied):
            attach_rows(ann, "of ann", iter(rows), "lake.sales.eu.orders", "grant")
        with pytest.raises(ms.InvalidArgument, match=r"'value': 'x'\} has no target"):
            attach_rows(store, "bad", iter([*rows, {"target": None, "value": "x"}]), "lake.sales.eu.orders", "grant")
        assert attach_rows(store, "first", iter(rows), "lake.sales.eu.orders", "grant") == 1
        with pytest.raises(ms.PermissionDenied):
            ann.tables.alter(held, ms.SetComment("after"))
        assert store.tables.load("lake.sales.eu.orders").comment == "before"
        assert store.verify() == []


@pytest.mark.parametrize("undone", ["detached", "dropped"])
@pytest.mark.parametrize("new", [True, False], ids=["new", "there already"])
def test_a_task_that_runs_again_leaves_alone_what_people_did(lake: str, undone: str, new: bool) -> None:
    with ms.open(lake) as store:
        if not new:
            store.tags.attach("m.c.s.t0", "m.pii", value="low", kind="table")
        row = {"target": "m.c.s.t0", "value": "low"}
        attach_rows(store, "a write", iter([row]), "m.pii", "tags")
        if undone == "dropped":
            store.tables.drop("m.c.s.t0")
        else:
            store.tags.detach("m.c.s.t0", "m.pii", value="low", kind="table")
        assert attach_rows(store, "a write", iter([row]), "m.pii", "tags") == 0
        assert list(store.tags.targets("m.pii")) == []


MANY, VALUES = 10_000, 10
"""Tables, and values of the tag on each."""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_hundred_thousand_tags_and_the_same_again(spark: SparkSession, postgres_url: str) -> None:
    """Many tasks write at once, each in chunks; the whole job again attaches nothing."""
    with ms.open(postgres_url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        schema = store.schemas.create("m.c.s")
        store.tables.create_many(schema, [{"name": f"t{n}"} for n in range(MANY)])
        store.tags.create("m.seen")
        targets = f"SELECT concat('m.c.s.t', id div {VALUES}) AS target, concat('v', id % {VALUES}) AS value"
        frame = spark.sql(f"{targets} FROM range(0, {MANY * VALUES}, 1, 8)")
        assert attach_many(frame, "m.seen", url=postgres_url) == MANY * VALUES
        position = store.position()
        assert attach_many(frame, "m.seen", url=postgres_url) == 0
        assert store.position() == position
        assert sum(1 for _ in store.tags.targets("m.seen")) == MANY * VALUES
        assert {one.value for one in store.tags.on("m.c.s.t7")} == {f"v{n}" for n in range(VALUES)}
        assert store.verify() == []


@pytest.mark.long
def test_statistics_go_to_data_frames_and_back(spark: SparkSession, lake: str) -> None:
    rows = [(f"m.c.s.t{n}", "custom-rows", n) for n in range(TABLES)]
    frame = spark.createDataFrame(rows, "path STRING, name STRING, value LONG")
    assert set_statistics(frame, url=lake) == TABLES
    typed = [("m.c.s.t1", "custom-list", "[1, 2]", None), ("m.c.s.t0", "custom-map", '{"a": 1.5}', "p")]
    more = spark.createDataFrame(typed, "path STRING, name STRING, json STRING, partition STRING")
    assert set_statistics(more, url=lake) == len(typed)
    deep = "path STRING, name STRING, value STRUCT<a: INT, m: MAP<STRING, ARRAY<MAP<STRING, INT>>>>"
    nested = spark.createDataFrame([("m.c.s.t2", "custom-deep", (1, {"k": [{"x": 1}, {}]}))], deep)
    assert set_statistics(nested, url=lake) == 1
    read = statistics(spark, url=lake)
    found = {(row.path, row.partition, row.name): json.loads(row.json) for row in read.collect()}
    assert len(found) == TABLES + 3
    assert found["m.c.s.t2", None, "custom-deep"] == {"a": 1, "m": {"k": [{"x": 1}, {}]}}
    assert found["m.c.s.t7", None, "custom-rows"] == 7
    assert found["m.c.s.t1", None, "custom-list"] == [1, 2]
    assert found["m.c.s.t0", "p", "custom-map"] == {"a": 1.5}
    with ms.open(lake) as store:
        before = store.position()
    assert set_statistics(read, url=lake) == TABLES + 3  # what is equal is not written
    with ms.open(lake) as store:
        assert store.position() == before
        assert store.statistics.of("m.c.s.t1") == {"custom-rows": 1, "custom-list": [1, 2]}


@pytest.mark.only_whole
def test_the_source_shows_no_secret(spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from metastore.secrets.keyring import VARIABLE, new_key

    monkeypatch.setenv(VARIABLE, new_key())
    with ms.open(lake) as store:
        store.catalogs.alter("m.c", ms.SetProperty("metastore.secret-properties", "password"))
        store.tables.alter("m.c.s.t3", ms.SetProperty("password", "plain-secret"))
        stored = json.loads(store.tables.load("m.c.s.t3").record.doc)["properties"]["password"]
    register_source(spark)
    for table in ("entities", "owned", "versions", "changes"):
        shown = spark.read.format("metastore").option("url", lake).option("table", table).load().collect()
        assert "plain-secret" not in repr(shown)
        assert stored not in repr(shown)
        assert table == "owned" or "secret:sealed:1:" in repr(shown)
