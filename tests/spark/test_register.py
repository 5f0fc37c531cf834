"""Tables of the catalog are views in Spark: of all formats, with the catalog's columns and types."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.orc
import pytest

import metastore as ms
from metastore.columns.column import Column
from metastore.crawl.files.formats import format_of
from metastore.errors import EntityNotFound, InvalidArgument
from metastore.spark import read, register
from metastore.spark.dataframe import ENDINGS
from tests.crawl.conftest import Lake
from tests.spark.conftest import INTO, Reader, alike, drop_views

pytestmark = pytest.mark.one_in(3)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIME = dt.datetime(2020, 2, 29, 23, 59, 59, 123456)  # noqa: DTZ001
PLAIN = pa.table(
    {
        "bool": pa.array([True, None, False]),
        "byte": pa.array([-128, None, 127], pa.int8()),
        "short": pa.array([-(2**15), None, 1], pa.int16()),
        "int": pa.array([-(2**31), None, 1], pa.int32()),
        "long": pa.array([-(2**63), None, 1], pa.int64()),
        "float": pa.array([1.5, None, -0.0], pa.float32()),
        "double": pa.array([1.5, None, 1e300]),
        "decimal": pa.array([Decimal("1.23"), None, Decimal("-4.56")], pa.decimal128(9, 2)),
        "text": pa.array(["a", None, "ü 'x\n"]),
        "bytes": pa.array([b"\0a", None, b""]),
        "date": pa.array([TIME.date(), None, dt.date(1582, 10, 15)]),
        "time": pa.array([TIME, None, dt.datetime(1970, 1, 1)], pa.timestamp("us")),  # noqa: DTZ001
        "list": pa.array([[1, None], None, []], pa.list_(pa.int32())),
        "struct": pa.array([{"a": 1, "b c": "x"}, None, {"a": None, "b c": None}]),
        "a.b `c`": pa.array([1, 2, 3]),
    }
)


@pytest.fixture
def anywhere(spark: SparkSession, url: str, lake: Lake) -> Iterator[Reader]:
    """Give a reader on SQLite and on PostgreSQL."""
    yield Reader(spark, url, lake)
    drop_views(spark)


@pytest.mark.each_run_on("sqlite")
def test_tables_of_a_catalog(anywhere: Reader) -> None:
    lake = anywhere.lake
    lake.parquet("nyc/all/x.parquet", PLAIN)
    for month in (1, 2):
        lake.parquet(f"nyc/taxi/flights/month={month}/part-0.parquet", {"x": [month], "y": ["a"]})
    lake.text("nyc/csv/cars.csv", "id;name\n1;a\n2;b\n")
    lake.json("nyc/events/a.jsonl", {"a": 1, "b": {"c": [1.5]}})
    anywhere.crawl()
    found = anywhere.register()
    assert {path: row.view for path, row in found.items()} == {
        "nyc.all": "nyc_all",
        "nyc.csv": "nyc_csv",
        "nyc.events": "nyc_events",
        "nyc.taxi.flights": "nyc_taxi_flights",
    }
    assert alike(anywhere.rows(found["nyc.all"]), PLAIN)
    assert alike(anywhere.rows(found["nyc.csv"]), [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    assert anywhere.rows(found["nyc.events"]) == [{"a": 1, "b": {"c": [1.5]}}]
    flights = anywhere.rows(found["nyc.taxi.flights"], rest="ORDER BY month")
    assert flights == [{"x": 1, "y": "a", "month": 1}, {"x": 2, "y": "a", "month": 2}]
    with ms.open(anywhere.url) as store:
        for path, row in found.items():
            stored = store.tables.load(f"{INTO}.{path}").columns
            shown = read(anywhere.spark, anywhere.url, f"{INTO}.{path}").schema
            assert row.readable
            assert _bare(columns_of(shown)) == _bare(stored)


def columns_of(schema: Any) -> tuple[Column, ...]:
    from metastore.spark.types import columns_from_spark

    return columns_from_spark(schema)


def _bare(columns: tuple[Column, ...]) -> list[tuple[str, str]]:
    return [(column.name, column.type) for column in columns]


def test_a_schema_alone(reader: Reader) -> None:
    reader.lake.parquet("a/b/t/x.parquet", {"x": [1]})
    reader.lake.parquet("c/t/x.parquet", {"x": [2]})
    reader.crawl()
    (row,) = register(reader.spark, reader.url, f"{INTO}.a")
    assert (row.path, row.view) == ("lake.main.a.b.t", "b_t")
    assert reader.rows(row) == [{"x": 1}]
    with pytest.raises(EntityNotFound):
        register(reader.spark, reader.url, f"{INTO}.none")
    with pytest.raises(InvalidArgument, match=r"is a metalake; give a catalog"):
        register(reader.spark, reader.url, "lake")


def test_names_that_collide_and_names_to_quote(reader: Reader) -> None:
    for at, place in enumerate(["a_b/c", "a/b_c", "s/T", "s/t", "x y/z.`w`", "ü/日"]):
        reader.lake.parquet(f"{place}/x.parquet", {"x": [at]})
    reader.crawl()
    found = reader.register()
    assert found["a_b.c"].view == "a_b.c"
    assert found["a.b_c"].view == "a.b_c"
    assert found["ü.日"].view == "ü_日"
    assert {row.view.partition(".")[0] for path, row in found.items() if path.startswith("s.")} == {"s"}
    values = {path: reader.rows(row) for path, row in found.items()}
    assert values == {
        "a_b.c": [{"x": 0}],
        "a.b_c": [{"x": 1}],
        "s.T": [{"x": 2}],
        "s.t": [{"x": 3}],
        "x y.`z.``w```": [{"x": 4}],
        "ü.日": [{"x": 5}],
    }
    assert len({row.view.casefold() for row in found.values()}) == 6
    again = reader.register()
    assert again == found


@pytest.mark.long
def test_locations_of_all_kinds(reader: Reader) -> None:
    names = ["a b", "a%20b", "a=b c", "{a,b}", "[ab]", "a*b", "a?b", "a\\b", "a+b#c&d", "Ünï", "日本"]
    for at, name in enumerate(names):
        reader.lake.parquet(f"p/{name}/f {name}.parquet", {"x": [at]})
        reader.lake.text(f"c/{name}/f {name}.csv", f"x\n{at}\n")
        reader.lake.parquet(
            f"k/t{at}/k=v {at}/f {name}.parquet", {"x": [at], "t": pa.array([TIME], pa.timestamp("ns"))}
        )
    reader.crawl()
    found = reader.register()
    for at, name in enumerate(names):
        # a folder named key=value is a partition of the folder above it
        assert not (name.startswith("a=") and f"p.{name}" in found)
        if not name.startswith("a="):
            assert reader.rows(found[f"p.{name}"]) == [{"x": at}], name
            assert reader.rows(found[f"c.{name}"]) == [{"x": at}], name
        assert reader.rows(found[f"k.t{at}"], "x, k") == [{"x": at, "k": f"v {at}"}], name
    assert reader.rows(found["lake.p"], "x, a") == [{"x": 2, "a": "b c"}]
    assert reader.rows(found["lake.c"], "x, a") == [{"x": 2, "a": "b c"}]


def test_what_cannot_be_read_is_listed_with_the_reason(reader: Reader) -> None:
    reader.lake.parquet("s/gone/x.parquet", {"x": [1]})
    reader.lake.parquet("s/fine/x.parquet", {"x": [1]})
    reader.lake.parquet("s/twice/x.parquet", pa.table([[1], [2]], names=["a", "A"]))
    reader.crawl()
    first = reader.register()
    assert first["s.gone"].readable
    reader.lake.root.joinpath("s/gone/x.parquet").unlink()
    reader.lake.root.joinpath("s/gone").rmdir()
    with ms.open(reader.url) as store:
        columns = [Column("a", "int")]
        store.tables.create(f"{INTO}.s.nowhere", columns=columns, format="parquet")
        store.tables.create(f"{INTO}.s.delta", columns=columns, format="delta", location="file:///tmp")
        store.tables.create(f"{INTO}.s.avro", columns=columns, format="avro", location="file:///tmp")
        store.tables.create(f"{INTO}.s.far", columns=columns, format="parquet", location="nosuch://host/x")
    found = reader.register()
    reasons = {path: row.reason for path, row in found.items()}
    assert reasons["s.fine"] is None
    assert "does not exist" in (reasons["s.gone"] or "")
    assert "already exists" in (reasons["s.twice"] or "")
    assert reasons["s.nowhere"] == "it has no location"
    assert "its format is delta" in (reasons["s.delta"] or "")
    assert "Failed to find data source: avro" in (reasons["s.avro"] or "")
    assert 'No FileSystem for scheme "nosuch"' in (reasons["s.far"] or "")
    assert [table.name for table in reader.spark.catalog.listTables()] == ["s_fine"]
    with pytest.raises(InvalidArgument, match="has no location"):
        read(reader.spark, reader.url, f"{INTO}.s.nowhere")


def test_options_that_people_corrected(reader: Reader) -> None:
    for name in ("good", "delimiter", "encoding"):
        reader.lake.text(f"s/{name}/x.csv", "a,b\n1,x\n")
    reader.crawl()
    reader.alter("s.good", ms.SetProperty("crawl.nullValue", "x"))
    reader.alter("s.delimiter", ms.SetProperty("crawl.delimiter", "\t,\t,"))
    reader.alter("s.encoding", ms.SetProperty("crawl.encoding", "none such"))
    found = reader.register()
    assert reader.rows(found["s.good"]) == [{"a": 1, "b": None}]
    assert "a header cannot be read" in (found["s.delimiter"].reason or "")
    assert found["s.encoding"].reason is not None


def test_the_url_stands_in_no_configuration(reader: Reader) -> None:
    reader.lake.parquet("s/t/x.parquet", {"x": [1]})
    reader.crawl()
    reader.register()
    shown = f"{reader.spark.sparkContext.getConf().getAll()} {reader.spark.conf.getAll}"
    assert reader.url.removeprefix("sqlite:///") not in shown


def test_files_beside_the_table_are_not_read(reader: Reader) -> None:
    reader.lake.parquet("s/t/k=1/x.PARQUET", {"x": [1]})
    reader.lake.text("s/t/k=1/readme.md", "no parquet")
    reader.crawl()
    reader.lake.parquet("s/t/k=2/x.parquet", {"x": [2]})  # nobody has crawled it
    assert reader.rows(reader.register()["s.t"]) == [{"x": 1, "k": 1}]


def test_packed_text(reader: Reader) -> None:
    packers: dict[str, Callable[[bytes], bytes]] = {
        "gz": gzip.compress,
        "bz2": bz2.compress,
        "zst": zstd,
        "xz": lzma.compress,
        "zip": zipped,
    }
    for name, pack in packers.items():
        reader.lake.text(f"s/{name}/a.csv.{name}", pack(b"a,b\n1,x\n"))
    reader.lake.text("s/json/a.json.gz", gzip.compress(b'{"a": 1}\n'))
    reader.crawl()
    found = reader.register()
    for name in ("gz", "bz2", "zst"):
        assert reader.rows(found[f"s.{name}"]) == [{"a": 1, "b": "x"}], name
    assert reader.rows(found["s.json"]) == [{"a": 1}]
    for name in ("xz", "zip"):
        assert (found[f"s.{name}"].reason or "").startswith(f"Spark does not unpack {name}: file:/"), name


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, "zstd", asbytes=True))


def zipped(data: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.csv", data)
    return buffer.getvalue()


def test_orc(reader: Reader) -> None:
    folder = reader.lake.root / "s/t/k=1"
    folder.mkdir(parents=True)
    table = PLAIN.drop_columns(["a.b `c`"]).append_column("utc", PLAIN["time"].cast(pa.timestamp("us", "UTC")))
    pa.orc.write_table(table, folder / "x.orc")
    reader.crawl()
    reader.alter("s.t", ms.RenameColumn("text", "words"))
    row = reader.register()["s.t"]
    naive = table.set_column(table.column_names.index("utc"), "utc", PLAIN["time"])
    assert alike(reader.rows(row), naive.rename_columns({"text": "words"}).append_column("k", pa.array([1] * 3)))
    assert reader.types(row)["time"] == "timestamp_ntz"
    plain = reader.lake.root / "s/plain"
    plain.mkdir()
    pa.orc.write_table(PLAIN.select(["int", "text"]), plain / "x.orc")
    reader.crawl()
    assert alike(reader.rows(reader.register()["s.plain"]), PLAIN.select(["int", "text"]))


@pytest.mark.parametrize("form", ENDINGS)
def test_the_crawler_and_spark_know_the_same_endings(form: str) -> None:
    for ending in ENDINGS[form]:
        known = format_of(f"x.{ending.upper()}")
        assert known is not None
        assert known.name == form


def test_queries_of_the_catalog(reader: Reader) -> None:
    reader.lake.parquet("s/t/x.parquet", {"x": [1, 2]})
    reader.crawl()
    with ms.open(reader.url) as store:
        for name, text in {
            "first": "SELECT y + 1 AS z FROM s_second",
            "second": "SELECT x + 1 AS y FROM s_t WHERE x > 1",
            "bad": "DROP VIEW s_t",
        }.items():
            store.views.create(f"{INTO}.s.{name}", representations=[ms.SQL("spark", text)])
        store.views.create(f"{INTO}.s.other", representations=[ms.SQL("trino", "SELECT 1")])
    found = reader.register()
    assert sorted(found) == ["s.bad", "s.first", "s.second", "s.t"]
    assert reader.rows(found["s.first"]) == [{"z": 4}]
    assert not found["s.bad"].readable
    assert len(reader.rows(found["s.t"])) == 2
