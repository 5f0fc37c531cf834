"""What the catalog knows of the data sets below the crawled paths, and so what must be read at all.

The rows below a path are listed in pages of a thousand, and their tables looked up by id: two round trips for a
thousand data sets, whatever they hold. A data set is *settled* if its row has the signature that its files have now,
its table is live, and nothing is to be said or done that the row does not say. Everything else goes to the executors;
rows whose data set was not found are *lost*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from metastore.crawl.dataset.candidates import Candidate, any_below
from metastore.crawl.files.places import join, location_of, path_of
from metastore.crawl.policies import OnTypeChange
from metastore.crawl.read.signatures import prefix_of, signature_of
from metastore.crawl.report import Note, TableResult
from metastore.kinds.source import Source
from metastore.kinds.table.kind import Table
from metastore.names import format_path

__all__ = ["Known", "Registry", "Sorted", "known_below", "sort_out"]

_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class Known:
    """A row, and the path of its table while that is live and of this location."""

    row: Source
    path: str | None = None
    version: int = 0


Registry = dict[str, Known]
"""By location."""


@dataclass
class Sorted:
    """``todo`` are to be read; ``fresh`` of them are new or have changed, the others could not be used before."""

    todo: list[Candidate] = field(default_factory=list)
    fresh: int = 0
    settled: list[TableResult] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    lost: list[Known] = field(default_factory=list)


def known_below(
    roots: Iterable[str],
    below: Callable[[str], Iterator[Source]],
    tables: Callable[[Sequence[int]], list[Table | None]],
) -> Registry:
    """Return what is known of the data sets at and below ``roots``."""
    registry: Registry = {}
    for root in roots:
        here, inside = location_of(root), join(location_of(root), "")
        rows = (row for row in below(prefix_of(root)) if row.location == here or row.location.startswith(inside))
        while page := list(islice(rows, _PAGE)):
            ids = [row.table for row in page if row.table is not None]
            found = {table.id: table for table in tables(ids) if table is not None}
            registry |= {row.location: _known(row, found.get(row.table or 0)) for row in page}
    return registry


def _known(row: Source, table: Table | None) -> Known:
    """Tell whether the table is this data set's: people may have given it another location, an import another id."""
    if table is None or table.location != row.location:
        return Known(row)
    return Known(row, format_path(table.names), table.version)


def sort_out(candidates: Iterable[Candidate], registry: Registry, policy: OnTypeChange) -> Sorted:
    """Decide which of ``candidates`` must be read."""
    sorter = _Sorter(registry, policy)
    for candidate in candidates:
        sorter.add(candidate)
    return sorter.finish()


class _Sorter:
    def __init__(self, registry: Registry, policy: OnTypeChange) -> None:
        self.registry, self.policy = registry, policy
        self.found = Sorted()
        self.seen: set[str] = set()
        self.files: list[Candidate] = []

    def add(self, candidate: Candidate) -> None:
        """Settle a candidate, or put what must be read of it among the others."""
        location = location_of(candidate.location)
        known = None if candidate.apart else self.registry.get(location)
        self.files.append(candidate)
        if known is not None:
            self.seen.add(location)
            if known.row.table is not None:
                self._one(candidate, known)
                return
        if not candidate.partitioned and self._many(candidate):
            return
        self.found.todo.append(candidate)
        self.found.fresh += known is None or known.row.signature != candidate.signature

    def _one(self, candidate: Candidate, known: Known) -> None:
        if self._is_settled(known, candidate.signature):
            self._settle(known)
            return
        rival = candidate.rival if known.path is None else None
        self.found.todo.append(replace(candidate, known="one", rival=rival))
        self.found.fresh += known.row.signature != candidate.signature or not known.row.again

    def _many(self, candidate: Candidate) -> bool:
        """Settle the files that are tables of their own; False if that is not known."""
        if not self.registry:
            return False
        places = [
            (file, self.registry.get(location_of(join(candidate.location, file.name)))) for file in candidate.files
        ]
        if not (candidate.apart or any(known is not None and known.path is not None for _, known in places)):
            return False
        todo, others, fresh = [], [], False
        for file, known in places:
            if known is not None:
                self.seen.add(known.row.location)
            if known is not None and self._is_settled(known, signature_of([file])):
                self._settle(known)
                others.append(file.name)
            else:
                todo.append(file)
                fresh = fresh or known is None or not known.row.again or known.row.signature != signature_of([file])
        if todo:
            names = tuple(others)
            self.found.todo.append(replace(candidate, files=tuple(todo), known="many", others=names))
            self.found.fresh += fresh
        return True

    def _is_settled(self, known: Known, signature: str | None) -> bool:
        row = known.row
        return (
            known.path is not None
            and signature is not None
            and row.signature == signature
            and not row.again
            and row.missing is None
            and row.policy in (None, self.policy)
            and (not row.notes or known.version == row.table_version)
        )

    def _settle(self, known: Known) -> None:
        assert known.path is not None
        row, counts = known.row, known.row.counts
        self.found.settled.append(
            TableResult(
                known.path,
                path_of(row.location),
                "unchanged",
                known.version,
                files=counts.get("files", 0),
                rows=counts.get("rows", 0),
                bytes=counts.get("bytes", 0),
                partitions=counts.get("partitions", 0),
            )
        )
        self.found.notes += [Note(known.path, text) for text in row.notes]

    def finish(self) -> Sorted:
        """Look at the rows that belong to no candidate: their files are there, as part of another, or gone."""
        rest = [known for location, known in self.registry.items() if location not in self.seen]
        if rest:
            read = {candidate.location for candidate in self.found.todo}
            there = {location_of(join(c.location, f.name)): c.location in read for c in self.files for f in c.files}
            files = sorted(there)
            for known in rest:
                is_read = there.get(known.row.location)
                if is_read is None:
                    if not any_below(known.row.location, files):  # else its files are part of another data set now
                        self.found.lost.append(known)
                elif not is_read and known.path is not None and known.row.missing is None:
                    self._settle(known)
        return self.found
