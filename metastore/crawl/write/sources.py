"""The catalog's row of a data set after its crawl. Pure.

The row (:mod:`metastore.kinds.source`) leads from a location to its table, even after people have moved the table. It
holds everything that the report needs, so the next crawl reads neither files nor tables while nothing has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from metastore.crawl.dataset.dataset import Dataset
from metastore.crawl.files.places import location_of, path_of
from metastore.crawl.policies import OnTypeChange
from metastore.crawl.report import TableResult
from metastore.crawl.write.plan import StoredTable, TablePlan
from metastore.kinds.source import Source

__all__ = ["is_newer", "is_same", "source_fields", "unchanged", "unused_fields", "was_edited"]

_NOTES: Final = 20
"""How many notes are kept. A data set with more notes is read again by each crawl."""
_LONGEST: Final = 500


def source_fields(
    dataset: Dataset,
    plan: TablePlan,
    stored: StoredTable | None,
    before: Source | None,
    policy: OnTypeChange,
) -> dict[str, Any]:
    """Return the row's fields except the table's id and version. The plan was made against ``stored``."""
    kept = not plan.unlisted and len(plan.notes) <= _NOTES and all(len(note) <= _LONGEST for note in plan.notes)
    return {
        "location": location_of(dataset.location),
        "signature": dataset.signature if kept else None,
        "again": dataset.again,
        "edited": was_edited(before, stored),
        "policy": policy if plan.open_types else None,
        "notes": plan.notes if kept else (),
        "counts": {
            "files": dataset.files,
            "rows": dataset.rows,
            "bytes": dataset.bytes,
            "partitions": len(dataset.parts),
        },
    }


def is_newer(row: Source | None, listed: int) -> bool:
    """Return whether a row was written by a crawl that began to list after ``listed``; False if that is 0, unknown."""
    return row is not None and 0 < listed < row.listed


def was_edited(before: Source | None, stored: StoredTable | None) -> bool:
    """Return whether the table was changed by anything but the crawler."""
    if stored is None:
        return False
    if before is not None and before.own_table == stored.id:
        return before.edited or before.table_version != stored.version
    if before is not None and before.table is not None and (before.catalog is None or before.own_table is None):
        return True  # the table is a copy, perhaps of one that people had changed
    return stored.seen is None or stored.version > 1


def unchanged(row: Source, path: str, version: int) -> TableResult:
    """Return the result of a data set whose row stays as it is."""
    counts = row.counts
    return TableResult(
        path,
        path_of(row.location),
        "unchanged",
        version,
        files=counts.get("files", 0),
        rows=counts.get("rows", 0),
        bytes=counts.get("bytes", 0),
        partitions=counts.get("partitions", 0),
    )


def unused_fields(location: str, signature: str | None, before: Source | None) -> dict[str, Any]:
    """Return the row of a location that cannot become a table. If the location has a table already, the table stays."""
    fields = {"location": location_of(location), "signature": signature, "again": True}
    if before is None:
        return fields
    kept = ("table_version", "edited", "missing", "counts")
    return {**fields, "table": before.own_table, **{name: getattr(before, name) for name in kept}}


def is_same(fields: Mapping[str, Any], before: Source | None) -> bool:
    """Return whether the row has these values already, whichever crawl wrote it."""
    if before is None:
        return False
    defaults = {"table": None, "table_version": None, "edited": False, "policy": None, "missing": None, "notes": ()}
    said = {**defaults, "counts": {}, **fields}
    return all(
        (tuple(value) if name == "notes" else value) == getattr(before, name)
        for name, value in said.items()
        if name not in ("run", "listed", "catalog")
    )
