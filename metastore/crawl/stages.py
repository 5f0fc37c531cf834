"""What runs on the executors: files are looked into, and their data sets committed.

A *piece* is some files of one candidate, and the *bucket* that the candidate belongs to. Pieces are what tasks of the
first stage work on; buckets, which hold all candidates of a schema, are tasks of the second. Between them Spark moves
what was found, so that the driver never has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from metastore.crawl.candidates import Candidate
from metastore.crawl.catalog import open_catalog
from metastore.crawl.commit import Group, Row, commit_groups
from metastore.crawl.facts import FileFacts, Unreadable
from metastore.crawl.infer import infer_file
from metastore.crawl.schemas import Columns

__all__ = ["Piece", "cut", "groups_of", "look_into", "write_bucket"]

_FILE_COST = 1 << 20
"""What opening a file costs, in bytes of text read meanwhile."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Files of a candidate (which is without files here) by name and size."""

    bucket: int
    candidate: Candidate
    files: tuple[tuple[str, int], ...]


def cut(candidates: Iterable[Candidate], pieces: int, buckets: int) -> tuple[list[list[Piece]], int]:
    """Return the work of the first stage, as about ``pieces`` equal shares, and the number of buckets.

    ``candidates`` come schema by schema; those of one schema are in one bucket.
    """
    found = list(candidates)
    costs = [sum(_cost(file.name, file.size) for file in candidate.files) for candidate in found]
    share, fill = max(1, sum(costs) // pieces), max(1, (sum(costs) + len(found)) // buckets)
    work: list[list[Piece]] = [[]]
    cost = load = bucket = 0
    for at, candidate in enumerate(found):
        if load >= fill and candidate.schema != found[at - 1].schema:
            bucket, load = bucket + 1, 0
        load += costs[at] + 1
        bare, files = replace(candidate, files=()), []
        for file in candidate.files:
            files.append((file.name, file.size))
            cost += _cost(file.name, file.size)
            if cost >= share:
                work[-1].append(Piece(bucket, bare, tuple(files)))
                work.append([])
                cost, files = 0, []
        if files:
            work[-1].append(Piece(bucket, bare, tuple(files)))
    return [share for share in work if share], bucket + 1


def _cost(name: str, size: int) -> int:
    """Return what it costs to look into a file: of Parquet only the footer is read."""
    return _FILE_COST if name.lower().endswith((".parquet", ".parq", ".pq")) else _FILE_COST + size


def look_into(work: Iterable[Sequence[Piece]]) -> Iterator[tuple[int, Group]]:
    """Look into the files of ``work``. Equal schemas become one object, which Spark moves once."""
    schemas: dict[Columns, Columns] = {}
    for share in work:
        for piece in share:
            found = [infer_file(piece.candidate.location, name, size) for name, size in piece.files]
            yield piece.bucket, (piece.candidate, [_interned(file, schemas) for file in found])


def _interned(file: FileFacts | Unreadable, schemas: dict[Columns, Columns]) -> FileFacts | Unreadable:
    if isinstance(file, Unreadable):
        return file
    columns = schemas.setdefault(file.columns, file.columns)
    return file if columns is file.columns else replace(file, columns=columns)


def groups_of(found: Iterable[tuple[int, Group]]) -> list[Group]:
    """Return whole candidates of the pieces that came to one bucket, in order."""
    groups: dict[Candidate, list[FileFacts | Unreadable]] = {}
    for _, (candidate, files) in found:
        groups.setdefault(candidate, []).extend(files)
    return sorted(groups.items(), key=lambda group: (group[0].schema, group[0].location, group[0].partitioned))


def write_bucket(found: Iterable[tuple[int, Group]], url: str, principal: str | None) -> Iterator[Row]:
    """Commit the data sets of one bucket."""
    groups = groups_of(found)
    if groups:
        yield from commit_groups(open_catalog(url, principal), groups)
