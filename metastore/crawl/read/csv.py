"""Read a CSV file's columns and number of rows: the whole file, in blocks, in bounded memory.

The parser of pyarrow reads every cell as text. The type of a column is the narrowest that fits all its cells: long,
decimal(38,0), double, date, timestamp, timestamptz, boolean, else string. So a column that has numbers for a gigabyte,
and then a word, is a string. Digits that begin with a zero are an identifier (``01234``), not a number. Whole numbers
that are too long for a decimal stay text, because a type must hold each value as it is written. Cells that are empty or
spell a null (``NA``, ``null`` …, pyarrow's list) fit every type. A column without any value is of the null type until
files are merged.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from metastore.columns.column import Column
from metastore.crawl.files.text import LARGEST, NotThisFormat, TextFile, encoding_of, samples_of
from metastore.crawl.read.dialect import Dialect, sniff
from metastore.crawl.read.widen import NULL_TYPE, is_null, widest

__all__ = ["TextFacts", "read_csv"]

_BLOCKS: Final = (1 << 22, LARGEST)
"""Bytes per block: the first size, and the size for a file with a longer row."""

_TOO_LONG: Final = "has a row of more than {} MiB, or a quote that is never closed"
_NULLS: Final = pa.array(pyarrow.csv.ConvertOptions().null_values, pa.string())
_LADDER: Final = (
    ("long", pa.int64()),
    ("decimal(38,0)", pa.decimal128(38, 0)),
    ("double", pa.float64()),
    ("date", pa.date32()),
    ("timestamp", pa.timestamp("us")),
    ("timestamptz", pa.timestamp("us", "UTC")),
    ("boolean", pa.bool_()),
)
_ARROW: Final = dict(_LADDER)
_FEW: Final = 100
"""How many values are checked first."""
_SPELLED: Final = {
    **dict.fromkeys(("long", "decimal(38,0)"), "^[+-]?(0|[1-9][0-9]*)$"),
    "boolean": "^(?i:true|false)$",
}
"""The spellings that count; Arrow accepts more: 0xFF as an integer, 1.0 as a decimal(38,0), 0 and 1 as booleans."""
_NO_DOUBLE: Final = "^[+-]?(0[0-9]|[0-9]{39,}$)"
"""Digits that are not a double, although Arrow accepts them."""
_INFINITE: Final = "^[+-]?(?i:inf(inity)?)$"
_INFINITE_TO_SPARK: Final = "^(-?Inf|[+-]?Infinity)$"
"""The spellings of infinity that Spark reads; it reads the others, which Arrow accepts, as null."""


@dataclass(frozen=True, slots=True)
class TextFacts:
    """The facts about a text file; see :class:`metastore.crawl.read.facts.FileFacts`."""

    columns: tuple[Column, ...]
    rows: int
    dialect: dict[str, str]
    hints: dict[str, str]


@dataclass(slots=True)
class _Guess:
    """The type of a column so far, how its nulls were spelled, and whether a cell has more than one line."""

    type: str = NULL_TYPE
    nulls: set[str] = field(default_factory=set)
    lines: bool = False


def read_csv(file: TextFile) -> TextFacts:
    """Return the columns that fit all rows, the number of rows, and the options to read the file."""
    dialect, encoding = _sniffed(file)
    try:
        return _read(file, dialect, encoding)
    except pa.ArrowInvalid as error:
        # pyarrow has no code for the error "not UTF-8": only its (untranslated) message identifies it
        if "UTF8" not in str(error) or encoding != "UTF-8":
            raise
        return _read(file, *_sniffed(file, "ISO-8859-1"))


def _sniffed(file: TextFile, known: str | None = None) -> tuple[Dialect, str]:
    """Return the dialect and the encoding, from as much of the file as shows them."""
    for sample in samples_of(file):
        if sample.data.lstrip()[:1] in (b"{", b"["):
            _refuse_json(sample.data)
        encoding = known or encoding_of(sample)
        text = sample.data.decode(encoding, "replace")
        dialect = sniff(text, tabs=file.name.lower().endswith(".tsv"), cut=not sample.whole)
        if dialect is not None:
            return dialect, encoding
    raise NotThisFormat(_TOO_LONG.format(LARGEST >> 20))


def _refuse_json(sample: bytes) -> None:
    if sample.lstrip()[:1] == b"[" or (b'"' in sample[:200] and b":" in sample[:200]):
        raise NotThisFormat("looks like JSON, although its name says CSV")


def _read(file: TextFile, dialect: Dialect, encoding: str) -> TextFacts:
    rows, guesses = _guess(file, dialect, encoding)
    columns = tuple(Column(name, guess.type) for name, guess in zip(dialect.names, guesses, strict=True))
    spelled = {null for guess in guesses if guess.type != "string" for null in guess.nulls} - {""}
    options = {"delimiter": dialect.delimiter, "header": str(dialect.header).lower(), "escape": '"'}
    if encoding != "UTF-8":
        options["encoding"] = encoding
    hints = {"nullValue": spelled.pop()} if len(spelled) == 1 else {}
    if any(guess.lines for guess in guesses):
        hints["multiLine"] = "true"
    return TextFacts(columns, rows, options, hints)


def _guess(file: TextFile, dialect: Dialect, encoding: str) -> tuple[int, list[_Guess]]:
    """Return the number of rows and the guessed columns. Try larger blocks if a row does not fit."""
    if dialect.bare:
        return 0, [_Guess() for _ in dialect.names]
    for block in _BLOCKS:
        rows, guesses = 0, [_Guess() for _ in dialect.names]
        broken: list[Any] = []
        try:
            with file.open() as stream:
                for batch in _open(stream, dialect, encoding, block, broken):
                    rows += batch.num_rows
                    for guess, cells in zip(guesses, batch.columns, strict=True):
                        _look(guess, cells)
        except pa.ArrowInvalid as error:
            if broken:
                raise NotThisFormat(_row_error(file, dialect, encoding, broken[0])) from None
            # the error "a row is longer than a block" has no code either
            if "straddl" not in str(error):
                raise
        else:
            return rows, guesses
    raise NotThisFormat(_TOO_LONG.format(_BLOCKS[-1] >> 20))


def _open(stream: Any, dialect: Dialect, encoding: str, block: int, broken: list[Any]) -> Iterator[Any]:
    """Yield the rows in batches; put the first row with another number of cells into ``broken``, and raise."""

    def stop(row: Any) -> str:
        broken.append(row)
        return "error"

    names = [str(at) for at in range(len(dialect.names))]
    reader = pyarrow.csv.open_csv(
        pa.PythonFile(stream, mode="r"),
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False,
            block_size=block,
            column_names=names,
            skip_rows_after_names=dialect.skip,
            encoding=encoding,
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=dialect.delimiter, newlines_in_values=True, invalid_row_handler=stop
        ),
        convert_options=pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
    )
    with reader:
        yield from reader


def _row_error(file: TextFile, dialect: Dialect, encoding: str, row: Any) -> str:
    """Say which row has another number of cells than the first: its line, or its number if the line is unknown."""
    line = _line_of(file, dialect, encoding, row.expected_columns)
    where = f"row {row.number:,}" if line is None else f"line {line:,}"
    cells = "1 value" if row.actual_columns == 1 else f"{row.actual_columns:,} values"
    return f"is not CSV, or damaged: {cells} in {where}, where {row.expected_columns:,} are expected"


def _line_of(file: TextFile, dialect: Dialect, encoding: str, cells: int) -> int | None:
    """Return the line in which the first row with another number of cells begins: pyarrow counts rows, not lines."""
    with file.open() as stream:
        lines = csv.reader(io.TextIOWrapper(stream, encoding, "replace", newline=""), delimiter=dialect.delimiter)
        begin = 1
        try:
            for row in lines:
                if row and len(row) != cells:
                    return begin
                begin = lines.line_num + 1
        except csv.Error:  # a cell is longer than Python's parser takes
            pass
    return None


def _look(guess: _Guess, cells: Any) -> None:
    """Widen ``guess`` so that it fits ``cells``."""
    guess.lines = guess.lines or pc.any(pc.match_substring(cells, "\n")).as_py() is True
    if guess.type == "string":
        return
    is_missing = pc.is_in(cells, value_set=_NULLS)
    values = cells.filter(pc.invert(is_missing))
    if len(values) < len(cells):
        guess.nulls.update(pc.unique(cells.filter(is_missing)).to_pylist())
    if len(values) and not _fits(values, guess.type):
        guess.type = widest(guess.type, _narrowest(values))


def _narrowest(values: Any) -> str:
    return next((name for name, _ in _LADDER if _fits(values, name)), "string")


def _fits(values: Any, name: str) -> bool:
    """Return whether all ``values`` have the type ``name``.

    The first few are checked first, because most types fail there.
    """
    return not is_null(name) and all(_all_are(part, name) for part in (values[:_FEW], values[_FEW:]))


def _no_double(values: Any) -> Any:
    """Return which values are not a double, although Arrow reads them as one."""
    infinite, known = (pc.match_substring_regex(values, one) for one in (_INFINITE, _INFINITE_TO_SPARK))
    return pc.or_(pc.match_substring_regex(values, _NO_DOUBLE), pc.and_not(infinite, known))


def _all_are(values: Any, name: str) -> bool:
    if name in _SPELLED and not pc.all(pc.match_substring_regex(values, _SPELLED[name])).as_py():
        return len(values) == 0
    if name == "double" and pc.any(_no_double(values)).as_py():
        return False
    try:
        values.cast(_ARROW[name])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True
