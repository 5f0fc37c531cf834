"""The record of a crawl: an owned row of the catalog, named by the time when the crawl began, bounded in size.

Its state is *running* before the first file is read, and done, failed or interrupted at the end. A record that stays
*running* belongs to a crawl that was killed. A crawl that finds nothing new writes no record, and neither does a dry
run.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from metastore.crawl.report import CrawlReport, Failure, Note
from metastore.kinds.catalog import Catalog
from metastore.store import Store

__all__ = ["Run", "run_name"]

_MOST: Final = 100
"""How many failures, notes and changed tables are kept; the others are only counted."""
_LONGEST: Final = 500
_COUNTS: Final = ("created", "altered", "unchanged", "missing", "dropped", "partitions_added", "partitions_changed")
_SUMS: Final = ("partitions_removed", "files", "rows", "bytes", "skipped", "attempts", "conflicts", "profiled")


def run_name(began: datetime) -> str:
    """Return a name that sorts by time."""
    return f"{began.isoformat(timespec='milliseconds')[:23]}Z-{secrets.token_hex(4)}"


class Run:
    """One crawl's record in ``catalog``."""

    def __init__(self, store: Store, catalog: Catalog, began: datetime, asked: Mapping[str, Any]) -> None:
        self._store, self._catalog = store, catalog
        self.name = run_name(began)
        self._values: dict[str, Any] = {"began": f"{began:%Y-%m-%dT%H:%M:%SZ}", **asked}

    def start(self, *, found: int, unread: int) -> None:
        """Write that the crawl runs. ``found`` counts its data sets, ``unread`` those that need not be read."""
        self._values |= {"found": found, "unread": unread}
        self._write("running")

    def done(self, report: CrawlReport) -> None:
        """Write the result of a crawl that ended."""
        counts = {name: getattr(report, name) for name in (*_COUNTS, *_SUMS)}
        changed = [f"{row.action} {row.path}" for row in report.results if row.action not in ("unchanged", "failed")]
        self._values |= {"seconds": round(report.seconds, 3), **counts, "tables": report.tables}
        self._values |= {**_listed("changed", changed), **_failures_and_notes(report.failures, report.notes)}
        self._write("done")

    def ended(self, state: str, seconds: float, reason: str, missing: Sequence[str], written: int) -> None:
        """Write that the crawl ended early; ``missing`` are the locations that were not written."""
        self._values |= {"seconds": round(seconds, 3), "reason": reason[:_LONGEST], "written": written}
        self._values |= _listed("not_written", missing)
        self._write(state)

    def _write(self, state: str) -> None:
        row = self._store.crawls.row(self.name, state, self._values)
        self._store.crawls.put_many(self._catalog, [row])


def _failures_and_notes(failures: Iterable[Failure], notes: Iterable[Note]) -> dict[str, Any]:
    failed = [f"{failure.path}: {failure.reason}" for failure in failures]
    return {**_listed("failures", failed), **_listed("notes", [f"{note.path}: {note.text}" for note in notes])}


def _listed(key: str, texts: Sequence[str]) -> dict[str, Any]:
    """Return the first of ``texts``, and how many there are."""
    return {key: [text[:_LONGEST] for text in texts[:_MOST]], f"{key}_count": len(texts)}
