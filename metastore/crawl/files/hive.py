"""Folders named ``key=value``: how Hive and Spark write the values of partition columns.

Keys and values are percent-encoded (``a%2Fb``); ``__HIVE_DEFAULT_PARTITION__`` and the empty value mean null.
The type of a key is inferred over all its values as Spark does: int, long, decimal(38,0), double, date, timestamptz,
else string; nulls fit everything. A partition's *name* is its folders as they are on disk, ``month=1/day=2``.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, Final
from unicodedata import normalize
from urllib.parse import unquote

__all__ = ["NULL", "Keys", "key_type", "odd_values", "parse_key", "partition_parts", "typed"]

NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""The spelling of null in a folder's name and in a partition's values."""

Keys = tuple[tuple[str, str], ...]
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,38}")
_DOUBLE: Final = re.compile(r"[+-]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)([eE][+-]?[0-9]+)?")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-].*)?")
_NUMBERS: Final = ("int", "long", "decimal(38,0)", "double")
_TIMES: Final = ("date", "timestamptz")


def parse_key(folder: str) -> tuple[str, str] | None:
    """Return the key and value in a folder's name, or None if it is not a partition folder."""
    key, equals, value = folder.partition("=")
    if not equals or not key:
        return None
    return normalize("NFC", unquote(key)), unquote(value) or NULL  # NFC, like the names of columns


def partition_parts(parts: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split the folders of a path: the ``key=value`` folders at its end, and those before them."""
    at = len(parts)
    while at and parse_key(parts[at - 1]) is not None:
        at -= 1
    return parts[:at], parts[at:]


def key_type(values: Iterable[str]) -> str:
    """Return the type that all ``values`` fit, as Spark infers it."""
    types = {_value_type(value) for value in values if value != NULL}
    for family in (_NUMBERS, _TIMES):
        if types and types <= set(family):
            return max(types, key=family.index)
    return "string"


def odd_values(values: Iterable[str]) -> tuple[str, list[str]]:
    """Return the type that most of the ``values`` fit, and the odd values that make the key a string."""
    known = dict.fromkeys(value for value in values if value != NULL)
    odd = [value for value in known if _value_type(value) == "string"]
    kind = key_type(known.keys() - set(odd))
    return (kind, odd) if kind != "string" and 2 * len(odd) < len(known) else ("string", [])


def _value_type(value: str) -> str:
    if _INTEGER.fullmatch(value):
        number = int(value)
        if -(2**31) <= number < 2**31:
            return "int"
        return "long" if -(2**63) <= number < 2**63 else "decimal(38,0)"
    if _DOUBLE.fullmatch(value):
        return "double"
    for pattern, name in ((_DATE, "date"), (_TIMESTAMP, "timestamptz")):
        if pattern.fullmatch(value) and typed(value, name) is not None:
            return name
    return "string"


def typed(value: str, kind: str) -> Any:
    """Return ``value`` as a Python value of the type ``kind``; None for null, and if it does not fit."""
    if value == NULL:
        return None
    try:
        return _READERS.get(kind, str)(value)
    except (ValueError, ArithmeticError):
        return None


def _timestamp(value: str) -> dt.datetime:
    time = dt.datetime.fromisoformat(value)
    return time if time.tzinfo else time.replace(tzinfo=dt.UTC)


_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "int": int,
    "long": int,
    "decimal(38,0)": Decimal,
    "double": float,
    "date": dt.date.fromisoformat,
    "timestamptz": _timestamp,
}
