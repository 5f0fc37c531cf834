"""Decide whether the files of a candidate are one table or several, once they have been read. Pure.

A folder is **one table** if all its files that can be read have one format, one dialect and fit one schema:

* columns of one name have types that one type can hold (:mod:`metastore.crawl.read.widen`). Types of text formats are
  guesses: if all files have the same columns, string can hold any two of them;
* each file shares at least 70 % of its columns with the file that has the most. So files that share only a ``name`` do
  not form a table, and a later file with a new column joins one.

It is one table in any case if its folders are partitions, or if it is one in the catalog already. Then a file that does
not fit the majority is a failure, with the reason. In a folder without partitions, a file of another format, or with
too few common columns, becomes a separate table instead.

Else **each file is its own table**. Its name is the file's name without the format ending; the ending stays if two
names would be equal, or if a folder's table has the name. The files stay separate while the catalog has such tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from metastore.crawl.dataset.candidates import Candidate, Names
from metastore.crawl.dataset.dataset import Dataset, dataset_of, partition_name, with_partitions
from metastore.crawl.dataset.schemas import fit_all, fit_most
from metastore.crawl.files.formats import format_of
from metastore.crawl.files.hive import Keys, parse_key
from metastore.crawl.files.places import join
from metastore.crawl.read.facts import FileFacts, Unreadable
from metastore.crawl.read.signatures import signature_of
from metastore.crawl.report import Failure
from metastore.errors import InvalidArgument
from metastore.names import clean_name, format_path

__all__ = ["Shape", "file_tables", "shape", "unused"]

Shape = tuple[list[Dataset], list[Failure]]


def file_tables(candidate: Candidate, names: Iterable[str]) -> dict[str, Names]:
    """Return the path of each file's table, if each file is a table. Files with invalid names are left out."""
    stems = {name: known.stem for name in names if (known := format_of(name))}
    count = Counter(_cleaned(stem) for stem in stems.values())
    tables = {}
    for name, stem in stems.items():
        short = _cleaned(stem)
        clash = count[short] > 1 or short in candidate.neighbours
        free = _cleaned(name) if clash else short
        if free is not None:
            tables[name] = (*candidate.schema, free)
    return tables


def _cleaned(name: str) -> str | None:
    try:
        return clean_name(name)
    except InvalidArgument:
        return None


def shape(
    candidate: Candidate, readings: Iterable[FileFacts | Unreadable], *, is_one: bool = False, is_many: bool = False
) -> Shape:
    """Return the data sets and failures. ``is_one`` and ``is_many``: the catalog has one table or many already."""
    readings = sorted(readings, key=lambda file: file.name)
    failures = [_failure(candidate, file.name, file.reason) for file in readings if isinstance(file, Unreadable)]
    files = [file for file in readings if isinstance(file, FileFacts)]
    names = [*(file.name for file in readings), *candidate.others]
    if not files:
        return [], failures
    if candidate.partitioned:
        datasets, more = _partitioned(candidate, files, failures)
    elif candidate.apart or is_many:
        datasets, more = _each(candidate, files, names)
    elif (columns := fit_all(files)) is not None:
        datasets, more = _unless_taken(candidate, dataset_of(candidate, files, columns, failures))
    elif is_one:
        datasets, more = _still_one(candidate, files, names)
    else:
        datasets, more = _each(candidate, files, names)
    failures += more
    if failures:
        datasets = [replace(d, again=True) if d.location == candidate.location else d for d in datasets]
    return datasets, failures


def unused(candidate: Candidate, datasets: Iterable[Dataset], *, is_many: bool) -> list[tuple[str, str | None]]:
    """Return the locations that did not become a table, with their signatures."""
    used = {dataset.location for dataset in datasets}
    if candidate.location in used:
        return []
    if not (used or candidate.apart or is_many):
        return [(candidate.location, candidate.signature)]
    places = ((join(candidate.location, file.name), file) for file in candidate.files)
    return [(place, signature_of([file])) for place, file in places if place not in used]


def _failure(candidate: Candidate, name: str, reason: str) -> Failure:
    return Failure(join(candidate.location, name), reason)


def _unless_taken(candidate: Candidate, dataset: Dataset) -> Shape:
    """Return ``dataset``, or a failure if another folder has its table."""
    if candidate.rival is None:
        return [dataset], []
    table = format_path(candidate.table)
    return [], [Failure(candidate.location, f"would be {table}, which is the table of {candidate.rival} already")]


def _each(candidate: Candidate, files: Sequence[FileFacts], names: Iterable[str]) -> Shape:
    """Make each of ``files`` a table; ``names`` are the names of all files of the folder."""
    tables = file_tables(candidate, names)
    stamps = {file.name: file for file in candidate.files}
    datasets, failures = [], []
    for file in files:
        if file.name not in tables:
            failures.append(_failure(candidate, file.name, "cannot be a table: its name is not allowed; rename it"))
            continue
        dataset = dataset_of(candidate, [file], file.columns)
        location = join(candidate.location, file.name)
        signature = signature_of([stamps[file.name]]) if file.name in stamps else None
        datasets.append(replace(dataset, path=tables[file.name], location=location, left_out=(), signature=signature))
    return datasets, failures


def _still_one(candidate: Candidate, files: Sequence[FileFacts], names: Iterable[str]) -> Shape:
    """Make one table of the files that fit, and a separate table of each stranger."""
    columns, fitting, misfits = fit_most(files, any_columns=False)
    failures = [_failure(candidate, misfit.file.name, misfit.reason) for misfit in misfits if not misfit.stranger]
    one, taken = _unless_taken(candidate, dataset_of(candidate, fitting, columns))
    others, unnamed = _each(candidate, [misfit.file for misfit in misfits if misfit.stranger], names)
    return one + others, failures + taken + unnamed


def _partitioned(candidate: Candidate, files: Sequence[FileFacts], unread: list[Failure]) -> Shape:
    """Make one table of the files that fit and have the partition columns that most files have."""
    keys = {file.name: _keys(file.name) for file in files}
    usual = Counter(_names(keys_of_file) for keys_of_file in keys.values()).most_common(1)[0][0]
    problem = _bad_keys(usual)
    if problem is not None:
        return [], [Failure(candidate.location, problem)]
    wrong = {file.name: reason for file in files if (reason := _misplaced(file.name, keys[file.name], usual))}
    placed = [file for file in files if file.name not in wrong]
    failures = [_failure(candidate, name, reason) for name, reason in wrong.items()]
    if not placed:
        return [], failures
    columns, fitting, misfits = fit_most(placed, any_columns=True)
    failures += [_failure(candidate, misfit.file.name, misfit.reason) for misfit in misfits]
    dataset = with_partitions(dataset_of(candidate, fitting, columns, unread + failures), fitting, keys)
    one, taken = _unless_taken(candidate, dataset)
    return one, failures + taken


def _keys(name: str) -> Keys:
    return tuple(pair for folder in name.split("/")[:-1] if (pair := parse_key(folder)) is not None)


def _names(keys: Keys) -> Names:
    return tuple(key for key, _ in keys)


def _misplaced(name: str, keys: Keys, usual: Names) -> str | None:
    """Return why a file cannot be in a table partitioned by ``usual``, or None."""
    if _names(keys) != usual:
        own = ", ".join(_names(keys))
        return f"has the partition columns ({own}), other files of its table have ({', '.join(usual)})"
    try:
        clean_name(partition_name(name))
    except InvalidArgument as error:
        return f"is in a partition that cannot be stored: {error}"
    return None


def _bad_keys(keys: Names) -> str | None:
    try:
        cleaned = {clean_name(key) for key in keys}
    except InvalidArgument as error:
        return f"has a partition column that cannot be stored: {error}"
    return None if len(cleaned) == len(keys) else f"has a partition column twice: {', '.join(keys)}"
