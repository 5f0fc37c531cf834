"""How a CSV file is written: its delimiter, whether its first row is a header, its columns' names.

The delimiter is the one of ``, ; tab |`` that cuts the most rows of a sample into the same number of fields. The
first row is a header if it looks different from what stands below it: below are numbers, dates or booleans, and it
has none there; where all is text, if its cells are distinct. Without a header columns are named as Spark names
them, ``_c0`` …; so is a column whose header is empty (a data frame's index).
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

from metastore.crawl.text_files import SAMPLE, NotThisFormat

__all__ = ["Dialect", "sniff"]

DELIMITERS: Final = (",", "\t", ";", "|")
_ROWS: Final = 200
_TYPED: Final = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|true|false|\d{4}[-/]\d\d?[-/]\d\d?([ T]\d\d?:\d\d.*)?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How to read a CSV file. ``skip``: the rows (blank ones too) before the data; ``bare``: there is no data."""

    delimiter: str
    header: bool
    names: tuple[str, ...]
    skip: int
    bare: bool = False


def sniff(text: str, *, tabs: bool) -> Dialect:
    """Return the dialect of a file that begins with ``text``; ``tabs``: its name says that it has tabs."""
    text = text.removeprefix("\ufeff")
    if len(text) >= SAMPLE // 4:  # the last row may be cut off
        text = text[: max(text.rfind("\n"), text.rfind("\r")) + 1] or text
    delimiter = "\t" if tabs else _delimiter(text)
    rows = _rows(text, delimiter)
    blank = next((at for at, row in enumerate(rows) if row), len(rows))
    first, rest = rows[blank], [row for row in rows[blank + 1 :] if row]
    header = _is_header(first, rest)
    names = tuple((name.strip() if header else "") or f"_c{at}" for at, name in enumerate(first))
    _check_names(names)
    return Dialect(delimiter, header, names, blank + 1 if header else blank, header and not rest)


def _check_names(names: tuple[str, ...]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise NotThisFormat(f"has two columns named {twice[0]!r}")


def _rows(text: str, delimiter: str) -> list[list[str]]:
    csv.field_size_limit(max(csv.field_size_limit(), 4 * SAMPLE))
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        return [row for _, row in zip(range(_ROWS), reader, strict=False)]
    except csv.Error as error:
        raise NotThisFormat(f"is not CSV: {error}") from None


def _delimiter(text: str) -> str:
    """Return the delimiter with the most even rows; among equals the one that makes more fields."""
    scores = {}
    for delimiter in DELIMITERS:
        widths = Counter(len(row) for row in _rows(text, delimiter) if row)
        width, rows = max(widths.items(), key=lambda pair: (pair[1], pair[0]), default=(1, 0))
        scores[delimiter] = (width > 1, rows, width)
    return max(DELIMITERS, key=lambda delimiter: scores[delimiter])


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
