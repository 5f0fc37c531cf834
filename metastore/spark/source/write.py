"""Write rows of a data frame to the catalog: entities, statistics of tables, or tags.

``entities``    columns ``kind``, ``path``, and optionally ``comment`` and ``properties``; the comment and the
                properties that a row names are set, all else stays
``statistics``  columns ``path`` (of a table), ``name``, ``values`` (a map, or JSON text)
``tags``        columns ``path``, ``kind``, ``tag`` (a path), and optionally ``value`` and ``column``

A task commits its rows in chunks, each once: a task that runs again changes nothing, whatever people did meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import Row

from metastore.errors import (
    BackendUnavailable,
    DeadlineExceeded,
    InvalidArgument,
    MetastoreError,
    VersionConflict,
)
from metastore.kinds.change import EntityChange, SetComment, SetProperty
from metastore.spark.once import new_write, once
from metastore.store import Store
from metastore.transaction.transaction import Transaction

__all__ = ["Upsert"]

_CHUNK: Final = 500
"""How many rows one commit has at most."""


@dataclass
class _Written(WriterCommitMessage):
    """How many rows a task has written."""

    rows: int


class Upsert(DataSourceWriter):
    """Writes the rows of each task in commits of their own. An error names the row."""

    def __init__(self, table: str, open_: Callable[[], Store], *, overwrite: bool) -> None:
        if table not in _WRITES:
            raise InvalidArgument(f"{table!r} cannot be written; {', '.join(_WRITES)} can")
        if overwrite:
            raise InvalidArgument('a write removes nothing: use mode("append"), which sets the values in the rows')
        self._table, self._open, self._write = table, open_, new_write()

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        rows = (row.asDict(recursive=True) for row in iterator)
        with self._open() as store:
            return _Written(sum(count for count, _ in once(store, self._write, rows, _CHUNK, _WRITES[self._table])))


def _one_by_one(apply: Callable[[Transaction, dict[str, Any]], None]) -> _Write:
    def write(tx: Transaction, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            try:
                apply(tx, row)
            except _OF_THE_CALL:
                raise
            except _OF_A_ROW as error:
                raise _named(row.get("path"), row.get("kind", "statistic"), error) from error

    return write


_OF_A_ROW: Final = (MetastoreError, KeyError, TypeError, ValueError, AttributeError, RecursionError)
"""The errors of a row that lacks a column, or whose value has the wrong type or is not JSON."""
_OF_THE_CALL: Final = (VersionConflict, BackendUnavailable, DeadlineExceeded)
"""Errors that do not come from a row. After a VersionConflict the chunk is written again."""


def _named(path: object, kind: object, error: Exception) -> InvalidArgument:
    what = str(error) if isinstance(error, MetastoreError) else f"{type(error).__name__}: {error}"
    return InvalidArgument(f"the row {path} ({kind}): {what}")


def _tags(tx: Transaction, rows: Sequence[dict[str, Any]]) -> None:
    """Attach tags, grouped by tag, so that one statement looks up the paths of one kind."""
    by_tag: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        target = {"kind": row.get("kind"), "value": row.get("value"), "column": row.get("column")}
        try:
            named = {"target": row["path"]} | {key: value for key, value in target.items() if value is not None}
            by_tag.setdefault(row["tag"], []).append(named)
        except _OF_A_ROW as error:
            raise _named(row.get("path"), "tag", error) from error
    for tag, targets in by_tag.items():
        try:
            tx.tags.attach_many(tag, targets)
        except _OF_THE_CALL:
            raise
        except MetastoreError as error:
            raise _bad_one(tx, tag, targets, error) from error


def _bad_one(tx: Transaction, tag: str, targets: Sequence[dict[str, Any]], error: MetastoreError) -> InvalidArgument:
    """Return the error of the first target that is refused on its own.

    The transaction is not committed, so these attempts change nothing.
    """
    for target in targets:
        try:
            tx.tags.attach_many(tag, [target])
        except _OF_THE_CALL:
            raise
        except MetastoreError as own:
            return _named(target["target"], f"tag {tag}", own)
    return _named(targets[0]["target"], f"tag {tag}", error)


def _entity(tx: Transaction, row: dict[str, Any]) -> None:
    manager: Any = tx.manager(row["kind"])
    wished: list[EntityChange] = [SetProperty(key, value) for key, value in (row.get("properties") or {}).items()]
    if row.get("comment") is not None:
        wished.append(SetComment(row["comment"]))
    if manager.exists(row["path"]):
        manager.alter(row["path"], *wished)
    else:
        fields = {"comment": row.get("comment"), "properties": row.get("properties") or {}}
        try:
            manager.create(row["path"], **fields, parents=True)
        except TypeError:  # such as a catalog's type
            raise InvalidArgument("it does not exist, and needs fields that no column gives: create it first") from None


def _statistic(tx: Transaction, row: dict[str, Any]) -> None:
    values = row["values"]
    named: Mapping[str, Any] = json.loads(values) if isinstance(values, str) else values
    tx.statistics.put_many(row["path"], [tx.statistics.row(row["name"], named)])


_Write = Callable[[Transaction, Sequence[dict[str, Any]]], None]
_WRITES: Final[dict[str, _Write]] = {
    "entities": _one_by_one(_entity),
    "statistics": _one_by_one(_statistic),
    "tags": _tags,
}
