"""JSON text as a stream of values, and the columns that values have: for what pyarrow's reader does not take.

``values`` reads one array of values, or values one after another over any number of lines, with one of them in memory
at a time. ``columns_of`` types rows as Spark does: boolean, long (decimal(38,0) where it is too great), double,
string, list, struct; a field whose values do not agree is a string.
"""

from __future__ import annotations

import codecs
import functools
import json
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final

from metastore.columns.column import Column
from metastore.columns.types import Field, Nested, parse
from metastore.crawl.files.text import NotThisFormat
from metastore.crawl.read.widen import NULL_TYPE, widest

__all__ = ["columns_of", "values"]

_CHUNK: Final = 1 << 20
_LARGEST: Final = 1 << 26
_BETWEEN: Final = " \t\r\n,"


def values(stream: IO[bytes], encoding: str) -> Iterator[Any]:
    """Yield the values of ``stream``; NotThisFormat where the text is damaged or ends too early."""
    decoder = json.JSONDecoder()
    text = _Text(stream, encoding)
    in_array = text.skip(" \t\r\n\ufeff") == "["
    if in_array:
        text.at += 1
    while (char := text.skip(_BETWEEN)) not in ("", "]"):
        yield text.value(decoder)
    if in_array != (char == "]"):
        raise NotThisFormat("is truncated: its array is never closed" if in_array else "is not JSON: a ']' too many")


class _Text:
    """The part of the text that is in memory, and the place in it that is read next."""

    def __init__(self, stream: IO[bytes], encoding: str) -> None:
        self.stream, self.decoder = stream, codecs.getincrementaldecoder(encoding)("strict")
        self.buffer, self.at, self.ended = "", 0, False

    def skip(self, chars: str) -> str:
        """Pass over ``chars``; return the character that stands next, or "" at the end."""
        while True:
            while self.at < len(self.buffer):
                if self.buffer[self.at] not in chars:
                    return self.buffer[self.at]
                self.at += 1
            if not self.more():
                return ""

    def more(self) -> bool:
        """Read on; forget what was read before."""
        if self.ended:
            return False
        data = self.stream.read(max(_CHUNK, len(self.buffer) - self.at))
        self.ended = not data
        self.buffer, self.at = self.buffer[self.at :] + self.decoder.decode(data, final=self.ended), 0
        return True

    def value(self, decoder: json.JSONDecoder) -> Any:
        """Read one value."""
        while True:
            try:
                found, end = decoder.raw_decode(self.buffer, self.at)
            except json.JSONDecodeError as error:
                if len(self.buffer) - self.at > _LARGEST:
                    raise NotThisFormat(f"has a value of more than {_LARGEST >> 20} MiB, or is damaged") from None
                if not self.more():
                    raise NotThisFormat(f"is not JSON, or truncated: {error.msg}") from None
                continue
            if end < len(self.buffer) or not self.more():
                self.at = end
                return found


def columns_of(rows: Iterable[Any]) -> tuple[Column, ...]:
    """Return the columns of ``rows``, which must be objects."""
    found: dict[str, str] = {}
    for row in rows:
        if not isinstance(row, dict):
            raise NotThisFormat("has rows that are not JSON objects")
        for name, value in row.items():
            kind = _type_of(value)
            found[name] = kind if name not in found else widest(found[name], kind)
    return tuple(Column(name, kind) for name, kind in found.items())


def _type_of(value: Any) -> str:  # noqa: PLR0911 (a table of cases)
    match value:
        case None:
            return NULL_TYPE
        case bool():
            return "boolean"
        case int():
            return "long" if -(2**63) <= value < 2**63 else "decimal(38,0)" if abs(value) < 10**38 else "double"
        case float():
            return "double"
        case str():
            return "string"
        case list():
            element = functools.reduce(widest, map(_type_of, value), NULL_TYPE)
            return str(Nested("list", (Field("element", parse(element)),)))
    return str(Nested("struct", tuple(Field(name, parse(_type_of(below))) for name, below in value.items())))
