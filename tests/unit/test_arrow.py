"""Every Arrow type has a place, and what goes out comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from metastore.columns.column import Column, columns_doc, decode_columns
from metastore.columns.types import MAX_DEPTH
from metastore.errors import InvalidArgument
from metastore.kinds.table.changes import SetColumnComment, SetColumnDefault
from tests import strategies

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from metastore.columns.arrow import columns_from_arrow, columns_to_arrow, type_from_arrow, type_to_arrow  # noqa: E402

PARQUET = Path(__file__).resolve().parents[3] / "shared" / "data" / "parquet"


@given(strategies.columns)
def test_columns_come_back_exactly(columns: tuple[Column, ...]) -> None:
    schema = columns_to_arrow(columns)
    assert columns_from_arrow(schema) == columns
    assert columns_from_arrow(pa.ipc.read_schema(schema.serialize())) == columns


def test_comments_and_defaults_of_every_part_come_back() -> None:
    doc: dict[str, Any] = columns_doc([Column("a", "list<map<varchar(3), struct<b: uuid>>>")])
    for path in ("a.element", "a.element.key", "a.element.value", "a.element.value.b"):
        SetColumnComment(path, f"of {path}").apply(doc, ("t",))
        SetColumnDefault(path, "x").apply(doc, ("t",))
    columns = decode_columns(doc["columns"])
    assert columns_from_arrow(columns_to_arrow(columns)) == columns


HELD_BY_ARROW = (
    "boolean",
    "byte",
    "short",
    "int",
    "long",
    "float",
    "double",
    "date",
    "string",
    "binary",
    "uuid",
    "decimal(38,9)",
    "fixed(16)",
    "time(0)",
    "time(3)",
    "time",
    "time(9)",
    "timestamp(0)",
    "timestamp(3)",
    "timestamp",
    "timestamp(9)",
    "timestamptz",
    "timestamptz(0)",
    'external("null")',
    'external("duration[ms]")',
    'external("decimal256(50, -3)")',
)


@given(strategies.types)
def test_a_part_of_a_type_comes_back_through_its_metadata(text: str) -> None:
    assert type_from_arrow(type_to_arrow(f"struct<a: {text}>")) == f"struct<a: {text}>"


@pytest.mark.parametrize("text", HELD_BY_ARROW)
def test_what_arrow_can_hold_needs_no_metadata(text: str) -> None:
    assert type_from_arrow(type_to_arrow(text)) == text
    assert columns_to_arrow([Column("a", text)]).field("a").metadata is None


def test_a_null_that_must_not_be_null_is_in_the_metadata() -> None:
    columns = (
        Column("a", 'external("null")', nullable=False),
        Column("b", 'list<external("null") not null>'),
        Column("c", 'map<external("null"), external("null")>'),
    )
    assert columns_from_arrow(columns_to_arrow(columns)) == columns


def test_a_length_that_arrow_refuses_is_in_the_metadata() -> None:
    columns = (Column("a", f"fixed({2**28})"), Column("b", f"fixed({2**28 - 1})"))
    schema = pa.ipc.read_schema(columns_to_arrow(columns).serialize())
    assert schema.types == [pa.binary(), pa.binary(2**28 - 1)]
    assert columns_from_arrow(schema) == columns


@pytest.mark.parametrize(
    ("arrow", "text"),
    [
        (pa.uint8(), "short"),
        (pa.uint16(), "int"),
        (pa.uint32(), "long"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.float16(), "float"),
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.large_binary(), "binary"),
        (pa.binary_view(), "binary"),
        (pa.binary(16), "fixed(16)"),
        (pa.binary(0), 'external("fixed_size_binary[0]")'),
        (pa.date64(), "date"),
        (pa.null(), 'external("null")'),
        (pa.duration("us"), 'external("duration[us]")'),
        (pa.month_day_nano_interval(), 'external("month_day_nano_interval")'),
        (pa.time32("s"), "time(0)"),
        (pa.time64("ns"), "time(9)"),
        (pa.timestamp("ms"), "timestamp(3)"),
        (pa.timestamp("us", "Europe/Berlin"), "timestamptz"),
        (pa.decimal32(5, 2), "decimal(5,2)"),
        (pa.decimal64(5, 2), "decimal(5,2)"),
        (pa.decimal128(5, -2), "decimal(7,0)"),
        (pa.decimal128(2, 5), "decimal(5,5)"),
        (pa.decimal128(38, -2), 'external("decimal128(38, -2)")'),
        (pa.decimal256(38, 5), "decimal(38,5)"),
        (pa.decimal256(39, 5), 'external("decimal256(39, 5)")'),
        (pa.dictionary(pa.int8(), pa.large_string()), "string"),
        (pa.run_end_encoded(pa.int32(), pa.dictionary(pa.int8(), pa.uint8())), "short"),
        (pa.list_(pa.int8(), 3), "list<byte>"),
        (pa.large_list(pa.field("item", pa.int8(), nullable=False)), "list<byte not null>"),
        (pa.list_view(pa.int8()), "list<byte>"),
        (pa.large_list_view(pa.int8()), "list<byte>"),
        (pa.map_(pa.string(), pa.field("v", pa.int8(), nullable=False)), "map<string,byte not null>"),
        (pa.struct([]), "struct<>"),
        (pa.struct([pa.field("a b", pa.int8(), nullable=False)]), "struct<`a b`: byte not null>"),
        (pa.uuid(), "uuid"),
        (pa.bool8(), "boolean"),
        (pa.json_(), "string"),
        (pa.opaque(pa.binary(), "geometry", "postgres"), "binary"),
        (pa.dense_union([pa.field('"a', pa.int8())]), 'external("dense_union<""a: int8=0>")'),
    ],
)
def test_every_arrow_type_has_a_place(arrow: Any, text: str) -> None:
    assert type_from_arrow(arrow) == text
    assert columns_from_arrow(pa.schema([("a", arrow)])) == (Column("a", text),)


def test_a_type_that_was_cast_since_is_what_it_is_now() -> None:
    field = columns_to_arrow([Column("a", "varchar(3)")]).field("a")
    assert columns_from_arrow(pa.schema([field.with_type(pa.large_string())])) == (Column("a", "varchar(3)"),)
    assert columns_from_arrow(pa.schema([field.with_type(pa.int32())])) == (Column("a", "int"),)
    broken = field.with_metadata({"metastore.type": "varchar("})
    assert columns_from_arrow(pa.schema([broken])) == (Column("a", "string"),)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([("a", pa.int8()), ("a", pa.int8())], "two columns are named 'a'"),
        ([("", pa.int8())], r"the Arrow field \('',\): a name must not be empty"),
        ([("a\n", pa.int8())], r"the Arrow field \('a\\n',\): .*control character"),
        ([("s", pa.struct([("x", pa.int8()), ("x", pa.int8())]))], r"field \('s',\): two columns are named 'x'"),
        ([("s", pa.list_(pa.struct([("", pa.int8())])))], r"field \('s', 'element', ''\)"),
    ],
)
def test_a_field_that_cannot_be_a_column_is_named(fields: list[tuple[str, Any]], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        columns_from_arrow(pa.schema(fields))


def test_a_type_too_deep_is_refused() -> None:
    arrow = pa.int8()
    for _ in range(MAX_DEPTH):
        arrow = pa.list_(arrow)
    with pytest.raises(InvalidArgument, match="nests more than 100"):
        type_from_arrow(arrow)
    deepest = arrow.value_type
    assert type_from_arrow(type_to_arrow(type_from_arrow(deepest))) == type_from_arrow(deepest)


@pytest.mark.parametrize("value", [None, "int", pa.field("a", pa.int8())])
def test_only_arrow_is_read_from_arrow(value: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"must be a pyarrow\.DataType"):
        type_from_arrow(value)
    with pytest.raises(InvalidArgument, match=r"must be a pyarrow\.Schema"):
        columns_from_arrow(value)


def test_a_schema_comes_back_from_a_parquet_file(tmp_path: Path) -> None:
    columns = (Column("a", "varchar(3)", comment="c"), Column("s", "struct<u: uuid, l: list<timestamp(4)>>"))
    pq.write_metadata(columns_to_arrow(columns), tmp_path / "f.parquet")
    assert columns_from_arrow(pq.read_schema(tmp_path / "f.parquet")) == columns


@pytest.mark.skipif(not PARQUET.is_dir(), reason="the Parquet test files are not next to the repository")
def test_every_real_file_converts_and_comes_back() -> None:
    converted = 0
    for path in sorted(PARQUET.glob("*.parquet")):
        try:
            schema = pq.read_schema(path)
        except (pa.ArrowException, OSError):
            continue  # not readable at all
        columns = columns_from_arrow(schema)
        assert columns_from_arrow(columns_to_arrow(columns)) == columns, path.name
        assert decode_columns(columns_doc(columns)["columns"]) == columns, path.name
        converted += 1
    assert converted > 0
