"""Read JSON text as a stream of objects, and find their columns: for text that pyarrow's reader does not accept.

``objects`` reads one array of objects, or objects one after another over any number of lines. It holds one of them in
memory at a time. ``columns_of`` types rows as Spark does: boolean, long (decimal(38,0) if a long is too small, string
if that is too small as well), double, string, list, struct. A field whose values do not agree is a string.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final

from metastore.columns.column import Column
from metastore.columns.types import Field, Nested, Type, parse
from metastore.crawl.files.text import NotThisFormat
from metastore.crawl.read.widen import NULL_TYPE, widest

__all__ = ["columns_of", "objects"]

_CHUNK: Final = 1 << 20
_LARGEST: Final = 1 << 26
"""The most characters of one value."""
_BETWEEN: Final = " \t\r\n,"


def objects(stream: IO[bytes], encoding: str, line: int = 1, *, one: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the objects of ``stream``, whose text begins with the line of the number ``line``.

    ``one``: at most one object may be outside of an array, because Spark reads only the first one there. Raises
    NotThisFormat, with the line, for a value that is not an object and for text that is damaged or cut off.
    """
    decoder = json.JSONDecoder()
    text = _Text(stream, encoding, line)
    in_array = text.skip(" \t\r\n\ufeff") == "["
    if in_array:
        text.at += 1
    found = False
    while (char := text.skip(_BETWEEN)) not in ("", "]"):
        line = text.line()
        if one and found and not in_array:
            raise NotThisFormat(
                f"has another object in line {line:,}: Spark reads only the first of a file like this; "
                "write one object in each line of UTF-8 text, or one array"
            )
        found = True
        value = text.value(decoder)
        if not isinstance(value, dict):
            raise NotThisFormat(f"has a row that is not a JSON object in line {line:,}")
        yield value
    if in_array != (char == "]"):
        raise NotThisFormat("is truncated: its array is never closed" if in_array else "is not JSON: a ']' too many")


class _Text:
    """The part of the text that is in memory, and the next place to read in it."""

    def __init__(self, stream: IO[bytes], encoding: str, line: int) -> None:
        self.stream, self.decoder = stream, codecs.getincrementaldecoder(encoding)("strict")
        self.buffer, self.at, self.ended = "", 0, False
        self._counted, self._line = 0, line

    def line(self, at: int | None = None) -> int:
        """Return the line of a place in the buffer (None: the next place); places never go back between calls."""
        at = self.at if at is None else at
        self._line += self.buffer.count("\n", self._counted, at)
        self._counted = at
        return self._line

    def skip(self, chars: str) -> str:
        """Skip ``chars``; return the next character, or "" at the end."""
        while True:
            while self.at < len(self.buffer):
                if self.buffer[self.at] not in chars:
                    return self.buffer[self.at]
                self.at += 1
            if not self.more():
                return ""

    def more(self) -> bool:
        """Read more text, and drop the part that was read before; return False at the end."""
        if self.ended:
            return False
        self.line()  # counts the lines before they are dropped
        self._counted = 0
        data = self.stream.read(max(_CHUNK, len(self.buffer) - self.at))
        self.ended = not data
        self.buffer, self.at = self.buffer[self.at :] + self.decoder.decode(data, final=self.ended), 0
        return True

    def value(self, decoder: json.JSONDecoder) -> Any:
        """Read one value."""
        while True:
            try:
                value, end = decoder.raw_decode(self.buffer, self.at)
            except json.JSONDecodeError as error:
                if len(self.buffer) - self.at > _LARGEST:
                    raise NotThisFormat(f"has a value of more than {_LARGEST >> 20} MiB, or is damaged") from None
                if not self.more():
                    reason = f"in line {self.line(error.pos):,}: {error.msg}"
                    raise NotThisFormat(f"is not JSON, or truncated, {reason}") from None
                continue
            if end < len(self.buffer) or not self.more():
                self.at = end
                return value


def columns_of(rows: Iterable[dict[str, Any]]) -> tuple[Column, ...]:
    """Return the columns of ``rows``, in time and memory that grow only with the rows."""
    root = _Seen()
    for row in rows:
        root.add(row)
    return tuple(Column(name, str(seen.type())) for name, seen in (root.fields or {}).items())


class _Seen:
    """The values that were seen at one place.

    They are added field by field, because there may be as many keys as rows.
    """

    __slots__ = ("element", "fields", "scalar")

    def __init__(self) -> None:
        self.scalar = NULL_TYPE
        self.fields: dict[str, _Seen] | None = None
        self.element: _Seen | None = None

    def add(self, value: Any) -> None:
        """Add a value. If values have different forms, the type is string."""
        if isinstance(value, dict):
            self.fields = {} if self.fields is None else self.fields
            for name, below in value.items():
                self.fields.setdefault(name, _Seen()).add(below)
        elif isinstance(value, list):
            self.element = _Seen() if self.element is None else self.element
            for one in value:
                self.element.add(one)
        else:
            self.scalar = widest(self.scalar, _type_of(value))

    def type(self) -> Type:
        """Return the type that holds all values."""
        forms = (self.scalar != NULL_TYPE) + (self.fields is not None) + (self.element is not None)
        if forms > 1:
            return parse("string")
        if self.fields is not None:
            return Nested("struct", tuple(Field(name, seen.type()) for name, seen in self.fields.items()))
        if self.element is not None:
            return Nested("list", (Field("element", self.element.type()),))
        return parse(self.scalar)


def _type_of(value: Any) -> str:
    match value:
        case None:
            return NULL_TYPE
        case bool():
            return "boolean"
        case int():
            return "long" if -(2**63) <= value < 2**63 else "decimal(38,0)" if abs(value) < 10**38 else "string"
        case float():
            return "double"
    return "string"
