"""The whole crawl on Spark, and what it does to find Java and to start and stop."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import metastore as ms
from metastore.crawl import CrawlReport, Interrupted, crawl
from metastore.crawl.dataset.candidates import Candidate
from metastore.crawl.files.discover import File
from metastore.crawl.tasks import cut, parted, shared
from metastore.errors import BackendUnavailable, EntityNotFound, InvalidArgument
from metastore.spark.java import find_java
from tests.crawl.conftest import Lake, paths_of, reasons_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTO = "lake.main"


@pytest.fixture
def full(lake: Lake) -> Lake:
    """Give a lake with a bit of everything."""
    for month in range(1, 8):
        lake.parquet(f"nyc/flights/month={month}/part-0.parquet", {"x": [month], "y": ["a"]})
    for number in range(20):
        lake.text(f"csv/t{number}/a b=%ü.csv", "a,b\n1,2\n")
    lake.json("json/t/a.jsonl", {"a": 1})
    lake.text("bad/t/a.parquet", "no")
    lake.text("bad/t/b.csv", "")
    lake.text("notes.txt", "x")
    return lake


@pytest.mark.each_run_on("postgres")
def test_a_crawl_on_spark(spark: SparkSession, full: Lake, url: str) -> None:
    told: list[tuple[str, float]] = []
    report = crawl([full.root], INTO, url, principal="crawler", progress=lambda what, done: told.append((what, done)))
    assert (report.created, report.files, report.partitions, report.skipped) == (22, 28, 7, 1)
    assert sorted(reasons_of(report)) == ["a.parquet", "b.csv"]
    assert told[0] == ("listing folders", 0.0)
    assert told[-1] == ("done", 1.0)
    assert all(0 <= done <= 1 for _, done in told)
    with ms.open(url) as store:
        writes = sum(1 for _ in store.changes())
        assert {change.principal for change in store.changes()} == {"crawler"}
        assert len(list(store.partitions.list("lake.main.nyc.flights"))) == 7
        again = crawl(str(full.root), ("lake", "main"), url)
        assert (again.unchanged, again.attempts) == (22, 0)
        assert sum(1 for _ in store.changes()) == writes
        full.parquet("nyc/flights/month=8/part-0.parquet", {"x": [8], "y": ["a"], "z": [1.5]})
        third = crawl([full.root], INTO, url)
        assert (third.altered, third.unchanged, third.partitions_added) == (1, 21, 1)
        assert list(store.verify()) == []
    assert spark.sparkContext.parallelize([1, 2]).sum() == 3  # the caller's session goes on


def test_the_report_as_json(spark: SparkSession, full: Lake, sqlite_url: str) -> None:
    import json

    report = crawl([full.root], INTO, sqlite_url)
    shown = json.loads(json.dumps(report.to_json()))
    assert shown["tables"] == 22
    assert {failure["reason"] for failure in shown["failures"]} == set(reasons_of(report).values())
    assert shown["results"][0]["action"] == "created"


def test_a_url_with_a_secret_stands_in_no_configuration(spark: SparkSession, lake: Lake, sqlite_url: str) -> None:
    lake.text("a/t/a.csv", "a\n1\n")
    report = crawl([lake.root], INTO, sqlite_url)
    assert report.created == 1
    shown = str(spark.sparkContext.getConf().getAll())
    assert sqlite_url.removeprefix("sqlite:///") not in shown


def test_without_anything_to_crawl(lake: Lake, sqlite_url: str) -> None:
    report = crawl([lake.root], INTO, sqlite_url)  # starts no Spark
    assert (report.tables, report.failures) == (0, ())


def test_mistakes_of_the_caller(lake: Lake, sqlite_url: str) -> None:
    lake.text("a/t/a.csv", "a\n1\n")
    with pytest.raises(InvalidArgument, match="no folder or file"):
        crawl([lake.root / "missing"], INTO, sqlite_url)
    with pytest.raises(InvalidArgument, match=r"is a metalake; give a catalog, such as lake\.main"):
        crawl([lake.root], "lake", sqlite_url)
    with pytest.raises(InvalidArgument, match="in memory"):
        crawl([lake.root], INTO, "memory://")
    with ms.open(sqlite_url) as store, pytest.raises(EntityNotFound):
        store.metalakes.load("lake")


PROGRAM = """
import os, sys
from metastore.crawl import crawl, spark_job
from metastore.errors import MetastoreError

pytestmark = pytest.mark.one_in(3)

def dying(work, setting, crawl_whole=spark_job.crawl_whole, marker=sys.argv[2].removeprefix("sqlite:///") + ".died"):
    for row in crawl_whole(work, setting):
        if getattr(row, "action", None) == "created" and not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), 9)  # something is committed, and nobody has heard of it
        yield row

if sys.argv[4:] == ["kill"]:
    spark_job.crawl_whole = dying
try:
    report = crawl([sys.argv[1]], "lake.main", sys.argv[2], master=sys.argv[3])
except MetastoreError as error:
    sys.exit(f"{type(error).__name__}: {error}")
print(report.created, report.unchanged, len(report.failures))
"""


def run_program(*words: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a crawl in a process that has no variable of Java or Spark."""
    root = str(Path(ms.__file__).parents[1])
    clean = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": root, **environment}
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), *words]
    return subprocess.run(command, env=clean, cwd=folder, capture_output=True, text=True, check=False, timeout=150)


@pytest.mark.spark
@pytest.mark.long
def test_without_any_environment_variable_and_without_noise(full: Lake, tmp_path: Path) -> None:
    if not _java():
        pytest.skip("no Java for Spark")
    done = run_program(str(full.root), "sqlite:///relative.db", "local[2]", folder=tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("22 0 2\n", "", 0)
    assert {path.name for path in tmp_path.iterdir()} <= {"lake", "relative.db", "relative.db-wal", "relative.db-shm"}


@pytest.mark.spark
@pytest.mark.long
def test_a_worker_that_is_killed(full: Lake, tmp_path: Path) -> None:
    if not _java():
        pytest.skip("no Java for Spark")
    done = run_program(str(full.root), f"sqlite:///{tmp_path}/m.db", "local[2]", "kill", folder=tmp_path)
    created, unchanged, failures = map(int, done.stdout.split())
    assert (created + unchanged, failures, done.stderr, done.returncode) == (22, 2, "", 0)
    assert unchanged > 0
    assert (tmp_path / "m.db.died").exists()
    with ms.open(f"sqlite:///{tmp_path}/m.db") as store:
        assert {change.version for change in store.changes() if change.kind == "table"} == {1}
        assert len({row.location for row in store.sources.list("lake.main")}) == 22 + 1
        assert list(store.verify()) == []


@pytest.mark.spark
@pytest.mark.long
def test_executors_in_processes_of_their_own(full: Lake, tmp_path: Path) -> None:
    if not _java():
        pytest.skip("no Java for Spark")
    url = f"sqlite:///{tmp_path / 'm.db'}"
    done = run_program(str(full.root), url, "local-cluster[2,1,1024]", folder=tmp_path)
    assert (done.stdout, done.returncode) == ("22 0 2\n", 0), done.stderr


@pytest.mark.spark
@pytest.mark.long
def test_a_master_that_is_not_there(full: Lake, tmp_path: Path) -> None:
    if not _java():
        pytest.skip("no Java for Spark")
    done = run_program(str(full.root), f"sqlite:///{tmp_path / 'm.db'}", "nonsense", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("BackendUnavailable: Spark does not start on nonsense:")
    assert done.stderr.count("\n") == 1


def _java() -> bool:
    try:
        return bool(find_java())
    except InvalidArgument:
        return False


def fake_java(home: Path, version: str, modules: str = "java.base jdk.incubator.vector") -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


def test_java_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "jvm"
    fake_java(folder / "a-25", "25.0.1")
    old = fake_java(tmp_path / "old", "11.0.1")
    with pytest.raises(InvalidArgument, match="install openjdk-17-jre-headless"):
        find_java({"JAVA_HOME": str(old)}, str(tmp_path / "none"))
    assert find_java({}, str(folder)) == str(folder / "a-25")
    fake_java(folder / "b-21", "21.0.1", modules="java.base")
    assert find_java({}, str(folder)) == str(folder / "a-25")
    fake_java(folder / "c-21", "21.0.1")
    assert find_java({}, str(folder)) == str(folder / "c-21")
    mine = fake_java(tmp_path / "mine", "17.0.1")
    assert find_java({"JAVA_HOME": str(mine)}, str(folder)) == str(mine)
    assert find_java({"PATH": str(mine / "bin")}, str(folder)) == str(mine)


def test_candidates_are_shared_evenly() -> None:
    found = [candidate(f"s{n % 3}.t{n}", 1 + n % 7) for n in range(200)] + [candidate("z.t", 9_000)]
    whole, great = parted(found, 8)
    assert (len(whole), [c.location for c in great]) == (200, ["/z.t"])
    shares = shared(whole, 8)
    assert [c for share in shares for c in share] == whole
    files = [sum(1 + len(c.files) for c in share) for share in shares]
    assert len(files) in (8, 9)
    assert max(files) <= 1.1 * sum(files) / 8
    assert shared([], 8) == []


def candidate(name: str, files: int, size: int = 1, ending: str = "parquet") -> Candidate:
    names = ("l", "c", *name.split("."))
    return Candidate(names, names, f"/{name}", tuple(File(f"{n}.{ending}", size, 0) for n in range(files)))


def test_work_is_cut_into_equal_shares() -> None:
    found = [candidate(f"s{n:02}.t", 5) for n in range(40)] + [candidate("z.t", 200)]
    work, buckets = cut(found, 8, 8)
    sizes = [sum(len(piece.files) for piece in share) for share in work]
    assert sum(sizes) == 400
    assert max(sizes) <= 60
    assert len(work) <= 9
    assert 2 <= buckets <= 9
    by_schema: dict[Any, set[int]] = {}
    for piece in (piece for share in work for piece in share):
        by_schema.setdefault(piece.candidate.schema, set()).add(piece.bucket)
        assert piece.candidate.files == ()
    assert all(len(found) == 1 for found in by_schema.values())


def test_great_text_files_are_shares_of_their_own() -> None:
    work, _ = cut([candidate("s.t", 4, size=1 << 30, ending="csv"), candidate("s.u", 100)], 4, 4)
    assert [sum(len(piece.files) for piece in share) for share in work][:3] == [1, 1, 1]
    assert len(work) <= 5


def test_spark_that_gives_up(spark: SparkSession, full: Lake, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from metastore.crawl import spark_job

    def broken(work: Any, setting: Any) -> Iterator[Any]:
        raise RuntimeError("the worker broke")

    monkeypatch.setattr(spark_job, "crawl_whole", broken)
    with pytest.raises(BackendUnavailable, match=r"Spark gave up: .*the worker broke"):
        crawl([full.root], INTO, sqlite_url)
    with ms.open(sqlite_url) as store:
        (run,) = store.crawls.list(INTO)
        assert (run.state, run.values["not_written_count"], run.values["written"]) == ("failed", 23, 0)
        assert "the worker broke" in run.values["reason"]


def test_ctrl_c_cancels_the_job(spark: SparkSession, full: Lake, sqlite_url: str) -> None:
    def interrupt(what: str, done: float) -> None:
        if what == "crawling":
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="data sets were written"):
        crawl([full.root], INTO, sqlite_url, progress=interrupt)
    report: CrawlReport = crawl([full.root], INTO, sqlite_url)
    assert report.tables == 22
    assert len(paths_of(report)) == 22


def test_profiles_of_what_has_changed(spark: SparkSession, lake: Lake, sqlite_url: str) -> None:
    lake.parquet("s/t/a.parquet", {"x": [1, 1, 2]})
    lake.text("s/u/a.csv", "a\n1\n")
    assert crawl([lake.root], INTO, sqlite_url, dry_run=True, profile=True).profiled == 0
    told: list[tuple[str, float]] = []
    report = crawl([lake.root], INTO, sqlite_url, profile=True, progress=lambda *step: told.append(step))
    assert (report.created, report.profiled, report.failures) == (2, 2, ())
    assert [share for what, share in told if what == "profiling"] == [0.0, 0.5]
    assert crawl([lake.root], INTO, sqlite_url, profile=True).profiled == 0
    lake.parquet("s/t/a.parquet", {"x": [1, 1, 2, 3]})
    assert crawl([lake.root], INTO, sqlite_url, profile=True).profiled == 1
    with ms.open(sqlite_url) as store:
        assert store.statistics.load("lake.main.s.t", "profile").values["rows"] == 4


@pytest.mark.each_run_on("sqlite")
def test_data_sets_too_great_for_one_task(
    spark: SparkSession, full: Lake, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from metastore.crawl import tasks as stages

    monkeypatch.setattr(stages, "_SMALL", 0)
    told: list[tuple[str, float]] = []
    report = crawl([full.root], INTO, url, progress=lambda what, share: told.append((what, share)))
    assert (report.created, report.partitions, len(report.failures)) == (22, 7, 2)
    shares = [share for what, share in told if what == "crawling"]
    assert shares == sorted(shares), "a bar that goes back lied before"
    again = crawl([full.root], INTO, url)
    assert (again.unchanged, again.attempts, again.run) == (22, 0, None)


def test_spark_reads_what_was_registered(spark: SparkSession, lake: Lake, sqlite_url: str) -> None:
    from metastore.spark.types import columns_to_spark

    odd = "a b=1%2F2/ü 'x'"
    lake.parquet(f"s/{odd}/k=x%20y/p=1/a.parquet", {"x": [1, 2]})
    lake.parquet(f"s/{odd}/k=z/p=2/a.parquet", {"x": [3], "new": ["n"]})
    lake.text("s/csv/a b%20c.csv", 'a;b;n\r\n1;"two\r\n""lines"" \\";NA\r\n2;é;5\r\n'.encode("latin-1"))
    lake.text("s/plain/1.csv", "1,x\n2,y\n")
    lake.json("s/lines/a.jsonl", {"a": 1, "o": {"x": [1]}}, {"a": None})
    lake.text("s/array/a.json", '[{"a": 1},\n {"a": 2}]')
    report = crawl([lake.root], INTO, sqlite_url)
    assert (report.created, report.failures) == (5, ())
    rows = {}
    with ms.open(sqlite_url) as store:
        for result in report.results:
            table = store.tables.load(result.path)
            options = {k.removeprefix("crawl."): v for k, v in table.properties.items() if k.startswith("crawl.")}
            reader = spark.read.format(table.format).options(**options).schema(columns_to_spark(table.columns))
            rows[result.path.rpartition(".")[2]] = [row.asDict(True) for row in reader.load(table.location).collect()]
            assert len(rows[result.path.rpartition(".")[2]]) == result.rows
    assert rows["csv"] == [{"a": 1, "b": 'two\n"lines" \\', "n": None}, {"a": 2, "b": "é", "n": 5}]
    assert rows["plain"] == [{"_c0": 1, "_c1": "x"}, {"_c0": 2, "_c1": "y"}]
    assert rows["lines"] == [{"a": 1, "o": {"x": [1]}}, {"a": None, "o": None}]
    assert rows["array"] == [{"a": 1}, {"a": 2}]
    partitioned = sorted(rows[max(rows, key=lambda name: "ü" in name)], key=lambda row: row["x"])
    assert partitioned[0] == {"x": 1, "new": None, "k": "x y", "p": 1}
    assert partitioned[2] == {"x": 3, "new": "n", "k": "z", "p": 2}
