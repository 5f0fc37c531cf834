"""Load tests on Spark through the command line: two clients, in the Spark that is there."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import metastore as ms
from metastore.cli.app import run
from metastore.loadtest.scenarios import Mix
from metastore.loadtest.scenarios.hot_table import COUNTER
from tests.loadtest.alone import recorded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Output = pytest.CaptureFixture[str]


def loadtest(url: str, out: Path, *words: str, clients: str = "2", seconds: str = "1.5") -> int:
    command = ["loadtest", "--clients", clients, "--master", "local[2]", "--seconds", seconds, "--out", str(out)]
    return run(["--url", url, *command, *words])


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder).to_pylist()
    return found


@pytest.mark.long
@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_a_hot_table(spark: SparkSession, url: str, tmp_path: Path, capsys: Output) -> None:
    """What clients saw, what the store says, what is reported and what clients' metrics say is the same."""
    out = tmp_path / "out[1] {a,b}"  # to Spark, a pattern
    assert loadtest(url, out, "--scenario", "hot-table", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["checked"], told["findings"], told["interrupted"]) == (True, [], False)
    operations = rows(out / "operations")
    assert len(operations) == told["runs"][0]["operations"] == len([*recorded(out)]) > 20
    facts = json.loads((out / "run.json").read_text())
    assert (facts["scenario"], facts["clients"], facts["seconds"], facts["state"]) == ("hot-table", 2, 1.5, "done")
    assert {"report.html", "summary.json", "feed", "tables"} <= {path.name for path in out.iterdir()}
    with ms.open(url) as store:
        changes = [change for change in store.changes() if change.principal]
        table = store.tables.load("loadtest.c.s.hot")
    applied = [one for one in operations if one["outcome"] == "applied"]
    names = {f"{one['client']}/{one['number']}": one for one in applied}
    assert {change.principal for change in changes} == names.keys()
    assert all(names[change.principal or ""]["position"] for change in changes)
    assert int(table.properties[COUNTER]) == sum(one["action"] == "transaction" for one in applied)
    assert table.version == 1 + len(applied)
    agree(out, operations)


def agree(out: Path, operations: list[dict[str, Any]]) -> None:
    """Field case 67: the clients' own metrics tell the commits, attempts and conflicts that were recorded."""
    commits, attempts, conflicts = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
    seconds = Counter[str]()
    for path in (out / "metrics").iterdir():
        metrics = json.loads(path.read_text())["metrics"]
        assert metrics["in_flight"] == 0
        for verb, decided in metrics["operations"].items():
            commits[verb] += decided.get("self", 0) + decided.get("other", 0)
            attempts[verb] += metrics["attempts"][verb]["total"]
            seconds[verb] += metrics["commit_seconds"][verb]["total"]
        for verb, causes in metrics["conflicts"].items():
            conflicts.update({(verb, cause): count for cause, count in causes.items()})
    altered = [one for one in operations if one["action"] == "alter"]
    assert commits["alter"] == sum(one["outcome"] == "applied" for one in altered) > 0
    assert attempts["alter"] == sum(one["attempts"] for one in altered)
    lost = Counter(("alter", lost["cause"]) for one in altered for lost in one["conflicts"])
    assert lost == {key: count for key, count in conflicts.items() if key[0] == "alter"}
    taken = sum(one["end"] - one["start"] for one in altered) / 1e9
    assert 0.05 * taken < seconds["alter"] <= taken
    counted = [one for one in operations if one["action"] == "transaction" and one["outcome"] == "applied"]
    assert commits["transaction"] == len(counted)


@pytest.mark.long
def test_a_ramp_of_siblings(spark: SparkSession, sqlite_url: str, tmp_path: Path, capsys: Output) -> None:
    """Each number of clients in a folder of its own, in the same database; none conflicts."""
    out = tmp_path / "out"
    assert loadtest(sqlite_url, out, "--scenario", "siblings", clients="1,2", seconds="1") == 0
    text = capsys.readouterr().out
    assert "No contradiction" in text
    assert f"Report: {out}/report.html" in text.replace("\n", "")
    told = json.loads((out / "summary.json").read_text())
    assert [one["clients"] for one in told["runs"]] == [1, 2]
    assert [one["conflicts"] for one in told["runs"]] == [0, 0]
    assert len({row["client"] for n in (1, 2) for row in rows(out / f"clients-{n}" / "operations")}) == 3
    assert json.loads((out / "run.json").read_text())["clients"] == [1, 2]


@pytest.mark.long
def test_a_mix_of_ones_own(spark: SparkSession, postgres_url: str, tmp_path: Path) -> None:
    """All kinds of operations at once; the checker finds nothing in what they saw."""
    from metastore.loadtest.job import run as start

    weights = dict.fromkeys(("load", "exists", "list", "alter", "create", "drop", "rename", "move"), 1.0)
    mix = Mix("mine", schemas=2, tables=12, reads=40, weights=weights | {"transaction": 2.0, "freeze": 0.3})
    done = start(postgres_url, mix, clients=2, seconds=2, master="local[2]", out=tmp_path / "out", metalake="other")
    assert done.clean, [str(finding) for one in done.runs for finding in one.findings]
    assert done.runs[0].checked.operations > 50
    actions = {row["action"] for row in rows(tmp_path / "out" / "operations")}
    assert {"load", "exists", "list", "alter", "create", "rename", "move", "transaction"} <= actions


@pytest.mark.long
def test_what_the_checker_finds_is_an_error(
    spark: SparkSession, sqlite_url: str, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event that is missing from the feed: exit code 1, and the report says it."""
    from metastore.checker import gather as gathering

    gather = gathering.gather

    def forgetful(spark: SparkSession, folder: Path, url: str) -> None:
        gather(spark, folder, url)
        path = folder / "feed" / "part-0.parquet"
        table = pq.read_table(path)
        gone = next(n for n in reversed(range(table.num_rows)) if table["action"][n].as_py() == "alter")
        pq.write_table(table.filter([n != gone for n in range(table.num_rows)]), path)

    monkeypatch.setattr(gathering, "gather", forgetful)
    assert loadtest(sqlite_url, tmp_path / "out", "--scenario", "siblings", "--seconds", "1") == 1
    text = capsys.readouterr().out
    assert "contradiction" in text
    assert "contradiction" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.long
def test_no_verdict_without_the_records_of_all_clients(
    spark: SparkSession, sqlite_url: str, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is lost, and then all of them empty: the run knows its clients, and the report is not green."""
    from metastore.checker import gather as gathering
    from metastore.checker.check import check
    from metastore.loadtest.report.analysis import analyse

    out, gather = tmp_path / "out", gathering.gather

    def without_a_log(spark: SparkSession, folder: Path, url: str) -> None:
        min((folder / "log").iterdir()).unlink()
        gather(spark, folder, url)

    monkeypatch.setattr(gathering, "gather", without_a_log)
    assert loadtest(sqlite_url, out, "--scenario", "siblings", seconds="0.5") == 1
    lost, kept = json.loads((out / "run.json").read_text())["names"]
    text = " ".join(capsys.readouterr().out.split())
    assert "Records are missing" in text
    assert re.search(f"{lost} left no records, and the feed has [1-9][0-9,]* events of it", text)
    assert "No contradiction" not in (out / "report.html").read_text()
    (out / "log" / f"{kept}.jsonl").write_text("")
    gather(spark, out, sqlite_url)
    checked = check(spark, out)
    assert not checked.clean
    assert [line.split()[0] for line in checked.missing] == [lost, kept]
    assert analyse(spark, out).runs[0].missing == checked.missing


def test_more_clients_than_room(spark: SparkSession, sqlite_url: str, tmp_path: Path, capsys: Output) -> None:
    """The Spark that is there has room for two."""
    words = ["loadtest", "--scenario", "siblings", "--clients", "3", "--out", str(tmp_path / "out")]
    assert run(["--url", sqlite_url, *words]) == 1
    assert "local[2, 2] runs 2 of 3 clients at once: --master local[3]" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_client_that_cannot_begin(
    spark: SparkSession, sqlite_url: str, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, and no folder is left."""
    from metastore.loadtest import spark_job

    def broken(*_: object) -> None:
        raise RuntimeError("no client here")

    monkeypatch.setattr(spark_job, "run_client", broken)
    assert loadtest(sqlite_url, tmp_path / "a" / "out", "--scenario", "siblings") == 1
    err = capsys.readouterr().err
    assert "Spark gave up" in err
    assert "no client here" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "a").exists()


def test_a_database_that_is_away_at_the_end(
    spark: SparkSession, sqlite_url: str, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the clients were told stays, and it is said where."""
    from metastore.checker import gather

    def away(*_: object) -> None:
        raise ms.BackendUnavailable("nobody is there")

    monkeypatch.setattr(gather, "gather", away)
    out = tmp_path / "out"
    assert loadtest(sqlite_url, out, "--scenario", "siblings", seconds="0.3") == 1
    told = capsys.readouterr().err.replace("\n", " ")
    assert f"nobody is there; the clients' records are in {out / 'log'}" in told
    assert json.loads((out / "run.json").read_text())["state"] == "unchecked"
    assert len([*recorded(out)]) > 0


@pytest.mark.long
def test_errors_that_transactions_catch(spark: SparkSession, url: str, tmp_path: Path, capsys: Output) -> None:
    """What a caught error says is recorded as a read, and checked at the commit's position."""
    out = tmp_path / "out"
    assert loadtest(url, out, "--scenario", "caught-errors", "--json", seconds="3") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["checked"], told["findings"]) == (True, [])
    seen = Counter(
        (read["of"], read["there"])
        for one in rows(out / "operations")
        if one["action"] == "transaction" and one["outcome"] == "applied"
        for read in one["reads"]
    )
    assert {("children", True), ("dropped", False), (None, True)} <= seen.keys()
