"""Guess the dialect of a CSV file: its delimiter, whether its first row is a header, its columns' names.

The delimiter is the one of ``, ; tab |`` that cuts the most rows of a sample into the same number of fields. The first
row is a header if it looks different from the rows below: they have numbers, dates or booleans where it has none. If
all cells are text, the first row is a header if its cells are distinct. Without a header columns are named as Spark
names them, ``_c0`` …; so is a column whose header is empty (a data frame's index).

If the text goes on after the sample, its last row may be cut off, so it is ignored. Only whole rows decide: if there
are fewer than two, a larger sample is needed.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

from metastore.crawl.files.text import NotThisFormat

__all__ = ["Dialect", "sniff"]

DELIMITERS: Final = (",", "\t", ";", "|")
_ROWS: Final = 200
"""The most rows of a sample that are compared."""
_TYPED: Final = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|true|false|\d{4}[-/]\d\d?[-/]\d\d?([ T]\d\d?:\d\d.*)?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How to read a CSV file. ``skip``: the rows (blank ones too) before the data; ``bare``: the file has no data."""

    delimiter: str
    header: bool
    names: tuple[str, ...]
    skip: int
    bare: bool = False


@dataclass(frozen=True, slots=True)
class _Rows:
    """The first rows that are whole and not blank; ``blank`` is how many blank ones come before them."""

    rows: list[list[str]]
    blank: int
    cut: bool

    @property
    def enough(self) -> bool:
        """Whether there is a row after the first one, or the text has no more rows."""
        return not self.cut or len(self.rows) > 1


def sniff(text: str, *, tabs: bool, cut: bool = False) -> Dialect | None:
    """Return the dialect of a file that begins with ``text``, or None if that holds too few rows to know it.

    ``tabs``: its name says that it has tabs; ``cut``: the file goes on after ``text``.
    """
    text = text.removeprefix("\ufeff")
    read = {delimiter: _read(text, delimiter, cut=cut) for delimiter in (("\t",) if tabs else DELIMITERS)}
    delimiter = max(read, key=lambda delimiter: _score(read[delimiter].rows))
    reading = read[delimiter]
    if not reading.enough:
        return None
    first, rest = reading.rows[0], reading.rows[1:]
    header = _is_header(first, rest)
    names = tuple((name.strip() if header else "") or f"_c{at}" for at, name in enumerate(first))
    _check_names(names)
    return Dialect(delimiter, header, names, reading.blank + header, header and not rest)


def _check_names(names: tuple[str, ...]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise NotThisFormat(f"has two columns named {twice[0]!r}")


def _read(text: str, delimiter: str, *, cut: bool) -> _Rows:
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    rows: list[list[str]] = []
    blank = 0
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
            if row:
                rows.append(row)
            elif not rows:
                blank += 1
            if len(rows) > _ROWS:
                break
    except csv.Error as error:
        raise NotThisFormat(f"is not CSV: {error}") from None
    return _Rows(rows[:-1] if cut else rows[:_ROWS], blank, cut)


def _score(rows: list[list[str]]) -> tuple[bool, int, int]:
    """Rate a delimiter: by the number of rows of equal width, and then by the number of fields."""
    widths = Counter(map(len, rows))
    width, count = max(widths.items(), key=lambda pair: (pair[1], pair[0]), default=(1, 0))
    return width > 1, count, width


def _is_header(first: list[str], rest: list[list[str]]) -> bool:
    if not rest:
        return not any(map(_is_typed, first))
    columns = [[row[at] for row in rest if at < len(row) and row[at].strip()] for at in range(len(first))]
    typed = [at for at, cells in enumerate(columns) if cells and sum(map(_is_typed, cells)) > len(cells) / 2]
    if any(first[at].strip() and not _is_typed(first[at]) for at in typed):
        return True
    return not typed and len(set(first)) == len(first) and any(cell.strip() for cell in first)


def _is_typed(cell: str) -> bool:
    return _TYPED.fullmatch(cell.strip()) is not None
