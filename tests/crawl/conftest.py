"""Lakes for the crawler's tests, and a crawl without Spark: the same functions, in this process."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metastore as ms
from metastore.crawl.candidates import candidates
from metastore.crawl.catalog import StoreCatalog
from metastore.crawl.commit import commit_groups
from metastore.crawl.discover import walk
from metastore.crawl.report import CrawlReport, Failure, Note, TableResult, summed
from metastore.crawl.stages import cut, groups_of, look_into

INTO = ("lake", "main")


@dataclass
class Lake:
    """A folder to write files into."""

    root: Path

    def parquet(self, name: str, columns: Mapping[str, Any] | pa.Table, **options: Any) -> Path:
        """Write a Parquet file."""
        path = self._path(name)
        table = columns if isinstance(columns, pa.Table) else pa.table(dict(columns))
        pq.write_table(table, path, **options)
        return path

    def text(self, name: str, content: str | bytes) -> Path:
        """Write a file of any kind."""
        path = self._path(name)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def json(self, name: str, *rows: object) -> Path:
        """Write JSON lines."""
        return self.text(name, "".join(json.dumps(row) + "\n" for row in rows))

    def _path(self, name: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Give an empty lake."""
    (tmp_path / "lake").mkdir()
    return Lake(tmp_path / "lake")


@dataclass
class Crawler:
    """Crawls a lake into a store, in this process."""

    store: ms.Store
    lake: Lake
    catalog: StoreCatalog = field(init=False)

    def __post_init__(self) -> None:
        self.catalog = StoreCatalog(self.store)

    def crawl(self, *paths: Path, tasks: int = 3) -> CrawlReport:
        """Crawl ``paths``, else the whole lake."""
        return crawl_here(self.catalog, paths or (self.lake.root,), tasks)

    def table(self, path: str) -> Any:
        """Load a table below the catalog."""
        return self.store.tables.load(".".join((*INTO, path)))

    def columns(self, path: str) -> dict[str, str]:
        """Return the types of a table's columns."""
        return {column.name: column.type for column in self.table(path).columns}

    def seen(self, path: str) -> Mapping[str, Any]:
        """Return what the crawler noted of a table."""
        values: Mapping[str, Any] = self.store.statistics.load(self.table(path), "crawl").values
        return values

    def partitions(self, path: str) -> dict[str, dict[str, str]]:
        """Return the properties of a table's partitions."""
        return {part.name: dict(part.properties) for part in self.store.partitions.list(self.table(path))}

    def writes(self) -> int:
        """Return how many entries the change feed has."""
        return sum(1 for _ in self.store.changes())


def crawl_here(catalog: Any, paths: Iterable[Path], tasks: int = 3, into: tuple[str, ...] = INTO) -> CrawlReport:
    """Do what :func:`metastore.crawl.crawl` does, without Spark."""
    listing = walk(paths)
    found, unnamed = candidates(listing, into)
    work, buckets = cut(found, tasks, tasks)
    pieces = list(look_into(work))
    rows = [
        row
        for bucket in range(buckets)
        for row in commit_groups(catalog, groups_of(piece for piece in pieces if piece[0] == bucket))
    ]
    return summed(
        [row for row in rows if isinstance(row, TableResult)],
        [*listing.failures, *unnamed, *(row for row in rows if isinstance(row, Failure))],
        [*listing.notes, *(row for row in rows if isinstance(row, Note))],
        skipped=listing.skipped,
        seconds=0.0,
    )


@pytest.fixture
def crawler(tmp_path: Path, lake: Lake) -> Iterator[Crawler]:
    """Give a crawler of ``lake`` into an empty catalog on SQLite."""
    with ms.open(f"sqlite:///{tmp_path / 'metastore.db'}", principal="crawler") as store:
        store.metalakes.create(INTO[:1])
        store.catalogs.create(INTO, type="relational")
        yield Crawler(store, lake)


def paths_of(report: CrawlReport) -> list[str]:
    """Return the tables of a report, below the catalog."""
    return [row.path.removeprefix(".".join(INTO) + ".") for row in report.results if row.action != "failed"]


def reasons_of(report: CrawlReport) -> dict[str, str]:
    """Return the failures of a report by the file's name."""
    return {Path(failure.path).name: failure.reason for failure in report.failures}
