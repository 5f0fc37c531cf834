"""Read and write the JSON bodies of requests and answers. While a large body is read, other threads get turns.

CPython reads and writes JSON in C, without a turn for other threads. So a large request body is limited in two ways
that take time: its number of values, and the length of a text. Other threads get their turn at each call of a Python
function, here the hooks. A long list in an answer is written in slices.
"""

from __future__ import annotations

import json
from math import isinf
from typing import Any, Final

__all__ = ["FINITE", "LARGE", "Crowded", "check_values", "read_json", "read_large_json", "write_json"]

LARGE: Final = 64 << 10
"""A larger body is read in a thread, by ``read_large_json`` (bytes)."""
_VALUES: Final = 100_000
"""How many values a large body may have: all threads wait while Python objects are made of them."""
_BEFORE_VALUES: Final = (b",", b"[", b"{")
_TEXT: Final = 2 << 20
"""How long one text of a large body may be, as it is sent: all threads wait while it is read (bytes)."""
_SLICE: Final = 256 << 10
"""How much of a large body is checked in one go, while all threads wait (bytes)."""
_LONGEST: Final = 1 << 63
_ITEMS: Final = 500
"""How many items of a list are written in one go, while all threads wait."""


class Crowded(ValueError):
    """The body has more values, or a longer text, than any request to a catalog needs."""


def read_json(text: bytes, **hooks: Any) -> Any:
    """Return the value of a body. Raises ValueError."""
    try:
        # only UTF-8 (RFC 8259, section 8.1): json.loads also accepts UTF-16, in which check_values cannot count values
        plain = text.decode("utf-8-sig")
        return json.loads(plain, parse_int=_integer, **FINITE, **hooks)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the body is not JSON: {error}") from None


def read_large_json(text: bytes) -> Any:
    """Return the value of a large body. Raises Crowded, ValueError."""
    check_values(text, _VALUES, _TEXT)
    return read_json(text, object_pairs_hook=_object)


def write_json(value: Any) -> bytes:
    """Return a value as JSON. A long list in an object is written in slices, and others get their turn between them."""
    if not isinstance(value, dict):
        return json.dumps(value).encode()
    return ("{" + ", ".join([f"{json.dumps(key)}: {_written(one)}" for key, one in value.items()]) + "}").encode()


def _written(value: Any) -> str:
    if not isinstance(value, list) or len(value) <= _ITEMS:
        return json.dumps(value)
    slices = [json.dumps(value[start : start + _ITEMS]) for start in range(0, len(value), _ITEMS)]
    return "[" + ", ".join([one[1:-1] for one in slices]) + "]"


def _values(text: bytes) -> int:
    return sum(map(text.count, _BEFORE_VALUES))


def check_values(text: bytes, most: int, longest: int) -> None:
    """Raise Crowded for a body with too many values, or too long a text. Commas within texts do not count."""
    values = quotes = length = 0
    rest = b""
    for start in range(0, len(text), _SLICE):
        part = rest + text[start : start + _SLICE]
        # a backslash at the end escapes the first character of the next part
        rest = b"\\" * ((len(part) - len(part.rstrip(b"\\"))) % 2)
        part = part[: len(part) - len(rest)].replace(rb"\\", b"__").replace(rb"\"", b"__")
        pieces = part.split(b'"')
        values += sum(map(_values, pieces[quotes % 2 :: 2]))
        length += len(pieces[0])
        is_long = quotes % 2 == 1 and length > longest
        if len(pieces) > 1:
            length = len(pieces[-1])
        quotes += len(pieces) - 1
        if values > most or quotes > 4 * most + 4:  # each value may be a text with a name: four quotes, and no more
            raise Crowded(f"the body has more than {most:,} values; send it in parts")
        if is_long:
            raise Crowded(f"a text of the body has more than {longest} bytes; a catalog needs no such text")


def _integer(text: str) -> int:
    """Return an integer that other readers of a metadata file can read too."""
    number = int(text)
    if not -_LONGEST <= number < _LONGEST:
        raise ValueError(f"{text[:30]} does not fit into a 64-bit integer")
    return number


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(pairs)


def _float(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(f"the number {text[:30]} is too large")
    return number


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")


FINITE: Final[Any] = {"parse_float": _float, "parse_constant": _no_number}
"""The options of ``json.loads`` that refuse numbers outside JSON or too large for a float: they cannot be written."""
