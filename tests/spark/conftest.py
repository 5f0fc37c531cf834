"""A lake that is crawled on Spark and then read through the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import metastore as ms
from metastore.crawl import crawl
from metastore.spark import Registered, register
from tests.crawl.conftest import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTO = "lake.main"


@dataclass
class Reader:
    """Crawls ``lake`` into the database at ``url``, and reads it through Spark."""

    spark: SparkSession
    url: str
    lake: Lake

    def crawl(self) -> Any:
        """Crawl the whole lake."""
        return crawl([self.lake.root], INTO, self.url)

    def register(self, scope: str = INTO) -> dict[str, Registered]:
        """Register all tables; return what became of them by their path below the catalog."""
        return {row.path.removeprefix(f"{INTO}."): row for row in register(self.spark, self.url, scope)}

    def alter(self, path: str, *changes: Any) -> None:
        """Change a table as people do."""
        with ms.open(self.url, principal="people") as store:
            store.tables.alter(f"{INTO}.{path}", *changes)

    def rows(self, row: Registered, columns: str = "*", rest: str = "") -> list[dict[str, Any]]:
        """Return the rows of a view."""
        assert row.reason is None
        return [
            found.asDict(recursive=True)
            for found in self.spark.sql(f"SELECT {columns} FROM {row.sql} {rest}").collect()
        ]

    def types(self, row: Registered) -> dict[str, str]:
        """Return the types of a view's columns."""
        return dict(self.spark.table(row.sql).dtypes)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Give an empty lake."""
    (tmp_path / "lake").mkdir()
    return Lake(tmp_path / "lake")


@pytest.fixture
def reader(spark: SparkSession, sqlite_url: str, lake: Lake) -> Iterator[Reader]:
    """Give a reader of an empty lake; its views go away with it."""
    yield Reader(spark, sqlite_url, lake)
    drop_views(spark)


def drop_views(spark: SparkSession) -> None:
    for table in spark.catalog.listTables():
        if table.isTemporary:
            spark.catalog.dropTempView(table.name)


def alike(rows: list[dict[str, Any]], table: pa.Table | list[dict[str, Any]]) -> bool:
    """Tell whether both have the same rows, in whatever order."""
    theirs = table.to_pylist() if isinstance(table, pa.Table) else table
    return sorted(map(_shown, rows)) == sorted(map(_shown, theirs))


def _shown(row: dict[str, Any]) -> str:
    return repr({key: _plain(row[key]) for key in row})


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dict):
        return {key: _plain(below) for key, below in value.items()}
    return [_plain(below) for below in value] if isinstance(value, list) else value
