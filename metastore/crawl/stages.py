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
from metastore.crawl.discover import File
from metastore.crawl.facts import FileFacts, Unreadable
from metastore.crawl.formats import format_of
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


def cut(candidates: Sequence[Candidate], pieces: int, buckets: int) -> tuple[list[list[Piece]], int]:
    """Return the work of the first stage, as about ``pieces`` equal shares, and the number of buckets.

    ``candidates`` come schema by schema; those of one schema are in one bucket.
    """
    places = _buckets(candidates, buckets)
    total = sum(_cost(file) for candidate in candidates for file in candidate.files)
    work: list[list[Piece]] = [[]]
    cost = 0
    for candidate, bucket in zip(candidates, places, strict=True):
        bare, files = replace(candidate, files=()), list[tuple[str, int]]()
        for file in candidate.files:
            if cost and cost + _cost(file) / 2 > total / pieces:
                work[-1] += [Piece(bucket, bare, tuple(files))] if files else []
                work.append([])
                cost, files = 0, []
            files.append((file.name, file.size))
            cost += _cost(file)
        work[-1] += [Piece(bucket, bare, tuple(files))] if files else []
    return work, places[-1] + 1


def _buckets(candidates: Sequence[Candidate], buckets: int) -> list[int]:
    """Return the bucket of each candidate; what a bucket costs goes by candidates and files."""
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
    """Return what it costs to look into a file: of Parquet only the footer is read."""
    known = format_of(file.name)
    return _FILE_COST if known is not None and known.name == "parquet" else _FILE_COST + file.size


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


def write_bucket(found: Iterable[tuple[int, Group]], url: str, principal: str | None, crawl_id: str) -> Iterator[Row]:
    """Commit the data sets of one bucket."""
    groups = groups_of(found)
    if groups:
        yield from commit_groups(open_catalog(url, principal, crawl_id), groups)
