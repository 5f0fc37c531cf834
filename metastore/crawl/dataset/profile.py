"""Make profiles: figures about the values of tables, from reading all data on Spark.

The statistic ``profile`` of a table, beside ``crawl``, is a JSON object:

    {"rows": 336776, "signature": "…",
     "columns": {"dep_delay": {"type": "double", "nulls": 8255, "distinct": 526, "min": "-43.0", "max": "1301.0",
                               "quantiles": ["-5.0", "-2.0", "11.0"],
                               "top": [{"value": "-5.0", "count": 24821}, …]}}}

If the statistic ``crawl`` has the same ``signature``, and the table the same columns, the table is not read again. A
table that cannot be read is a failure, and stops nothing. How the figures are found:
:mod:`metastore.crawl.dataset.aggregate`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import metastore
from metastore.clock import SYSTEM
from metastore.crawl.dataset.aggregate import figures_of
from metastore.crawl.dataset.figures import PROFILE
from metastore.crawl.files.limits import Limits
from metastore.crawl.report import Failure
from metastore.errors import MetastoreError
from metastore.kinds.table.kind import Table
from metastore.names import format_path
from metastore.spark.dataframe import dataframe, reason_of
from metastore.spark.readable import Readable, readables

__all__ = ["PROFILE", "Profiled", "profile_tables"]

_THREADS: Final = 4
"""Tables that are read at the same time: while one starts, others keep the cores busy."""
_LARGEST: Final = 1 << 19
_DISPENSABLE: Final = ("top", "quantiles", "min", "max")

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Profiled:
    """A table with its profile. ``fresh``: the table was read; otherwise nothing had changed."""

    path: str
    rows: int
    fresh: bool


def profile_tables(
    spark: SparkSession | SparkContext,
    url: str | None,
    paths: Sequence[Names],
    principal: str | None,
    limits: Limits | None = None,
) -> Iterator[Failure | Profiled]:
    """Write the profiles of the tables at ``paths``; yield the result of each as it ends.

    A table that is beyond ``limits`` is not read, and is a failure. Closing the iterator stops the work.
    """
    session = spark if isinstance(spark, SparkSession) else SparkSession.builder.getOrCreate()
    with metastore.open(url, principal=principal) as store:
        tables = store.tables.load_many(paths) if paths else []
        for path, table in zip(paths, tables, strict=True):
            if table is None:
                yield Failure(format_path(path), "cannot be profiled: the table does not exist any more")
        work = _Profiler(session, store, limits or Limits())
        yield from work.all([table for table in tables if table is not None])


class _Profiler:
    """Profiles tables of one store."""

    def __init__(self, spark: SparkSession, store: metastore.Store, limits: Limits) -> None:
        self.spark, self.store, self.limits = spark, store, limits
        self.group = f"metastore-profile-{SYSTEM.operation_id()}"

    def all(self, tables: Sequence[Table]) -> Iterator[Failure | Profiled]:
        """Yield the result of each of ``tables`` as it ends."""
        before = self.store.sources.figures([table.id for table in tables], PROFILE)
        with ThreadPoolExecutor(_THREADS, "metastore-profile") as pool:
            started: list[Future[Failure | Profiled]] = []
            try:
                for readable, old in zip(readables(self.store, tables), before, strict=True):
                    started.append(pool.submit(self.one, readable, None if old is None else old.values))
                for done in as_completed(started):
                    yield done.result()
            finally:
                for future in started:
                    future.cancel()
                if not all(future.done() for future in started):
                    self.spark.sparkContext.cancelJobGroup(self.group)

    def one(self, readable: Readable, before: Mapping[str, Any] | None) -> Failure | Profiled:
        """Profile one table, unless it has not changed."""
        path = readable.table.path
        if before is not None and _is_current(before, readable):
            return Profiled(path, before.get("rows", 0), fresh=False)
        if (reason := _beyond(readable, self.limits)) is not None:
            return Failure(path, f"cannot be profiled: {reason}")
        self.spark.sparkContext.setJobGroup(self.group, f"profile {path}", interruptOnCancel=True)
        try:
            values = profile(self.spark, readable)
            self.store.statistics.put_many(readable.table, [self.store.statistics.row(PROFILE, values)])
        except (PySparkException, Py4JError) as error:
            return Failure(path, f"cannot be profiled: {reason_of(error)}")
        except MetastoreError as error:
            return Failure(path, f"cannot be profiled: {error}")
        except Exception as error:  # noqa: BLE001 (files may hold anything, and the others must go on)
            return Failure(path, f"cannot be profiled: {type(error).__name__}: {reason_of(error)}")
        return Profiled(path, values["rows"], fresh=True)


def profile(spark: SparkSession, readable: Readable) -> dict[str, Any]:
    """Return the profile of a table. Raises InvalidArgument if it cannot be read."""
    rows, columns = figures_of(dataframe(spark, readable), readable.table.columns)
    values: dict[str, Any] = {"rows": rows, "columns": columns}
    if (signature := _signature(readable)) is not None:
        values["signature"] = signature
    return _bounded(values)


def _beyond(readable: Readable, limits: Limits) -> str | None:
    """Return why a table must not be read: its files have more rows than they may have bytes when unpacked."""
    seen = readable.seen or {}
    rows, size = seen.get("rows"), seen.get("bytes")
    if type(rows) is not int or type(size) is not int:
        return None
    most, reason = limits.most(size)
    return f"its files hold {rows:,} rows, each of a byte or more: it {reason}" if rows > most else None


def _signature(readable: Readable) -> Any:
    return (readable.seen or {}).get("signature")


def _is_current(before: Mapping[str, Any], readable: Readable) -> bool:
    signature = _signature(readable)
    then = {name: figures.get("type") for name, figures in before.get("columns", {}).items()}
    now = {column.name: column.type for column in readable.table.columns}
    return signature is not None and before.get("signature") == signature and then == now


def _bounded(values: dict[str, Any]) -> dict[str, Any]:
    """Return ``values`` without the figures that make it too large, the least important first."""
    for key in _DISPENSABLE:
        if len(json.dumps(values)) <= _LARGEST:
            break
        values["columns"] = {
            name: {k: value for k, value in column.items() if k != key} for name, column in values["columns"].items()
        }
    return values
