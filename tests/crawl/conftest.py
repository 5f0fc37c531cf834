"""Lakes for the crawler's tests, and a crawl without Spark: the same functions, in this process."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metastore as ms
from metastore.crawl import job
from metastore.crawl import tasks as stages
from metastore.crawl.dataset.candidates import Candidate
from metastore.crawl.report import CrawlReport
from metastore.crawl.tasks import Setting, crawl_whole, cut, look_into, parted, shared, write_bucket
from metastore.crawl.write.catalog import StoreCatalog
from metastore.crawl.write.commit import Row

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
    """A crawler of one lake into one catalog, in this process."""

    store: ms.Store
    lake: Lake
    url: str
    catalog: StoreCatalog = field(init=False)

    def __post_init__(self) -> None:
        self.catalog = StoreCatalog(self.store)

    def crawl(self, *paths: Path, tasks: int = 3, into: tuple[str, ...] = INTO, **options: Any) -> CrawlReport:
        """Crawl ``paths``, else the whole lake."""
        return crawl_here(self.url, paths or (self.lake.root,), into, tasks, self.catalog, **options)

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

    def written(self, after: int) -> Counter[str]:
        """Return the kinds of what was written after so many entries; the records of crawls apart."""
        kinds = Counter(change.kind for change in list(self.store.changes())[after:])
        del kinds["crawl"]
        return kinds


def crawl_here(
    url: str,
    paths: Iterable[Path | str],
    into: tuple[str, ...] = INTO,
    tasks: int = 3,
    catalog: StoreCatalog | None = None,
    **options: Any,
) -> CrawlReport:
    """Crawl as :func:`metastore.crawl.crawl` does, but with the tasks of the Spark job one after the other."""

    def run(found: Sequence[Candidate], setting: Setting, _master: str, *_: object) -> tuple[list[Row], int]:
        rows: list[Row] = []
        whole, great = parted(found, tasks)
        for share in shared(whole, tasks):
            rows += crawl_whole([pickle.loads(pickle.dumps(share))], setting)
        if great:
            work, buckets = cut(great, tasks, tasks)
            pieces = list(look_into(pickle.loads(pickle.dumps(work)), setting.options, setting.limits))
            for bucket in range(buckets):
                rows += write_bucket((piece for piece in pieces if piece[0] == bucket), setting)
        return pickle.loads(pickle.dumps(rows)), 0

    def ours(_url: str, _principal: str | None, _id: str, policy: Any, run: str | None, listed: int) -> StoreCatalog:
        assert catalog is not None
        catalog.policy, catalog.run, catalog.listed = policy, run, listed
        return catalog

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "_spark_job", lambda: run)
        if catalog is not None:
            patch.setattr(stages, "open_catalog", ours)
        return job.crawl(paths, into, url, principal="crawler", **options)


@pytest.fixture
def crawler(sqlite_url: str, lake: Lake) -> Iterator[Crawler]:
    """Give a crawler of ``lake`` into an empty catalog on SQLite."""
    with ms.open(sqlite_url, principal="crawler") as store:
        store.metalakes.create(INTO[:1])
        store.catalogs.create(INTO, type="relational")
        yield Crawler(store, lake, sqlite_url)


Between = Callable[[str, Callable[[], object]], None]


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Between:
    """Let something happen once: after a crawl has *listed* the lake, or after it has *read* a file."""

    def arrange(after: str, happen: Callable[[], object]) -> None:
        module, name = (job, "walk") if after == "listed" else (stages, "infer_file")
        original, pending = getattr(module, name), [happen]

        def doing(*args: Any, **options: Any) -> Any:
            done = original(*args, **options)
            if pending:
                pending.pop()()
            return done

        monkeypatch.setattr(module, name, doing)

    return arrange


def paths_of(report: CrawlReport) -> list[str]:
    """Return the tables of a report, below the catalog."""
    return [
        row.path.removeprefix(".".join(INTO) + ".")
        for row in report.results
        if row.action in ("created", "altered", "unchanged")
    ]


def reasons_of(report: CrawlReport) -> dict[str, str]:
    """Return the failures of a report by the file's name."""
    return {Path(failure.path).name: failure.reason for failure in report.failures}
