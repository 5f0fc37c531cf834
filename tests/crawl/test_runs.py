"""The record of a crawl: what it saw, skipped, failed; and what the command line shows of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore.cli.app import run as metastore_command
from metastore.crawl import job
from metastore.errors import BackendUnavailable, InvalidArgument
from metastore.managers.sources import Sources
from tests.crawl.conftest import INTO, Crawler, crawl_here
from tests.servers.process import wait_until


def runs(crawler: Crawler) -> list[Any]:
    """Return the records, the newest first."""
    return crawler.store.crawls.newest(".".join(INTO), 100)


def test_the_record_of_a_crawl(crawler: Crawler) -> None:
    crawler.lake.parquet("s/t/a.parquet", {"x": [1]})
    crawler.lake.text("s/bad/a.csv", b"\x00")
    crawler.lake.text("s/readme.txt", "x")
    report = crawler.crawl(exclude=["**/old"])
    (run,) = runs(crawler)
    assert (run.name, run.state, run.created_by) == (report.run, "done", "crawler")
    expected = {
        "paths": [str(crawler.lake.root)],
        "into": "lake.main",
        "exclude": ["**/old"],
        "on_missing": "mark",
        "found": 2,
        "unread": 0,
        "created": 1,
        "tables": 1,
        "skipped": 1,
        "changed": ["created lake.main.s.t"],
        "failures_count": 1,
        "notes": [],
    }
    assert {key: run.values[key] for key in expected} == expected
    assert run.values["failures"][0].startswith(f"{crawler.lake.root}/s/bad/a.csv: ")
    assert [step.action for step in crawler.store.changes() if step.kind == "crawl"] == ["create", "alter"]


def test_a_crawl_that_finds_nothing_new_leaves_no_record(crawler: Crawler) -> None:
    crawler.lake.parquet("s/t/a.parquet", {"x": [1]})
    crawler.lake.text("s/bad/a.csv", b"\x00")
    crawler.crawl()
    writes = crawler.writes()
    crawler.crawl()
    crawler.crawl(dry_run=True)
    assert (len(runs(crawler)), crawler.writes()) == (1, writes)
    crawler.lake.parquet("s/u/a.parquet", {"x": [1]})
    crawler.crawl()
    names = [run.name for run in runs(crawler)]
    assert len(names) == 2
    assert names == sorted(names, reverse=True)


def test_a_data_set_that_the_catalog_cannot_take_makes_no_record_at_each_crawl(crawler: Crawler) -> None:
    """Each crawl took it for new: its name is a view's, its type changed, its table is being dropped in steps."""
    store = crawler.store
    for name in "abc":
        crawler.lake.parquet(f"s/{name}/1.parquet", {"x": [1]})
    store.views.create("lake.main.s.a", parents=True, representations=[ms.SQL("spark", "SELECT 1")])
    crawler.crawl()
    crawler.lake.parquet("s/b/1.parquet", {"x": ["text"]})
    drop = store.tables.begin_drop(crawler.table("s.c"))
    crawler.lake.parquet("s/c/2.parquet", {"x": [1]})
    assert len(crawler.crawl(on_type_change="fail").failures) == 3
    writes = crawler.writes()
    assert len(crawler.crawl(on_type_change="fail").failures) == 3
    assert crawler.writes() == writes
    drop.roll_back()
    store.views.drop("lake.main.s.a")
    assert crawler.crawl(on_type_change="widen").failures == ()
    assert [crawler.seen(f"s.{name}")["files"] for name in "abc"] == [1, 1, 2]
    writes = crawler.writes()
    crawler.crawl(on_type_change="widen")
    assert crawler.writes() == writes


def test_a_record_is_bounded(crawler: Crawler) -> None:
    for number in range(150):
        crawler.lake.text(f"s/{'long' * 30}{number}.csv", b"\x00")
    crawler.crawl()
    (run,) = runs(crawler)
    assert (len(run.values["failures"]), run.values["failures_count"]) == (100, 150)
    assert max(map(len, run.values["failures"])) <= 500


def test_secrets_are_in_no_record(crawler: Crawler) -> None:
    with pytest.raises(InvalidArgument) as error:
        crawl_here(crawler.url, ["s3://key:s3cret@/x"])
    assert "s3cret" not in str(error.value)
    assert runs(crawler) == []


def test_a_database_that_goes_away_is_the_error_that_is_shown(
    crawler: Crawler, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawler.lake.parquet("s/t/a.parquet", {"x": [1]})
    below, blind = crawler.store.sources.below, list[bool]()

    def gone(*args: Any) -> Any:
        if blind:
            raise BackendUnavailable("the database is gone")
        return below(*args)

    def broken(*_: object) -> Any:
        blind.append(True)
        raise BackendUnavailable("Spark gave up")

    monkeypatch.setattr(Sources, "below", lambda _self, *args: gone(*args))
    monkeypatch.setattr(job, "_spark_job", lambda: broken)
    with pytest.raises(BackendUnavailable, match="Spark gave up"):
        job.crawl([crawler.lake.root], ".".join(INTO), crawler.url)


def test_the_command_line_lists_and_shows_them(crawler: Crawler, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("t", "u"):
        crawler.lake.parquet(f"s/{name}/a.parquet", {"x": [1]})
        crawler.crawl()
    newest, oldest = runs(crawler)
    assert metastore_command(["--url", crawler.url, "crawls", "lake.main"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["Crawl", newest.name, oldest.name]
    assert metastore_command(["--url", crawler.url, "crawls", "lake.main", "--limit", "1", "--json"]) == 0
    assert [run["name"] for run in json.loads(capsys.readouterr().out)] == [newest.name]
    assert metastore_command(["--url", crawler.url, "crawls", "lake.main", oldest.name]) == 0
    assert "created lake.main.s.t" in capsys.readouterr().out
    assert metastore_command(["--url", crawler.url, "crawls", "lake.main", oldest.name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changed"] == ["created lake.main.s.t"]
    for bad in (["lake.missing"], ["lake.main", "missing"], ["lake"]):
        assert metastore_command(["--url", crawler.url, "crawls", *bad]) == 1
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--into", "lake"], "'lake' is a metalake; give a catalog"),
        (["--into", "lake.main", "--on-missing", "burn"], "'burn' is not one of 'mark', 'keep', 'drop'"),
        (["--into", "lake.main", "--on-type-change", "x"], "'x' is not one of 'report', 'widen', 'fail'"),
        (["--into", "lake.main", "--include", "a//b"], "an include pattern"),
        (["--into", "lake.main", "--nonsense"], "--nonsense"),
        (["--into", "lake.off"], "the catalog lake.off is disabled"),
        (["/no/such/folder", "--into", "lake.main"], "there is no folder or file /no/such/folder"),
    ],
)
def test_mistakes_are_one_line(
    crawler: Crawler, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    crawler.store.catalogs.create("lake.off", type="relational")
    crawler.store.catalogs.disable("lake.off")
    writes = crawler.writes()
    assert metastore_command(["--url", crawler.url, "crawl", str(crawler.lake.root), *words]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert crawler.writes() == writes


@pytest.mark.spark
@pytest.mark.long
def test_ctrl_c_leaves_a_consistent_catalog_and_says_what_is_missing(crawler: Crawler) -> None:
    from tests.setup.java import find_java

    if find_java() is None:
        pytest.skip("no Java for Spark")
    for number in range(600):
        crawler.lake.text(f"s{number % 7}/t{number}/a.csv", "a,b\n1,x\n2,y\n" * 20)
    program = "from metastore.cli import main; main()"
    command = [sys.executable, "-c", program, "--url", crawler.url, "crawl", str(crawler.lake.root)]
    with subprocess.Popen(
        [*command, "--into", "lake.main", "--master", "local[1]"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=Path(ms.__file__).parents[1],
    ) as process:
        began = wait_until(lambda: any(c.kind == "table" for c in crawler.store.changes()), 90)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers and the JVM as well
        out, error = process.communicate(timeout=60)
    assert (began, process.returncode, out) == (True, 130, ""), error
    (run,) = runs(crawler)
    tables = len(list(crawler.store.sources.list("lake.main")))
    assert run.state == "interrupted"
    assert 0 < run.values["written"] <= tables < 600
    assert run.values["not_written_count"] == 600 - run.values["written"]
    assert f"{run.values['written']} of 600 data sets were written; not yet: {crawler.lake.root}/s" in error
    assert "crawl again to do the rest" in error
    assert list(crawler.store.verify()) == []
    report = crawl_here(crawler.url, [crawler.lake.root])
    assert (report.created, report.unchanged, report.failures) == (600 - tables, tables, ())
    assert runs(crawler)[0].state == "done"
