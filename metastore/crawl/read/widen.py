"""The type that holds the values of two types without loss; it merges the schemas of files.

    anything with itself       itself                      null with X               X
    byte < short < int < long  the wider                   float < double            the wider
    whole number with double   double, as Spark does       decimals                  more digits on both sides
    whole number with decimal  a decimal with its digits   date with timestamp       timestamp
    times of two precisions    the finer                   varchar, char with string string
    fixed with binary          binary                      list, map, struct         part by part, fields united

Everything else has no such type (None). A struct's field that one side lacks becomes nullable. The types of text
formats are only guessed from values; for them ``widest`` returns double (numbers) or string (all else) where ``widen``
returns None. For a decimal of a text format, which is a whole number too large for a long, and a double it returns
string: a double would round the decimal.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

from metastore.columns.types import Atomic, External, Field, Nested, Type, parse

__all__ = ["NULL_TYPE", "is_null", "known", "widen", "widest"]

NULL_TYPE: Final = str(External("null"))
"""The type of a column without any value (Arrow's null)."""

_WHOLE: Final = {"byte": 3, "short": 5, "int": 10, "long": 19}
_FLOATING: Final = ("float", "double")
_NUMBERS: Final = frozenset({*_WHOLE, *_FLOATING, "decimal"})
_TEXT: Final = frozenset({"string", "varchar", "char"})
_BYTES: Final = frozenset({"binary", "fixed"})
_PRECISE: Final = frozenset({"time", "timestamp", "timestamptz"})
_LONG: Final = 1 << 12
"""Types of more characters are not kept: thousands of them would take gigabytes."""
_STRING: Final = Atomic("string")


def is_null(kind: Type | str) -> bool:
    """Return whether ``kind`` is the type of a column without values."""
    return str(kind) == NULL_TYPE


@functools.lru_cache(maxsize=4096)
def widen(a: str, b: str) -> str | None:
    """Return the type that holds the values of both types, or None."""
    if a == b:
        return a
    wider = _widen(parse(a), parse(b), _widen)
    return None if wider is None else str(wider)


def widest(a: str, b: str) -> str:
    """Return the type that holds the values of both types; string if only text does."""
    return a if a == b else _cached_widest(a, b) if len(a) + len(b) < _LONG else str(_widest(parse(a), parse(b)))


@functools.lru_cache(maxsize=4096)
def _cached_widest(a: str, b: str) -> str:
    return str(_widest(parse(a), parse(b)))


def known(kind: str) -> str:
    """Return ``kind`` with string for each null type in it, as Spark reads text without any value."""
    return str(_known(parse(kind)))


def _known(kind: Type) -> Type:
    if is_null(kind):
        return _STRING
    if isinstance(kind, Nested):
        return Nested(kind.name, tuple(Field(f.name, _known(f.type), f.nullable) for f in kind.fields))
    return kind


_Merge = Callable[[Type, Type], Type | None]


def _widest(a: Type, b: Type) -> Type:
    wider = _widen(a, b, _widest)
    if wider is None:
        return Atomic("double") if a.name in _NUMBERS and b.name in _NUMBERS and not _rounds(a, b) else _STRING
    return wider


def _rounds(a: Type, b: Type) -> bool:
    """Return whether a double would round values of one of the two."""
    return "decimal" in (a.name, b.name)


def _widen(a: Type, b: Type, inner: Callable[..., Type | None] | None = None) -> Type | None:
    if a == b or is_null(b):
        return a
    if is_null(a):
        return b
    if isinstance(a, Atomic) and isinstance(b, Atomic):
        return _atomic(a, b) or _atomic(b, a)
    if isinstance(a, Nested) and isinstance(b, Nested) and a.name == b.name:
        return _nested(a, b, inner or _widen)
    return None


def _nested(a: Nested, b: Nested, merge: _Merge) -> Type | None:
    if a.name == "struct":
        return _struct(a, b, merge)
    fields = [_field(x, y, merge) for x, y in zip(a.fields, b.fields, strict=True)]
    return None if None in fields else Nested(a.name, tuple(f for f in fields if f))


def _struct(a: Nested, b: Nested, merge: _Merge) -> Type | None:
    left, right = ({f.name: f for f in side.fields} for side in (a, b))
    fields: list[Field] = []
    for name in dict.fromkeys([*left, *right]):
        field = _field(left.get(name), right.get(name), merge)
        if field is None:
            return None
        fields.append(field)
    return Nested("struct", tuple(fields))


def _field(a: Field | None, b: Field | None, merge: _Merge) -> Field | None:
    if a is None or b is None:
        one = a or b
        return None if one is None else Field(one.name, one.type, True)
    kind = merge(a.type, b.type)
    return None if kind is None else Field(a.name, kind, a.nullable or b.nullable)


def _atomic(a: Atomic, b: Atomic) -> Type | None:
    """Return the wider of the two if the pair is known in this order."""
    if a.name in _WHOLE:
        return _whole(a, b)
    if (a.name, b.name) == _FLOATING:
        return b
    if a.name == b.name == "decimal":
        return _decimal(a.arguments, b.arguments)
    if a.name == "date" and b.name == "timestamp":
        return b
    if a.name == b.name and a.name in _PRECISE:
        return max(a, b, key=lambda kind: kind.arguments)
    return _text(a, b)


def _whole(a: Atomic, b: Atomic) -> Type | None:
    if b.name in _WHOLE:
        return max(a, b, key=lambda kind: _WHOLE[kind.name])
    if b.name in _FLOATING:
        return Atomic("double")
    return _decimal((_WHOLE[a.name], 0), b.arguments) if b.name == "decimal" else None


def _decimal(a: tuple[int, ...], b: tuple[int, ...]) -> Type | None:
    scale = max(a[1], b[1])
    precision = max(a[0] - a[1], b[0] - b[1]) + scale
    return Atomic("decimal", (precision, scale)) if precision <= 38 else None


def _text(a: Atomic, b: Atomic) -> Type | None:
    if a.name in _TEXT and b.name in _TEXT:
        return max(a, b, key=lambda kind: kind.arguments) if a.name == b.name else _STRING
    if a.name in _BYTES and b.name in _BYTES:
        return Atomic("binary")
    return None
