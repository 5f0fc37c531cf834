"""Read a JSON file's columns and number of rows: lines of objects, an object over several lines, or one array.

The whole file is read in bounded memory. Lines go through pyarrow block by block, and the types of the blocks are
widened. pyarrow has a cell for each column in each row, so memory would grow quadratically if keys are ids. So a block
with fields that are not known yet is read in small pieces, and a file with more than ten thousand fields is a failure.
:mod:`json_values` finds the types of two sorts of text: a block with values that do not agree (a number here, a string
there), and a file that does not consist of lines. Spark reads such a file with its option ``multiLine``, which the
dialect keeps.
Strings stay strings, whatever they look like, as with Spark. Columns are in the order of their first appearance.
"""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.json

from metastore.columns.arrow import columns_from_arrow
from metastore.columns.column import Column
from metastore.crawl.files.text import LARGEST, NotThisFormat, Sample, TextFile, encoding_of, samples_of
from metastore.crawl.read.csv import TextFacts
from metastore.crawl.read.json_values import columns_of, objects
from metastore.crawl.read.widen import widest

__all__ = ["read_json"]

_BLOCK: Final = 1 << 23
_PIECE: Final = 1 << 14
"""Bytes per piece of a block with unknown fields."""
_FIELDS: Final = 10_000
_ROWS: Final = 1 << 12
_LONG_NUMBER: Final = re.compile(rb"[0-9]{19}")


def read_json(file: TextFile) -> TextFacts:
    """Return the columns of all rows, the number of rows, and the options to read the file."""
    encoding, lines = _form(file)
    with file.open() as stream:
        columns, rows = _merged(_line_blocks(stream) if lines else _value_blocks(stream, encoding))
    dialect = {} if lines else {"multiLine": "true"}
    if encoding != "UTF-8":
        dialect["encoding"] = encoding
    return TextFacts(columns, rows, dialect, {})


def _form(file: TextFile) -> tuple[str, bool]:
    """Return the encoding, and whether the first line is a whole object."""
    for sample in samples_of(file):
        encoding = encoding_of(sample)
        if encoding == "ISO-8859-1":
            _check_utf8(sample.data, 1)
        line = _first_line(sample) if encoding == "UTF-8" else b""
        if line is not None:
            return encoding, _is_object(line)
    raise NotThisFormat(f"begins with a line of more than {LARGEST >> 20} MiB")


def _first_line(sample: Sample) -> bytes | None:
    """Return the first line; None if ``sample`` has only a part of a line that begins as an object."""
    text = sample.data.removeprefix(b"\xef\xbb\xbf").lstrip()
    line, end, _ = text.partition(b"\n")
    return line if end or sample.whole or not text.startswith(b"{") else None


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


_Block = tuple[tuple[Column, ...], int]


def _merged(blocks: Iterable[_Block]) -> _Block:
    types: dict[str, str] = {}
    rows = 0
    for columns, count in blocks:
        rows += count
        for column in columns:
            types[column.name] = widest(types.get(column.name, column.type), column.type)
        if len(types) + sum(kind.count(": ") for kind in types.values()) > _FIELDS:
            raise NotThisFormat(f"has more than {_FIELDS:,} fields: its keys look like values, such as ids")
    return tuple(Column(name, kind) for name, kind in types.items()), rows


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the text in blocks of whole lines."""
    rest = b""
    while data := stream.read(_BLOCK):
        end = data.rfind(b"\n") + 1
        if end:
            yield rest + data[:end]
            rest = data[end:]
        else:
            rest += data
        if len(rest) > LARGEST:
            raise NotThisFormat(f"has a line of more than {LARGEST >> 20} MiB")
    if rest:
        yield rest


def _line_blocks(stream: IO[bytes]) -> Iterator[_Block]:
    line, known = 1, pa.schema([])
    for block in _blocks(stream):
        _check_utf8(block, line)
        table = _table(block, known) if len(known) else None
        if table is not None:
            yield _taken(table, block, line)
            line += block.count(b"\n")
            continue
        for piece in _pieces(block):
            if piece.strip():
                table = _table(piece)
                yield _taken(table, piece, line)
                known = known if table is None or _is_rounded(table, piece) else _joined(known, table.schema)
            line += piece.count(b"\n")


def _pieces(block: bytes) -> Iterator[bytes]:
    """Yield pieces of whole lines, each of about ``_PIECE`` bytes."""
    at = 0
    while at < len(block):
        end = block.find(b"\n", at + _PIECE) + 1 or len(block)
        yield block[at:end]
        at = end


def _table(block: bytes, known: Any = None) -> Any:
    """Return the rows of a block; None if its values do not agree, or have fields or types that are not ``known``."""
    options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    parsing = pyarrow.json.ParseOptions(
        explicit_schema=known, unexpected_field_behavior="infer" if known is None else "error"
    )
    try:
        return pyarrow.json.read_json(io.BytesIO(block), options, parsing)
    except pa.ArrowInvalid:
        return None


def _joined(known: Any, more: Any) -> Any:
    """Return the fields of both schemas; only those of the first if the two do not agree."""
    plain = pa.schema([_plain_field(field) for field in more])
    try:
        return pa.unify_schemas([known, plain], promote_options="permissive")
    except pa.ArrowException:
        return known


def _taken(table: Any, block: bytes, line: int) -> _Block:
    """Return the columns of a block that begins with the line of this number."""
    if table is None:
        rows = list(objects(io.BytesIO(block), "utf-8", line))
        _check_lines(block, len(rows), line)
        return columns_of(rows), len(rows)
    _check_lines(block, table.num_rows, line)
    if _is_rounded(table, block):
        return columns_of(objects(io.BytesIO(block), "utf-8", line)), table.num_rows
    return columns_from_arrow(pa.schema([_plain_field(field) for field in table.schema])), table.num_rows


def _check_lines(block: bytes, rows: int, line: int) -> None:
    """Raise NotThisFormat unless each line that is not blank is one row: Spark reads the first value of a line."""
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    if rows != lines and rows != sum(1 for text in block.split(b"\n") if text.strip(b" \t\r")):
        raise NotThisFormat(
            f"has rows that are not one per line, in line {line:,} or below; write each object in a line of its own"
        )


def _is_rounded(table: Any, block: bytes) -> bool:
    """Return whether pyarrow may have rounded a whole number to a double, because it is too large for a long."""
    return any(map(_is_floating, table.schema.types)) and _LONG_NUMBER.search(block) is not None


def _is_floating(kind: Any) -> bool:
    if pa.types.is_nested(kind):
        return any(_is_floating(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def _check_utf8(block: bytes, line: int) -> None:
    """Raise NotThisFormat, with the line, if ``block`` is not UTF-8: pyarrow does not check it."""
    try:
        block.decode()
    except UnicodeDecodeError as error:
        before = block.count(b"\n", 0, error.start)
        raise NotThisFormat(f"is not valid UTF-8 in line {line + before:,}") from None


def _value_blocks(stream: IO[bytes], encoding: str) -> Iterator[_Block]:
    stream_rows = objects(stream, encoding, one=True)
    while rows := list(itertools.islice(stream_rows, _ROWS)):
        yield columns_of(rows), len(rows)


def _plain_field(field: Any) -> Any:
    return field.with_type(_plain(field.type))


def _plain(kind: Any) -> Any:
    """Return ``kind`` with string for each timestamp, because pyarrow makes timestamps of some strings."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    return pa.struct([_plain_field(field) for field in kind.fields]) if pa.types.is_struct(kind) else kind
