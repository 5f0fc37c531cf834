"""What a person at a terminal meets: who is recorded, what a command makes, shows and says when it is cut off."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer

import metastore as ms
from metastore.cli.app import run
from metastore.cli.times import when
from tests.cli.test_cli import environment

pytestmark = pytest.mark.one_in(3)

ME = pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
def lake(sqlite_url: str) -> str:
    """A table with an owner, tags on it, on a column and above it, and grants."""
    with ms.open(sqlite_url, principal="ann") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        table = store.tables.create("lake.c.s.t", parents=True, columns=[ms.Column("mail", "string")])
        for tag in ("pii", "gold"):
            store.tags.create(f"lake.{tag}")
        store.tags.attach(table, "lake.pii", column="mail")
        store.tags.attach("lake.c.s", "lake.gold", kind="schema")
        store.users.create("lake.bob", external_id="b1")
        store.owners.set(table, "lake.bob")
        store.roles.create("lake.reader")
        for privilege, on in (("use_catalog", "lake.c"), ("use_schema", "lake.c"), ("select_table", table)):
            store.roles.grant("lake.reader", privilege, on)
        store.users.create("lake.eve")
        store.roles.assign("lake.reader", "lake.eve")
        store.users.disable("lake.bob")
        row = store.statistics.row("crawl", {"left_out": ["a.bad", "b.bad"]})
        store.statistics.put_many(table, [row])
    return sqlite_url


def said(capsys: pytest.CaptureFixture[str], url: str | None, *words: str, code: int = 0) -> str:
    assert run([*(() if url is None else ("--url", url)), *words]) == code
    captured = capsys.readouterr()
    return captured.out if code == 0 else captured.out + captured.err


def test_the_user_of_the_system_is_recorded(sqlite_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, sqlite_url, "create", "metalake", "lake")
    said(capsys, sqlite_url, "--principal", "ann", "create", "metalake", "other")
    with ms.open(sqlite_url) as store:
        assert [one.created_by for one in store.metalakes.list()] == [ME, "ann"]


def test_a_command_that_reads_makes_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("METASTORE_URL", raising=False)
    for line in ("ls", "show lake", "find", "changes", "verify", "stats", "gc", "lease ls", "drop lake", "export"):
        assert "make one: metastore migrate" in said(capsys, None, *line.split(), code=1)
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(ms.BackendUnavailable, match="there is no database"):
        ms.open(must_exist=True)
    said(capsys, None, "create", "metalake", "lake")
    assert said(capsys, None, "ls").startswith("lake")


def test_what_show_has(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, lake, "show", "lake.c.s.t").splitlines()
    assert [line.split(None, 1) for line in lines if line.startswith("owner")] == [["owner", "lake.bob"]]
    assert "left out  2 files: a.bad, b.bad" in lines
    tags, grants = lines.index("Tags"), lines.index("Grants")
    assert lines[tags + 1 : tags + 3] == ["lake.gold  (from lake.c.s)", "lake.pii  column mail"]
    assert sorted(lines[grants + 1 : grants + 4]) == [
        "allow select_table  lake.reader  on lake.c.s.t",
        "allow use_catalog  lake.reader  on lake.c",
        "allow use_schema  lake.reader  on lake.c",
    ]
    shown = json.loads(said(capsys, lake, "show", "lake.c.s.t", "--json"))
    assert (shown["owner"], [tag["column"] for tag in shown["tags"]], len(shown["grants"])) == (
        "lake.bob",
        [None, "mail"],
        3,
    )
    user = said(capsys, lake, "show", "lake.bob")
    assert "enabled      no: it has no rights" in user or "enabled   no: it has no rights" in user
    assert "external_id  b1" in user
    assert said(capsys, lake, "show", "lake.reader").count("allow ") == 3
    run(["--url", lake, "create", "policy", "lake.keep", "--field", 'content={"days": 7}'])
    assert '{"days":7}' in said(capsys, lake, "show", "lake.keep").replace(" ", "")


def test_changes_name_both_ends(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, lake, "changes").splitlines()
    assert [line.split(" ", 3)[3] for line in lines if " tag_on " in line] == [
        "create tag_on lake.c.s.t -> lake.pii v1 by ann",
        "create tag_on lake.c.s -> lake.gold v1 by ann",
    ]
    assert said(capsys, lake, "changes", "--after", "5 minutes ago") == "\n".join(lines) + "\n"
    assert said(capsys, lake, "changes", "--after", "2999-01-01") == ""


def test_a_commit_of_an_iceberg_table_says_what_it_did(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    own = {"metadata_location": "b", "current_snapshot_id": "5", "current_snapshot_operation": "append"}
    with ms.open(lake) as store:
        changes = [ms.SetProperty(key, value) for key, value in own.items()]
        store.tables.alter("lake.c.s.t", *changes, ms.SetProperty("team", "shop"))
    last = said(capsys, lake, "history", "lake.c.s.t")
    assert "append, snapshot 5" in last
    assert "SetProperty(key=team, value=shop)" in last
    assert "metadata_location" not in last


def test_what_a_user_may_do(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, lake, "allowed", "eve", "select_table", "lake.c.s.t").splitlines()[0] == "yes"
    refused = said(capsys, lake, "allowed", "eve", "modify_table", "lake.c.s.t", code=1)
    assert refused.splitlines() == ["no", "  no role of eve allows modify_table on lake.c.s.t"]
    decided = json.loads(said(capsys, lake, "allowed", "eve", "select_table", "lake.c.s.t", "--json"))
    assert (decided["allowed"], decided["path"], decided["kind"]) == (True, "lake.c.s.t", "table")
    everything = said(capsys, lake, "allowed", "eve", "lake.c.s.t").splitlines()
    assert everything == ["select_table  the role reader allows select_table on lake.c.s.t"]
    listed = json.loads(said(capsys, lake, "allowed", "eve", "lake.c", "--json"))["privileges"]
    assert [one["privilege"] for one in listed] == ["use_catalog", "use_schema"]
    assert "bob is disabled" in said(capsys, lake, "allowed", "bob", "lake.c.s.t")
    assert "there is no privilege" in said(capsys, lake, "allowed", "eve", "fly", "lake.c.s.t", code=1)


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("5 minutes ago", timedelta(minutes=5)),
        ("1 hour ago", timedelta(hours=1)),
        (" 90s ago ", timedelta(seconds=90)),
        ("2 Weeks ago", timedelta(weeks=2)),
        ("3d ago", timedelta(days=3)),
    ],
)
def test_times_ago(text: str, ago: timedelta) -> None:
    found = when(text)
    assert isinstance(found, datetime)
    assert timedelta(0) <= datetime.now(UTC) - ago - found < timedelta(seconds=5)


@pytest.mark.parametrize("text", ["5 lightyears ago", "999999999 weeks ago", "ago", "minutes ago"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ms.InvalidArgument, match="neither a position nor a time"):
        when(text)


def test_find_by_text(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("MAIL", "pii"):
        assert "lake.c.s.t" in said(capsys, lake, "find", "lake.c", "--text", text)
    assert said(capsys, lake, "find", "lake.c", "--text", "nothing like this") == ""


def test_a_file_of_backup_is_restored(
    lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = str(tmp_path / "copy.db")
    said(capsys, lake, "backup", copy)
    monkeypatch.chdir(tmp_path)
    said(capsys, lake, "backup", "lake.c.s.t")
    said(capsys, lake, "drop", "lake.c.s.t")
    said(capsys, lake, "restore", "lake.c.s.t", code=1)  # which of them is meant?
    said(capsys, lake, "show", "lake.c.s.t", code=1)
    assert "is as in" in said(capsys, lake, "restore", "./lake.c.s.t")
    said(capsys, lake, "drop", "lake.c.s.t")
    assert "nothing is written" in said(capsys, lake, "restore", copy, "--dry-run")
    said(capsys, lake, "show", "lake.c.s.t", code=1)
    said(capsys, lake, "restore", copy, "--kind", "table", code=1)  # then it is not a file
    said(capsys, lake, "show", "lake.c.s.t", code=1)
    assert "is as in" in said(capsys, lake, "restore", copy)
    assert "table" in said(capsys, lake, "show", "lake.c.s.t")
    tool = said(capsys, "postgresql://nobody@localhost/none", "restore", copy, code=1)
    assert "pg_restore" in tool


def test_what_ends_early_is_no_traceback(lake: str) -> None:
    """A reader that has read enough, a standard output that is closed or full."""
    command = f"{sys.executable} -m metastore --url {lake}"

    def shell(line: str) -> Any:
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, env=environment())
        assert "Traceback" not in done.stderr
        return done

    # an output that is longer than a buffer is written while the command runs
    for early, more in (("", ""), ("PYTHONUNBUFFERED=1", "--json")):
        pipe = shell(f"{early} {command} changes {more} | true; echo ${{PIPESTATUS[0]}}")
        assert (pipe.stdout, pipe.stderr) == ("141\n", "")
    for what in ("ls", "export"):  # an export writes bytes
        closed = shell(f"{command} {what} >&-")
        assert (closed.returncode, closed.stderr) == (1, "metastore: standard output is closed\n")
    asked = shell(f"{command} drop lake.c.s.t && {command} purge lake.c.s.t <&-")
    assert asked.returncode == 1
    assert "give --yes" in asked.stderr
    full = shell(f"{command} ls > /dev/full")
    assert (full.returncode, full.stderr.count("\n")) == (1, 1)
    assert shell(f"{command} ls >&- 2>&-").returncode == 1


def test_a_crawl_without_its_extra_is_one_line(sqlite_url: str, tmp_path: Path) -> None:
    """In a process of its own: this one may have imported Spark."""
    (tmp_path / "a.csv").write_text("a\n1\n", encoding="utf-8")
    words = ["--url", sqlite_url, "crawl", str(tmp_path), "--into", "lake.raw"]
    program = f"import sys; sys.modules['pyspark'] = None; from metastore.cli.app import run; sys.exit(run({words}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'versioned-metastore[spark]'" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("module", "lacks", "extra"),
    [("http", "starlette", "http"), ("serve", "uvicorn", "serve"), ("crawl", "pyarrow", "spark")],
)
def test_an_import_without_its_extra_names_it(module: str, lacks: str, extra: str) -> None:
    program = f"import sys; sys.modules[{lacks!r}] = None; import metastore.{module}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ModuleNotFoundError: metastore.{module} needs {lacks}")
    assert last.endswith(f"pip install 'versioned-metastore[{extra}]'")


def test_an_interrupt_at_a_question(
    lake: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said(capsys, lake, "drop", "lake.c.s.t")

    def aborted(*_: object, **__: object) -> bool:
        raise typer.Abort  # so typer tells of Ctrl-C, and of an end of the input

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(typer, "confirm", aborted)
    assert said(capsys, lake, "purge", "lake.c.s.t", code=130) == "metastore: interrupted\n"
