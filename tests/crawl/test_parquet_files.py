"""Parquet: what pyarrow reads is what is found; what it does not read has a reason."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore.columns.arrow import columns_from_arrow
from metastore.crawl.read.facts import ColumnStats, FileFacts, Unreadable, merge_stats, text
from metastore.crawl.read.infer import infer_file
from metastore.errors import InvalidArgument
from tests.crawl.conftest import Lake


def infer(path: Path) -> FileFacts | Unreadable:
    return infer_file(str(path.parent), path.name, path.stat().st_size)


def facts(path: Path) -> FileFacts:
    found = infer(path)
    assert isinstance(found, FileFacts), found
    return found


def reason(path: Path) -> str:
    found = infer(path)
    assert isinstance(found, Unreadable), found
    assert "\n" not in found.reason
    return found.reason


def expected(path: Path) -> Any:
    """Return the columns of the schema that pyarrow reads, or None if it reads none."""
    try:
        return columns_from_arrow(pq.read_schema(path))
    except (OSError, pa.ArrowException, InvalidArgument):
        return None


@pytest.mark.parametrize("folder", ["parquet", "parquet-bad"])
def test_real_files(shared_data: Path, folder: str) -> None:
    files = sorted((shared_data / folder).glob("*.parquet"))
    assert files
    for path in files:
        found, columns = infer(path), expected(path)
        if columns is None:
            assert isinstance(found, Unreadable), path
            assert found.reason
        else:
            assert isinstance(found, FileFacts), found
            assert found.columns == columns, path
            assert found.rows == pq.read_metadata(path).num_rows


def table(**columns: Any) -> pa.Table:
    return pa.table(columns)


def bounds(path: Path, kind: str | None = None) -> tuple[int | None, str | None, str | None]:
    """Return nulls, min and max of the column ``c``, as they are shown."""
    found = facts(path)
    stats, column = found.stats["c"], found.columns[0]
    return stats.nulls, text(stats.low, kind or column.type), text(stats.high, kind or column.type)


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (pa.array([3, None, 1]), (1, "1", "3")),
        (pa.array([2**64 - 1, 0], pa.uint64()), (0, "0", str(2**64 - 1))),
        (pa.array([True, False]), (0, "false", "true")),
        (pa.array([1.5, -2.0, math.inf]), (0, "-2.0", "inf")),
        (pa.array([1.5, math.nan]), (0, "1.5", "1.5")),
        (pa.array([1.5, -1.0], pa.float16()), (0, "-1.0", "1.5")),
        (pa.array(["b", "a", "ä"]), (0, "a", "ä")),
        (pa.array(["b", "a"]).dictionary_encode(), (0, "a", "b")),
        (pa.array([b"\x01\xff", b"\x00"]), (0, "00", "01ff")),
        (pa.array([Decimal("1.10"), Decimal("-2.00")]), (0, "-2.00", "1.10")),
        (pa.array([dt.date(2024, 2, 29), dt.date(1, 1, 1)]), (0, "0001-01-01", "2024-02-29")),
        (
            pa.array([1, 1_500_000_000], pa.timestamp("ns")),
            (0, "1970-01-01 00:00:00.000000001", "1970-01-01 00:00:01.5"),
        ),
        (pa.array([0, -1], pa.timestamp("us", "UTC")), (0, "1969-12-31 23:59:59.999999Z", "1970-01-01 00:00:00Z")),
        (pa.array([0], pa.timestamp("s", "Europe/Berlin")), (0, "1970-01-01 00:00:00Z", "1970-01-01 00:00:00Z")),
        (pa.array([2**62], pa.timestamp("us")), (0, None, None)),
        (pa.array([0, 1_000_000], pa.time64("us")), (0, "00:00:00", "00:00:01")),
        (pa.array([5], pa.time64("ns")), (0, None, None)),
        (pa.array([1], pa.duration("s")), (0, None, None)),
        (pa.array([None, None], pa.int32()), (2, None, None)),
        (pa.array([], pa.int32()), (0, None, None)),
        (pa.array(["x" * 300]), (0, None, None)),
        (pa.array(["\0", "a"]), (0, None, "a")),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_statistics(lake: Lake, values: pa.Array, shown: tuple[int, str | None, str | None]) -> None:
    assert bounds(lake.parquet("a.parquet", table(c=values))) == shown


def test_statistics_of_several_row_groups(lake: Lake) -> None:
    path = lake.parquet("a.parquet", table(c=pa.array([5, None, 3, None, None, 9])), row_group_size=2)
    assert bounds(path) == (3, "3", "9")
    path = lake.parquet("b.parquet", table(c=pa.array([None, None, 3, 4], pa.int32())), row_group_size=2)
    assert bounds(path) == (2, "3", "4")


def test_statistics_that_are_not_there_are_unknown(lake: Lake) -> None:
    path = lake.parquet("a.parquet", table(c=pa.array([1, 2])), write_statistics=False)
    assert bounds(path) == (None, None, None)


def test_only_columns_without_parts_have_statistics(lake: Lake) -> None:
    nested = pa.array([{"x": 1, "y": [1, 2]}])
    path = lake.parquet("a.parquet", {"s": nested, "s.x": pa.array([7]), "c": pa.array([9])})
    assert facts(path).stats == {"s.x": ColumnStats(0, 7, 7), "c": ColumnStats(0, 9, 9)}


def test_sums_of_statistics() -> None:
    assert merge_stats([ColumnStats(1, 1, 2), ColumnStats(2, 0, 5)]) == ColumnStats(3, 0, 5)
    assert merge_stats([ColumnStats(1, 1, 2), ColumnStats(9, values=False)]) == ColumnStats(10, 1, 2)
    assert merge_stats([ColumnStats(1, 1, 2), ColumnStats(None, 0, 5)]) == ColumnStats(None, 0, 5)
    assert merge_stats([ColumnStats(1, 1, 2), ColumnStats(1)]) == ColumnStats(2)
    assert merge_stats([ColumnStats(0, 1, 2), ColumnStats(0, "a", "b")]) == ColumnStats(0)
    assert merge_stats([]) == ColumnStats(0, values=False)
    day, hour = facts_of_day()
    assert merge_stats([day, hour]) == ColumnStats(0, day.low, hour.high)


def facts_of_day() -> tuple[ColumnStats, ColumnStats]:
    """Return the bounds of a date and of a timestamp: they compare."""
    return ColumnStats(0, 0, 86_400 * 10**9), ColumnStats(0, 1, 2 * 86_400 * 10**9)


def test_comments_in_metadata_are_kept(lake: Lake) -> None:
    schema = pa.schema([pa.field("c", pa.int64(), metadata={"comment": "what it is"})])
    path = lake.parquet("a.parquet", pa.table({"c": [1]}).cast(schema))
    assert facts(path).columns[0].comment == "what it is"


def test_no_columns(lake: Lake) -> None:
    assert facts(lake.parquet("a.parquet", pa.table({}))).columns == ()


def test_broken_files(lake: Lake) -> None:
    whole = lake.parquet("whole.parquet", {"c": list(range(1000))}).read_bytes()
    assert reason(lake.text("empty.parquet", b"")) == "is empty (0 bytes)"
    assert reason(lake.text("cut.parquet", whole[:-100])).startswith("is truncated")
    assert reason(lake.text("head.parquet", whole[:3])).startswith("is not Parquet")
    assert reason(lake.text("text.parquet", "a,b\n1,2\n")) == "is not Parquet, although its name says so"
    assert reason(lake.text("secret.parquet", whole[:-4] + b"PARE")).startswith("is encrypted")
    assert reason(lake.text("zeroed.parquet", whole[:-200] + bytes(192) + whole[-8:])).startswith("is damaged")
    gone = lake.text("gone.parquet", whole)
    size = gone.stat().st_size
    gone.unlink()
    missing = infer_file(str(gone.parent), gone.name, size)
    assert isinstance(missing, Unreadable)
    assert missing.reason.startswith("is gone")


def test_an_encrypted_footer(lake: Lake) -> None:
    try:
        from pyarrow.parquet import encryption as pe
    except ImportError:
        pytest.skip("this pyarrow cannot encrypt")
    path = lake.root / "secret.parquet"

    class Kms(pe.KmsClient):
        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
            return key_bytes.hex().encode()

        def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
            return bytes.fromhex(wrapped_key.decode())

    factory = pe.CryptoFactory(lambda _: Kms())
    config = pe.EncryptionConfiguration(footer_key="k", column_keys={"k": ["c"]}, plaintext_footer=False)
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
    rows = pa.table({"c": [1]})
    with pq.ParquetWriter(path, rows.schema, encryption_properties=properties) as writer:
        writer.write_table(rows)
    assert reason(path) == "is encrypted: its footer cannot be read without a key"


def test_two_columns_of_one_name(lake: Lake) -> None:
    path = lake.parquet("a.parquet", pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["c", "c"]))
    assert "two columns are named 'c'" in reason(path)


def test_a_column_without_a_name(lake: Lake) -> None:
    path = lake.parquet("a.parquet", pa.Table.from_arrays([pa.array([1])], names=[""]))
    assert reason(path).startswith("has a schema that cannot be stored")


def test_files_of_equal_leaves_and_other_schemas(lake: Lake) -> None:
    """What is known of one file's schema is not taken for another's: a struct that is never null, a comment, a type."""
    leaf = pa.field("x", pa.int32(), nullable=False)
    struct = pa.schema([pa.field("s", pa.struct([leaf]), nullable=False)])
    flat = pa.schema([leaf])
    described = pa.schema([leaf.with_metadata({"comment": "what it is"})])
    unsigned = pa.schema([pa.field("x", pa.uint32(), nullable=False)])
    instant = pa.schema([pa.field("x", pa.timestamp("us", "UTC"))])
    local = pa.schema([pa.field("x", pa.timestamp("us"))])
    for store_schema in (True, False):
        for _ in range(2):
            for n, schema in enumerate((struct, flat, described, unsigned, instant, local)):
                empty = schema.empty_table()
                path = lake.parquet(f"{n}.parquet", empty, store_schema=store_schema)
                assert facts(path).columns == expected(path), schema


def test_the_same_written_schema_over_other_leaves(lake: Lake) -> None:
    """A tool that rewrote a file and kept its metadata changes what is in it."""
    first = lake.parquet("a.parquet", table(c=pa.array([1], pa.int64())))
    written = pq.read_metadata(first).metadata[b"ARROW:schema"]
    other, path = table(c=pa.array([1.5])), lake.text("b.parquet", b"")
    with pq.ParquetWriter(path, other.schema, store_schema=False) as writer:
        writer.write_table(other)
        writer.add_key_value_metadata({"ARROW:schema": written})
    assert pq.read_metadata(path).metadata[b"ARROW:schema"] == written
    for each in (first, path, first):
        assert facts(each).columns == expected(each)
    assert facts(path).columns[0].type == "double"


def test_more_schemas_than_are_kept(lake: Lake) -> None:
    paths = [lake.parquet(f"{n}.parquet", {f"c{n}": [n]}) for n in range(100)]
    for path in (*paths, *paths):
        assert facts(path).columns == expected(path)


def test_long_bounds_are_not_carried_along(lake: Lake) -> None:
    path = lake.parquet("a.parquet", table(t=pa.array(["x" * 300]), b=pa.array([b"x" * 300]), s=pa.array(["x" * 256])))
    assert facts(path).stats == {"t": ColumnStats(0), "b": ColumnStats(0), "s": ColumnStats(0, "x" * 256, "x" * 256)}


def test_text_bounds_that_are_not_text(lake: Lake) -> None:
    """A writer's bytes in a column of strings make its bounds unknown, and nothing else."""
    content = lake.parquet("a.parquet", table(c=pa.array(["aaaa", "zzzz"]), d=pa.array([1, 2]))).read_bytes()
    cut = content.rfind(b"PAR1")
    footer = cut - 4 - int.from_bytes(content[cut - 4 : cut], "little")
    bad = content[:footer] + content[footer:].replace(b"zzzz", b"\xff\xfe\xff\xfe")
    found = facts(lake.text("c.parquet", bad))
    assert found.stats["c"] == ColumnStats(0)
    assert found.stats["d"] == ColumnStats(0, 1, 2)


def test_a_footer_that_is_too_large_is_not_read(lake: Lake) -> None:
    size = 70 << 20
    path = lake.text("x.parquet", b"")
    with path.open("wb") as file:  # sparse: it takes no place on the disk
        file.write(b"PAR1")
        file.seek(size - 8)
        file.write(((1 << 26) + 1).to_bytes(4, "little") + b"PAR1")
    assert infer_file(str(lake.root), "x.parquet", size) == Unreadable(
        "x.parquet", "has a footer of 67,108,865 bytes; at most 67,108,864 are read"
    )
