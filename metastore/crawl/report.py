"""The report of a crawl: one row per table, one per file that could not be used, and the sums.

Everything here is small and can be pickled: rows come back from Spark's executors, and the report goes to the caller
(``to_json`` for ``--json``). A *failure* is something that is not in the catalog. A *note* is something that is in the
catalog, but not as the files have it (such as a kept column that no file has).

A dry run has the same rows, without versions.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

__all__ = ["Action", "CrawlReport", "Failure", "Note", "TableResult", "summed"]

Action = Literal["created", "altered", "unchanged", "missing", "dropped", "failed"]


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """A file, folder or data set that is not in the catalog, and why, in one line."""

    path: str
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Note:
    """Something about a table or a path that a person should know, in one line."""

    path: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class TableResult:
    """The result of one data set. ``path`` is the path of its table, ``location`` the place of its files.

    The action is ``missing`` if its files are gone and the table stays, ``dropped`` if the table was dropped.
    ``changes`` are the lines of the table's diff (:mod:`metastore.crawl.write.diff`).
    """

    path: str
    location: str
    action: Action
    version: int | None = None
    files: int = 0
    rows: int = 0
    bytes: int = 0
    partitions: int = 0
    partitions_added: int = 0
    partitions_changed: int = 0
    partitions_removed: int = 0
    attempts: int = 0
    conflicts: int = 0
    changes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class CrawlReport:
    """The whole crawl. ``failures`` and ``notes`` are sorted by path, ``results`` by table.

    ``files``, ``rows`` and ``bytes`` count the contents of the tables, ``skipped`` the files of no known format.
    ``attempts`` counts this crawl's own attempts to commit, ``conflicts`` those that lost a race and were planned
    again. A commit of several tables counts once. ``profiled`` counts the tables whose profile was written. ``run`` is
    the name of the crawl's record, None without a record.
    """

    created: int
    altered: int
    unchanged: int
    missing: int
    dropped: int
    partitions: int
    partitions_added: int
    partitions_changed: int
    partitions_removed: int
    files: int
    rows: int
    bytes: int
    skipped: int
    attempts: int
    conflicts: int
    seconds: float
    profiled: int = 0
    dry_run: bool = False
    run: str | None = None
    failures: tuple[Failure, ...] = ()
    notes: tuple[Note, ...] = ()
    results: tuple[TableResult, ...] = ()

    @property
    def tables(self) -> int:
        """How many tables the crawl found."""
        return self.created + self.altered + self.unchanged

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {"tables": self.tables, **dataclasses.asdict(self)}


_FOUND = ("created", "altered", "unchanged")
_SUMS = (
    "partitions",
    "partitions_added",
    "partitions_changed",
    "partitions_removed",
    "files",
    "rows",
    "bytes",
)


def summed(
    results: Iterable[TableResult],
    failures: Iterable[Failure],
    notes: Iterable[Note],
    *,
    skipped: int,
    seconds: float,
    profiled: int = 0,
    dry_run: bool = False,
    run: str | None = None,
) -> CrawlReport:
    """Return the report of these rows."""
    rows = sorted(results, key=lambda row: (row.path, row.location))
    done = [row for row in rows if row.action in _FOUND]
    actions = Counter(row.action for row in rows)
    return CrawlReport(
        created=actions["created"],
        altered=actions["altered"],
        unchanged=actions["unchanged"],
        missing=actions["missing"],
        dropped=actions["dropped"],
        **{name: sum(getattr(row, name) for row in done) for name in _SUMS},
        attempts=sum(row.attempts for row in rows),
        conflicts=sum(row.conflicts for row in rows),
        skipped=skipped,
        seconds=seconds,
        profiled=profiled,
        dry_run=dry_run,
        run=run,
        failures=tuple(sorted(set(failures), key=lambda f: (f.path, f.reason))),
        notes=tuple(sorted(set(notes), key=lambda n: (n.path, n.text))),
        results=tuple(rows),
    )
