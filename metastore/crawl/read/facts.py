"""The facts about one file, and the sum of the statistics of files and row groups.

The values of ``ColumnStats`` are Python values that compare as the column's type does. Times are integers, in
nanoseconds since 1970, so that dates and timestamps of any unit compare with each other. None means *not known*: one
part without a count of nulls makes the sum unknown, one part without bounds (though it holds values) makes the bounds
unknown. ``text`` writes a value as the statistics show it.

A bound of a string may be shorter (minimum) or greater (maximum) than any value: writers cut them off.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from metastore.columns.column import Column
from metastore.columns.types import parse

__all__ = ["MAX_TEXT", "ColumnStats", "FileFacts", "Unreadable", "merge_stats", "nanoseconds", "text"]

MAX_TEXT: Final = 256
"""The longest bound that is kept, in characters. A bound with a NUL is not kept, because PostgreSQL cannot store it."""

_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 (UTC, as all of them)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


# not a dataclass: each column of each file has one, and a tuple is made and moved in a third of the time
class ColumnStats(NamedTuple):
    """Nulls, smallest and greatest value of a column in a part of a table. ``values`` is False where all are null."""

    nulls: int | None = None
    low: Any = None
    high: Any = None
    values: bool = True


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file that can be read. ``name`` is its path relative to its data set's folder, with slashes.

    ``dialect`` has the options that a reader must know, and that files of one table share (delimiter, header, …);
    ``hints`` has options that may differ between them (compression, the spelling of nulls).
    """

    name: str
    size: int
    format: str
    columns: tuple[Column, ...]
    rows: int
    dialect: tuple[tuple[str, str], ...] = ()
    hints: tuple[tuple[str, str], ...] = ()
    stats: Mapping[str, ColumnStats] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file that cannot be read, and why, in one line."""

    name: str
    reason: str


def merge_stats(parts: Iterable[ColumnStats]) -> ColumnStats:
    """Return the statistics of all ``parts`` together."""
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    counts = [part.nulls for part in parts]
    nulls = None if None in counts else sum(count for count in counts if count is not None)
    filled = [part for part in parts if part.values]
    if not filled:
        return ColumnStats(nulls, values=False)
    if any(part.low is None or part.high is None for part in filled):
        return ColumnStats(nulls)
    try:
        return ColumnStats(nulls, min(part.low for part in filled), max(part.high for part in filled))
    except TypeError:  # bounds of types that do not compare, such as a string and a number
        return ColumnStats(nulls)


def nanoseconds(value: dt.date) -> int:
    """Return a date or timestamp (pandas' too) as nanoseconds since 1970, UTC."""
    if not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day)  # noqa: DTZ001
    elif value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return (value - _EPOCH) // _MICROSECOND * 1000 + getattr(value, "nanosecond", 0)


def text(value: Any, kind: str) -> str | None:
    """Write ``value`` of a column of the type ``kind``; None if it cannot be shown."""
    name = parse(kind).name
    if value is None:
        return None
    if name in ("date", "timestamp", "timestamptz"):
        return _time_text(value, name)
    if isinstance(value, bool):
        return str(value).lower()
    if name in ("float", "double"):
        value = float(value)
    written = value.hex() if isinstance(value, bytes) else str(value)
    return written if len(written) <= MAX_TEXT and "\0" not in written else None


def _time_text(value: Any, name: str) -> str | None:
    if not isinstance(value, int):
        return str(value)
    seconds, rest = divmod(value, 10**9)
    try:
        time = _EPOCH + dt.timedelta(seconds=seconds)
    except OverflowError:
        return None
    if name == "date":
        return time.date().isoformat()
    fraction = f".{rest:09}".rstrip("0").rstrip(".")
    return f"{time.isoformat(sep=' ')}{fraction}{'Z' if name == 'timestamptz' else ''}"
