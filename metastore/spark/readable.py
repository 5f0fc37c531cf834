"""Load the facts of the catalog that are needed to read a table's files, in few round trips. It needs no Spark.

The statistic ``crawl`` lists the columns of the files, with their types and in order. The id of a catalog column
leads to the file's column: people rename columns, and a column keeps its id. The first name of an id in the table's
history is the name in the files. If gc has cut the history, the oldest name that is left counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from metastore.columns.column import Column
from metastore.kinds.entity import Version
from metastore.kinds.table.kind import Table
from metastore.store import Store

__all__ = ["Readable", "readables"]

_STATISTIC: Final = "crawl"
_CRAWLED: Final = "numFiles"
"""The property of a partition whose folder the crawler has seen."""
_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class Readable:
    """A table, and the facts about its files.

    ``seen`` is the statistic ``crawl``, None for a table that was not crawled. ``names`` has the first name of each
    column and nested field, by id; it is empty if the table was never changed. ``folders`` are the partitions,
    ``key=value`` folders below the location, with their values; None if the files are not partitioned.
    """

    table: Table
    seen: Mapping[str, Any] | None = None
    names: Mapping[int, str] = field(default_factory=dict)
    folders: Mapping[str, Mapping[str, str]] | None = None


def readables(store: Store, tables: Iterable[Table]) -> Iterator[Readable]:
    """Yield the facts about each of ``tables``: one round trip for the statistics of many, more only where needed."""
    rest = iter(tables)
    while page := list(islice(rest, _PAGE)):
        for table, seen in zip(page, _statistics(store, page), strict=True):
            partitioned = seen is not None and bool(table.partitioning)
            names = first_names(store.tables.history(table)) if table.version > 1 else {}
            yield Readable(table, seen, names, _folders(store, table) if partitioned else None)


def _statistics(store: Store, tables: Sequence[Table]) -> list[Mapping[str, Any] | None]:
    figures = store.sources.figures([table.id for table in tables], _STATISTIC)
    return [None if statistic is None else statistic.values for statistic in figures]


def _folders(store: Store, table: Table) -> dict[str, Mapping[str, str]]:
    parts = store.partitions.list(table)
    return {part.name: part.values for part in parts if _CRAWLED in part.properties}


def first_names(history: Iterable[Version]) -> dict[int, str]:
    """Return the first name of each column, and each field in one, by its id."""
    names: dict[int, str] = {}
    for step in history:
        for column in _all_columns(getattr(step.entity, "columns", ())):
            if column.id is not None:
                names.setdefault(column.id, column.name)
    return names


def _all_columns(columns: Iterable[Column]) -> Iterator[Column]:
    for column in columns:
        yield column
        yield from _all_columns(column.fields)
