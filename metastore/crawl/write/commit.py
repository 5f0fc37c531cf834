"""Write the data sets of a task to the catalog, on the executors: concurrently, and safely when run twice.

1. Load the catalog's state of the task's data sets, in a few round trips.
2. Decide which tables the files become, and plan each table against the loaded state. Unchanged tables end here.
3. Create new tables many at once, in one commit. Change existing tables a few at once.
4. If another process wins the race, write each data set in a separate transaction. It plans again on fresh
   reads until it commits, so edits of people are merged.

Spark repeats a task whose executor died. The repeated task finds its tables in place and writes nothing. A data set
that fails does not stop the others, unless the database is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from metastore.crawl.dataset.candidates import Candidate, Names, any_below
from metastore.crawl.dataset.dataset import Dataset
from metastore.crawl.dataset.shape import file_tables, shape, unused
from metastore.crawl.files.filesystems import NO_OPTIONS, Options
from metastore.crawl.files.gone import is_gone
from metastore.crawl.files.places import join, location_of, path_of
from metastore.crawl.policies import Policies
from metastore.crawl.read.facts import FileFacts, Unreadable
from metastore.crawl.report import Action, Failure, Note, TableResult
from metastore.crawl.write.plan import PlanError, StoredTable, TablePlan, plan_table
from metastore.crawl.write.sources import unchanged
from metastore.errors import BackendUnavailable, MetastoreError
from metastore.kinds.source import Source
from metastore.names import format_path

__all__ = ["Applied", "Catalog", "CatalogState", "Group", "NewDataset", "Overtaken", "Request", "Row", "commit_groups"]

Group = tuple[Candidate, Sequence[FileFacts | Unreadable]]
Row = TableResult | Failure | Note
Decide = Callable[[StoredTable | None], TablePlan]
_TOGETHER: Final = 100
"""How many new tables one commit creates."""
_ALTERED_TOGETHER: Final = 25
"""How many tables one commit changes. The more there are, the likelier another process changes one of them."""
_NO_POLICIES: Final = Policies()


class Overtaken(Exception):
    """A crawl that listed later has written the data set: this crawl's view is older."""


@dataclass(frozen=True, slots=True)
class CatalogState:
    """The catalog's part of a data set: its table, and the row that leads from the location to the table."""

    table: StoredTable | None = None
    source: Source | None = None
    dropping: bool = False
    """Whether the row's table is being dropped in steps. It may come back, so no second table is made meanwhile."""

    def check(self) -> None:
        """Raise PlanError for a table that is being dropped."""
        if self.dropping:
            raise PlanError(
                "its table is being dropped in steps; crawl again when that is finished or rolled back; "
                "see store.drops.pending()"
            )


NewDataset = tuple[Dataset, CatalogState, TablePlan]
"""A data set without a table, and the plan that creates it."""
Request = tuple[Dataset, CatalogState, Decide]
"""A data set to write, and the function that plans it on fresh reads."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of a transaction: its plan, and the path and version of the table.

    ``attempts`` counts how often the crawler planned and sent the data set, ``conflicts`` how many of these lost a
    race.
    """

    plan: TablePlan
    names: Names
    version: int
    attempts: int = 0
    conflicts: int = 0


class Catalog(Protocol):
    """The operations of a store that the crawler uses; see :mod:`metastore.crawl.write.catalog`."""

    def locations(self, paths: Sequence[Names]) -> dict[Names, str | None]:
        """Return the location of each table that exists at one of these paths."""

    def schemas(self, paths: Sequence[Names]) -> set[Names]:
        """Return which of these schemas exist."""

    def find(self, datasets: Sequence[Dataset], unseen: AbstractSet[str] = frozenset()) -> list[CatalogState]:
        """Return the state of each data set, looked up by location, else by path unless its location is ``unseen``."""

    def is_overtaken(self, state: CatalogState) -> bool:
        """Return whether a crawl that listed later has written the row."""

    def is_settled(self, dataset: Dataset, state: CatalogState, plan: TablePlan) -> bool:
        """Return whether the plan would change neither the table nor its row."""

    def create(self, new: Sequence[NewDataset]) -> bool:
        """Create new tables in one commit. Return False, and write nothing, if another process was faster."""

    def apply(self, dataset: Dataset, state: CatalogState, decide: Decide) -> Applied:
        """Plan and write one data set in a transaction; plan again when a race is lost."""

    def apply_together(self, requests: Sequence[Request]) -> list[Applied] | None:
        """Plan and write several data sets in one transaction. Return None if a race is lost: nothing is written."""

    def note_unused(self, path: Names, unused: Sequence[tuple[str, str | None]]) -> None:
        """Record the files that could not be used, by location and signature."""


@dataclass
class _Task:
    """The facts that one task has learnt: the tables at paths, and which location claims which path."""

    catalog: Catalog
    policies: Policies
    dry_run: bool
    options: Options
    judged: Sequence[str]
    looked: set[Names] = field(default_factory=set)
    there: dict[Names, str | None] = field(default_factory=dict)
    claims: dict[Names, str] = field(default_factory=dict)
    unused: list[tuple[str, str | None]] = field(default_factory=list)
    refused: list[tuple[str, str | None]] = field(default_factory=list)
    """The data sets that the catalog cannot take, such as those whose name is taken."""
    unseen: set[str] = field(default_factory=set)

    def look(self, paths: Iterable[Names]) -> None:
        new = [path for path in dict.fromkeys(paths) if path not in self.looked]
        if new:
            self.there |= self.catalog.locations(new)
            self.looked.update(new)

    def is_stored(self, path: Names, location: str) -> bool:
        """Return whether the table at ``path`` has the files at ``location``."""
        return self.there.get(path) == location_of(location)

    def decide(self, dataset: Dataset) -> Decide:
        return lambda stored: plan_table(dataset, stored, self.is_gone, self.policies.on_type_change)

    def is_gone(self, location: str) -> bool:
        """Return whether the files are gone from a location below the given paths.

        Any other location counts as not gone.
        """
        path = path_of(location)
        below = any(path == root or any_below(root, [path]) for root in self.judged)
        return below and is_gone(location, self.options)


def commit_groups(
    catalog: Catalog,
    groups: Iterable[Group],
    policies: Policies = _NO_POLICIES,
    *,
    dry_run: bool = False,
    options: Options = NO_OPTIONS,
    judged: Sequence[str] = (),
) -> Generator[Row]:
    """Write the tables of ``groups``; yield a row for each table, and one for each failure.

    ``judged`` are the paths below which files can be gone.
    """
    groups = list(groups)
    task = _Task(catalog, policies, dry_run, options, judged)
    try:
        datasets, failures = _shapes(task, groups)
        states = catalog.find(datasets, task.unseen)
        if task.unused and not dry_run:
            catalog.note_unused(groups[0][0].table, task.unused)
    except MetastoreError as error:
        for candidate, _ in groups:
            yield Failure(candidate.location, f"could not be written: {_line(error)}")
        return
    yield from failures
    yield from _settle_or_write(task, _unclaimed(task, datasets, states))
    if task.refused and not dry_run:
        with suppress(MetastoreError):  # without this note, the next crawl takes them for new files
            catalog.note_unused(groups[0][0].table, task.refused)


def _shapes(task: _Task, groups: Sequence[Group]) -> tuple[list[Dataset], list[Failure]]:
    """Decide which tables all candidates become."""
    task.look(candidate.table for candidate, _ in groups if not (candidate.apart or candidate.known))
    many = _already_many(task, groups)
    datasets: list[Dataset] = []
    failures: list[Failure] = []
    for candidate, facts in groups:
        is_one = candidate.known == "one" or task.is_stored(candidate.table, candidate.location)
        is_many = candidate.known == "many" or candidate.location in many
        shaped, failed = shape(candidate, facts, is_one=is_one, is_many=is_many)
        datasets += shaped
        task.unseen.update(dataset.location for dataset in shaped if candidate.known == "new")
        failures += failed
        task.unused += unused(candidate, shaped, is_many=is_many)
    return datasets, failures


def _already_many(task: _Task, groups: Sequence[Group]) -> set[str]:
    """Return the locations whose files are separate tables in the catalog although no row says so."""
    undecided = [
        (candidate, file_tables(candidate, [file.name for file in facts]))
        for candidate, facts in groups
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


Wish = tuple[Dataset, CatalogState]


def _unclaimed(task: _Task, datasets: Sequence[Dataset], states: Sequence[CatalogState]) -> Iterator[Wish | Failure]:
    """Yield the data sets. If two data sets have one path, yield a failure for the second."""
    for dataset, state in zip(datasets, states, strict=True):
        claimed = state.table is None
        owner = task.claims.setdefault(dataset.path, dataset.location) if claimed else dataset.location
        if owner == dataset.location:
            yield dataset, state
        else:
            path = format_path(dataset.path)
            task.refused.append((dataset.location, dataset.signature))
            yield Failure(dataset.location, f"would be {path}, which is the table of {owner} already")


def _settle_or_write(task: _Task, wishes: Iterable[Wish | Failure]) -> Iterator[Row]:
    """Plan all data sets against the loaded state; write those that need it."""
    new: list[NewDataset] = []
    rest: list[Wish] = []
    for wish in wishes:
        if isinstance(wish, Failure):
            yield wish
            continue
        dataset, state = wish
        if task.catalog.is_overtaken(state):
            yield from _overtaken(dataset, state)
            continue
        try:
            state.check()
            plan = task.decide(dataset)(state.table)
        except PlanError as error:
            yield from _refused(task, dataset, state, error)
            continue
        if task.dry_run or task.catalog.is_settled(dataset, state, plan):
            names = state.table.names if state.table else dataset.path
            version = state.table.version if state.table else 0
            yield from _rows(dataset, Applied(plan, names, version), task.dry_run)
        elif plan.create:
            new.append((dataset, state, plan))
        else:
            rest.append(wish)
    writer = _Writer(task)
    for at in range(0, len(new), _TOGETHER):
        yield from writer.create(new[at : at + _TOGETHER])
    for at in range(0, len(rest), _ALTERED_TOGETHER):
        yield from writer.alter(rest[at : at + _ALTERED_TOGETHER])


@dataclass
class _Writer:
    """Writes data sets until the database is gone."""

    task: _Task
    lost: BackendUnavailable | None = None
    races: int = 0
    """Commits of several tables that lost a race; the next row that is written reports them."""

    def create(self, new: Sequence[NewDataset]) -> Iterator[Row]:
        """Create new tables at once. If that fails, write each on its own, after a new look at the catalog."""
        catalog, rest = self.task.catalog, [(dataset, state) for dataset, state, _ in new]
        try:
            if self.lost is None and catalog.create(new):
                for at, (dataset, _, plan) in enumerate(new):
                    yield from _rows(dataset, Applied(plan, dataset.path, 1, attempts=int(at == 0)))
                return
            self.races += self.lost is None
            fresh = catalog.find([dataset for dataset, _ in rest])
            rest = [(dataset, state) for (dataset, _), state in zip(rest, fresh, strict=True)]
        except BackendUnavailable as error:
            self.lost = error
        except MetastoreError:
            pass  # write each alone: this shows which of them fails
        for dataset, state in rest:
            yield from self.write(dataset, state)

    def alter(self, wishes: Sequence[Wish]) -> Iterator[Row]:
        """Change existing tables in one transaction. If that loses a race, write each on its own."""
        done: list[Applied] | None = None
        if self.lost is None and len(wishes) > 1:
            try:
                requests = [(dataset, state, self.task.decide(dataset)) for dataset, state in wishes]
                done = self.task.catalog.apply_together(requests)
                self.races += done is None
            except BackendUnavailable as error:
                self.lost = error
            except (Overtaken, PlanError, MetastoreError):
                pass  # write each alone: this shows which of them fails
        for at, (dataset, state) in enumerate(wishes):
            yield from self.write(dataset, state) if done is None else _rows(dataset, done[at])

    def write(self, dataset: Dataset, state: CatalogState) -> Iterator[Row]:
        """Write one data set in a separate transaction."""
        if self.lost is not None:
            yield from _failed(dataset, state, f"could not be written: {_line(self.lost)}")
            return
        if self.task.catalog.is_overtaken(state):
            yield from _overtaken(dataset, state)
            return
        decide = self.task.decide(dataset)
        try:
            plan = decide(state.table)
            if state.table is not None and self.task.catalog.is_settled(dataset, state, plan):
                done = Applied(plan, state.table.names, state.table.version)
            else:
                done = self.task.catalog.apply(dataset, state, decide)
            done = replace(done, attempts=done.attempts + self.races, conflicts=done.conflicts + self.races)
            self.races = 0
            yield from _rows(dataset, done)
        except Overtaken:
            (state,) = self.task.catalog.find([dataset])
            yield from _overtaken(dataset, state)
        except BackendUnavailable as error:
            self.lost = error
            yield from _failed(dataset, state, f"could not be written: {_line(error)}")
        except (PlanError, MetastoreError) as error:
            yield from _refused(self.task, dataset, state, error)


def _rows(dataset: Dataset, done: Applied, dry_run: bool = False) -> Iterator[Row]:
    plan, path = done.plan, format_path(done.names)
    action: Action = "created" if plan.create else "altered" if plan.alters else "unchanged"
    yield TableResult(
        path=path,
        location=dataset.location,
        action=action,
        version=None if dry_run else done.version,
        files=dataset.files,
        rows=dataset.rows,
        bytes=dataset.bytes,
        partitions=len(dataset.parts),
        partitions_added=len(plan.parts) - len(plan.replaced),
        partitions_changed=len(plan.replaced),
        partitions_removed=len(plan.removed),
        attempts=done.attempts,
        conflicts=done.conflicts,
        changes=plan.diff,
    )
    for text in plan.notes:
        yield Note(path, text)


def _overtaken(dataset: Dataset, state: CatalogState) -> Iterator[Row]:
    """Yield the result that the newer crawl wrote for the data set; it may have dropped the table."""
    table = state.table
    path = format_path(dataset.path if table is None else table.names)
    if table is not None and state.source is not None:
        yield unchanged(state.source, path, table.version)
    yield Note(path, "another crawl listed it later; the writes of that crawl stay")


def _refused(task: _Task, dataset: Dataset, state: CatalogState, error: Exception) -> Iterator[Row]:
    task.refused.append((dataset.location, dataset.signature))
    yield from _failed(dataset, state, _line(error))


def _failed(dataset: Dataset, state: CatalogState, reason: str) -> Iterator[Row]:
    path = format_path(state.table.names if state.table is not None else dataset.path)
    yield TableResult(path, dataset.location, "failed")
    yield Failure(dataset.location, reason)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
