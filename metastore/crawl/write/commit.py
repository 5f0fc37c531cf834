"""From files that were read to tables in the catalog, on the executors: concurrent, and safe to run twice.

A task loads what the catalog has of its data sets in a few round trips, decides what the files become, plans each
table against what was loaded, and is done with those that are unchanged. New tables are made many at once, in one
commit; where somebody was faster, and for all that is there already, each data set has a transaction of its own,
planned on fresh reads as often as others win the race: what people write meanwhile is merged. Run again (Spark
repeats a task whose executor died), it finds its own work done and writes nothing.

What fails, fails alone. Only when the database is gone, the rest of the task is not tried.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from metastore.crawl.dataset.candidates import Candidate, Names
from metastore.crawl.dataset.dataset import Dataset
from metastore.crawl.dataset.shape import file_tables, shape, unused
from metastore.crawl.files.filesystems import NO_OPTIONS, Options
from metastore.crawl.files.places import is_gone, join, location_of
from metastore.crawl.policies import Policies
from metastore.crawl.read.facts import FileFacts, Unreadable
from metastore.crawl.report import Action, Failure, Note, TableResult
from metastore.crawl.write.plan import Plan, Refused, StoredTable, plan
from metastore.errors import BackendUnavailable, MetastoreError
from metastore.kinds.source import Source
from metastore.names import format_path

__all__ = ["Applied", "Catalog", "Found", "Group", "Row", "commit_groups"]

Group = tuple[Candidate, Sequence[FileFacts | Unreadable]]
Row = TableResult | Failure | Note
Decide = Callable[[StoredTable | None], Plan]
_TOGETHER: Final = 100
"""How many new tables are made in one commit."""
_ALTERED_TOGETHER: Final = 25
"""How many tables are changed in one commit: the more, the likelier it is that somebody is at one of them."""
_NO_POLICIES: Final = Policies()


@dataclass(frozen=True, slots=True)
class Found:
    """What the catalog has of a data set: its table, and the row that leads there."""

    table: StoredTable | None = None
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    """What a transaction came to: the last plan, the table and its version, attempts that were sent and races lost."""

    plan: Plan
    names: Names
    version: int
    attempts: int = 0
    conflicts: int = 0


class Catalog(Protocol):
    """What the crawler asks of a store; see :mod:`metastore.crawl.write.catalog`."""

    def locations(self, paths: Sequence[Names]) -> dict[Names, str | None]:
        """Return the locations of the tables that are at these paths."""
        ...

    def schemas(self, paths: Sequence[Names]) -> set[Names]:
        """Return which of these schemas there are."""
        ...

    def find(self, wanted: Sequence[Dataset], unseen: AbstractSet[str] = frozenset()) -> list[Found]:
        """Return what there is of data sets: by location, else by path, but for the locations in ``unseen``."""
        ...

    def is_settled(self, found: Dataset, known: Found, made: Plan) -> bool:
        """Whether neither table nor row would be another with this plan."""
        ...

    def create(self, new: Sequence[tuple[Dataset, Found, Plan]]) -> bool:
        """Make new tables in one commit; False: something was in the way, and nothing was written."""
        ...

    def apply(self, found: Dataset, known: Found, decide: Decide) -> Applied:
        """Decide, and write the plan, in one transaction; again when a race is lost."""
        ...

    def apply_together(self, wishes: Sequence[tuple[Dataset, Found, Decide]]) -> list[Applied] | None:
        """Decide, and write all plans in one transaction; None: something was in the way, and nothing was written."""
        ...

    def note_unused(self, path: Names, unused: Sequence[tuple[str, str | None]]) -> None:
        """Write down which files could not be used, by location and signature."""
        ...


@dataclass
class _Task:
    """What one task has learnt: the tables at paths, and which location claims which path."""

    catalog: Catalog
    policies: Policies
    dry_run: bool
    options: Options
    looked: set[Names] = field(default_factory=set)
    there: dict[Names, str | None] = field(default_factory=dict)
    claims: dict[Names, str] = field(default_factory=dict)
    unused: list[tuple[str, str | None]] = field(default_factory=list)
    unseen: set[str] = field(default_factory=set)

    def look(self, paths: Iterable[Names]) -> None:
        new = [path for path in dict.fromkeys(paths) if path not in self.looked]
        if new:
            self.there |= self.catalog.locations(new)
            self.looked.update(new)

    def is_stored(self, path: Names, location: str) -> bool:
        """Whether the table at ``path`` is of the files at ``location``."""
        return self.there.get(path) == location_of(location)

    def decide(self, found: Dataset) -> Decide:
        gone = partial(is_gone, options=self.options)
        return lambda stored: plan(found, stored, gone, self.policies.on_type_change)


def commit_groups(
    catalog: Catalog,
    groups: Iterable[Group],
    policies: Policies = _NO_POLICIES,
    *,
    dry_run: bool = False,
    options: Options = NO_OPTIONS,
) -> Generator[Row]:
    """Write the tables of ``groups``; yield a row for each, and one for all that went wrong."""
    groups = list(groups)
    task = _Task(catalog, policies, dry_run, options)
    try:
        datasets, failures = _shapes(task, groups)
        known = catalog.find(datasets, task.unseen)
        if task.unused and not dry_run:
            catalog.note_unused(groups[0][0].table, task.unused)
    except MetastoreError as error:
        for candidate, _ in groups:
            yield Failure(candidate.location, f"could not be written: {_line(error)}")
        return
    yield from failures
    yield from _settle_or_write(task, _unclaimed(task, datasets, known))


def _shapes(task: _Task, groups: Sequence[Group]) -> tuple[list[Dataset], list[Failure]]:
    """Decide what all candidates become."""
    task.look(candidate.table for candidate, _ in groups if not (candidate.apart or candidate.known))
    many = _already_many(task, groups)
    datasets: list[Dataset] = []
    failures: list[Failure] = []
    for candidate, found in groups:
        is_one = candidate.known == "one" or task.is_stored(candidate.table, candidate.location)
        is_many = candidate.known == "many" or candidate.location in many
        shaped, failed = shape(candidate, found, is_one=is_one, is_many=is_many)
        datasets += shaped
        task.unseen.update(dataset.location for dataset in shaped if candidate.known == "new")
        failures += failed
        task.unused += unused(candidate, shaped, is_many=is_many)
    return datasets, failures


def _already_many(task: _Task, groups: Sequence[Group]) -> set[str]:
    """Return the locations whose files are tables of their own in the catalog, without rows that say so."""
    undecided = [
        (candidate, file_tables(candidate, [file.name for file in found]))
        for candidate, found in groups
        if not (candidate.apart or candidate.partitioned or candidate.known)
        and not task.is_stored(candidate.table, candidate.location)
    ]
    there = task.catalog.schemas(list(dict.fromkeys(c.schema for c, _ in undecided))) if undecided else set()
    undecided = [(candidate, tables) for candidate, tables in undecided if candidate.schema in there]
    task.look(path for _, tables in undecided for path in tables.values())
    return {
        candidate.location
        for candidate, tables in undecided
        if any(task.is_stored(path, join(candidate.location, name)) for name, path in tables.items())
    }


Wish = tuple[Dataset, Found]


def _unclaimed(task: _Task, datasets: Sequence[Dataset], known: Sequence[Found]) -> Iterator[Wish | Failure]:
    """Yield the data sets; a failure for the second of two that would have one path."""
    for found, there in zip(datasets, known, strict=True):
        owner = found.location if there.table is not None else task.claims.setdefault(found.path, found.location)
        if owner == found.location:
            yield found, there
        else:
            path = format_path(found.path)
            yield Failure(found.location, f"would be {path}, which is the table of {owner} already")


def _settle_or_write(task: _Task, wishes: Iterable[Wish | Failure]) -> Iterator[Row]:
    """Plan all data sets on what was loaded; write those that need it."""
    new: list[tuple[Dataset, Found, Plan]] = []
    rest: list[Wish] = []
    for wish in wishes:
        if isinstance(wish, Failure):
            yield wish
            continue
        found, known = wish
        try:
            made = task.decide(found)(known.table)
        except Refused as error:
            yield from _failed(found, known, _line(error))
            continue
        if task.dry_run or task.catalog.is_settled(found, known, made):
            names = known.table.names if known.table else found.path
            yield from _rows(found, Applied(made, names, known.table.version if known.table else 0), task.dry_run)
        elif made.create:
            new.append((found, known, made))
        else:
            rest.append(wish)
    writer = _Writer(task)
    for at in range(0, len(new), _TOGETHER):
        yield from writer.create(new[at : at + _TOGETHER])
    for at in range(0, len(rest), _ALTERED_TOGETHER):
        yield from writer.alter(rest[at : at + _ALTERED_TOGETHER])


@dataclass
class _Writer:
    """Writes, until the database is gone."""

    task: _Task
    lost: BackendUnavailable | None = None

    def create(self, new: Sequence[tuple[Dataset, Found, Plan]]) -> Iterator[Row]:
        """Make new tables at once; where that does not work, those one by one that nobody else has made."""
        catalog, rest = self.task.catalog, [(found, known) for found, known, _ in new]
        try:
            if self.lost is None and catalog.create(new):
                for at, (found, _, made) in enumerate(new):
                    yield from _rows(found, Applied(made, found.path, 1, attempts=int(at == 0)))
                return
            fresh = catalog.find([found for found, _ in rest])
            rest = [(found, known) for (found, _), known in zip(rest, fresh, strict=True)]
        except BackendUnavailable as error:
            self.lost = error
        except MetastoreError:
            pass  # which of them is wrong will show
        for found, known in rest:
            yield from self.write(found, known)

    def alter(self, wishes: Sequence[Wish]) -> Iterator[Row]:
        """Write what is there already in one transaction; one by one where others are at work."""
        done: list[Applied] | None = None
        if self.lost is None and len(wishes) > 1:
            try:
                found_all = [(found, known, self.task.decide(found)) for found, known in wishes]
                done = self.task.catalog.apply_together(found_all)
            except BackendUnavailable as error:
                self.lost = error
            except (Refused, MetastoreError):
                pass  # whose it is will show
        for at, (found, known) in enumerate(wishes):
            yield from self.write(found, known) if done is None else _rows(found, done[at])

    def write(self, found: Dataset, known: Found) -> Iterator[Row]:
        """Write one data set in a transaction of its own."""
        if self.lost is not None:
            yield from _failed(found, known, f"could not be written: {_line(self.lost)}")
            return
        decide = self.task.decide(found)
        try:
            made = decide(known.table)
            if known.table is not None and self.task.catalog.is_settled(found, known, made):
                done = Applied(made, known.table.names, known.table.version)
            else:
                done = self.task.catalog.apply(found, known, decide)
            yield from _rows(found, done)
        except BackendUnavailable as error:
            self.lost = error
            yield from _failed(found, known, f"could not be written: {_line(error)}")
        except (Refused, MetastoreError) as error:
            yield from _failed(found, known, _line(error))


def _rows(found: Dataset, done: Applied, dry_run: bool = False) -> Iterator[Row]:
    made, path = done.plan, format_path(done.names)
    action: Action = "created" if made.create else "altered" if made.alters else "unchanged"
    yield TableResult(
        path=path,
        location=found.location,
        action=action,
        version=None if dry_run else done.version,
        files=found.files,
        rows=found.rows,
        bytes=found.bytes,
        partitions=len(found.parts),
        partitions_added=len(made.parts) - len(made.replaced),
        partitions_changed=len(made.replaced),
        partitions_removed=len(made.removed),
        attempts=done.attempts,
        conflicts=done.conflicts,
        changes=made.diff,
    )
    for text in made.notes:
        yield Note(path, text)


def _failed(found: Dataset, known: Found, reason: str) -> Iterator[Row]:
    path = format_path(known.table.names if known.table is not None else found.path)
    yield TableResult(path, found.location, "failed")
    yield Failure(found.location, reason)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
