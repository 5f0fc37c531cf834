"""A data set: a table as its files have it, with their columns, partitions and figures added up. Pure.

Columns are in the order of their first appearance, in the order of files; partition columns come last, typed over
all their values. A column that some file lacks is nullable, and null in that file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from metastore.columns.column import Column
from metastore.crawl.dataset.candidates import Candidate, Names
from metastore.crawl.dataset.schemas import Columns, known_columns
from metastore.crawl.files.formats import TYPED
from metastore.crawl.files.hive import Keys, key_type, odd_values, typed
from metastore.crawl.files.places import join
from metastore.crawl.read.facts import ColumnStats, FileFacts, merge_stats, nanoseconds
from metastore.crawl.report import Failure
from metastore.names import clean_name

__all__ = ["Dataset", "Part", "dataset_of", "partition_name", "with_partitions"]

_UNKNOWN: Final = ColumnStats()
_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class Part:
    """A partition: its values (nulls as Hive writes them), and the sums over its files."""

    values: Mapping[str, str]
    rows: int
    bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table as the files have it. ``keys`` are the partition columns, the last of ``columns``.

    ``doubtful`` are the partitions with files that could not be used; None means all partitions (a folder could not be
    listed, or files were left out). If a doubtful partition is missing, it does not count as gone. ``left_out`` are
    names of files in the folder that are not part of the table: readers must skip them. ``signature`` is that of its
    files. ``again``: some files could not be used, so the next crawl reads the data set again. ``notes`` are texts that
    a person should read.
    """

    path: Names
    location: str
    format: str
    columns: Columns
    keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, Part] = field(default_factory=dict)
    stats: Mapping[str, ColumnStats] = field(default_factory=dict)
    rows: int = 0
    bytes: int = 0
    files: int = 0
    doubtful: frozenset[str] | None = frozenset()
    left_out: tuple[str, ...] = ()
    signature: str | None = None
    again: bool = False
    notes: tuple[str, ...] = ()


def dataset_of(
    candidate: Candidate, files: Sequence[FileFacts], columns: Columns, unused: Iterable[Failure] = ()
) -> Dataset:
    """Return the table of ``files`` with these ``columns``, without partitions; ``unused`` could not be read."""
    first, used = files[0], {file.name for file in files}
    names = (failure.path.removeprefix(join(candidate.location, "")) for failure in unused)
    return Dataset(
        path=candidate.table,
        location=candidate.location,
        format=first.format,
        columns=columns if first.format in TYPED else known_columns(columns),
        options={**dict(first.dialect), **_hints(files)},
        stats={column.name: merge_stats(_column_stats(files, column.name)) for column in columns},
        rows=sum(file.rows for file in files),
        bytes=sum(file.size for file in files),
        files=len(files),
        doubtful=None if candidate.incomplete else frozenset(map(partition_name, names)),
        left_out=tuple(sorted({*(file.name for file in candidate.files), *candidate.unlisted} - used)),
        signature=candidate.signature,
    )


def _hints(files: Iterable[FileFacts]) -> dict[str, str]:
    """Return each hint on which all files that have it agree."""
    values: dict[str, set[str]] = {}
    for file in files:
        for key, value in file.hints:
            values.setdefault(key, set()).add(value)
    return {key: texts.pop() for key, texts in sorted(values.items()) if len(texts) == 1}


def _column_stats(files: Sequence[FileFacts], name: str) -> Iterator[ColumnStats]:
    for file in files:
        stats = file.stats.get(name)
        if stats is not None or not file.stats or any(column.name == name for column in file.columns):
            yield stats or _UNKNOWN
        else:
            yield ColumnStats(file.rows, values=False)


def partition_name(file: str) -> str:
    """Return the name of the partition that a file, named relative to its data set, is in."""
    return file.rpartition("/")[0]


def with_partitions(dataset: Dataset, files: Sequence[FileFacts], keys: Mapping[str, Keys]) -> Dataset:
    """Return ``dataset`` with partitions and their columns; ``keys``: the keys of each file, by its name."""
    names = tuple(key for key, _ in keys[files[0].name])
    values = [dict(keys[file.name]) for file in files]
    kinds = {key: key_type(dict.fromkeys(value[key] for value in values)) for key in names}
    stats = {key: merge_stats(_key_stats(files, [v[key] for v in values], kinds[key])) for key in names}
    return replace(
        dataset,
        keys=names,
        columns=(*(c for c in dataset.columns if c.name not in kinds), *(Column(k, kinds[k]) for k in names)),
        stats={**dataset.stats, **stats},
        parts=_parts(files, values),
        notes=tuple(note for key in names if (note := _odd(key, [value[key] for value in values]))),
    )


def _odd(key: str, values: Iterable[str]) -> str | None:
    """Return a note about the values that make a key a string."""
    kind, odd = odd_values(values)
    if not odd:
        return None
    more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
    return f"the folder {key}={odd[0][:_SHOWN]}{more} makes the column {key!r} a string: the others fit {kind}"


def _key_stats(files: Sequence[FileFacts], values: Sequence[str], kind: str) -> Iterator[ColumnStats]:
    for file, value in zip(files, values, strict=True):
        read = typed(value, kind)
        if read is None:
            yield ColumnStats(file.rows, values=False)
            continue
        read = nanoseconds(read) if kind in ("date", "timestamptz") else read
        yield ColumnStats(0, read, read)


def _parts(files: Sequence[FileFacts], values: Sequence[dict[str, str]]) -> dict[str, Part]:
    parts: dict[str, Part] = {}
    for file, value in zip(files, values, strict=True):
        name = clean_name(partition_name(file.name))
        old = parts.get(name) or Part(value, 0, 0, 0)
        parts[name] = replace(old, rows=old.rows + file.rows, bytes=old.bytes + file.size, files=old.files + 1)
    return parts
