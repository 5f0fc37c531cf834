"""Crawls into a real catalog, without Spark: what is written, what stays, what is told."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore.crawl.dataset.candidates import candidates
from metastore.crawl.files.discover import walk
from metastore.crawl.report import TableResult
from metastore.crawl.tasks import cut, groups_of, look_into
from metastore.crawl.write.catalog import open_catalog, prepare
from metastore.crawl.write.commit import commit_groups
from metastore.errors import BackendUnavailable, InvalidArgument, NotInUse
from metastore.urls import reachable_url
from tests.concurrency.workers import FORKSERVER
from tests.crawl.conftest import Crawler, Lake, crawl_here, paths_of, reasons_of

pytestmark = pytest.mark.one_in(3)

MONTH = {"x": [1, 2], "y": ["a", None]}


def months(lake: Lake, *numbers: int, **columns: Any) -> None:
    for number in numbers:
        lake.parquet(f"nyc/flights/month={number}/part-0.parquet", columns or MONTH)


def test_a_crawl_registers_what_is_there(crawler: Crawler) -> None:
    months(crawler.lake, 1, 2)
    crawler.lake.text("nyc/csv/airlines/airlines.csv.gz", gzip.compress(b"carrier;n\nAA;1\n"))
    crawler.lake.json("misc/a.json", {"q": 1})
    crawler.lake.text("misc/b.csv", "r\n1\n")
    report = crawler.crawl()
    assert paths_of(report) == ["misc.a", "misc.b", "nyc.csv.airlines", "nyc.flights"]
    assert (report.created, report.altered, report.unchanged, report.tables) == (4, 0, 0, 4)
    assert (report.files, report.partitions, report.failures, report.notes) == (5, 2, (), ())
    table = crawler.table("nyc.flights")
    assert crawler.columns("nyc.flights") == {"x": "long", "y": "string", "month": "int"}
    assert table.partitioning == ("month",)
    assert (table.location, table.format) == (f"file://{crawler.lake.root}/nyc/flights", "parquet")
    assert crawler.partitions("nyc.flights")["month=2"]["numRows"] == "2"
    seen = crawler.seen("nyc.flights")
    assert (seen["rows"], seen["files"]) == (4, 2)
    assert seen["columns"]["y"] == {"type": "string", "nullable": True, "nulls": 2, "min": "a", "max": "a"}
    assert crawler.table("nyc.csv.airlines").properties == {
        "crawl.delimiter": ";",
        "crawl.escape": '"',
        "crawl.header": "true",
        "crawl.compression": "gzip",
    }
    assert crawler.table("misc.a").location == f"file://{crawler.lake.root}/misc/a.json"


def test_an_unchanged_lake_costs_no_write(crawler: Crawler) -> None:
    months(crawler.lake, 1, 2)
    for name in ("a.csv", "b.csv"):
        crawler.lake.text(f"misc/{name}", f"{name}\n1\n")
    crawler.lake.text("misc/broken.csv", b"\x00\x01")
    crawler.crawl()
    writes = crawler.writes()
    for tasks in (1, 2, 5):
        report = crawler.crawl(tasks=tasks)
        assert (report.created, report.altered, report.unchanged) == (0, 0, 3)
        assert (report.attempts, len(report.failures), report.run) == (0, 1, None)
    assert crawler.writes() == writes
    assert list(crawler.store.verify()) == []


def test_a_lake_that_changed(crawler: Crawler) -> None:
    months(crawler.lake, 1, 2)
    crawler.lake.text("other/t/a.csv", "a\n1\n")
    crawler.crawl()
    writes = crawler.writes()
    months(crawler.lake, 2, 3, x=[1, 2, 3], y=["a", "b", "c"], speed=[1.5, 2.5, None])
    report = crawler.crawl()
    assert (report.altered, report.unchanged) == (1, 1)
    assert (report.partitions_added, report.partitions_changed) == (1, 1)
    assert crawler.columns("nyc.flights") == {"x": "long", "y": "string", "speed": "double", "month": "int"}
    assert crawler.seen("nyc.flights")["columns"]["speed"]["nulls"] == 4
    assert crawler.written(writes) == {"table": 1, "partition": 2, "statistic": 1, "source": 1}
    assert crawler.table("nyc.flights").version == 2


def test_a_folder_that_retypes_a_partition_column_is_noted(crawler: Crawler) -> None:
    for month in ("1", "2", "3", "__HIVE_DEFAULT_PARTITION__", "oops"):
        crawler.lake.parquet(f"s/t/month={month}/a.parquet", MONTH)
        crawler.lake.parquet(f"s/u/name={month}{month}x/a.parquet", MONTH)
    note = ("lake.main.s.t", "the folder month=oops makes the column 'month' a string: the others fit int")
    for attempts in (True, False):
        report = crawler.crawl()
        assert crawler.columns("s.t")["month"] == "string"
        assert [(found.path, found.text) for found in report.notes] == [note]
        assert bool(report.attempts) == attempts


def test_a_partition_that_is_gone(crawler: Crawler) -> None:
    months(crawler.lake, 1, 2)
    crawler.crawl()
    for path in sorted((crawler.lake.root / "nyc/flights/month=1").rglob("*"), reverse=True):
        path.unlink()
    report = crawler.crawl()
    assert report.partitions_removed == 1
    assert list(crawler.partitions("nyc.flights")) == ["month=2"]


def test_a_partition_that_became_unreadable_stays(crawler: Crawler) -> None:
    months(crawler.lake, 1, 2)
    crawler.crawl()
    crawler.lake.text("nyc/flights/month=1/part-0.parquet", b"")
    report = crawler.crawl()
    assert reasons_of(report) == {"part-0.parquet": "is empty (0 bytes)"}
    assert list(crawler.partitions("nyc.flights")) == ["month=1", "month=2"]


def test_what_people_edited_is_kept(crawler: Crawler) -> None:
    months(crawler.lake, 1)
    crawler.crawl()
    edited = crawler.store.tables.alter(
        crawler.table("nyc.flights"),
        ms.SetComment("ours"),
        ms.SetProperty("owner", "ann"),
        ms.SetColumnComment("x", "what x is"),
        ms.RenameColumn("y", "z"),
        ms.AddColumn("mine", "date"),
        ms.SetFormat("iceberg"),
    )
    assert crawler.crawl().unchanged == 1
    assert crawler.table("nyc.flights") == edited
    months(crawler.lake, 2, x=[1], y=["a"], new=[1])
    assert crawler.crawl().altered == 1
    table = crawler.table("nyc.flights")
    assert (table.comment, dict(table.properties), table.format) == ("ours", {"owner": "ann"}, "iceberg")
    assert [column.name for column in table.columns] == ["x", "z", "month", "mine", "new"]
    assert table.columns[0].comment == "what x is"


@pytest.fixture
def meanwhile(crawler: Crawler, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Let somebody else commit once, after the crawler has read and before it commits."""

    def arrange(edit: Callable[[], object]) -> None:
        run, register, pending = crawler.store.run, crawler.store.sources.register, [edit]

        def registering(*args: Any) -> list[int]:
            if pending:
                pending.pop()()
            return register(*args)

        def interrupted(fn: Callable[[Any], Any]) -> Any:
            def attempt(tx: Any) -> Any:
                done = fn(tx)
                if pending:
                    pending.pop()()
                return done

            return run(attempt)

        monkeypatch.setattr(crawler.store, "run", interrupted)
        monkeypatch.setattr(crawler.store.sources, "register", registering)

    return arrange


@pytest.fixture
def other(crawler: Crawler, tmp_path: Path) -> Any:
    """Open the same database once more."""
    with ms.open(f"sqlite:///{tmp_path / 'metastore.db'}", principal="ann") as store:
        yield store


def test_edits_during_the_crawl_are_kept(crawler: Crawler, meanwhile: Any, other: ms.Store) -> None:
    months(crawler.lake, 1)
    crawler.crawl()
    months(crawler.lake, 2, x=[1], y=["a"], new=[1], newer=[2])
    table = crawler.table("nyc.flights").path
    meanwhile(
        lambda: other.tables.alter(table, ms.AddColumn("new", "decimal(20,0)", comment="ours"), ms.DropColumn("y"))
    )
    report = crawler.crawl()
    assert (report.attempts, report.conflicts) == (2, 1)
    assert crawler.columns("nyc.flights") == {"x": "long", "newer": "long", "month": "int", "new": "decimal(20,0)"}
    writes = crawler.writes()
    assert crawler.crawl().unchanged == 1
    assert crawler.writes() == writes


def test_a_crawl_counts_its_own_commits(crawler: Crawler, meanwhile: Any, other: ms.Store) -> None:
    """Other work of the same store neither adds to a table's attempts nor to its conflicts."""
    months(crawler.lake, 1)
    crawler.crawl()
    months(crawler.lake, 2)

    def busy() -> None:
        for name in "ab":
            crawler.store.tables.create(f"lake.main.others.{name}", parents=True)
        tx = crawler.store.transaction().__enter__()
        table = tx.tables.load("lake.main.others.a")
        other.tables.alter(table.path, ms.SetProperty("k", "v"))
        tx.tables.alter(table, ms.SetProperty("k", "w"))
        with pytest.raises(ms.VersionConflict):
            tx.__exit__(None, None, None)

    meanwhile(busy)
    report = crawler.crawl()
    assert [(row.path, row.attempts, row.conflicts) for row in report.results] == [("lake.main.nyc.flights", 1, 0)]


def test_a_table_created_during_the_crawl(crawler: Crawler, meanwhile: Any, other: ms.Store) -> None:
    months(crawler.lake, 1)
    path = "lake.main.nyc.flights"
    meanwhile(lambda: other.tables.create(path, columns=[ms.Column("x", "long", comment="ours")], parents=True))
    report = crawler.crawl()
    assert (report.failures, report.altered) == ((), 1)
    assert (report.attempts, report.conflicts) == (2, 1)
    assert crawler.columns("nyc.flights") == {"x": "long", "y": "string", "month": "int"}
    assert crawler.table("nyc.flights").columns[0].comment == "ours"


def test_a_table_dropped_during_the_crawl(crawler: Crawler, meanwhile: Any, other: ms.Store) -> None:
    months(crawler.lake, 1)
    crawler.crawl()
    months(crawler.lake, 2)
    meanwhile(lambda: other.tables.drop("lake.main.nyc.flights"))
    report = crawler.crawl()
    assert (report.created, report.failures) == (1, ())
    assert list(crawler.partitions("nyc.flights")) == ["month=1", "month=2"]


def test_failures_stop_nothing(crawler: Crawler) -> None:
    lake = crawler.lake
    whole = lake.parquet("ok/t/a.parquet", MONTH).read_bytes()
    lake.text("bad/t/a.parquet", whole[:50])
    lake.text("bad/t/b.csv", b"")
    lake.text("bad\x01/t/a.csv", "a\n1\n")
    crawler.store.tables.create("lake.main.taken.t", parents=True, location="s3://elsewhere")
    lake.text("taken/t/a.csv", "a\n1\n")
    lake.text("x/same/t/a.csv", "a\n1\n")
    lake.text("y/same/t/a.csv", "a\n1\n")
    report = crawler.crawl(lake.root, lake.root / "x", lake.root / "y")
    assert "ok.t" in paths_of(report)
    reasons = {str(Path(f.path).relative_to(lake.root)): f.reason for f in report.failures}
    assert reasons["bad/t/a.parquet"].startswith("is truncated")
    assert reasons["bad/t/b.csv"] == "is empty (0 bytes)"
    assert "control character" in reasons["bad\x01/t"]
    assert reasons["taken/t"].endswith("which is the table of s3://elsewhere; rename one of the two")
    assert len(reasons) == 4


def test_two_paths_with_one_table(crawler: Crawler) -> None:
    crawler.lake.text("x/same/t/a.csv", "a\n1\n")
    crawler.lake.text("y/same/t/a.csv", "a\n1\n")
    crawler.lake.text("y/same/u/1.csv", "a\n1\n")
    crawler.lake.text("x/same/u/2.csv", "b\n1\n")
    roots = (crawler.lake.root / "x", crawler.lake.root / "y")
    report = crawler.crawl(*roots)
    assert crawler.table("same.t").location.endswith("/x/same/t")
    assert [f.reason for f in report.failures] == [
        f"would be lake.main.same.t, which is the table of {roots[0]}/same/t already",
        f"would be lake.main.same.u, which is the table of {roots[0]}/same/u already",
    ]
    assert crawler.crawl(*roots).failures == report.failures


def test_files_of_two_paths_in_one_schema(crawler: Crawler) -> None:
    for root, names in (("x", "ab"), ("y", "bc")):
        for name in names:
            crawler.lake.text(f"{root}/same/{name}.csv", f"{root}{name}\n1\n")
    report = crawler.crawl(crawler.lake.root / "x", crawler.lake.root / "y")
    assert paths_of(report) == ["same.a", "same.b", "same.c"]
    assert [Path(f.path).name for f in report.failures] == ["b.csv"]


def test_one_table_or_several_stays_as_it_is(crawler: Crawler) -> None:
    lake = crawler.lake
    lake.parquet("s/one/1.parquet", {"x": [1], "y": [1]})
    lake.parquet("s/one/2.parquet", {"x": [1], "y": [1]})
    lake.parquet("s/many/1.parquet", {"x": [1]})
    other = lake.parquet("s/many/2.parquet", {"y": [1]})
    assert paths_of(crawler.crawl()) == ["s.many.1", "s.many.2", "s.one"]
    lake.parquet("s/one/3.parquet", {"x": ["text"], "y": [1]})
    lake.parquet("s/one/4.parquet", {"a": [1], "b": [1]})
    other.unlink()
    lake.parquet("s/many/3.parquet", {"x": [1]})
    report = crawler.crawl()
    assert paths_of(report) == ["s.many.1", "s.many.3", "s.one", "s.one.4"]
    assert list(reasons_of(report)) == ["3.parquet"]


def test_a_lake_that_moved(crawler: Crawler) -> None:
    months(crawler.lake, 1)
    crawler.crawl()
    moved = crawler.lake.root.rename(crawler.lake.root.parent / "moved")
    report = crawler.crawl(moved, moved_from=[crawler.lake.root])
    assert (report.altered, report.failures) == (1, ())
    assert crawler.table("nyc.flights").location == f"file://{moved}/nyc/flights"


def test_a_lake_that_is_not_there_has_not_moved(crawler: Crawler) -> None:
    """Another lake with the same names does not take the tables over."""
    months(crawler.lake, 1)
    crawler.crawl()
    before = crawler.table("nyc.flights")
    crawler.lake.root.rename(crawler.lake.root.parent / "away")
    other = Lake(crawler.lake.root.parent / "other")
    months(other, 7)
    for moved_from in ((), [other.root.parent / "lak"]):
        report = crawler.crawl(other.root, moved_from=moved_from)
        (failure,) = report.failures
        assert failure.reason.endswith("rename one of the two; --moved-from says that files have moved")
        assert crawler.table("nyc.flights") == before
        assert set(crawler.partitions("nyc.flights")) == {"month=1"}


def test_a_folding_catalog(crawler: Crawler) -> None:
    crawler.store.catalogs.create("lake.folds", type="relational", fold_case=True)
    crawler.lake.text("A/t/a.csv", "a\n1\n")
    crawler.lake.text("a/T/a.csv", "a\n1\n")
    report = crawler.crawl(into=("lake", "folds"))
    assert (report.created, len(report.failures)) == (1, 1)
    assert "is the table of" in report.failures[0].reason


def test_a_disabled_catalog_is_refused_before_anything_is_read(crawler: Crawler) -> None:
    crawler.store.catalogs.disable("lake.main")
    with pytest.raises(NotInUse, match=r"lake\.main is disabled"):
        crawler.crawl(crawler.lake.root / "missing")


def test_a_catalog_that_is_disabled_meanwhile_is_a_failure(crawler: Crawler, meanwhile: Any, other: ms.Store) -> None:
    months(crawler.lake, 1)
    meanwhile(lambda: other.catalogs.disable("lake.main"))
    with pytest.raises(NotInUse, match=r"lake\.main is disabled"):
        crawler.crawl()
    (run,) = other.crawls.list("lake.main")
    assert (run.state, run.values["not_written_count"]) == ("failed", 1)
    assert not other.tables.exists("lake.main.nyc.flights")


def test_a_database_that_goes_away(crawler: Crawler, monkeypatch: pytest.MonkeyPatch) -> None:
    crawler.lake.text("a/t/a.csv", "a\n1\n")
    crawler.lake.text("a/u/a.csv", "a\n1\n")

    def gone(*args: object, **rest: object) -> None:
        raise BackendUnavailable("the database is gone")

    monkeypatch.setattr(crawler.catalog, "create", gone)
    report = crawler.crawl()
    assert [f.reason for f in report.failures] == ["could not be written: the database is gone"] * 2
    monkeypatch.setattr(crawler.catalog, "find", gone)
    assert [f.reason for f in crawler.crawl().failures] == ["could not be written: the database is gone"] * 2


def test_a_task_that_died_is_run_again(crawler: Crawler) -> None:
    months(crawler.lake, 1, 2)
    for number in range(6):
        crawler.lake.text(f"s/t{number}/a.csv", "a,b\n1,2\n")
    found, _ = candidates(walk([crawler.lake.root]), ("lake", "main"))
    work, _ = cut(found, 1, 1)
    groups = groups_of(look_into(work))
    dying = commit_groups(crawler.catalog, groups[:3])
    next(dying)
    dying.close()
    actions = [row.action for row in commit_groups(crawler.catalog, groups) if isinstance(row, TableResult)]
    assert (actions.count("unchanged"), actions.count("created")) == (3, 4)
    assert {change.version for change in crawler.store.changes()} == {1}


def crawl_in_process(url: str, root: str, times: int) -> None:
    for _ in range(times):
        report = crawl_here(url, [Path(root)])
        assert not report.failures, report.failures


def test_crawls_at_once_end_in_the_same_catalog(crawler: Crawler, tmp_path: Path) -> None:
    months(crawler.lake, 1, 2, 3)
    for number in range(6):
        crawler.lake.text(f"s{number % 2}/t{number}/a.csv", "a,b\n1,2\n")
    url = f"sqlite:///{tmp_path / 'metastore.db'}"
    processes = [FORKSERVER.Process(target=crawl_in_process, args=(url, str(crawler.lake.root), 2)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    writes = crawler.writes()
    report = crawler.crawl()
    assert (report.unchanged, report.tables, report.failures) == (7, 7, ())
    assert crawler.writes() == writes
    assert crawler.table("nyc.flights").version == 1
    assert list(crawler.store.verify()) == []


def test_the_real_files(crawler: Crawler, shared_data: Path) -> None:
    report = crawler.crawl(shared_data / "parquet", shared_data / "parquet-bad")
    assert (report.created, len(report.failures)) == (71, 2)
    assert {Path(f.path).name for f in report.failures} == {"incorrect_map_schema.parquet", "PARQUET-1481.parquet"}
    writes = crawler.writes()
    assert crawler.crawl(shared_data / "parquet", shared_data / "parquet-bad").unchanged == 71
    assert crawler.writes() == writes


def test_urls_that_other_processes_cannot_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert reachable_url("sqlite:///m.db") == f"sqlite:///{tmp_path}/m.db"
    secret = "postgresql+psycopg://u:s3cret@h/d"
    assert reachable_url(secret) == secret
    for url in ("memory://", "sqlite://", "sqlite:///:memory:"):
        with pytest.raises(InvalidArgument, match="in memory"):
            reachable_url(url)


def test_targets_are_made_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'm.db'}"
    for _ in range(2):
        with ms.open(url, principal="ann") as store:
            prepare(store, ("l", "c", "s", "t"))
    with ms.open(url) as store:
        assert [change.action for change in store.changes()] == ["create"] * 4
        assert store.schemas.load("l.c.s.t").created_by == "ann"
    first = open_catalog(url, None, "1")
    assert open_catalog(url, None, "1") is first
    assert open_catalog(url, None, "2") is not first
    open_catalog(url, None, "2").close()


def test_a_bomb_and_a_link_out_of_the_lake_are_failures_in_the_report(crawler: Crawler) -> None:
    crawler.lake.text("s/bomb/a.csv.gz", gzip.compress(b"a,b\n" * (5 << 20)))
    outside = crawler.lake.root.parent / "outside.csv"
    outside.write_text("a\n1\n")
    (crawler.lake.root / "s" / "link").mkdir()
    (crawler.lake.root / "s" / "link" / "x.csv").symlink_to(outside)
    found = reasons_of(crawler.crawl())
    assert sorted(found) == ["a.csv.gz", "x.csv"]
    assert "unpacks to more than 200 times" in found["a.csv.gz"]
    assert "leads out of the given paths" in found["x.csv"]
    report = crawler.crawl(follow_links=True, max_ratio=2000)
    assert (reasons_of(report), paths_of(report)) == ({}, ["s.bomb", "s.link"])
    assert [crawler.seen(path)["rows"] for path in ("s.bomb", "s.link")] == [(5 << 20) - 1, 1]


def test_a_first_row_longer_than_a_sample_is_registered_with_its_columns(crawler: Crawler) -> None:
    crawler.lake.text("s/t/a.csv", f"id,text\n1,{'x' * 300_000}\n2,y\n")
    report = crawler.crawl()
    assert reasons_of(report) == {}
    assert crawler.columns("s.t") == {"id": "long", "text": "string"}
    assert crawler.seen("s.t")["rows"] == 2


def test_folders_and_files_with_a_blank_at_an_end_are_registered(crawler: Crawler) -> None:
    crawler.lake.text(" s /t /a.csv", "id\n1\n")
    crawler.lake.parquet(" s /t2/ k=1/ a.parquet", {" id ": [1]})
    crawler.lake.json("u/ a .json", {" x": 1})
    crawler.lake.json("u/b.json", {"y": 1})
    report = crawler.crawl()
    assert reasons_of(report) == {}
    assert paths_of(report) == ["` s `.`t `", "` s `.t2", "u.` a `", "u.b"]
    assert crawler.columns("` s `.t2") == {" id ": "long", " k": "int"}
    assert crawler.columns("u.` a `") == {" x": "long"}
    writes = crawler.writes()
    assert crawler.crawl().unchanged == 4
    assert crawler.writes() == writes
