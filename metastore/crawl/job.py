"""``crawl``: from folders to tables, on Spark.

    driver      list folders, name the candidates for tables                     paths, sizes, times
    driver      ask the catalog which candidates have not changed                one row per data set
    executors   read the files of the others (Parquet footers, text as a whole);
                decide, plan, commit straight into the store                     one task per share of data sets
    driver      settle tables whose files are gone; add up                       one small row per table or failure

If nothing has changed, the crawl neither starts Spark nor writes. The database's URL goes to the executors inside the
tasks and is in no configuration. A task can run twice without harm. The crawler never holds a lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import metastore
from metastore.arguments import boolean
from metastore.clock import SYSTEM, Clock
from metastore.crawl.dataset.candidates import Candidate, candidates
from metastore.crawl.files.discover import root_of, walk
from metastore.crawl.files.limits import MAX_RATIO, MAX_UNPACKED, Limits
from metastore.crawl.files.listing import Listing
from metastore.crawl.interruption import Interrupted
from metastore.crawl.known import as_known
from metastore.crawl.policies import MAX_MISSING, OnMissing, OnTypeChange, Policies
from metastore.crawl.report import CrawlReport, Failure, Note, TableResult, summed
from metastore.crawl.tasks import Setting
from metastore.crawl.write.catalog import check_target, prepare
from metastore.crawl.write.commit import Row
from metastore.crawl.write.missing import Seen, is_news, missed, settle_missing, spared
from metastore.crawl.write.registry import Entry, Selection, registry_below, select_unsettled
from metastore.crawl.write.runs import Run
from metastore.errors import InvalidArgument, MetastoreError
from metastore.kinds.catalog import Catalog
from metastore.names import Path, format_path, parse_path
from metastore.store import Store
from metastore.urls import reachable_url

__all__ = ["Progress", "crawl"]

Progress = Callable[[str, float], None]
"""A function that is called with the current step and its progress, 0 to 1.

The progress of some steps is unknown, such as the listing and Spark's start: it stays 0."""


def crawl(
    paths: Iterable[str | os.PathLike[str]],
    into: Path,
    url: str | None = None,
    *,
    master: str = "local[*]",
    principal: str | None = None,
    on_type_change: OnTypeChange = "report",
    on_missing: OnMissing = "mark",
    max_missing: float = MAX_MISSING,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    moved_from: Iterable[str | os.PathLike[str]] = (),
    follow_links: bool = False,
    max_unpacked: int = MAX_UNPACKED,
    max_ratio: int = MAX_RATIO,
    dry_run: bool = False,
    profile: bool = False,
    progress: Progress | None = None,
    clock: Clock = SYSTEM,
) -> CrawlReport:
    """Register the files in the folders ``paths`` as tables below ``into``, a catalog or a schema.

    Creates metalake, catalog and schema if they are missing. The report lists files that cannot be read; they stop
    nothing. A table whose files are gone from ``paths`` or ``moved_from`` follows a data set with the same name to its
    new place. If more than the share ``max_missing`` of the tables is gone at once, no table is dropped.
    ``follow_links`` also follows symbolic links that lead out of ``paths``. A packed file may unpack to
    ``max_unpacked`` bytes and to ``max_ratio`` times its size. ``dry_run`` writes nothing and reports what a crawl
    would write. ``profile`` also reads the data of the tables that have changed.

    Raises InvalidArgument for a wrong argument, a path that does not exist, and if Java or pyspark is missing; NotInUse
    for a disabled metalake or catalog; Interrupted for Ctrl-C: crawl again to write the others.
    """
    for value, what in ((follow_links, "follow_links"), (dry_run, "dry_run"), (profile, "profile")):
        boolean(value, what)
    policies, limits = Policies(on_type_change, on_missing, max_missing), Limits(max_unpacked, max_ratio)
    target, reachable = _target(into), reachable_url(url)
    roots, moved = ([some] if isinstance(some, str | os.PathLike) else list(some) for some in (paths, moved_from))
    patterns = {"include": tuple(include), "exclude": tuple(exclude)}
    with metastore.open(reachable, principal=principal) as store:
        check_target(store, target)
        (roots, named), (moved, _) = as_known(store, target, roots), as_known(store, target, moved)
        job = _Job(store, target, policies, patterns, dry_run, progress or _silent, clock)
        tell = job.tell
        tell("listing folders", 0.0)
        listed = store.sources.now()
        count = partial(_tell_listed, tell)
        listing = walk(roots, **patterns, follow_links=follow_links, tell=count)
        chosen, unnamed = candidates(listing, target)
        job.look(listing, chosen, listed)
        job.warnings += named
        judged = (*listing.roots, *(root_of(path, listing.options) for path in moved))
        options = dict(listing.options)
        setting = Setting(
            reachable, principal, job.id, policies, job.run_name, dry_run, options, limits, listed, judged
        )
        job.work(setting, master, profile=profile)
        tell("done", 1.0)
        return job.report(unnamed)


def _target(into: Path) -> tuple[str, ...]:
    names = parse_path(into)
    if len(names) < 2:
        raise InvalidArgument(f"{into!r} is a metalake; give a catalog, such as {names[0]}.main, or a schema in one")
    return names


def _tell_listed(tell: Progress, folders: int) -> None:
    tell(f"listing folders ({folders:,} so far)", 0.0)  # the number of folders is unknown


def _silent(_what: str, _fraction: float) -> None:
    pass


class _Job:
    """One crawl, on the driver."""

    def __init__(
        self,
        store: Store,
        target: tuple[str, ...],
        policies: Policies,
        patterns: dict[str, tuple[str, ...]],
        dry_run: bool,
        tell: Progress,
        clock: Clock,
    ) -> None:
        self.store, self.target, self.policies, self.patterns = store, target, policies, patterns
        self.dry_run, self.tell, self.clock = dry_run, tell, clock
        self.id = f"metastore-crawl-{clock.operation_id()}"
        self.began, self.began_at = clock.monotonic(), datetime.fromtimestamp(clock.micros() / 1e6, UTC)
        self.listing, self.selection = Listing(), Selection()
        self.listed, self.known = 0, 0
        self.spared, self.warnings = set[str](), list[Note]()
        self.catalog: Catalog | None = None
        self.run: Run | None = None
        self.gone: list[Entry] = []
        self.rows: list[Row] = []
        self.profiled = 0

    @property
    def run_name(self) -> str | None:
        """The name of the crawl's record, if there is one."""
        return None if self.run is None else self.run.name

    # --- before anything is read

    def look(self, listing: Listing, chosen: Sequence[Candidate], listed: int) -> None:
        """Select what must be read, and begin the record if anything is new."""
        self.listing, self.listed = listing, listed
        if not self.dry_run:
            prepare(self.store, self.target)
        (self.catalog,) = self.store.catalogs.load_many([self.target[:2]])
        self.tell("looking into the catalog", 0.0)
        self.selection = self._select(chosen)
        self.selection.todo = self._new(self.selection.todo)
        self.gone = missed(self.selection.lost, listing, listed)
        known = self.known - (len(self.selection.lost) - len(self.gone))
        self.spared, self.warnings = spared(self.gone, listing, known, self.policies)
        news = self.selection.fresh or any(is_news(entry, self._on_missing(entry), listed) for entry in self.gone)
        if news and self.catalog is not None and not self.dry_run:
            self._begin_record()

    def _on_missing(self, entry: Entry) -> OnMissing:
        policy = self.policies.on_missing
        return "mark" if policy == "drop" and entry.row.location in self.spared else policy

    def _select(self, chosen: Sequence[Candidate]) -> Selection:
        registry = {}
        if (catalog := self.catalog) is not None:
            sources = self.store.sources
            registry = registry_below(self.listing.roots, lambda prefix: sources.below(catalog, prefix), sources.tables)
        self.known = sum(entry.path is not None for entry in registry.values())
        return select_unsettled(chosen, registry, self.policies.on_type_change)

    def _new(self, todo: Sequence[Candidate]) -> list[Candidate]:
        """Mark as new the candidates that cannot have a table, because their schema does not exist."""
        places = {
            c.location: {c.table[:-1], c.schema[:-1] if c.schema == c.table else c.schema} for c in todo if not c.known
        }
        names = sorted(set().union(*places.values()))
        schemas = self.store.schemas.load_many(names) if names else []
        there = {path for path, schema in zip(names, schemas, strict=True) if schema is not None} | {self.target[:2]}
        return [replace(c, known="new") if not c.known and not places[c.location] & there else c for c in todo]

    def _begin_record(self) -> None:
        assert self.catalog is not None
        asked = {
            "paths": self.listing.roots,
            "into": format_path(self.target),
            "on_type_change": self.policies.on_type_change,
            "on_missing": self.policies.on_missing,
            "max_missing": self.policies.max_missing,
            **{name: list(texts) for name, texts in self.patterns.items()},
        }
        self.run = Run(self.store, self.catalog, self.began_at, asked)
        self.run.start(found=len(self.selection.settled) + len(self.selection.todo), unread=len(self.selection.settled))

    # --- the work

    def work(self, setting: Setting, master: str, *, profile: bool) -> None:
        """Read, write, and settle the tables whose files are gone. The record names any failure."""
        try:
            if self.selection.todo:
                profiling = _profiling(setting) if profile and not self.dry_run else None
                self.rows, self.profiled = _spark_job()(self.selection.todo, setting, master, self.tell, profiling)
            if self.catalog is not None:
                began, options = f"{self.began_at:%Y-%m-%dT%H:%M:%SZ}", self.listing.options
                seen = Seen(began, self.listed, self.run_name, options)
                gone, policy = self._told("looking for data sets that are gone", self.gone), self._on_missing
                self.rows += settle_missing(self.store, self.catalog, gone, policy, seen, dry_run=self.dry_run)
            if any(isinstance(row, TableResult) and row.action == "failed" for row in self.rows):
                # raises if the target was disabled meanwhile: then the whole crawl has failed
                check_target(self.store, self.target)
        except KeyboardInterrupt:
            raise self._interrupted() from None
        except Exception as error:
            self._ended("failed", " ".join(str(error).split()))
            raise

    def _told(self, what: str, entries: Sequence[Entry]) -> Iterator[Entry]:
        """Yield the entries, and tell how many of them are done."""
        for number, entry in enumerate(entries):
            self.tell(what, number / len(entries))
            yield entry

    def _interrupted(self) -> Interrupted:
        written, missing = self._ended("interrupted", "interrupted")
        return Interrupted(written, missing)

    def _ended(self, state: str, reason: str) -> tuple[int, list[str]]:
        """End the record. Return how many data sets were written, and the locations of the others."""
        written, left = 0, [candidate.location for candidate in self.selection.todo]
        if self.dry_run:
            return written, left
        with suppress(MetastoreError):  # the database may have caused the failure
            left = [candidate.location for candidate in self._select(self.selection.todo).todo]
            written = len(self.selection.todo) - len(left)
            if self.run is not None:
                self.run.ended(state, self.clock.monotonic() - self.began, reason, left, written)
        return written, left

    # --- the end

    def report(self, unnamed: Iterable[Failure]) -> CrawlReport:
        """Return the sums, and end the record."""
        results = [*self.selection.settled, *(row for row in self.rows if isinstance(row, TableResult))]
        wrote = any(row.attempts for row in results)
        if self.run is None and wrote and self.catalog is not None and not self.dry_run:
            self._begin_record()  # a data set that was read again, although it seemed unchanged, has changed
        report = summed(
            results,
            [*self.listing.failures, *unnamed, *(row for row in self.rows if isinstance(row, Failure))],
            [
                *self.listing.notes,
                *self.warnings,
                *self.selection.notes,
                *(row for row in self.rows if isinstance(row, Note)),
            ],
            skipped=self.listing.skipped,
            seconds=self.clock.monotonic() - self.began,
            profiled=self.profiled,
            dry_run=self.dry_run,
            run=self.run_name,
        )
        if self.run is not None:
            self.run.done(report)
        return report


def _spark_job() -> Callable[..., tuple[list[Row], int]]:
    try:
        from metastore.crawl.spark_job import run  # noqa: PLC0415 (pyspark is an extra)
    except ModuleNotFoundError as error:
        raise InvalidArgument(
            f"the crawler needs the package {error.name}: pip install 'versioned-metastore[spark]'"
        ) from None
    return run


def _profiling(setting: Setting) -> Callable[[Any, list[TableResult]], Iterator[object]]:
    def profiles(context: Any, tables: list[TableResult]) -> Iterator[object]:
        from metastore.crawl.dataset.profile import profile_tables  # noqa: PLC0415 (it needs Spark SQL)

        paths = [parse_path(row.path) for row in tables]
        return profile_tables(context, setting.url, paths, setting.principal, setting.limits)

    return profiles
