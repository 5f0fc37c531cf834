"""The stream of changes beside gc and other databases, how much a micro-batch has, and what travels to executors."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

import metastore as ms
from metastore.errors import HistoryGone, InvalidArgument
from metastore.spark import register_source
from metastore.spark.source.source import _options, _Reader, _Source, _StreamReader

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

CHANGES = 23
ALL = object()
"""A limit that is none."""


@pytest.fixture
def url(sqlite_url: str) -> str:
    """Give a database with so many changes."""
    with ms.open(sqlite_url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.tables.create("m.c.s.t", parents=True)
        alter(store, CHANGES - 4)
    return sqlite_url


def alter(store: ms.Store, times: int) -> None:
    """Make changes that gc removes."""
    for n in range(times):
        store.tables.alter("m.c.s.t", ms.SetComment(f"{n} of {times}"))


def streamed(url: str, **options: Any) -> _StreamReader:
    return _StreamReader(_options({"url": url, "table": "changes", **options}))


def rows(reader: _StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    """Return the positions that a micro-batch has."""
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    return [position for batch in batches for position in batch.column("position").to_pylist()]


def test_micro_batches_have_as_many_changes_as_spark_allows(url: str) -> None:
    """Spark since 4.2 says from where, and how many; or that it wants all."""
    limits = pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark before 4.2 has no limits")
    reader = streamed(url, maxChanges=7)
    assert reader.getDefaultReadLimit() == limits.ReadMaxRows(7)
    offset, sizes, found = reader.initialOffset(), list[int](), list[str]()
    while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
        some = rows(reader, offset, end)
        offset, sizes, found = end, [*sizes, len(some)], found + some
    assert sizes == [7, 7, 7, 2]
    with ms.open(url) as store:
        assert found == [change.position for change in store.changes()]
    fresh = streamed(url, maxChanges=7)
    begin = fresh.initialOffset()
    assert len(rows(fresh, begin, fresh.latestOffset(begin, limits.ReadAllAvailable()))) == CHANGES


def test_numbers_that_no_change_had_come_again(url: str) -> None:
    """A crash or a fail-over gives them to new changes; a checkpoint of an earlier release is at such a number."""
    reader = streamed(url)
    newest = reader.latestOffset()
    checkpoint = newest | {"seq": newest["seq"] + 5}
    with ms.open(url) as store:
        alter(store, 3)
        new = [change.position for change in store.changes(after=newest["change"])]
    end = reader.latestOffset(checkpoint)
    assert rows(reader, checkpoint, end) == new
    assert rows(reader, newest, checkpoint) == [], "nor does a micro-batch that was planned before have them"


def test_what_comes_after_the_beginning_of_a_run_is_left_to_the_next(url: str) -> None:
    """With the trigger availableNow, a query ends although others go on writing."""
    reader = streamed(url, maxChanges=20)
    reader.prepareForTriggerAvailableNow()
    offset, sizes = reader.initialOffset(), list[int]()
    with ms.open(url) as store:
        while (end := reader.latestOffset(offset, ALL if sizes else None)) != offset:
            sizes.append(len(rows(reader, offset, end)))
            offset = end
            alter(store, 2)
    assert sizes == [20, 3]


def test_micro_batches_of_spark_before_4_2(url: str) -> None:
    """It says neither, but asks where to begin."""
    reader, sizes = streamed(url, maxChanges=10), list[int]()
    offset = reader.initialOffset()
    while (end := reader.latestOffset()) != offset:
        sizes.append(len(rows(reader, offset, end)))
        offset = end
    assert sizes == [10, 10, 3]


def test_a_stream_that_begins_now_has_only_what_comes(url: str) -> None:
    reader = streamed(url, start="now")
    offset = reader.initialOffset()
    assert reader.latestOffset(offset, ALL) == offset
    with ms.open(url) as store:
        alter(store, 2)
    assert len(rows(reader, offset, reader.latestOffset(offset, ALL))) == 2


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_stream_that_gc_overtook_says_what_to_do(spark: SparkSession, url: str, tmp_path: Path) -> None:
    register_source(spark)

    def run(folder: str) -> list[str]:
        stream = spark.readStream.format("metastore").options(url=url, table="changes").load()
        query = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / f"of_{folder}"))
        started = query.trigger(availableNow=True).start(str(tmp_path / folder))
        try:
            assert started.awaitTermination(300), "it does not end"
        finally:
            started.stop()
        return [row.position for row in spark.read.parquet(str(tmp_path / folder)).orderBy("position").collect()]

    assert len(run("first")) == CHANGES
    with ms.open(url) as store:
        alter(store, 20)
        store.gc(retention=timedelta(0), keep_versions=1)
        with pytest.raises(Exception, match=r"HistoryGone.*begin with a new checkpoint"):
            run("first")
        kept = store.consumers.get("all", start="beginning").read()
        assert run("second") == [change.position for change in kept]


def test_a_registered_consumer_keeps_what_a_stream_has_not_read(url: str) -> None:
    reader = streamed(url)
    offset = reader.initialOffset()
    end = reader.latestOffset(offset, ALL)
    with ms.open(url) as store:
        consumer = store.consumers.get("of the stream")
        alter(store, 20)
        store.gc(retention=timedelta(0), keep_versions=1)
        assert len(rows(reader, end, reader.latestOffset(end, ALL))) == 20
        store.consumers.drop(consumer.name)
        store.gc(retention=timedelta(0), keep_versions=1)
        with pytest.raises(HistoryGone):
            reader.partitions(end, reader.latestOffset(end, ALL))


def test_a_checkpoint_of_another_database_is_refused(url: str) -> None:
    reader = streamed(url)
    offset = reader.initialOffset()
    with pytest.raises(InvalidArgument, match="another database"):
        reader.partitions({**offset, "epoch": "another"}, reader.latestOffset(offset, ALL))


def test_each_part_extends_the_pin(url: str) -> None:
    """A job may take longer than the pin was made for, as long as its last part begins in time."""
    reader = _Reader(_options({"url": url, "partitions": "3"}))
    parts = reader.partitions()
    with ms.open(url) as store:
        (pin,) = store.pins()
        for part in parts:
            [*reader.read(part)]
            (extended,) = store.pins()
            assert pin.expires_at is not None
            assert extended.expires_at is not None
            assert extended.expires_at > pin.expires_at
            pin = extended


def test_what_travels_to_executors_has_no_url(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans, the UI and logs of Spark show what an option says: the name of a variable."""
    monkeypatch.setenv("CATALOG_OF_THE_TEST", url)
    source = _Source({"url": "env:CATALOG_OF_THE_TEST", "table": "changes"})
    stream, entities = source.streamReader(StructType()), _Source({**source.options, "table": "entities"})
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    reader = entities.reader(StructType())
    writer = entities.writer(StructType(), False)
    travels = [source, stream, start, end, stream.partitions(start, end), reader, reader.partitions(), writer]
    place = url.removeprefix("sqlite:///").encode()
    assert [one for one in travels if place in pickle.dumps(one)] == []
    assert place in pickle.dumps(_Source({"url": url}).reader(StructType()))
