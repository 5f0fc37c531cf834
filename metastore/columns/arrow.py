"""Convert types and columns to and from Arrow. Needs pyarrow, an extra.

To Arrow (any other type becomes its plain counterpart, such as int64 for ``long``):

==========================  ================================================================================
store                       Arrow
==========================  ================================================================================
time, timestamp(p)          the coarsest unit that holds p digits
timestamptz(p)              the same, in UTC
varchar, char               string
fixed(n)                    a binary of n bytes; from 2**28 on of any length, because Arrow refuses more
interval_year               month_day_nano_interval
interval_day                a duration in µs
external                    the Arrow type that it came from, else binary
==========================  ================================================================================

Where the Arrow type says less than the store's type, the field's metadata has the exact type, under ``metastore.type``.
The metadata also holds ``comment``, ``metastore.default`` and ``metastore.auto_increment``. So
``columns_from_arrow(columns_to_arrow(c))`` equals ``c``.

From Arrow: most types have a counterpart. Unsigned integers widen (uint64 to decimal(20,0)), and float16 becomes float.
Large, view, dictionary, run-end-encoded and fixed-size-list types become the plain ones. An extension type becomes its
storage, except uuid and bool8. A negative decimal scale widens the precision. Time zones other than UTC are lost. A
type without a counterpart is external under Arrow's name: ``external("null")``, ``external("duration[us]")``, unions. A
``metastore.type`` that does not fit the field's Arrow type (it was cast since) is ignored.

A schema with an empty name, a name that :func:`metastore.names.clean_name` refuses, or two fields of one name side
by side raises InvalidArgument, which names the field.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from metastore.columns.column import Column, attributes, check_columns, field_metadata, with_fields
from metastore.columns.types import MAX_DEPTH, Atomic, External, Nested, parse
from metastore.errors import InvalidArgument

__all__ = ["columns_from_arrow", "columns_to_arrow", "type_from_arrow", "type_to_arrow"]

_MAX_PRECISION: Final = 38
_MAX_WIDTH: Final = 2**28 - 1
_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_UNITS: Final = ("s", *["ms"] * 3, *["us"] * 3, *["ns"] * 3)
_OUT: Final[dict[str, Any]] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "string": pa.string(),
    "varchar": pa.string(),
    "char": pa.string(),
    "binary": pa.binary(),
    "uuid": pa.uuid() if hasattr(pa, "uuid") else pa.binary(16),
    "interval_year": pa.month_day_nano_interval(),
    "interval_day": pa.duration("us"),
}
_ONLY_IN: Final = {
    "uint8": "short",
    "uint16": "int",
    "uint32": "long",
    "uint64": "decimal(20,0)",
    "float16": "float",
    "date64": "date",
    "large_string": "string",
    "string_view": "string",
    "large_binary": "binary",
    "binary_view": "binary",
    "bool8": "boolean",
}
_LOSSY: Final = ("varchar", "char", "interval_year", "interval_day")
_IN: Final[dict[Any, str]] = {
    **{arrow: text for text, arrow in _OUT.items() if text not in _LOSSY},
    **{getattr(pa, name)(): text for name, text in _ONLY_IN.items() if hasattr(pa, name)},
}
_LISTS: Final = tuple(
    getattr(pa.types, name)
    for name in ("is_list", "is_large_list", "is_fixed_size_list", "is_list_view", "is_large_list_view")
    if hasattr(pa.types, name)
)
_EXTERNAL: Final[dict[str, Any]] = {
    str(arrow): arrow for arrow in (pa.null(), pa.month_day_nano_interval(), *map(pa.duration, _DIGITS))
}


def type_to_arrow(text: str) -> Any:
    """Return the Arrow type of ``text``; parts of a nested type carry their metadata."""
    return _to_type(Column("type", text))


def type_from_arrow(arrow: Any) -> str:
    """Return the canonical text of the Arrow type ``arrow``."""
    if not isinstance(arrow, pa.DataType):
        raise InvalidArgument(f"an Arrow type must be a pyarrow.DataType, not {type(arrow).__name__}")
    return _typed(Column("type", "int"), arrow, ("type",)).type


def columns_to_arrow(columns: Iterable[Column]) -> Any:
    """Return the Arrow schema of ``columns``."""
    return pa.schema([_to_field(column) for column in check_columns(columns)])


def columns_from_arrow(schema: Any) -> tuple[Column, ...]:
    """Return the columns of the Arrow schema, or raise InvalidArgument that names the field that cannot be one."""
    if not isinstance(schema, pa.Schema):
        raise InvalidArgument(f"an Arrow schema must be a pyarrow.Schema, not {type(schema).__name__}")
    fields = [schema.field(at) for at in range(len(schema))]
    return check_columns(
        [_bare(_name(f, ()), f.type, f.nullable) if _is_bare(f) else _from_field(f, ()) for f in fields]
    )


def _to_field(column: Column) -> Any:
    arrow = _to_type(column)
    metadata = field_metadata(column, exact=bool(column.fields) or _typed(column, arrow, ()).type == column.type)
    return pa.field(column.name, arrow, column.nullable, metadata or None)


def _to_type(column: Column) -> Any:
    kind = parse(column.type)
    if not isinstance(kind, Nested):
        arrow = _to_leaf(kind)
        return (
            pa.binary() if pa.types.is_null(arrow) and not column.nullable else arrow
        )  # pyarrow does not accept a null type that is not nullable
    fields = [_to_field(f) for f in column.fields]
    if kind.name == "struct":
        return pa.struct(fields)
    return pa.list_(*fields) if kind.name == "list" else pa.map_(*fields)


def _to_leaf(kind: Atomic | External) -> Any:
    match kind:
        case Atomic("decimal", (precision, scale)):
            return pa.decimal128(precision, scale)
        case Atomic("time", (digits,)):
            return (pa.time32 if digits <= _DIGITS["ms"] else pa.time64)(_UNITS[digits])
        case Atomic("timestamp" | "timestamptz", (digits,)):
            return pa.timestamp(_UNITS[digits], "UTC" if kind.name == "timestamptz" else None)
        case Atomic("fixed", (length,)):
            return pa.binary(length if length <= _MAX_WIDTH else -1)
        case External(text):
            return _external(text)
    return _OUT[kind.name]


def _external(text: str) -> Any:
    decimal = re.fullmatch(r"decimal256\((\d\d?), (-?\d\d?)\)", text, re.ASCII)
    if decimal and 1 <= int(decimal[1]) <= pa.decimal256(76).precision:
        return pa.decimal256(int(decimal[1]), int(decimal[2]))
    return _EXTERNAL.get(text, pa.binary())


def _from_field(field: Any, above: tuple[str, ...], name: str | None = None) -> Column:
    """Return the column of ``field``, named ``name`` if that is given, at the place ``above``."""
    where = (*above, _name(field, above) if name is None else name)
    metadata = {_decoded(k): _decoded(v) for k, v in (field.metadata or {}).items()}
    try:
        plain = Column(where[-1], "int", nullable=field.nullable, **attributes(metadata))
    except InvalidArgument as error:
        raise InvalidArgument(f"the Arrow field {where!r}: {error}") from None
    column = _typed(plain, field.type, where)
    return _exact(column, metadata.get("metastore.type"))


def _is_bare(field: Any) -> bool:
    """Tell whether a field has no metadata and can have none below it: equal Arrow types may differ in metadata."""
    kind = field.type
    holds_others = isinstance(kind, pa.BaseExtensionType) or any(
        holds(kind) for holds in (pa.types.is_nested, pa.types.is_dictionary, pa.types.is_run_end_encoded)
    )
    return not field.metadata and not holds_others


@functools.lru_cache(maxsize=4096)
def _bare(name: str, arrow: Any, nullable: bool) -> Column:
    """Return the column of a field without metadata. Cached, because tables of one lake share many columns."""
    return _from_field(pa.field(name, arrow, nullable), ())


def _name(field: Any, above: tuple[str, ...]) -> str:
    try:
        return str(field.name)
    except UnicodeDecodeError:
        raise InvalidArgument(f"an Arrow field in {above!r} has a name that is not valid UTF-8") from None


def _decoded(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _exact(column: Column, text: str | None) -> Column:
    """Return ``column`` with the type ``text`` if the Arrow type says only a part of that type."""
    if text is None or column.fields:
        return column
    try:
        exact = replace(column, type=text)
    except InvalidArgument:
        return column
    return exact if type_from_arrow(_to_type(exact)) == column.type else column


def _typed(column: Column, arrow: Any, where: tuple[str, ...]) -> Column:
    """Return ``column`` with the type that corresponds to ``arrow``."""
    if len(where) > MAX_DEPTH:
        raise InvalidArgument(f"the Arrow field {where[:3]!r}… nests more than {MAX_DEPTH} types inside each other")
    arrow = _plain(arrow)
    if pa.types.is_struct(arrow):
        fields = [_from_field(arrow.field(at), where) for at in range(arrow.num_fields)]
        return _nested(column, "struct", fields, where)
    if pa.types.is_map(arrow):
        key, value = _from_field(arrow.key_field, where, "key"), _from_field(arrow.item_field, where, "value")
        return _nested(column, "map", [key, value], where)
    if any(is_list(arrow) for is_list in _LISTS):
        return _nested(column, "list", [_from_field(arrow.value_field, where, "element")], where)
    return replace(column, type=_IN.get(arrow) or _leaf(arrow))


def _plain(arrow: Any) -> Any:
    """Return the type of the values behind extensions and encodings."""
    while arrow not in _IN:
        if isinstance(arrow, pa.BaseExtensionType):
            arrow = arrow.storage_type
        elif pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
            arrow = arrow.value_type
        else:
            break
    return arrow


def _nested(column: Column, name: str, fields: list[Column], where: tuple[str, ...]) -> Column:
    try:
        return with_fields(column, name, fields)
    except InvalidArgument as error:
        raise InvalidArgument(f"the Arrow field {where!r}: {error}") from None


def _leaf(arrow: Any) -> str:
    if pa.types.is_timestamp(arrow):
        return ("timestamp" if arrow.tz is None else "timestamptz") + _precision(arrow.unit)
    if pa.types.is_time(arrow):
        return "time" + _precision(arrow.unit)
    if pa.types.is_fixed_size_binary(arrow) and arrow.byte_width > 0:
        return f"fixed({arrow.byte_width})"
    if pa.types.is_decimal(arrow):
        scale = max(arrow.scale, 0)
        precision = max(arrow.precision - min(arrow.scale, 0), scale)
        if precision <= _MAX_PRECISION:
            return f"decimal({precision},{scale})"
    return str(External(str(arrow)))


def _precision(unit: str) -> str:
    """Return a unit's precision as a type's text has it: empty for microseconds, the default."""
    return "" if unit == "us" else f"({_DIGITS[unit]})"
