"""What Spark reads of a file is what Arrow reads of it."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from metastore.crawl import crawl
from metastore.spark import Registered, register
from tests.spark.conftest import INTO, Reader, alike

pytestmark = pytest.mark.one_in(3)

TIME = dt.datetime(2020, 2, 29, 23, 59, 59, 123456)  # noqa: DTZ001


def test_types_that_spark_does_not_read_itself(reader: Reader) -> None:
    unique = [uuid.UUID(int=5), None]
    reader.lake.parquet(
        "s/exact/x.parquet",
        pa.table(
            {
                "ns": pa.array([TIME, None], pa.timestamp("ns")),
                "utc": pa.array([TIME, None], pa.timestamp("ns", "UTC")),
                "list": pa.array([[TIME], None], pa.list_(pa.timestamp("ns"))),
                "clock": pa.array([dt.time(1, 2, 3, 4), None], pa.time64("us")),
                "uuid": pa.array([u and u.bytes for u in unique], pa.uuid()),
                "u64": pa.array([2**64 - 1, None], pa.uint64()),
                "half": pa.array([1.5, None], pa.float32()).cast(pa.float16()),
                "text": pa.array(["a", None]).dictionary_encode(),
                "none": pa.nulls(2),
                "decimal": pa.array([1, None]).cast(pa.decimal128(38, 10)),
            }
        ),
    )
    reader.lake.parquet(
        "s/int96/x.parquet", pa.table({"t": pa.array([TIME, None])}), use_deprecated_int96_timestamps=True
    )
    reader.crawl()
    found = reader.register()
    (first, second) = sorted(reader.rows(found["s.exact"]), key=lambda row: row["text"] is None)
    assert first == {
        "ns": TIME,
        "utc": TIME,
        "list": [TIME],
        "clock": "01:02:03.000004",
        "uuid": str(unique[0]),
        "u64": 2**64 - 1,
        "half": 1.5,
        "text": "a",
        "none": None,
        "decimal": 1,
    }
    assert set(second.values()) == {None}
    assert alike(reader.rows(found["s.int96"]), [{"t": TIME}, {"t": None}])
    assert reader.types(found["s.exact"])["ns"] == "timestamp_ntz"
    assert reader.types(found["s.exact"])["utc"] == "timestamp"


def test_times_in_a_session_of_another_zone(reader: Reader) -> None:
    folder = reader.lake.root / "s/orc"
    folder.mkdir(parents=True)
    table = pa.table({"t": pa.array([TIME]), "z": pa.array([TIME], pa.timestamp("us", "UTC"))})
    pa.orc.write_table(table, folder / "x.orc")
    reader.lake.parquet("s/plain/x.parquet", table)
    exact = pa.schema([("t", pa.timestamp("ns")), ("z", pa.timestamp("ns", "UTC"))])
    reader.lake.parquet("s/exact/x.parquet", table.cast(exact))
    reader.lake.text("s/csv/x.csv", "t,z\n2020-02-29 23:59:59.123456,2020-02-29T23:59:59.123456Z\n")
    reader.lake.parquet("s/keys/z=2020-02-29 23%3A59%3A59.123456/x.parquet", {"t": pa.array([TIME])})
    reader.lake.parquet(
        "s/exact_keys/z=2020-02-29 23%3A59%3A59.123456/x.parquet", {"t": pa.array([TIME], pa.timestamp("ns"))}
    )
    reader.crawl()
    elsewhere = reader.spark.newSession()
    elsewhere.conf.set("spark.sql.session.timeZone", "America/New_York")
    since = (TIME - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)  # noqa: DTZ001
    for row in register(elsewhere, reader.url, "lake.main.s"):
        shown = elsewhere.sql(f"SELECT string(t) AS t, unix_micros(z) AS z FROM {row.sql}").collect()
        assert [tuple(one) for one in shown] == [(str(TIME), since)], row.path


CSV: dict[str, tuple[str | bytes, dict[str, Any]]] = {
    "semicolon": ("a;b c\n1;x\n2;\n", {"delimiter": ";"}),
    "tab.tsv": ("a\tb\n1\t2.5\n\t3\n", {"delimiter": "\t"}),
    "noheader": ("1,2.5,x\n2,3.5,y\n", {"names": ["_c0", "_c1", "_c2"]}),
    "quotes": ('a,b\n1,"x ""y"", z"\n2,"two\nlines"\n', {}),
    "nulls": ("a,b\n1,x\nNA,y\n3,z\n", {}),
    "latin": ("a,b\n1,Köln\n2,Zürich\n".encode("latin-1"), {"encoding": "latin-1"}),
    "bom": ("a,b\n1,x\n".encode("utf-8-sig"), {}),
    "utf16": ("a,b\n1,Köln\n2,x\n".encode("utf-16"), {"encoding": "utf-16"}),
    "times": ("d,t,z\n2020-01-02,2020-01-02 03:04:05,2020-01-02T03:04:05Z\n,,\n", {}),
    "blank_lines": ("\n\na,b\n1,x\n\n2,y\n", {}),
    "index": (",a,b\n0,x,1.5\n1,y,2\n", {"names": ["_c0", "a", "b"], "skip_rows": 1}),
    "spaces": ("a , b\n1,2\n", {"names": ["a", "b"], "skip_rows": 1}),
    "booleans": ("a,b\ntrue,1\nfalse,2\n", {}),
    "big": ("a,b\n123456789012345678901,1\n1,2\n", {}),
}


@pytest.mark.parametrize("tasks", [2])
def test_csv_in_every_dialect(reader: Reader, tasks: int) -> None:
    for name, (text, _) in CSV.items():
        folder, _, ending = name.partition(".")
        reader.lake.text(f"s/{folder}/x.{ending or 'csv'}", text)
    reader.crawl()
    found = reader.register()
    assert len(found) == len(CSV)
    for name, (text, options) in CSV.items():
        row = found[f"s.{name.partition('.')[0]}"]
        expected = _arrow_csv(text if isinstance(text, bytes) else text.encode(), options)
        rows = [{key: None if value == "" else value for key, value in found.items()} for found in reader.rows(row)]
        assert alike([{key: _utc(value) for key, value in found.items()} for found in rows], expected), name


def _arrow_csv(data: bytes, options: dict[str, Any]) -> list[dict[str, Any]]:
    parse = pa.csv.ParseOptions(delimiter=options.get("delimiter", ","), newlines_in_values=True)
    read = pa.csv.ReadOptions(
        column_names=options.get("names"),
        encoding=options.get("encoding", "utf8"),
        skip_rows=options.get("skip_rows", 0),
    )
    rows = pa.csv.read_csv(pa.BufferReader(data), read, parse).to_pylist()
    return [{key: _utc(None if value == "" else value) for key, value in row.items()} for row in rows]


def _utc(value: Any) -> Any:
    """Write numbers and times so that they compare, whichever type holds them."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    return float(value) if not isinstance(value, bool | str | dt.date | None) else value


def test_files_that_are_not_part_of_a_table_are_left_out_of_its_view(reader: Reader, tmp_path: Path) -> None:
    """The catalog and the view have the same rows: without broken files, strangers, and links out of the lake."""
    lake = reader.lake
    lake.parquet("s/broken/a.parquet", {"x": [1]})
    lake.text("s/broken/b [x].parquet", b"PAR1 not really")
    lake.parquet("s/parts/k=1/a.parquet", {"x": [1]})
    lake.text("s/parts/k=1/b%.parquet", b"")
    lake.parquet("s/exact/a.parquet", {"t": pa.array([TIME], pa.timestamp("ns"))})
    lake.text("s/exact/b.parquet", b"nonsense")
    lake.text("s/texts/a.csv", "a,b\n1,x\n")
    lake.text("s/texts/b.csv", b"a,b\n\x00\x01\n")
    lake.parquet("s/links/a.parquet", {"x": [1]})
    outside = tmp_path / "outside.parquet"
    pq.write_table(pa.table({"x": [2]}), outside)
    (lake.root / "s/links/b.parquet").symlink_to(outside)
    assert len(reader.crawl().failures) == 5
    found = reader.register()
    assert sorted(found) == ["s.broken", "s.exact", "s.links", "s.parts", "s.texts"]
    assert reader.rows(found["s.broken"]) == [{"x": 1}]
    assert reader.rows(found["s.parts"]) == [{"x": 1, "k": 1}]
    assert reader.rows(found["s.exact"]) == [{"t": TIME}]
    assert reader.rows(found["s.texts"]) == [{"a": 1, "b": "x"}]
    assert reader.rows(found["s.links"]) == [{"x": 1}]
    (lake.root / "s/parts/k=1/c.parquet").symlink_to(outside)
    lake.parquet("s/broken/b [x].parquet", {"x": [3]})
    reader.crawl()
    found = reader.register()
    assert sorted(row["x"] for row in reader.rows(found["s.broken"])) == [1, 3]
    assert reader.rows(found["s.parts"]) == [{"x": 1, "k": 1}]


def test_names_with_a_blank_at_an_end(reader: Reader) -> None:
    reader.lake.text(" s /t / a .csv", "id,b\n1,x\n")
    reader.lake.parquet(" s /u/ k =1/a.parquet", {" id ": [1]})
    assert reader.crawl().failures == ()
    found = reader.register()
    assert reader.rows(found["` s `.`t `"]) == [{"id": 1, "b": "x"}]
    assert reader.rows(found["` s `.u"]) == [{" id ": 1, " k ": 1}]


def test_json_in_every_form(reader: Reader) -> None:
    rows: list[dict[str, Any]] = [{"a": 1, "b": {"c": [1.5, None]}}, {"a": None, "d": "x\ny"}, {"a": 2**40, "d": "ü"}]
    reader.lake.json("s/lines/x.jsonl", *rows)
    reader.lake.text("s/array/x.json", json.dumps(rows, indent=1))
    reader.lake.text("s/utf16/x.json", json.dumps(rows, ensure_ascii=False).encode("utf-16"))
    reader.lake.text("s/mixed/x.json", '{"a": 1}\n{"a": "x"}\n')
    reader.crawl()
    found = reader.register()
    expected = [{"a": row.get("a"), "b": row.get("b"), "d": row.get("d")} for row in rows]
    for name in ("lines", "array", "utf16"):
        assert alike(reader.rows(found[f"s.{name}"], "a, b, d"), expected), name
    assert alike(reader.rows(found["s.mixed"]), [{"a": "1"}, {"a": "x"}])


# Spark's reader fails on these, and pyarrow does not
REFUSED = {
    "byte_array_decimal",  # NullPointerException
    "byte_stream_split_extended.gzip",  # half floats
    "float16_nonzeros_and_nans",
    "float16_zeros_and_nans",
    "floating_orders_nan_count",
    "map_no_value",  # cannot be collected as Arrow
    "nation.dict-malformed",  # EOFException
    "non_hadoop_lz4_compressed",  # ArrayIndexOutOfBoundsException
    "unknown-logical-type",  # NullPointerException
}


@pytest.mark.long
def test_real_parquet(reader: Reader, shared_data: Path) -> None:
    """Whatever Arrow reads of these files of all writers, Spark reads too, but for a few."""
    refused = set()
    (reader.lake.root / "s").mkdir()
    for file in sorted((shared_data / "parquet").glob("*.parquet")):
        (reader.lake.root / "s" / file.stem).mkdir()
        (reader.lake.root / "s" / file.stem / file.name).symlink_to(file)
    report = crawl([reader.lake.root], INTO, reader.url, follow_links=True)
    found = reader.register()
    assert len(found) == report.tables
    files = {row: shared_data / "parquet" / f"{row.path.split('.', 3)[3].strip('`')}.parquet" for row in found.values()}
    with ThreadPoolExecutor(4) as pool:
        for file, ours in zip(files.values(), pool.map(partial(_rows, reader), files), strict=True):
            try:
                theirs = pq.read_table(file, partitioning=None)
            except (OSError, pa.ArrowException):
                continue  # nobody can read it
            if ours is None:
                refused.add(file.stem)
                continue
            assert ours.num_rows == theirs.num_rows, file
            for name in theirs.column_names:
                assert _same(ours[name], theirs[name]), (file, name)
    assert refused == REFUSED


def _rows(reader: Reader, row: Registered) -> Any:
    """Return all rows of a view; None if Spark does not read them."""
    try:
        return reader.spark.table(row.sql).toArrow()
    except (PySparkException, Py4JError):
        return None


def _same(ours: Any, theirs: Any) -> bool:
    """Tell whether columns are equal, where Arrow can compare them."""
    if pa.types.is_nested(theirs.type) or theirs.type in (pa.uuid(), pa.float16()):
        return len(ours) == len(theirs)
    theirs = theirs.cast(ours.type, safe=False)
    if pa.types.is_floating(ours.type):
        return [repr(value) for value in ours.to_pylist()] == [repr(value) for value in theirs.to_pylist()]
    return bool(ours.equals(theirs))
