"""Convert columns to and from Spark's types. Needs pyspark, an extra; no session.

To Spark (any other type becomes Spark's type of the same name, such as LongType for ``long``):

=================================  ===================================================================
store                              Spark
=================================  ===================================================================
timestamp, timestamptz             TimestampNTZType, TimestampType
varchar, char, uuid                StringType
fixed(n)                           BinaryType
time(p)                            TimeType of at most 6 digits (StringType before Spark 4.1)
external null, variant, interval   NullType, VariantType, CalendarIntervalType
any other external type            BinaryType
=================================  ===================================================================

Where the Spark type says less than the store's type, the metadata of the nearest field has the exact type, under
``metastore.type``. The metadata also holds ``comment``, ``metastore.default``, ``metastore.auto_increment``, and
Spark's own mark for varchar and char, so that a table that Spark creates from it has that type. So
``columns_from_spark(columns_to_spark(c))`` equals ``c``, except for comments and defaults of list elements and of map
keys and values: Spark has no place for them.

From Spark: most Spark types have a counterpart. Collations and the fields of intervals are lost. A user-defined type
becomes its SQL type. A type without a counterpart is external under Spark's name, such as
``external("geometry(4326)")``. Spark's CURRENT_DEFAULT is the default. A ``metastore.type`` that does not fit the
field's type is ignored. A field with an empty or refused name, and two fields of one name side by side, raise
InvalidArgument, which names the field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import types as spark

from metastore.columns.column import Column, attributes, check_columns, field_metadata, with_fields
from metastore.columns.types import MAX_DEPTH, Atomic, External, Field, Nested, Type, parse
from metastore.errors import InvalidArgument

__all__ = ["as_read", "columns_from_spark", "columns_to_spark", "with_leaves"]

_CHAR_MARK: Final = "__CHAR_VARCHAR_TYPE_STRING"
_TIME_DIGITS: Final = 6
_TIME: Final[Any] = getattr(spark, "TimeType", None)
_BOTH_WAYS: Final[dict[str, Any]] = {
    "boolean": spark.BooleanType,
    "byte": spark.ByteType,
    "short": spark.ShortType,
    "int": spark.IntegerType,
    "long": spark.LongType,
    "float": spark.FloatType,
    "double": spark.DoubleType,
    "date": spark.DateType,
    "timestamp": spark.TimestampNTZType,
    "timestamptz": spark.TimestampType,
    "interval_year": spark.YearMonthIntervalType,
    "interval_day": spark.DayTimeIntervalType,
    "string": spark.StringType,
    "binary": spark.BinaryType,
}
_OUT: Final = _BOTH_WAYS | dict.fromkeys(("varchar", "char", "uuid"), spark.StringType) | {"fixed": spark.BinaryType}
_EXTERNAL: Final[dict[str, Any]] = {
    text: getattr(spark, name)
    for text, name in (("null", "NullType"), ("variant", "VariantType"), ("interval", "CalendarIntervalType"))
    if hasattr(spark, name)
}
_IN: Final[dict[Any, str]] = {cls: text for text, cls in _BOTH_WAYS.items()} | {
    cls: f'external("{text}")' for text, cls in _EXTERNAL.items()
}


def columns_to_spark(columns: Iterable[Column]) -> spark.StructType:
    """Return the Spark schema of ``columns``."""
    return spark.StructType([_to_field(column) for column in check_columns(columns)])


def columns_from_spark(schema: spark.StructType) -> tuple[Column, ...]:
    """Return the columns of the Spark schema, or raise InvalidArgument that names the field that cannot be one."""
    if not isinstance(schema, spark.StructType):
        raise InvalidArgument(f"a Spark schema must be a StructType, not {type(schema).__name__}")
    return check_columns(_from_field(field, ()) for field in schema.fields)


def as_read(text: str, *, times: bool) -> str:
    """Return the type ``text`` as data frames of files have it: each of its parts can be null.

    ``times``: the session has a type for a time of day; otherwise it is a string.
    """
    return str(_as_read(parse(text), times))


def _as_read(kind: Type, times: bool) -> Type:
    if isinstance(kind, Nested):
        return Nested(kind.name, tuple(Field(part.name, _as_read(part.type, times)) for part in kind.fields))
    return Atomic("string") if kind.name == "time" and not times else kind


def with_leaves(text: str, leaf: Callable[[Atomic | External], Type]) -> str:
    """Return the type ``text`` with each innermost type replaced by the result of ``leaf``."""
    return str(_with_leaves(parse(text), leaf))


def _with_leaves(kind: Type, leaf: Callable[[Atomic | External], Type]) -> Type:
    if not isinstance(kind, Nested):
        return leaf(kind)
    parts = [Field(part.name, _with_leaves(part.type, leaf), part.nullable) for part in kind.fields]
    return Nested(kind.name, tuple(parts))


def _to_field(column: Column) -> spark.StructField:
    kind = _to_type(column)
    metadata = field_metadata(column, exact=_typed(_part("type", True), kind, ()).type == column.type)
    if column.type.startswith(("varchar(", "char(")):
        metadata[_CHAR_MARK] = column.type
    return spark.StructField(column.name, kind, column.nullable, metadata)


def _to_type(column: Column) -> spark.DataType:
    kind = parse(column.type)
    match kind:
        case Nested("struct"):
            return spark.StructType([_to_field(f) for f in column.fields])
        case Nested("list"):
            return spark.ArrayType(_to_type(column.fields[0]), column.fields[0].nullable)
        case Nested():
            key, value = column.fields
            return spark.MapType(_to_type(key), _to_type(value), value.nullable)
        case Atomic("decimal", (precision, scale)):
            return spark.DecimalType(precision, scale)
    made: spark.DataType = _simple(kind)
    return made


def _simple(kind: Atomic | External | Nested) -> Any:
    if isinstance(kind, External):
        return _EXTERNAL.get(kind.text, spark.BinaryType)()
    if isinstance(kind, Atomic) and kind.name == "time":
        return spark.StringType() if _TIME is None else _TIME(min(kind.arguments[0], _TIME_DIGITS))
    return _OUT[kind.name]()


def _from_field(field: spark.StructField, above: tuple[str, ...]) -> Column:
    where = (*above, field.name)
    metadata = field.metadata or {}
    values = attributes(metadata)
    if values["default"] is None:
        values["default"] = attributes({"metastore.default": metadata.get("CURRENT_DEFAULT")})["default"]
    try:
        plain = Column(field.name, "int", nullable=bool(field.nullable), **values)
    except InvalidArgument as error:
        raise InvalidArgument(f"the Spark field {where!r}: {error}") from None
    return _exact(_typed(plain, field.dataType, where), metadata.get("metastore.type", metadata.get(_CHAR_MARK)))


def _exact(column: Column, text: object) -> Column:
    """Return ``column`` with the type ``text`` if the Spark type says only a part of that type."""
    if text is None:
        return column
    try:
        exact = Column("type", str(text))
    except InvalidArgument:
        return column
    fits = _typed(_part("type", True), _to_type(exact), ()).type == column.type
    return _overlaid(column, exact) if fits else column


def _overlaid(column: Column, exact: Column) -> Column:
    if not column.fields:
        return replace(column, type=exact.type)
    parts = [_overlaid(ours, theirs) for ours, theirs in zip(column.fields, exact.fields, strict=True)]
    return with_fields(column, parse(column.type).name, parts)


def _part(name: str, nullable: bool) -> Column:
    return Column(name, "int", nullable=nullable)


def _typed(column: Column, kind: spark.DataType, where: tuple[str, ...]) -> Column:
    """Return ``column`` with the type that corresponds to ``kind``."""
    if len(where) > MAX_DEPTH:
        raise InvalidArgument(f"the Spark field {where[:3]!r}… nests more than {MAX_DEPTH} types inside each other")
    if isinstance(kind, spark.UserDefinedType):
        return _typed(column, kind.sqlType(), where)
    if isinstance(kind, spark.StructType):
        return _nested(column, "struct", [_from_field(f, where) for f in kind.fields], where)
    if isinstance(kind, spark.ArrayType):
        element = _typed(_part("element", kind.containsNull), kind.elementType, (*where, "element"))
        return _nested(column, "list", [element], where)
    if isinstance(kind, spark.MapType):
        key = _typed(_part("key", False), kind.keyType, (*where, "key"))
        value = _typed(_part("value", kind.valueContainsNull), kind.valueType, (*where, "value"))
        return _nested(column, "map", [key, value], where)
    return replace(column, type=_leaf(kind))


def _nested(column: Column, name: str, fields: list[Column], where: tuple[str, ...]) -> Column:
    try:
        return with_fields(column, name, fields)
    except InvalidArgument as error:
        raise InvalidArgument(f"the Spark field {where!r}: {error}") from None


def _leaf(kind: spark.DataType) -> str:
    text = _IN.get(type(kind))
    if text is not None:
        return text
    if isinstance(kind, spark.DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    if isinstance(kind, (spark.CharType, spark.VarcharType)):
        return f"{'char' if isinstance(kind, spark.CharType) else 'varchar'}({kind.length})"
    if _TIME is not None and isinstance(kind, _TIME):
        return "time" if kind.precision == 6 else f"time({kind.precision})"
    return str(External(kind.simpleString()))
