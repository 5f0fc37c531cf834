"""From files that were read to tables in the catalog, on the executors: concurrent, and safe to run twice.

A task gets the candidates of some schemas, all of a schema in one task. It loads what the catalog has of them in a few
round trips, decides what the files become, plans each table against what was loaded, and is done with those that are
unchanged. The others are planned again and written in a transaction of their own, on fresh reads, as often as others
win the race: what people write meanwhile is merged. Run again (Spark repeats a task whose executor died), it finds
its own work done and writes nothing.

What fails, fails alone. Only when the database is gone, the rest of the task is not tried.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from metastore.crawl.candidates import Candidate, Names
from metastore.crawl.datasets import Dataset
from metastore.crawl.facts import FileFacts, Unreadable
from metastore.crawl.places import is_gone, join, location_of
from metastore.crawl.plan import LocationTaken, Plan, StoredTable, plan
from metastore.crawl.report import Action, Failure, Note, TableResult
from metastore.crawl.shape import file_tables, shape
from metastore.errors import BackendUnavailable, MetastoreError
from metastore.names import format_path

__all__ = ["Applied", "Catalog", "Group", "Row", "commit_groups"]

Group = tuple[Candidate, Sequence[FileFacts | Unreadable]]
Row = TableResult | Failure | Note
Decide = Callable[[StoredTable | None], Plan]


@dataclass(frozen=True, slots=True)
class Applied:
    """What a transaction came to: the last plan, the table's version, attempts that were sent and races lost."""

    plan: Plan
    version: int
    attempts: int = 0
    conflicts: int = 0


class Catalog(Protocol):
    """What the crawler asks of a store; see :mod:`metastore.crawl.catalog`."""

    def load(self, paths: Sequence[Names]) -> list[StoredTable | None]:
        """Load tables, with their partitions and what was seen of them."""
        ...

    def schemas(self, paths: Sequence[Names]) -> set[Names]:
        """Return which of these schemas there are."""
        ...

    def ensure_schemas(self, paths: Iterable[Names]) -> None:
        """Create the schemas that are missing."""
        ...

    def apply(self, found: Dataset, decide: Decide, *, is_new: bool) -> Applied:
        """Decide, and write the plan, in one transaction; again when a race is lost. ``is_new``: there was no table."""
        ...


@dataclass
class _Task:
    """What one task has learnt: the tables that were loaded, and which location claims which path."""

    catalog: Catalog
    loaded: dict[Names, StoredTable | None] = field(default_factory=dict)
    claims: dict[Names, str] = field(default_factory=dict)

    def load(self, paths: Iterable[Names]) -> None:
        new = [path for path in dict.fromkeys(paths) if path not in self.loaded]
        if new:
            self.loaded |= zip(new, self.catalog.load(new), strict=True)

    def is_stored(self, path: Names, location: str) -> bool:
        """Whether the table at ``path`` is of the files at ``location``."""
        stored = self.loaded.get(path)
        return stored is not None and stored.location == location_of(location)


def commit_groups(catalog: Catalog, groups: Iterable[Group]) -> Generator[Row]:
    """Write the tables of ``groups``; yield a row for each, and one for all that went wrong."""
    groups = list(groups)
    task = _Task(catalog)
    try:
        datasets, failures = _shapes(task, groups)
        task.load(found.path for found in datasets)
        catalog.ensure_schemas({found.path[:-1] for found in datasets if task.loaded.get(found.path) is None})
    except MetastoreError as error:
        for candidate, _ in groups:
            yield Failure(candidate.location, f"could not be written: {_line(error)}")
        return
    yield from failures
    yield from _commit_all(task, datasets)


def _shapes(task: _Task, groups: Sequence[Group]) -> tuple[list[Dataset], list[Failure]]:
    """Decide what all candidates become; two that want one table are settled here."""
    task.load(candidate.table for candidate, _ in groups if not candidate.apart)
    many = _already_many(task, groups)
    datasets: list[Dataset] = []
    failures: list[Failure] = []
    for candidate, found in groups:
        is_one = task.is_stored(candidate.table, candidate.location)
        shaped, failed = shape(candidate, found, is_one=is_one, is_many=candidate.location in many)
        failures += failed
        for dataset in shaped:
            owner = task.claims.setdefault(dataset.path, dataset.location)
            if owner == dataset.location:
                datasets.append(dataset)
            else:
                path = format_path(dataset.path)
                failures.append(Failure(dataset.location, f"would be {path}, which is the table of {owner} already"))
    return datasets, failures


def _already_many(task: _Task, groups: Sequence[Group]) -> set[str]:
    """Return the locations whose files are tables of their own in the catalog."""
    undecided = [
        (candidate, file_tables(candidate, [file.name for file in found]))
        for candidate, found in groups
        if not (candidate.apart or candidate.partitioned or task.is_stored(candidate.table, candidate.location))
    ]
    there = task.catalog.schemas(list(dict.fromkeys(c.schema for c, _ in undecided))) if undecided else set()
    undecided = [(candidate, tables) for candidate, tables in undecided if candidate.schema in there]
    task.load(path for _, tables in undecided for path in tables.values())
    return {
        candidate.location
        for candidate, tables in undecided
        if any(task.is_stored(path, join(candidate.location, name)) for name, path in tables.items())
    }


def _commit_all(task: _Task, datasets: Sequence[Dataset]) -> Iterator[Row]:
    lost: BackendUnavailable | None = None
    for found in datasets:
        if lost is not None:
            yield from _failed(found, f"could not be written: {_line(lost)}")
            continue
        try:
            yield from _commit(task, found)
        except BackendUnavailable as error:
            lost = error
            yield from _failed(found, f"could not be written: {_line(error)}")
        except (LocationTaken, MetastoreError) as error:
            yield from _failed(found, _line(error))


def _commit(task: _Task, found: Dataset) -> Iterator[Row]:
    def decide(stored: StoredTable | None) -> Plan:
        return plan(found, stored, is_gone)

    stored = task.loaded[found.path]
    first = decide(stored)
    if first.is_empty:
        done = Applied(first, stored.version if stored else 0)
    else:
        done = task.catalog.apply(found, decide, is_new=stored is None)
    yield _result(found, done)
    for text in done.plan.notes:
        yield Note(format_path(found.path), text)


def _result(found: Dataset, done: Applied) -> TableResult:
    plan = done.plan
    action: Action = "created" if plan.create else "unchanged" if plan.is_empty else "altered"
    return TableResult(
        path=format_path(found.path),
        location=found.location,
        action=action,
        version=done.version,
        files=found.files,
        rows=found.rows,
        bytes=found.bytes,
        partitions=len(found.parts),
        partitions_added=len(plan.parts) - len(plan.replaced),
        partitions_changed=len(plan.replaced),
        partitions_removed=len(plan.removed),
        attempts=done.attempts,
        conflicts=done.conflicts,
        changes=tuple(map(repr, plan.changes)),
    )


def _failed(found: Dataset, reason: str) -> Iterator[Row]:
    yield TableResult(format_path(found.path), found.location, "failed")
    yield Failure(found.location, reason)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
