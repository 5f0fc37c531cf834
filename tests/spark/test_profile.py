"""Profiles say what is in the files, whatever their format; they are made once for each state of the files."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import metastore as ms
from metastore.crawl.dataset.profile import PROFILE, Profiled, profile_tables
from metastore.crawl.files.limits import Limits
from metastore.crawl.report import Failure
from tests.crawl.conftest import Lake
from tests.spark.conftest import INTO, Reader, drop_views
from tests.spark.test_edited import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 4000


@pytest.fixture
def anywhere(spark: SparkSession, url: str, lake: Lake) -> Iterator[Reader]:
    """Give a reader on SQLite and on PostgreSQL."""
    yield Reader(spark, url, lake)
    drop_views(spark)


def profiled(reader: Reader, *paths: str) -> dict[str, Profiled | Failure]:
    """Profile tables; return what became of each by its path below the catalog."""
    names = [("lake", "main", *path.split(".")) for path in paths]
    rows = list(profile_tables(reader.spark.sparkContext, reader.url, names, "profiler"))
    return {row.path.removeprefix(f"{INTO}."): row for row in rows}


def values(reader: Reader, path: str) -> dict[str, Any]:
    with ms.open(reader.url) as store:
        statistic = store.statistics.load(f"{INTO}.{path}", PROFILE)
        assert statistic.modified_by == "profiler"
        return dict(statistic.values)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_figures_of_known_values(reader: Reader, form: str) -> None:
    luck = random.Random(7)
    number = [luck.randrange(1000) if at % 10 else None for at in range(ROWS)]
    word = [luck.choice(["often"] * 50 + ["rare", "rarer"]) for _ in range(ROWS)]
    for half in (0, 1):
        part = slice(half * ROWS // 2, (half + 1) * ROWS // 2)
        write(reader, form, f"s/t/k={half}/a", {"number": number[part], "word": word[part]})
    reader.crawl()
    assert profiled(reader, "s.t") == {"s.t": Profiled(f"{INTO}.s.t", ROWS, fresh=True)}
    found = values(reader, "s.t")
    known = sorted(value for value in number if value is not None)
    figures = found["columns"]["number"]
    assert found["rows"] == ROWS
    assert (figures["nulls"], figures["min"], figures["max"]) == (ROWS // 10, str(known[0]), str(known[-1]))
    assert abs(figures["distinct"] - len(set(known))) < 0.15 * len(set(known))
    for share, value in zip((0.25, 0.5, 0.75), figures["quantiles"], strict=True):
        assert abs(known.index(int(value)) / len(known) - share) < 0.01
    counts = {value: known.count(value) for value in known}
    assert figures["top"][0]["count"] == max(counts.values())
    assert all(counts[int(item["value"])] == item["count"] for item in figures["top"])
    assert len(figures["top"]) == 10
    words = found["columns"]["word"]
    assert {item["value"]: item["count"] for item in words["top"]} == {w: word.count(w) for w in set(word)}
    assert "quantiles" not in words
    assert found["columns"]["k"]["top"] == [{"value": "0", "count": ROWS // 2}, {"value": "1", "count": ROWS // 2}]


def test_values_of_every_type(reader: Reader) -> None:
    time = dt.datetime(2020, 2, 29, 23, 59, 59, 120000)  # noqa: DTZ001
    reader.lake.parquet(
        "s/t/x.parquet",
        pa.table(
            {
                "nan": pa.array([float("nan"), 1.5, None]),
                "only_nan": pa.array([float("nan")] * 3, pa.float32()),
                "long text": pa.array(["a" * 1000, "b" * 1000, "a" * 999 + "c"]),
                "nul": pa.array(["\0", "x", None]),
                "bytes": pa.array([b"\xff" * 300, b"\0", None]),
                "bool": pa.array([True, True, None]),
                "date": pa.array([dt.date(2020, 1, 1), None, None]),
                "utc": pa.array([time, None, time], pa.timestamp("us", "UTC")),
                "ntz": pa.array([time, None, time], pa.timestamp("us")),
                "late": pa.array([2**55, None, None], pa.timestamp("us")),
                "late_utc": pa.array([-(2**57), None, None], pa.timestamp("us", "UTC")),
                "exact": pa.array([Decimal("1.10"), None, None], pa.decimal128(9, 2)),
                "list": pa.array([[1], None, []]),
                "none": pa.nulls(3, pa.int32()),
            }
        ),
    )
    reader.crawl()
    profiled(reader, "s.t")
    found = values(reader, "s.t")["columns"]
    assert found["nan"] == {
        "type": "double",
        "nulls": 1,
        "distinct": 1,
        "min": "1.5",
        "max": "1.5",
        "quantiles": ["1.5"] * 3,
        "top": [{"value": "1.5", "count": 1}],
    }
    assert found["only_nan"] == {"type": "float", "nulls": 0, "distinct": 0}
    assert found["long text"]["min"] == "a" * 256
    assert found["long text"]["distinct"] == 3
    assert found["long text"]["top"][0] == {"value": "a" * 256, "count": 2}
    assert found["nul"] == {
        "type": "string",
        "nulls": 1,
        "distinct": 2,
        "max": "x",
        "top": [{"value": "x", "count": 1}],
    }
    assert (found["bytes"]["min"], found["bytes"]["max"]) == ("00", "ff" * 128)
    assert (found["bool"]["min"], found["bool"]["top"]) == ("true", [{"value": "true", "count": 2}])
    assert found["date"]["quantiles"] == ["2020-01-01"] * 3
    assert (found["utc"]["max"], found["utc"]["distinct"]) == ("2020-02-29 23:59:59.12Z", 1)
    assert found["utc"]["top"] == [{"value": "2020-02-29 23:59:59.12Z", "count": 2}]
    assert found["ntz"]["max"] == "2020-02-29 23:59:59.12"
    assert found["exact"]["max"] == "1.10"
    assert found["list"] == {"type": "list<long>", "nulls": 1}
    assert found["none"] == {"type": "int", "nulls": 3, "distinct": 0}


@pytest.mark.each_run_on("sqlite")
def test_only_what_changed_is_read_again(anywhere: Reader) -> None:
    anywhere.lake.parquet("s/t/x.parquet", {"a": [1, 2]})
    anywhere.crawl()
    sign(anywhere, "s.t", "one")
    assert profiled(anywhere, "s.t")["s.t"] == Profiled(f"{INTO}.s.t", 2, fresh=True)
    writes = changes(anywhere)
    assert profiled(anywhere, "s.t")["s.t"] == Profiled(f"{INTO}.s.t", 2, fresh=False)
    assert changes(anywhere) == writes
    anywhere.alter("s.t", ms.RenameColumn("a", "b"))
    assert profiled(anywhere, "s.t")["s.t"] == Profiled(f"{INTO}.s.t", 2, fresh=True)
    assert list(values(anywhere, "s.t")["columns"]) == ["b"]
    anywhere.lake.parquet("s/t/x.parquet", {"a": [1, 2, 3]})
    sign(anywhere, "s.t", "two")
    assert profiled(anywhere, "s.t")["s.t"] == Profiled(f"{INTO}.s.t", 3, fresh=True)


def sign(reader: Reader, path: str, signature: str) -> None:
    """Write what a crawl writes."""
    with ms.open(reader.url) as store:
        table = store.tables.load(f"{INTO}.{path}")
        seen = store.statistics.load(table, "crawl").values
        store.statistics.put_many(table, [store.statistics.row("crawl", {**seen, "signature": signature})])


def changes(reader: Reader) -> int:
    with ms.open(reader.url) as store:
        return sum(1 for _ in store.changes())


def test_a_table_that_fails_stops_nothing(reader: Reader) -> None:
    for name in ("broken", "fine", "gone", "last"):
        reader.lake.parquet(f"s/{name}/x.parquet", {"a": list(range(100))})
    reader.crawl()
    path = reader.lake.root / "s/broken/x.parquet"
    path.write_bytes(path.read_bytes()[:200] + b"PAR1")
    with ms.open(reader.url) as store:
        store.tables.drop(f"{INTO}.s.gone")
    found = profiled(reader, "s.broken", "s.fine", "s.gone", "s.last")
    assert found["s.fine"] == Profiled(f"{INTO}.s.fine", 100, fresh=True)
    assert found["s.last"] == Profiled(f"{INTO}.s.last", 100, fresh=True)
    broken, gone = found["s.broken"], found["s.gone"]
    assert isinstance(broken, Failure)
    assert "x.parquet" in broken.reason
    assert "\n" not in broken.reason
    assert gone == Failure(f"{INTO}.s.gone", "cannot be profiled: the table does not exist any more")


@pytest.mark.long
def test_a_wide_table(reader: Reader) -> None:
    reader.lake.parquet("s/wide/x.parquet", {f"c{at}": [f"{at}" * 100, None] for at in range(120)})
    reader.crawl()
    profiled(reader, "s.wide")
    found = values(reader, "s.wide")
    assert found["rows"] == 2
    assert [column["nulls"] for column in found["columns"].values()] == [1] * 120
    assert found["columns"]["c119"]["max"] == ("119" * 100)[:256]


@pytest.mark.long
def test_a_profile_is_bounded(reader: Reader) -> None:
    values_of = [f"{at:04}" + "x" * 300 for at in range(20)]
    reader.lake.parquet("s/large/x.parquet", {f"c{at}": values_of for at in range(220)})
    reader.crawl()
    profiled(reader, "s.large")
    found = values(reader, "s.large")
    assert len(str(found)) < 1 << 19
    assert found["columns"]["c219"]["min"] == values_of[0][:256]
    assert "top" not in found["columns"]["c0"]


def test_who_stops_listening_stops_the_work(reader: Reader) -> None:
    for at in range(30):
        reader.lake.parquet(f"s/t{at}/x.parquet", {"a": [1]})
    reader.crawl()
    names = [("lake", "main", "s", f"t{at}") for at in range(30)]
    rows = profile_tables(reader.spark, reader.url, names, None)
    assert isinstance(next(rows), Profiled)
    rows.close()  # type: ignore[attr-defined]
    with ms.open(reader.url) as store:
        assert sum(store.statistics.exists(name, PROFILE) for name in names) < 30
    assert reader.spark.range(3).count() == 3


def test_more_rows_than_the_limits_allow(reader: Reader) -> None:
    """A few bytes of equal rows are a failure with a reason, and no job runs for them."""
    write(reader, "parquet", "s/t/a", {"n": [1] * 30_000})
    reader.crawl()
    names = [("lake", "main", "s", "t")]
    (failed,) = profile_tables(reader.spark, reader.url, names, None, Limits(max_unpacked=20_000))
    assert isinstance(failed, Failure)
    assert failed.reason.startswith("cannot be profiled: its files hold 30,000 rows")
    assert failed.reason.endswith("--max-unpacked allows more")
    (done,) = profile_tables(reader.spark, reader.url, names, None, Limits(max_unpacked=30_000))
    assert isinstance(done, Profiled)
