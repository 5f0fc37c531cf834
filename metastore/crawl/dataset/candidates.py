"""Find the candidates for tables, and name them, from the paths of the files alone; no file is read.

A data set is the files of one folder together with those in ``key=value`` folders below it. All files of a data set
are one candidate; whether it becomes one table or several is decided when its files have been read
(:mod:`metastore.crawl.dataset.dataset`). Names are relative to the path that the user gave:

    PATH/nyc/flights/month=1/x.parquet   into.nyc.flights        one table, if the files fit one schema
    PATH/vega/cars.csv                   into.vega.cars          each its own, otherwise
    PATH/flights/x.parquet               into.PATH.flights       a table needs a schema: PATH's own name
    PATH/x.parquet                       into.PATH.PATH          the same, of the files in PATH itself
                                         into.PATH.x             each its own, otherwise

where ``into`` is a catalog. If it is a schema, tables without a folder above them go there. A plain folder below a
``key=value`` folder is a separate data set, and the folders above it are schemas, whatever they are called. Each file
beside ``key=value`` folders is a separate table. A name that the catalog does not allow is a failure.

Two folders can claim one table, if several PATHs are given, or if names differ only in their Unicode form. The first
one (in the order of paths) gets the table; the ``rival`` of the others is the location of the first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from metastore.crawl.files.discover import File, Folder, Listing
from metastore.crawl.files.hive import partition_parts
from metastore.crawl.files.places import base_name, join
from metastore.crawl.read.signatures import signature_of
from metastore.crawl.report import Failure
from metastore.errors import InvalidArgument
from metastore.names import clean_name

__all__ = ["Candidate", "Names", "any_below", "candidates"]

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """The files of a data set. ``files`` have names relative to ``location``, with slashes, in order.

    ``table`` is its path as one table; ``schema`` is the parent if each file is a table. ``apart``: each file is a
    table, whatever it holds. ``neighbours`` are the names of tables that folders in ``schema`` become. ``incomplete``:
    a folder below ``location`` could not be listed, or files may have been left out. ``signature`` is that of all
    files. ``unlisted`` are names of files that the listing reports as failures. The registry
    (:mod:`metastore.crawl.write.registry`) adds two fields. ``known`` says whether the catalog has one table or many,
    or cannot have one because the schema is new. ``others`` are the names of files that need not be read.
    """

    table: Names
    schema: Names
    location: str
    files: tuple[File, ...]
    partitioned: bool = False
    apart: bool = False
    rival: str | None = None
    neighbours: frozenset[str] = frozenset()
    incomplete: bool = False
    signature: str | None = None
    unlisted: tuple[str, ...] = ()
    known: Literal["", "new", "one", "many"] = ""
    others: tuple[str, ...] = ()


def candidates(listing: Listing, into: Names) -> tuple[list[Candidate], list[Failure]]:
    """Return the candidates of ``listing``, grouped by schema, and the folders that cannot be named."""
    named: list[Candidate] = []
    failures: list[Failure] = []
    groups = _data_sets(listing.folders)
    for (root, parts, keyed), folders in groups.items():
        location = join(root, *parts)
        try:
            table, schema = _names(into, root, parts)
        except InvalidArgument as error:
            failures.append(Failure(location, f"cannot be crawled: {error}"))
            continue
        whole = all(folder.whole for folder in folders)
        apart = not whole or (not keyed and (root, parts, True) in groups)
        named.append(Candidate(table, schema, location, _files(folders), keyed, apart))
    return _settled(named, listing), failures


_DataSet = tuple[str, Names, bool]


def _data_sets(folders: Iterable[Folder]) -> dict[_DataSet, list[Folder]]:
    """Group ``folders`` by root, folder of the data set, and whether they are its partitions."""
    groups: dict[_DataSet, list[Folder]] = {}
    for folder in folders:
        base, keys = partition_parts(folder.parts)
        groups.setdefault((folder.root, base, bool(keys)), []).append(folder)
    return groups


def _names(into: Names, root: str, parts: Names) -> tuple[Names, Names]:
    """Return the path of the folder's table, and the path of the schema for its files."""
    names = (*into, *map(clean_name, parts))
    own = (*into, clean_name(base_name(root) or "root"))
    needs_schema = len(into) == 2
    if not parts:
        schema = own if needs_schema else into
        return (*schema, own[-1]), schema
    if len(parts) == 1 and needs_schema:
        return (*own, names[-1]), names
    return names, names


def _files(folders: Iterable[Folder]) -> tuple[File, ...]:
    files = []
    for folder in folders:
        _, keys = partition_parts(folder.parts)
        prefix = "".join(f"{part}/" for part in keys)
        files += [replace(file, name=prefix + file.name) for file in folder.files]
    return tuple(sorted(files, key=lambda file: file.name))


def _settled(named: list[Candidate], listing: Listing) -> list[Candidate]:
    """Return the candidates in the order of schemas, each with its rival, neighbours and signature."""
    owners: dict[Names, str] = {}
    for candidate in named:
        if not candidate.apart:
            owners.setdefault(candidate.table, candidate.location)
    tables: dict[Names, set[str]] = {}
    for table in owners:
        tables.setdefault(table[:-1], set()).add(table[-1])
    neighbours = {schema: frozenset(names) for schema, names in tables.items()}
    unlisted = sorted([failure.path for failure in listing.failures] + list(listing.left_out))
    failed = sorted([failure.path for failure in listing.failures] + list(listing.doubles))
    order = {candidate.location: at for at, candidate in enumerate(named)}
    settled = []
    for candidate in named:
        owner = owners.get(candidate.table)
        incomplete = any_below(candidate.location, unlisted)
        files = tuple(_own(candidate.location, failed))
        settled.append(
            replace(
                candidate,
                rival=None if owner in (None, candidate.location) else owner,
                neighbours=neighbours.get(candidate.schema, frozenset()),
                incomplete=incomplete,
                unlisted=files,
                signature=signature_of(candidate.files, files, incomplete=candidate.partitioned and incomplete),
            )
        )
    return sorted(settled, key=lambda candidate: (candidate.schema, order[candidate.location], candidate.partitioned))


def _own(folder: str, paths: list[str]) -> Iterator[str]:
    """Yield the names of the sorted ``paths`` that are files of the data set in ``folder``."""
    below = join(folder, "")
    for path in paths[bisect_left(paths, below) :]:
        if not path.startswith(below):
            return
        name = path.removeprefix(below)
        if not partition_parts(tuple(name.split("/")[:-1]))[0]:
            yield name


def any_below(folder: str, paths: list[str]) -> bool:
    """Return whether one of the sorted ``paths`` is below ``folder``."""
    below = join(folder, "")
    at = bisect_left(paths, below)
    return at < len(paths) and paths[at].startswith(below)
