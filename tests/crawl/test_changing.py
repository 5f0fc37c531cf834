"""Lakes that change while they are crawled: what was seen is written, what vanished fails, the next crawl heals."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore.crawl.read import infer
from tests.concurrency.workers import FORKSERVER
from tests.crawl.conftest import INTO, Crawler, Lake, crawl_here, reasons_of


@pytest.fixture
def before_reading(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], object]], None]:
    """Let something happen between the listing and the reading of one file, once."""

    def arrange(name: str, happen: Callable[[], object]) -> None:
        infer_file, pending = infer.infer_file, [happen]

        def looked(location: str, found: str, *rest: Any) -> Any:
            if found.endswith(name) and pending:
                pending.pop()()
            return infer_file(location, found, *rest)

        monkeypatch.setattr("metastore.crawl.tasks.infer_file", looked)

    return arrange


def test_a_file_that_vanishes(crawler: Crawler, before_reading: Any) -> None:
    lake = crawler.lake
    first = lake.parquet("s/t/a.parquet", {"x": [1]})
    lake.parquet("s/t/b.parquet", {"x": [2]})
    before_reading("a.parquet", first.unlink)
    report = crawler.crawl()
    assert reasons_of(report) == {"a.parquet": "is gone: it was there when the folder was listed"}
    assert (report.created, crawler.seen("s.t")["files"]) == (1, 1)
    again = crawler.crawl()
    assert (again.failures, again.missing, again.tables) == ((), 0, 1)
    assert crawler.crawl().attempts == 0


def test_all_files_of_a_table_vanish(crawler: Crawler, before_reading: Any) -> None:
    lake = crawler.lake
    lake.parquet("s/t/a.parquet", {"x": [1]})
    crawler.crawl()
    lake.parquet("s/t/b.parquet", {"x": [2]})
    before_reading("a.parquet", lambda: shutil.rmtree(lake.root / "s/t"))
    report = crawler.crawl()
    assert (len(report.failures), report.missing) == (2, 0)  # they were listed: nothing is said of the table
    assert "crawl.missing" not in crawler.table("s.t").properties
    assert crawler.crawl().missing == 1


def test_a_file_that_is_rewritten_with_other_types(crawler: Crawler, before_reading: Any) -> None:
    lake = crawler.lake
    lake.parquet("s/t/a.parquet", {"x": [1]})
    before_reading("a.parquet", lambda: lake.parquet("s/t/a.parquet", {"x": ["text"], "more": [1]}))
    crawler.crawl()
    assert crawler.columns("s.t") == {"x": "string", "more": "long"}
    crawler.crawl()  # the signature is of the listing, so it is read again
    assert crawler.crawl().attempts == 0
    lake.parquet("s/t/a.parquet", {"x": [1], "more": [1]})
    report = crawler.crawl()
    assert [note.text for note in report.notes] == ["the column 'x' is long in the files now; string is kept"]
    assert crawler.columns("s.t") == {"x": "string", "more": "long"}


def test_two_files_with_types_that_conflict(crawler: Crawler) -> None:
    lake = crawler.lake
    lake.parquet("s/t/p=1/a.parquet", {"x": [1]})
    lake.parquet("s/t/p=2/a.parquet", {"x": [2]})
    bad = lake.parquet("s/t/p=3/a.parquet", {"x": [[1]]})
    report = crawler.crawl()
    assert [f.path for f in report.failures] == [str(bad)]
    assert "other files of its table" in report.failures[0].reason
    assert set(crawler.partitions("s.t")) == {"p=1", "p=2"}
    lake.parquet("s/t/p=3/a.parquet", {"x": [3]})
    assert crawler.crawl().failures == ()
    assert set(crawler.partitions("s.t")) == {"p=1", "p=2", "p=3"}


def rewrite_often(root: str, number: int) -> None:
    """Add, rewrite and remove files of the lake, at random."""
    lake, chosen = Lake(Path(root)), random.Random(number)
    for turn in range(60):
        table = chosen.randrange(6)
        what = chosen.choice(["add", "add", "widen", "column", "remove"])
        name = f"s/t{table}/p={chosen.randrange(4)}/{number}.parquet"
        if what == "remove":
            (lake.root / name).unlink(missing_ok=True)
        else:
            more = {"x": [1.5]} if what == "widen" else {"x": [turn]}
            lake.parquet(name, {**more, "y": ["a"], **({f"c{table}": [1]} if what == "column" else {})})


def crawl_meanwhile(url: str, root: str) -> None:
    for policy in ("report", "widen", "report"):
        crawl_here(url, [Path(root)], on_type_change=policy)


@pytest.mark.each_run_on("sqlite")
def test_a_lake_that_changes_during_crawls(url: str, lake: Lake) -> None:
    for table in range(6):
        lake.parquet(f"s/t{table}/p=0/first.parquet", {"x": [1], "y": ["a"]})
    if url.startswith("postgres"):
        ms.migrate(url)
    crawl_here(url, [lake.root])
    writers = [FORKSERVER.Process(target=rewrite_often, args=(str(lake.root), n)) for n in range(2)]
    crawls = [FORKSERVER.Process(target=crawl_meanwhile, args=(url, str(lake.root))) for _ in range(2)]
    for process in writers + crawls:
        process.start()
    for process in writers + crawls:
        process.join()
    assert [process.exitcode for process in writers + crawls] == [0] * 4
    report = crawl_here(url, [lake.root], on_type_change="widen")
    assert (report.failures, report.missing, report.tables) == ((), 0, 6)
    assert crawl_here(url, [lake.root], on_type_change="widen").attempts == 0
    with ms.open(url) as store:
        for number in range(6):
            loaded = store.tables.load((*INTO, "s", f"t{number}"))
            assert {column.name for column in loaded.columns} <= {"x", "y", "p", f"c{number}"}
            found = {part.name for part in store.partitions.list(loaded)}
            assert found == {path.parent.name for path in lake.root.glob(f"s/t{number}/*/*.parquet")}
        assert len({row.location for row in store.sources.list(".".join(INTO))}) == 6
        assert list(store.verify()) == []
