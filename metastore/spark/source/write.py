"""Write rows of a data frame to the catalog: entities, or statistics of tables.

``entities``    columns ``kind``, ``path``, and if they are there ``comment`` and ``properties``; the comment and the
                properties that a row names are set, all else stays
``statistics``  columns ``path`` (of a table), ``name``, ``values`` (a map, or JSON text)

A task commits its rows in chunks. It sets what the rows say, so that a task that runs again changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from pyspark.sql.datasource import DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import Row

from metastore.errors import InvalidArgument, MetastoreError
from metastore.kinds.change import EntityChange, SetComment, SetProperty
from metastore.store import Store
from metastore.transaction.transaction import Transaction

__all__ = ["Upsert"]

_CHUNK: Final = 500
"""How many rows one commit has at most."""
_TABLES: Final = ("entities", "statistics")


@dataclass
class _Written(WriterCommitMessage):
    """How many rows a task has written."""

    rows: int


class Upsert(DataSourceWriter):
    """Writes the rows of each task in commits of their own. An error names the row."""

    def __init__(self, table: str, open_: Callable[[], Store]) -> None:
        if table not in _TABLES:
            raise InvalidArgument(f"{table!r} cannot be written; {' and '.join(_TABLES)} can")
        self._table, self._open = table, open_

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        apply, count = (_entity if self._table == "entities" else _statistic), 0
        with self._open() as store:
            while some := list(islice(iterator, _CHUNK)):
                store.run(lambda tx, rows=some: _all(tx, rows, apply))  # type: ignore[misc]
                count += len(some)
        return _Written(count)


def _all(tx: Transaction, rows: Sequence[Row], apply: Callable[[Transaction, dict[str, Any]], None]) -> None:
    for row in rows:
        values = row.asDict(recursive=True)
        try:
            apply(tx, values)
        except (MetastoreError, KeyError) as error:
            path = values.get("path")
            raise InvalidArgument(f"the row {path} ({values.get('kind', 'statistic')}): {error}") from error


def _entity(tx: Transaction, row: dict[str, Any]) -> None:
    manager: Any = tx.manager(row["kind"])
    wished: list[EntityChange] = [SetProperty(key, value) for key, value in (row.get("properties") or {}).items()]
    if row.get("comment") is not None:
        wished.append(SetComment(row["comment"]))
    if manager.exists(row["path"]):
        manager.alter(row["path"], *wished)
    else:
        manager.create(row["path"], comment=row.get("comment"), properties=row.get("properties") or {}, parents=True)


def _statistic(tx: Transaction, row: dict[str, Any]) -> None:
    values = row["values"]
    named: Mapping[str, Any] = json.loads(values) if isinstance(values, str) else values
    tx.statistics.put_many(row["path"], [tx.statistics.row(row["name"], named)])
