"""The tasks that run on the executors: they read files and commit the data sets.

Most data sets are *whole*: one task reads all their files and commits them, many at once. A data set that is too large
for one task is cut into *pieces* of some files each, which several tasks read. Spark then moves the facts about the
files to the tasks that commit, one for each *bucket* of data sets. The facts never pass through the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from metastore.crawl.dataset.candidates import Candidate
from metastore.crawl.dataset.schemas import Columns
from metastore.crawl.files.discover import File
from metastore.crawl.files.filesystems import NO_OPTIONS, Options
from metastore.crawl.files.formats import format_of
from metastore.crawl.files.limits import Limits
from metastore.crawl.policies import Policies
from metastore.crawl.read.facts import FileFacts, Unreadable
from metastore.crawl.read.infer import infer_file
from metastore.crawl.write.catalog import open_catalog
from metastore.crawl.write.commit import Group, Row, commit_groups

__all__ = ["Piece", "Setting", "crawl_whole", "cut", "groups_of", "look_into", "parted", "shared", "write_bucket"]

_FILE_COST: Final = 1 << 20
"""The cost of opening a file, in bytes of text that are read in the same time."""
_SMALL: Final = 64 * _FILE_COST
"""The cost up to which one task always reads a whole data set."""
_TOGETHER: Final = 100
"""How many candidates are read before they are committed."""


@dataclass(frozen=True)
class Setting:
    """The parameters that all tasks of a crawl share. ``url`` and ``options``, which open files, are secret."""

    url: str = field(repr=False)
    principal: str | None
    crawl_id: str
    policies: Policies
    run: str | None = None
    dry_run: bool = False
    options: Options = field(default_factory=dict, repr=False)
    limits: Limits = field(default_factory=Limits)
    listed: int = 0
    judged: tuple[str, ...] = ()

    def commit(self, groups: Sequence[Group]) -> Iterator[Row]:
        """Commit data sets whose files were read."""
        policy = self.policies.on_type_change
        catalog = open_catalog(self.url, self.principal, self.crawl_id, policy, self.run, self.listed)
        return commit_groups(
            catalog, groups, self.policies, dry_run=self.dry_run, options=self.options, judged=self.judged
        )


@dataclass(frozen=True, slots=True)
class Piece:
    """Some files of a candidate; the candidate itself has no files here."""

    bucket: int
    candidate: Candidate
    files: tuple[File, ...]


# --- on the driver


def parted(candidates: Iterable[Candidate], tasks: int) -> tuple[list[Candidate], list[Candidate]]:
    """Return the candidates that one task can read, and those that are too large for one."""
    costs = [(sum(map(_cost, candidate.files)), candidate) for candidate in candidates]
    most = max(_SMALL, sum(cost for cost, _ in costs) / tasks)
    return [c for cost, c in costs if cost <= most], [c for cost, c in costs if cost > most]


def shared(candidates: Sequence[Candidate], tasks: int) -> list[list[Candidate]]:
    """Return whole candidates in about ``tasks`` equal shares."""
    costs = [_FILE_COST + sum(map(_cost, candidate.files)) for candidate in candidates]
    fair, shares, cost = sum(costs) / tasks, [list[Candidate]()], 0.0
    for candidate, own in zip(candidates, costs, strict=True):
        if cost and cost + own / 2 > fair:
            shares.append([])
            cost -= fair
        shares[-1].append(candidate)
        cost += own
    return shares if candidates else []


def cut(candidates: Sequence[Candidate], pieces: int, buckets: int) -> tuple[list[list[Piece]], int]:
    """Return the work of the first stage, as about ``pieces`` equal shares, and the number of buckets.

    ``candidates`` come schema by schema; those of one schema are in one bucket.
    """
    places = _buckets(candidates, buckets)
    total = sum(_cost(file) for candidate in candidates for file in candidate.files)
    work: list[list[Piece]] = [[]]
    cost = 0
    for candidate, bucket in zip(candidates, places, strict=True):
        bare, files = replace(candidate, files=()), list[File]()
        for file in candidate.files:
            if cost and cost + _cost(file) / 2 > total / pieces:
                work[-1] += [Piece(bucket, bare, tuple(files))] if files else []
                work.append([])
                cost, files = 0, []
            files.append(file)
            cost += _cost(file)
        work[-1] += [Piece(bucket, bare, tuple(files))] if files else []
    return work, places[-1] + 1


def _buckets(candidates: Sequence[Candidate], buckets: int) -> list[int]:
    """Return the bucket of each candidate. Buckets have about equal numbers of candidates and files."""
    fill = sum(1 + len(candidate.files) for candidate in candidates) / buckets
    places: list[int] = []
    bucket, load = 0, 0
    for at, candidate in enumerate(candidates):
        if at and load >= fill and candidate.schema != candidates[at - 1].schema:
            bucket, load = bucket + 1, 0
        load += 1 + len(candidate.files)
        places.append(bucket)
    return places


def _cost(file: File) -> int:
    """Return the cost of reading a file: of Parquet and ORC only the footer is read."""
    known = format_of(file.name)
    return _FILE_COST + file.size if known is not None and known.is_read_whole else _FILE_COST


# --- in a task


def crawl_whole(work: Iterable[Sequence[Candidate]], setting: Setting) -> Iterator[Row]:
    """Read all files of whole candidates, and commit their data sets."""
    schemas: dict[Columns, Columns] = {}
    for share in work:
        for at in range(0, len(share), _TOGETHER):
            some = share[at : at + _TOGETHER]
            groups = [(c, _infer(c.location, c.files, schemas, setting.options, setting.limits)) for c in some]
            yield from setting.commit(groups)


def look_into(
    work: Iterable[Sequence[Piece]], options: Options = NO_OPTIONS, limits: Limits | None = None
) -> Iterator[tuple[int, Group]]:
    """Read the files of pieces. Equal schemas become one object, which Spark moves once."""
    schemas: dict[Columns, Columns] = {}
    for share in work:
        for piece in share:
            facts = _infer(piece.candidate.location, piece.files, schemas, options, limits or Limits())
            yield piece.bucket, (replace(piece.candidate, files=piece.files), facts)


def _infer(
    location: str, files: Iterable[File], schemas: dict[Columns, Columns], options: Options, limits: Limits
) -> list[FileFacts | Unreadable]:
    """Read files. Those with equal schemas share one object."""
    all_facts, last = [], None
    for file in files:
        facts = infer_file(location, file.name, file.size, options, limits)
        if isinstance(facts, FileFacts) and facts.columns is not last:
            last = schemas.setdefault(facts.columns, facts.columns)
            facts = facts if facts.columns is last else replace(facts, columns=last)
        all_facts.append(facts)
    return all_facts


def groups_of(pieces: Iterable[tuple[int, Group]]) -> list[Group]:
    """Return the whole candidates of the pieces in one bucket, in order."""
    groups: dict[Candidate, tuple[list[File], list[Any]]] = {}
    for _, (candidate, facts) in pieces:
        files, all_facts = groups.setdefault(replace(candidate, files=()), ([], []))
        files += candidate.files
        all_facts += facts
    whole: list[Group] = [
        (replace(bare, files=tuple(sorted(files, key=lambda file: file.name))), facts)
        for bare, (files, facts) in groups.items()
    ]
    return sorted(whole, key=lambda group: (group[0].schema, group[0].location, group[0].partitioned))


def write_bucket(pieces: Iterable[tuple[int, Group]], setting: Setting) -> Iterator[Row]:
    """Commit the data sets of one bucket."""
    groups = groups_of(pieces)
    if groups:
        yield from setting.commit(groups)
