"""The registry of crawled data sets: the catalog's rows below the crawled paths show which files must be read.

The rows below a path are listed in pages of a thousand, and their tables are looked up by id: two round trips for a
thousand data sets. A data set is *settled* if its row has the present signature of its files, its table is live, and
the row holds everything that the report shows. All other data sets go to the executors. Rows whose data set was not
found are *lost*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from metastore.crawl.dataset.candidates import Candidate, any_below
from metastore.crawl.files.places import join, location_of
from metastore.crawl.policies import OnTypeChange
from metastore.crawl.read.signatures import prefix_of, signature_of
from metastore.crawl.report import Note, TableResult
from metastore.crawl.write.sources import unchanged
from metastore.kinds.source import Source
from metastore.kinds.table.kind import Table
from metastore.names import format_path

__all__ = ["Entry", "Registry", "Selection", "registry_below", "select_unsettled"]

_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class Entry:
    """A row, and the path and version of its table if the table is live and has the row's location."""

    row: Source
    path: str | None = None
    version: int = 0


Registry = dict[str, Entry]
"""The entries by location."""


@dataclass
class Selection:
    """The candidates that must be read (``todo``), and the results of the others.

    ``fresh`` counts the candidates of ``todo`` that are new or have changed; the others could not be used before.
    """

    todo: list[Candidate] = field(default_factory=list)
    fresh: int = 0
    settled: list[TableResult] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    lost: list[Entry] = field(default_factory=list)


def registry_below(
    roots: Iterable[str],
    below: Callable[[str], Iterator[Source]],
    tables: Callable[[Sequence[int]], list[Table | None]],
) -> Registry:
    """Return the entries of the data sets at and below ``roots``."""
    registry: Registry = {}
    for root in roots:
        here, inside = location_of(root), join(location_of(root), "")
        rows = (row for row in below(prefix_of(root)) if row.location == here or row.location.startswith(inside))
        while page := list(islice(rows, _PAGE)):
            ids = [row.own_table for row in page if row.own_table is not None]
            by_id = {table.id: table for table in tables(ids) if table is not None}
            registry |= {row.location: _entry(row, by_id.get(row.own_table or 0)) for row in page}
    return registry


def _entry(row: Source, table: Table | None) -> Entry:
    """Return the entry of ``row``.

    The table is left out if people gave it another location, or an import gave it another id.
    """
    if table is None or table.location != row.location or not row.leads_to(table):
        return Entry(row)
    return Entry(row, format_path(table.names), table.version)


def select_unsettled(candidates: Iterable[Candidate], registry: Registry, policy: OnTypeChange) -> Selection:
    """Decide which of ``candidates`` must be read."""
    selector = _Selector(registry, policy)
    for candidate in candidates:
        selector.add(candidate)
    return selector.finish()


class _Selector:
    """Settles or selects one candidate after the other."""

    def __init__(self, registry: Registry, policy: OnTypeChange) -> None:
        self.registry, self.policy = registry, policy
        self.selection = Selection()
        self.seen: set[str] = set()
        self.files: list[Candidate] = []

    def add(self, candidate: Candidate) -> None:
        """Settle a candidate, or select the files that must be read."""
        location = location_of(candidate.location)
        entry = None if candidate.apart else self.registry.get(location)
        self.files.append(candidate)
        if entry is not None:
            self.seen.add(location)
            if entry.row.own_table is not None:
                self._one(candidate, entry)
                return
        if not candidate.partitioned and self._many(candidate):
            return
        self.selection.todo.append(candidate)
        self.selection.fresh += entry is None or entry.row.signature != candidate.signature

    def _one(self, candidate: Candidate, entry: Entry) -> None:
        if self._is_settled(entry, candidate.signature):
            self._settle(entry)
            return
        rival = candidate.rival if entry.path is None else None
        self.selection.todo.append(replace(candidate, known="one", rival=rival))
        self.selection.fresh += entry.row.signature != candidate.signature or not entry.row.again

    def _many(self, candidate: Candidate) -> bool:
        """Settle the files that are separate tables in the catalog. Return False if no such tables exist."""
        if not self.registry:
            return False
        places = [
            (file, self.registry.get(location_of(join(candidate.location, file.name)))) for file in candidate.files
        ]
        if not (candidate.apart or any(entry is not None and entry.path is not None for _, entry in places)):
            return False
        todo, others, fresh = [], [], False
        for file, entry in places:
            if entry is not None:
                self.seen.add(entry.row.location)
            if entry is not None and self._is_settled(entry, signature_of([file])):
                self._settle(entry)
                others.append(file.name)
            else:
                todo.append(file)
                fresh = fresh or entry is None or not entry.row.again or entry.row.signature != signature_of([file])
        if todo:
            names = tuple(others)
            self.selection.todo.append(replace(candidate, files=tuple(todo), known="many", others=names))
            self.selection.fresh += fresh
        return True

    def _is_settled(self, entry: Entry, signature: str | None) -> bool:
        row = entry.row
        return (
            entry.path is not None
            and signature is not None
            and row.signature == signature
            and not row.again
            and row.missing is None
            and row.policy in (None, self.policy)
            and (not row.notes or entry.version == row.table_version)
        )

    def _settle(self, entry: Entry) -> None:
        assert entry.path is not None
        row = entry.row
        self.selection.settled.append(unchanged(row, entry.path, entry.version))
        self.selection.notes += [Note(entry.path, text) for text in row.notes]

    def finish(self) -> Selection:
        """Settle the rows that belong to no candidate: their files are part of another data set, or gone."""
        rest = [entry for location, entry in self.registry.items() if location not in self.seen]
        if rest:
            read = {candidate.location for candidate in self.selection.todo}
            there = {location_of(join(c.location, f.name)): c.location in read for c in self.files for f in c.files}
            files = sorted(there)
            for entry in rest:
                is_read = there.get(entry.row.location)
                if is_read is None:
                    if not any_below(entry.row.location, files):  # otherwise its files belong to another data set now
                        self.selection.lost.append(entry)
                elif not is_read and entry.path is not None and entry.row.missing is None:
                    self._settle(entry)
        return self.selection
