"""Columns go to Spark and come back; every Spark type has a place. No session is started."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from metastore.columns.column import Column
from metastore.columns.types import MAX_DEPTH
from metastore.errors import InvalidArgument
from tests import strategies

T: Any = pytest.importorskip("pyspark.sql.types")

from metastore.spark.types import columns_from_spark, columns_to_spark  # noqa: E402


def read(kind: Any, **metadata: Any) -> Column:
    (column,) = columns_from_spark(T.StructType([T.StructField("a", kind, True, metadata)]))
    return column


def written(text: str, **rest: Any) -> Any:
    return columns_to_spark([Column("a", text, **rest)]).fields[0]


@given(strategies.columns)
def test_columns_come_back_exactly(columns: tuple[Column, ...]) -> None:
    schema = columns_to_spark(columns)
    assert columns_from_spark(schema) == columns
    assert columns_from_spark(T.StructType.fromJson(schema.jsonValue())) == columns


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("boolean", T.BooleanType()),
        ("byte", T.ByteType()),
        ("short", T.ShortType()),
        ("int", T.IntegerType()),
        ("long", T.LongType()),
        ("float", T.FloatType()),
        ("double", T.DoubleType()),
        ("decimal(10,2)", T.DecimalType(10, 2)),
        ("date", T.DateType()),
        ("timestamp", T.TimestampNTZType()),
        ("timestamptz", T.TimestampType()),
        ("interval_year", T.YearMonthIntervalType()),
        ("interval_day", T.DayTimeIntervalType()),
        ("string", T.StringType()),
        ("binary", T.BinaryType()),
        ("list<int not null>", T.ArrayType(T.IntegerType(), False)),
        ("map<string,int not null>", T.MapType(T.StringType(), T.IntegerType(), False)),
        ("struct<b: int not null>", T.StructType([T.StructField("b", T.IntegerType(), False)])),
        ('external("null")', T.NullType()),
        ('external("interval")', T.CalendarIntervalType()),
        ('external("variant")', T.VariantType()),
    ],
)
def test_what_spark_can_hold_needs_no_metadata(text: str, kind: Any) -> None:
    assert (written(text).dataType, written(text).metadata) == (kind, {})
    assert read(kind) == Column("a", text)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("uuid", T.StringType()),
        ("varchar(3)", T.StringType()),
        ("char(3)", T.StringType()),
        ("fixed(3)", T.BinaryType()),
        ("timestamp(3)", T.TimestampNTZType()),
        ("timestamptz(9)", T.TimestampType()),
        ('external("geo")', T.BinaryType()),
    ],
)
def test_the_rest_is_in_the_metadata(text: str, kind: Any) -> None:
    assert written(text).dataType == kind
    assert written(text).metadata["metastore.type"] == text


@pytest.mark.skipif(not hasattr(T, "TimeType"), reason="TimeType came with Spark 4.1")
def test_times() -> None:
    assert [written(text).dataType for text in ("time", "time(3)", "time(9)")] == [
        T.TimeType(6),
        T.TimeType(3),
        T.TimeType(6),
    ]
    assert read(T.TimeType(3)) == Column("a", "time(3)")


def test_sparks_own_mark_of_char_and_varchar() -> None:
    assert written("varchar(9)").metadata["__CHAR_VARCHAR_TYPE_STRING"] == "varchar(9)"
    assert read(T.StringType(), __CHAR_VARCHAR_TYPE_STRING="char(4)") == Column("a", "char(4)")
    assert read(T.IntegerType(), __CHAR_VARCHAR_TYPE_STRING="char(4)") == Column("a", "int")
    assert read(T.CharType(4)) == Column("a", "char(4)")
    assert read(T.VarcharType(4)) == Column("a", "varchar(4)")


def test_comments_and_defaults() -> None:
    assert written("int", comment="c", default="1").metadata == {"comment": "c", "metastore.default": "1"}
    assert read(T.IntegerType(), comment="c", CURRENT_DEFAULT="now()") == Column(
        "a", "int", comment="c", default="now()"
    )
    assert read(T.IntegerType(), comment=3, CURRENT_DEFAULT=None) == Column("a", "int")


class Point(T.UserDefinedType):
    @classmethod
    def sqlType(cls) -> Any:  # noqa: N802
        return T.ArrayType(T.DoubleType(), False)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Point(), "list<double not null>"),
        (T.StringType("UTF8_LCASE"), "string"),
        (T.YearMonthIntervalType(0, 0), "interval_year"),
        (T.DayTimeIntervalType(1, 2), "interval_day"),
    ],
)
def test_other_spark_types(kind: Any, text: str) -> None:
    assert read(kind) == Column("a", text)


@pytest.mark.skipif(not hasattr(T, "GeometryType"), reason="GeometryType came with Spark 4.1")
def test_a_type_without_counterpart_is_external() -> None:
    assert read(T.GeometryType(4326)).type == 'external("geometry(4326)")'


def test_a_metadata_type_that_does_not_fit_is_ignored() -> None:
    for text in ("list<int>", "uuid(", 3, None):
        assert read(T.IntegerType(), **{"metastore.type": text}) == Column("a", "int")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([("a", T.IntegerType()), ("a", T.IntegerType())], "two columns are named 'a'"),
        ([("", T.IntegerType())], r"the Spark field \('',\): a name must not be empty"),
        (
            [("m", T.MapType(T.StringType(), T.StructType([T.StructField("x\t", T.IntegerType())])))],
            r"field \('m', 'value', 'x\\t'\)",
        ),
        (
            [("s", T.StructType([T.StructField("x", T.IntegerType())] * 2))],
            r"field \('s',\): two columns are named 'x'",
        ),
    ],
)
def test_a_field_that_cannot_be_a_column_is_named(fields: list[tuple[str, Any]], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        columns_from_spark(T.StructType([T.StructField(*field) for field in fields]))


def test_a_type_too_deep_is_refused() -> None:
    kind = T.IntegerType()
    for _ in range(MAX_DEPTH):
        kind = T.ArrayType(kind)
    with pytest.raises(InvalidArgument, match="nests more than 100"):
        read(kind)


def test_only_a_struct_is_a_schema() -> None:
    with pytest.raises(InvalidArgument, match="must be a StructType, not IntegerType"):
        columns_from_spark(T.IntegerType())
