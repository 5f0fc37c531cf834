"""What cannot be is told in one line, and nothing is written. No Spark is started for it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

import metastore as ms
from metastore.cli.app import run
from metastore.errors import InvalidArgument
from metastore.loadtest.masters import slots
from metastore.loadtest.run_file import check_new
from tests.servers.process import free_port

Told = Callable[..., str]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Told:
    """Run a load test that cannot be, in an empty folder; return its one line."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)

    def call(*words: str, url: str = "sqlite:///m.db", scenario: str = "hot-table") -> str:
        assert run(["--url", url, "loadtest", "--scenario", scenario, *words]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("metastore: ")
        assert err.count("\n") == 1
        assert [path.name for path in work.iterdir() if not path.name.startswith("m.db")] == []
        return err

    return call


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--clients", "0"], "the number of clients is an integer of at least 1, not 0"),
        (["--clients", "-1"], "--clients takes one number or several, such as 8 or 1,2,4,8; not '-1'"),
        (["--clients", "many"], "--clients takes one number"),
        (["--clients", "1,2,"], "--clients takes one number"),
        (["--clients", "2,2"], "several different ones"),
        (["--seconds", "0"], "a run's length is a positive number of seconds"),
        (["--seconds", "-3"], "a run's length is a positive number of seconds"),
        (["--seconds", "nan"], "a run's length is a positive number of seconds"),
        (["--master", "nonsense"], "'nonsense' is not a Spark master: write local[8]"),
        (["--master", "local[2]", "--clients", "32"], "local[2] runs 2 of 32 clients at once: --master local[32]"),
        (["--clients", "99999999"], "one machine runs at most 1,000 clients, each a process: for 99,999,999 take a"),
        (["--master", "local[2]", "--clients", "1,2,4"], "local[2] runs 2 of 4 clients at once"),
        (["--master", "local-cluster[2,1,1024]"], "runs 2 of 8 clients at once"),
        (["--master", "spark://host"], "'spark://host' is not a Spark master: write spark://host:7077"),
        (["--skew", "0.5"], "hot-table has no skew"),
        (["--metalake", "a.b"], "give one name, not 'a.b'"),
        (["--metalake", ""], "a name must not be empty"),
    ],
)
def test_options(told: Told, words: list[str], message: str) -> None:
    assert message in told(*words)


def test_scenarios(told: Told, tmp_path: Path) -> None:
    assert "there is no scenario 'hot'; known are hot-table, siblings, rename-storm" in told(scenario="hot")
    path = tmp_path / "mine.toml"
    path.write_text("tabels = 3\n")
    assert f"{path}: unknown key 'tabels'; known are name, schemas, tables" in told(scenario=str(path))


def test_databases(told: Told, tmp_path: Path) -> None:
    """Those that Spark's processes cannot share, that are not there, and whose passwords nobody is to see."""
    for url in ("memory://", "sqlite://", "sqlite:///:memory:"):
        assert "cannot share a database in memory" in told(url=url)
    line = told(url=f"postgresql+psycopg://ada:secret@127.0.0.1:{free_port()}/x")
    assert "secret" not in line
    assert "127.0.0.1" in line
    assert "no_such" in told(url=f"sqlite:///{tmp_path}/no_such/m.db")


def test_a_master_that_is_not_there(told: Told) -> None:
    port = free_port()
    line = told("--master", f"spark://127.0.0.1:{port}")
    assert f"the Spark master spark://127.0.0.1:{port} does not answer (127.0.0.1:{port}: Connection refused)" in line


def test_one_master_of_two_is_enough(told: Told, tmp_path: Path) -> None:
    """It goes on to what is wrong next."""
    (tmp_path / "out").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        there = f"127.0.0.1:{listener.getsockname()[1]}"
        line = told("--master", f"spark://127.0.0.1:{free_port()},{there}", "--out", str(tmp_path / "out"))
    assert "is not a folder" in line


def test_a_folder_that_has_a_run(told: Told, tmp_path: Path) -> None:
    for name in ("run.json", "log"):
        (tmp_path / "before" / name).mkdir(parents=True)
        assert "has a run already: choose another folder, --out" in told("--out", str(tmp_path / "before"))
        (tmp_path / "before" / name).rmdir()
    check_new(tmp_path / "before")


def test_a_metalake_of_somebody_else(told: Told, tmp_path: Path) -> None:
    with ms.open(f"sqlite:///{tmp_path}/work/m.db") as store:
        store.metalakes.create("loadtest", comment="ours")
    assert "the metalake loadtest exists and was not created by a load test: choose another, --metalake" in told()
    with ms.open(f"sqlite:///{tmp_path}/work/m.db") as store:
        assert store.metalakes.load("loadtest").comment == "ours"


def test_from_a_program(sqlite_url: str) -> None:
    from metastore.loadtest.job import run as start
    from metastore.loadtest.scenarios import Mix

    with pytest.raises(InvalidArgument, match="numbers of clients are given as a list"):
        start(sqlite_url, "siblings", clients="8")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="a seed is an integer"):
        start(sqlite_url, "siblings", seed="x")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="tables is an integer"):
        start(sqlite_url, Mix(tables=0))
    with pytest.raises(InvalidArgument, match="skew and trace need a scenario by name"):
        start(sqlite_url, Mix(), skew=0.1)


def test_room_of_a_master() -> None:
    assert [slots(name) for name in ("local", "local[3]", "local[3,4]", "local-cluster[2,3,1024]")] == [1, 3, 3, 6]
    assert slots("spark://host:7077") is None
    assert (slots("local[*]") or 0) >= 1
