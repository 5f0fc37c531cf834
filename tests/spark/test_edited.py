"""Tables that people have changed, and files that changed, read as the catalog says."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

import metastore as ms
from tests.spark.conftest import INTO, Reader, alike

FORMATS = ("parquet", "csv", "json")


def write(reader: Reader, form: str, name: str, columns: dict[str, list[Any]]) -> None:
    """Write ``columns`` as a file in the format ``form``."""
    if form == "parquet":
        reader.lake.parquet(f"{name}.parquet", columns)
    elif form == "json":
        reader.lake.json(
            f"{name}.json", *[dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        )
    else:
        lines = [list(columns), *zip(*columns.values(), strict=True)]
        text = "".join(",".join("" if cell is None else str(cell) for cell in row) + "\n" for row in lines)
        reader.lake.text(f"{name}.csv", text)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("form", FORMATS)
def test_columns_that_people_changed(reader: Reader, form: str) -> None:
    write(reader, form, "s/t/k=1/a", {"a": [1, 2], "b": ["x", None], "c": [1.5, 2.5], "d": [7, 8]})
    reader.crawl()
    reader.alter(
        "s.t",
        ms.RenameColumn("a", "tmp"),
        ms.RenameColumn("b", "a"),
        ms.RenameColumn("tmp", "b"),  # swapped: the names are all known, and each is of the other column
        ms.DropColumn("c"),
        ms.RenameColumn("d", "old d"),
        ms.AddColumn("d", "date"),  # a new one, of no file
        ms.RetypeColumn("b", "string"),
        ms.RenameColumn("k", "key"),
        ms.MoveColumn("key", ms.FIRST),
    )
    row = reader.register()["s.t"]
    expected = [
        {"key": 1, "b": "1", "a": "x", "old d": 7, "d": None},
        {"key": 1, "b": "2", "a": None, "old d": 8, "d": None},
    ]
    found = reader.rows(row)
    assert alike(found, expected)
    assert list(found[0]) == list(expected[0])
    assert reader.types(row)["d"] == "date"
    reader.crawl()
    assert reader.rows(reader.register()["s.t"]) == found


@pytest.mark.parametrize("form", ["parquet", "json"])
def test_fields_that_people_renamed(reader: Reader, form: str) -> None:
    write(reader, form, "s/t/a", {"s": [{"x": 1, "y": [{"z": "q"}]}, None]})
    reader.crawl()
    reader.alter(
        "s.t",
        ms.RenameColumn(("s", "x"), "first"),
        ms.RenameColumn(("s", "y", "element", "z"), "x"),
        ms.AddColumn(("s", "new"), "int"),
    )
    row = reader.register()["s.t"]
    assert alike(reader.rows(row), [{"s": {"first": 1, "y": [{"x": "q"}], "new": None}}, {"s": None}])


@pytest.mark.parametrize("form", FORMATS)
def test_columns_that_some_files_lack(reader: Reader, form: str) -> None:
    write(reader, form, "s/t/a", {"a": [1], "b": ["x"], "c": [1], "d": [True]})
    write(reader, form, "s/t/b", {"a": [2], "c": [2], "d": [False]})
    write(reader, form, "s/t/c", {"d": [True], "b": ["y"], "c": [3], "a": [3], "e": [9]})
    reader.crawl()
    row = reader.register()["s.t"]
    assert alike(
        reader.rows(row, "a, b, c, d, e"),
        [
            {"a": 1, "b": "x", "c": 1, "d": True, "e": None},
            {"a": 2, "b": None, "c": 2, "d": False, "e": None},
            {"a": 3, "b": "y", "c": 3, "d": True, "e": 9},
        ],
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize("form", FORMATS)
def test_a_table_whose_column_vanished_from_the_files(reader: Reader, form: str) -> None:
    write(reader, form, "s/t/a", {"a": [1], "b": ["x"], "c": [2]})
    reader.crawl()
    write(reader, form, "s/t/a", {"a": [1], "c": [2]})
    reader.crawl()
    row = reader.register()["s.t"]
    assert reader.rows(row, "a, b, c") == [{"a": 1, "b": None, "c": 2}]
    with ms.open(reader.url) as store:
        assert [column.name for column in store.tables.load(f"{INTO}.s.t").columns] == ["a", "b", "c"]


def test_types_that_widen(reader: Reader) -> None:
    narrow = {
        "whole": pa.array([1], pa.int32()),
        "real": pa.array([1.5], pa.float32()),
        "day": pa.array([dt.date(2020, 1, 1)]),
        "mixed": pa.array([1], pa.int32()),
        "small": pa.array([1], pa.int8()),
    }
    wide = {
        "whole": pa.array([2**40], pa.int64()),
        "real": pa.array([2.5]),
        "day": pa.array([dt.datetime(2020, 1, 2, 3)], pa.timestamp("us")),  # noqa: DTZ001
        "mixed": pa.array([2.5]),
        "small": pa.array([300], pa.int16()),
    }
    reader.lake.parquet("s/t/a.parquet", narrow)
    reader.lake.parquet("s/t/b.parquet", wide)
    reader.crawl()
    row = reader.register()["s.t"]
    assert reader.types(row) == {
        "whole": "bigint",
        "real": "double",
        "day": "timestamp_ntz",
        "mixed": "double",
        "small": "smallint",
    }
    day = dt.datetime(2020, 1, 1)  # noqa: DTZ001
    assert alike(
        reader.rows(row),
        [
            {"whole": 1, "real": 1.5, "day": day, "mixed": 1.0, "small": 1},
            {"whole": 2**40, "real": 2.5, "day": day.replace(day=2, hour=3), "mixed": 2.5, "small": 300},
        ],
    )


def test_partitions_are_typed_as_in_the_catalog(reader: Reader) -> None:
    null = "__HIVE_DEFAULT_PARTITION__"
    for at, (day, number, text) in enumerate(
        [("2020-01-01", "007", "a%2Fb"), (null, "-1", null), ("2020-01-03", null, "1")]
    ):
        plain = {"x": [at]}
        exact = {"x": [at], "t": pa.array([0], pa.timestamp("ns"))}
        for table, columns in (("plain", plain), ("exact", exact)):
            reader.lake.parquet(f"s/{table}/day={day}/n={number}/s={text}/x.parquet", columns)
    reader.crawl()
    reader.alter("s.plain", ms.RetypeColumn("n", "string"))
    reader.alter("s.exact", ms.RetypeColumn("n", "string"))
    expected = [
        {"x": 0, "day": dt.date(2020, 1, 1), "n": "7", "s": "a/b"},
        {"x": 1, "day": None, "n": "-1", "s": None},
        {"x": 2, "day": dt.date(2020, 1, 3), "n": None, "s": "1"},
    ]
    found = reader.register()
    for table in ("plain", "exact"):
        row = found[f"s.{table}"]
        assert alike(reader.rows(row, "x, day, n, s"), expected), table
        assert reader.rows(row, "x", "WHERE day = '2020-01-03'") == [{"x": 2}]


def test_a_partition_that_is_no_folder_is_passed_over(reader: Reader) -> None:
    reader.lake.parquet("s/t/k=1/x.parquet", {"x": [1]})
    reader.crawl()
    with ms.open(reader.url) as store:
        store.partitions.create(f"{INTO}.s.t", "planned", values={"k": "9"})
    assert reader.rows(reader.register()["s.t"]) == [{"x": 1, "k": 1}]


def test_a_table_without_any_partition_is_empty(reader: Reader) -> None:
    reader.lake.parquet("s/t/k=1/x.parquet", {"x": [1]})
    reader.crawl()
    with ms.open(reader.url) as store:
        store.partitions.drop(f"{INTO}.s.t", "k=1")
    row = reader.register()["s.t"]
    assert reader.rows(row) == []
    assert reader.types(row) == {"x": "bigint", "k": "int"}


def test_a_table_that_nobody_crawled(reader: Reader) -> None:
    for at in (1, 2):
        reader.lake.parquet(f"made/k={at}/0000_0", {"x": [at], "y": ["a"]})
    with ms.open(reader.url) as store:
        store.metalakes.create("lake")
        store.catalogs.create(INTO, type="relational")
        store.tables.create(
            f"{INTO}.s.made",
            columns=[ms.Column("x", "long"), ms.Column("y", "string"), ms.Column("k", "int")],
            partitioning=["k"],
            format="parquet",
            location=f"file://{reader.lake.root}/made",
            parents=True,
        )
    reader.alter("s.made", ms.RenameColumn("x", "renamed"))
    rows = reader.rows(reader.register()["s.made"], rest="ORDER BY k")
    assert rows == [{"renamed": 1, "y": "a", "k": 1}, {"renamed": 2, "y": "a", "k": 2}]
