"""A Parquet file's schema, rows and statistics, from its footer alone.

The schema is what pyarrow reads. Statistics are taken of top-level columns without parts, and only where the footer
has them and they are valid for the type: a NaN among the bounds, bounds of a type that has no order (INT96,
intervals), and texts that are not UTF-8 make the bounds unknown; the bounds of half floats come as bytes, and are
decoded.
"""

from __future__ import annotations

import datetime as dt
import functools
import math
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from metastore.arrow import columns_from_arrow
from metastore.columns import Column
from metastore.crawl.facts import MAX_TEXT, ColumnStats, merge_stats, nanoseconds

__all__ = ["read_parquet", "why_not_parquet"]

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_UNKNOWN: Final = ColumnStats()


def read_parquet(path: str) -> tuple[tuple[Column, ...], int, dict[str, ColumnStats]]:
    """Return the columns, the number of rows, and each column's statistics."""
    with pq.ParquetFile(path) as file:
        schema, metadata = file.schema_arrow, file.metadata
    known = _known(schema.remove_metadata().serialize().to_pybytes())
    return known.columns, metadata.num_rows, _statistics(known, metadata)


def why_not_parquet(path: str) -> str | None:
    """Say what is wrong with a file that pyarrow refuses, where its first and last bytes tell; else None."""
    with Path(path).open("rb") as file:
        head = file.read(4)
        size = file.seek(0, 2)
        file.seek(max(size - 4, 0))
        tail = file.read(4)
    if _ENCRYPTED in (head, tail):
        return "is encrypted: its footer cannot be read without a key"
    if head == _MAGIC and tail != _MAGIC:
        return "is truncated: it begins as Parquet, but its footer is missing"
    if head != _MAGIC:
        return "is not Parquet, although its name says so"
    return None


_Decode = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Known:
    """What follows from a schema: its columns, how many leaves it has, and where those without parts are."""

    columns: tuple[Column, ...]
    leaves: int
    flat: tuple[tuple[int, str, _Decode | None], ...]


@functools.lru_cache(maxsize=256)
def _known(serialized: bytes) -> _Known:
    """Take a schema apart once, for most files of a lake share theirs with others."""
    schema = pa.ipc.read_schema(pa.BufferReader(serialized))
    columns = columns_from_arrow(schema)
    flat, at = [], 0
    for column, field in zip(columns, schema, strict=True):
        leaves = _leaves(field.type)
        if leaves == 1 and not pa.types.is_nested(field.type):
            flat.append((at, column.name, _decoder(field.type)))
        at += leaves
    return _Known(columns, at, tuple(flat))


def _statistics(known: _Known, metadata: Any) -> dict[str, ColumnStats]:
    if known.leaves != metadata.num_columns:
        return {}
    groups = [group for at in range(metadata.num_row_groups) if (group := metadata.row_group(at)).num_rows]
    return {name: merge_stats([_chunk(g.column(at), decode) for g in groups]) for at, name, decode in known.flat}


def _leaves(kind: Any) -> int:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_nested(kind):
        return sum(_leaves(kind.field(at).type) for at in range(kind.num_fields))
    return 1


def _chunk(chunk: Any, decode: _Decode | None) -> ColumnStats:
    """Return the statistics of one column chunk; what the footer has and nobody can read counts as unknown."""
    try:
        stats = chunk.statistics
        if stats is None:
            return _UNKNOWN
        nulls = stats.null_count if stats.has_null_count else None
        if nulls is not None and nulls >= chunk.num_values:
            return ColumnStats(nulls, values=False)
        if decode is None or not stats.has_min_max:
            return ColumnStats(nulls)
    except (OSError, ValueError, NotImplementedError):
        return _UNKNOWN
    try:
        low, high = decode(stats.min), decode(stats.max)
    except (OSError, ValueError, TypeError, OverflowError, ArithmeticError, NotImplementedError, struct.error):
        return ColumnStats(nulls)
    return ColumnStats(nulls) if low is None or high is None else ColumnStats(nulls, low, high)


def _plain(value: Any) -> Any:
    return value


def _float(value: Any) -> float | None:
    return None if math.isnan(value) else float(value)


def _half(value: bytes) -> float | None:
    return _float(struct.unpack("<e", value)[0])


def _short(value: Any) -> Any:
    return value if len(value) <= MAX_TEXT else None


def _date(value: Any) -> int | None:
    return nanoseconds(value) if isinstance(value, dt.date) else None


def _uuid(value: bytes) -> str:
    return str(uuid.UUID(bytes=value))


_DECODERS: Final[tuple[tuple[Callable[[Any], bool], _Decode], ...]] = (
    (pa.types.is_boolean, _plain),
    (pa.types.is_integer, _plain),
    (pa.types.is_float16, _half),
    (pa.types.is_floating, _float),
    (pa.types.is_decimal, _plain),
    (pa.types.is_date, _date),
    (pa.types.is_timestamp, _date),
    (lambda kind: pa.types.is_time(kind) and kind.unit != "ns", _plain),
    (pa.types.is_string, _short),
    (pa.types.is_large_string, _short),
    (pa.types.is_string_view, _short),
    (pa.types.is_binary, _short),
    (pa.types.is_large_binary, _short),
    (pa.types.is_binary_view, _short),
    (pa.types.is_fixed_size_binary, _short),
)


def _decoder(kind: Any) -> _Decode | None:
    """Return what turns a bound as pyarrow gives it into one that compares; None where bounds mean nothing."""
    if kind == pa.uuid():
        return _uuid
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return next((decode for fits, decode in _DECODERS if fits(kind)), None)
