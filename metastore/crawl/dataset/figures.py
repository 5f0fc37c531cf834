"""The statistic ``crawl`` of a table: the crawler's view of the files, as a JSON object. Pure.

    {"rows": 336776, "bytes": 5353498, "files": 12, "format": "parquet", "options": {}, "signature": "6d0c…",
     "columns": {"dep_delay": {"type": "double", "nullable": true, "nulls": 8255, "min": "-43.0", "max": "1301.0"},
                 "seats": {"type": "string", "nullable": true, "kept": "int"},
                 "old": {"type": "int", "missing": true}}}

``signature``: of the files (:mod:`metastore.crawl.read.signatures`). ``missing``: no file has the column now. ``kept``:
the column's type in the catalog, which was not widened to this one. ``left_out``, if there are any: the names of files
in the folder that do not belong to the table; above a thousand, only their number. Nulls, min and max are left out if
they are not known; if the object would be too large, only the types are kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from metastore.columns.column import Column
from metastore.crawl.dataset.dataset import Dataset
from metastore.crawl.read.facts import ColumnStats, text

__all__ = ["PROFILE", "STATISTIC", "figures"]

PROFILE: Final = "profile"
"""The name of the statistic with a profile."""
STATISTIC: Final = "crawl"
"""The statistic's name."""

_LARGEST: Final = 1 << 19
"""The most characters of the statistic as JSON; a larger one keeps only the types."""
_NAMES: Final = 1000


def figures(
    dataset: Dataset, *, missing: Mapping[str, str] | None = None, kept: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the statistic of ``dataset``. ``missing`` and ``kept`` are types by column, as the module describes."""
    gone = {name: {"type": kind, "missing": True} for name, kind in (missing or {}).items()}
    columns = {c.name: _column(c, dataset.stats.get(c.name), kept or {}) for c in dataset.columns}
    seen = _figures(dataset, columns | gone)
    if len(json.dumps(seen)) <= _LARGEST:
        return seen
    return _figures(dataset, {c.name: _column(c, None, kept or {}) for c in dataset.columns} | gone)


def _figures(dataset: Dataset, columns: dict[str, Any]) -> dict[str, Any]:
    shown = {
        "rows": dataset.rows,
        "bytes": dataset.bytes,
        "files": dataset.files,
        "format": dataset.format,
        "options": dict(dataset.options),
        "columns": columns,
    }
    if dataset.left_out:
        shown["left_out"] = list(dataset.left_out) if len(dataset.left_out) <= _NAMES else len(dataset.left_out)
    return shown if dataset.signature is None else {**shown, "signature": dataset.signature}


def _column(column: Column, stats: ColumnStats | None, kept: Mapping[str, str]) -> dict[str, Any]:
    shown: dict[str, Any] = {"type": column.type, "nullable": column.nullable}
    if column.name in kept:
        shown["kept"] = kept[column.name]
    if stats is not None:
        bounds = {"nulls": stats.nulls, "min": text(stats.low, column.type), "max": text(stats.high, column.type)}
        shown |= {key: value for key, value in bounds.items() if value is not None}
    return shown
