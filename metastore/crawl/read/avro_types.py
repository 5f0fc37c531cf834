"""Turn Avro schemas into columns: the column type of each Avro type. Pure.

    boolean int long float double bytes string   boolean int long float double binary string
    enum                                         string
    fixed                                        fixed(n)
    decimal (38 digits at most), uuid, date      decimal(p,s), uuid, date
    time-millis, time-micros                     time(3), time(6)
    timestamp-millis, -micros, -nanos            timestamptz(3), (6), (9), for they mean instants
    local-timestamp-…                            timestamp(3), (6), (9)
    array, map, record                           list, map<string, …>, struct
    null with one other type                     that type, nullable
    int with long, float with double             the wider, as Spark reads them
    any other union                              struct<member0, member1, …>, as Spark reads it

A logical type that is unknown, or does not fit its underlying type, is ignored, as the specification says. ``null``
alone is ``external("null")``. A record that contains itself cannot be stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from metastore.columns.column import Column
from metastore.columns.types import Atomic, External, Field, Nested, Type
from metastore.crawl.files.text import NotThisFormat

__all__ = ["avro_columns"]

_PLAIN: Final = {
    **{name: name for name in ("boolean", "int", "long", "float", "double", "string")},
    "bytes": "binary",
    "enum": "string",
}
_LOGICAL: Final = {
    ("int", "date"): Atomic("date"),
    ("int", "time-millis"): Atomic("time", (3,)),
    ("long", "time-micros"): Atomic("time", (6,)),
    ("string", "uuid"): Atomic("uuid"),
    **{
        ("long", f"{prefix}timestamp-{unit}"): Atomic(name, (digits,))
        for prefix, name in (("", "timestamptz"), ("local-", "timestamp"))
        for unit, digits in (("millis", 3), ("micros", 6), ("nanos", 9))
    },
}
_WIDER: Final = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}
_PRECISION: Final = range(1, 39)
_LENGTH: Final = range(1, 2**31)
_UUID: Final = 16
_MOST: Final = 10_000
"""The most fields of a schema: a schema that repeats named types can have more than fit into memory."""


def avro_columns(schema: Any) -> tuple[Column, ...]:
    """Return the columns of a file's schema; a schema that is not a record becomes the column ``value``."""
    reader = _Reader()
    if isinstance(schema, dict) and schema.get("type") == "record":
        fields = reader.record(schema, frozenset())
    else:
        fields = (reader.field("value", schema, frozenset()),)
    return tuple(Column(f.name, str(f.type), nullable=f.nullable, comment=f.comment) for f in fields)


class _Reader:
    """Reads one schema. ``named`` are the named types so far; ``inside`` are the names of the enclosing records."""

    def __init__(self) -> None:
        self.named: dict[str, Any] = {}
        self.fields = 0

    def record(self, schema: Mapping[str, Any], inside: frozenset[str]) -> tuple[Field, ...]:
        self.named[schema["name"]] = schema
        around = inside | {schema["name"]}
        return tuple(
            replace(self.field(f["name"], f["type"], around), comment=_comment(f.get("doc"))) for f in schema["fields"]
        )

    def field(self, name: str, schema: Any, inside: frozenset[str]) -> Field:
        self.fields += 1
        if self.fields > _MOST:
            raise NotThisFormat(f"has a schema that cannot be stored: it has more than {_MOST} fields")
        if not isinstance(schema, list):
            kind = self.type(schema, inside)
            return Field(name, kind, isinstance(kind, External))
        members = [member for member in schema if member != "null"]
        return Field(name, self.union(members, inside), len(members) < len(schema))

    def union(self, members: list[Any], inside: frozenset[str]) -> Type:
        if len(members) < 2:
            return self.type(members[0] if members else "null", inside)
        plain = frozenset(member for member in members if isinstance(member, str))
        if len(plain) == len(members) and plain in _WIDER:
            return Atomic(_WIDER[plain])
        return Nested("struct", tuple(self.field(f"member{at}", of, inside) for at, of in enumerate(members)))

    def type(self, schema: Any, inside: frozenset[str]) -> Type:
        if isinstance(schema, str):
            return self.of_name(schema, inside)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.type(kind, inside)
        if "name" in schema:
            self.named[schema["name"]] = schema
        return _logical(schema) or self.complex(schema, kind, inside)

    def of_name(self, name: str, inside: frozenset[str]) -> Type:
        if name in inside:
            raise NotThisFormat(f"has a schema that cannot be stored: the record {name!r} is a part of itself")
        if name in self.named:
            return self.type(self.named[name], inside)
        return External("null") if name == "null" else Atomic(_PLAIN[name])

    def complex(self, schema: Mapping[str, Any], kind: str, inside: frozenset[str]) -> Type:
        match kind:
            case "fixed":
                return Atomic("fixed", (schema["size"],)) if schema["size"] in _LENGTH else Atomic("binary")
            case "array":
                return Nested("list", (self.field("element", schema["items"], inside),))
            case "map":
                value = self.field("value", schema["values"], inside)
                return Nested("map", (Field("key", Atomic("string"), nullable=False), value))
            case "record" | "error":
                if schema["name"] in inside:
                    return self.of_name(schema["name"], inside)
                return Nested("struct", self.record(schema, inside))
        return self.of_name(kind, inside)


def _comment(doc: Any) -> str | None:
    return doc if isinstance(doc, str) and doc else None


def _logical(schema: Mapping[str, Any]) -> Type | None:
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal" and kind in {"bytes", "fixed"}:
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision in _PRECISION:
            return Atomic("decimal", (precision, scale))
        return None
    if logical == "uuid" and kind == "fixed":
        return Atomic("uuid") if schema["size"] == _UUID else None
    return _LOGICAL.get((kind, logical)) if isinstance(logical, str) else None
