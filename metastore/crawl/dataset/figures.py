"""The statistic ``crawl`` of a table: what the crawler saw, as a JSON object. Pure.

    {"rows": 336776, "bytes": 5353498, "files": 12, "format": "parquet", "options": {}, "signature": "6d0c…",
     "columns": {"dep_delay": {"type": "double", "nullable": true, "nulls": 8255, "min": "-43.0", "max": "1301.0"},
                 "seats": {"type": "string", "nullable": true, "kept": "int"},
                 "old": {"type": "int", "missing": true}}}

``signature``: of the files (:mod:`metastore.crawl.read.signatures`). ``missing``: no file has the column any more.
``kept``: the column's type in the catalog, which was not widened to this one. ``left_out``, where there are any: the
names of files in the folder that are not part of the table; only how many, where they are more than a thousand.
Nulls, min and max are left out where they are not known, all but the types where the object would be too great.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from metastore.columns.column import Column
from metastore.crawl.dataset.dataset import Dataset
from metastore.crawl.read.facts import ColumnStats, text

__all__ = ["STATISTIC", "figures"]

STATISTIC: Final = "crawl"
"""The statistic's name."""

_LARGEST: Final = 1 << 19
_NAMES: Final = 1000


def figures(
    found: Dataset, *, missing: Mapping[str, str] | None = None, kept: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return what there is to say of ``found``; see above for ``missing`` and ``kept``, types by column."""
    gone = {name: {"type": kind, "missing": True} for name, kind in (missing or {}).items()}
    columns = {c.name: _column(c, found.stats.get(c.name), kept or {}) for c in found.columns}
    seen = _figures(found, columns | gone)
    if len(json.dumps(seen)) <= _LARGEST:
        return seen
    return _figures(found, {c.name: _column(c, None, kept or {}) for c in found.columns} | gone)


def _figures(found: Dataset, columns: dict[str, Any]) -> dict[str, Any]:
    shown = {
        "rows": found.rows,
        "bytes": found.bytes,
        "files": found.files,
        "format": found.format,
        "options": dict(found.options),
        "columns": columns,
    }
    if found.left_out:
        shown["left_out"] = list(found.left_out) if len(found.left_out) <= _NAMES else len(found.left_out)
    return shown if found.signature is None else {**shown, "signature": found.signature}


def _column(column: Column, stats: ColumnStats | None, kept: Mapping[str, str]) -> dict[str, Any]:
    shown: dict[str, Any] = {"type": column.type, "nullable": column.nullable}
    if column.name in kept:
        shown["kept"] = kept[column.name]
    if stats is not None:
        bounds = {"nulls": stats.nulls, "min": text(stats.low, column.type), "max": text(stats.high, column.type)}
        shown |= {key: value for key, value in bounds.items() if value is not None}
    return shown
