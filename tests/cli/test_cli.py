"""The command line, as its users meet it: real processes, their output, errors and exit codes."""

from __future__ import annotations

import io
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from rich.console import Console

import metastore as ms
from metastore.cli.app import run as run_command
from metastore.cli.crawl import _progress
from metastore.verify.report import read_report

pytestmark = [pytest.mark.each_run_on("sqlite"), pytest.mark.one_in(3)]  # a command knows nothing of the database

Run = Callable[..., subprocess.CompletedProcess[str]]
RED = "[red]x[/red]"
ROOT = Path(__file__).resolve().parents[2]


def environment(**more: str) -> dict[str, str]:
    plain = {k: v for k, v in os.environ.items() if k not in ("METASTORE_URL", "COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    return {**plain, "PYTHONPATH": str(ROOT), **more}


def call(url: str | None, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    command = [sys.executable, "-m", "metastore", *(() if url is None else ("--url", url)), *words]
    options: dict[str, Any] = {"capture_output": True, "encoding": "utf-8", "timeout": 120, "env": environment()}
    return subprocess.run(command, check=False, **{**options, **more})


def here(url: str | None, *words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, which takes a tenth of the time."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err), patch.dict(os.environ, env or environment(), clear=True):
        code = run_command([*(() if url is None else ("--url", url)), *words])
    texts = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return subprocess.CompletedProcess(words, code, *texts)


@pytest.fixture
def run(url: str) -> Run:
    """Run a command on a database with a little of everything."""
    fill(url)
    return lambda *words: here(url, *words)


def fill(url: str) -> None:
    with ms.open(url, principal="tester") as store:
        store.metalakes.create("lake", comment="all of it")
        store.catalogs.create("lake.c", type="relational")
        store.schemas.create("lake.c.s.inner", parents=True)
        columns = [
            ms.Column("id", "long", nullable=False, comment="the key"),
            ms.Column("tags", "map<string,list<int>>"),
            ms.Column(RED, "decimal(10,2)", default="0"),
        ]
        table = store.tables.create(
            "lake.c.s.t", columns=columns, partitioning=["id"], location="file:/data/t", format="parquet"
        )
        store.tables.alter(table, ms.AddColumn(("é",), "int"), ms.SetProperty("owner", RED))
        store.partitions.create(table, "id=1", values={"id": "1"})
        row = store.statistics.row("crawl", {"rows": 1234567, "columns": {"id": {"nulls": 5, "min": "1", "max": "99"}}})
        store.statistics.put_many(table, [row])
        store.tables.create(("lake", "c", "s", RED), comment="\x1b[31mred\nline two")
        store.tables.create(("lake", "c", "s", "a.b"))
        store.tables.create("lake.c.s.Ωmega")
        store.filesets.create("lake.c.s.t", locations={"main": "s3://bucket/x"})
        store.tables.rename("lake.c.s.Ωmega", "omega")


def document(done: subprocess.CompletedProcess[str], code: int = 0) -> Any:
    assert (done.returncode, done.stderr) == (code, "")
    return json.loads(done.stdout)


def refused(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("metastore: ")
    assert done.stderr.count("\n") == 1, done.stderr
    for part in parts:
        assert part in done.stderr


# --- what is there


def test_ls(run: Run) -> None:
    done = run("ls")
    assert (done.stdout, done.stderr) == ("lake  metalake v1  all of it\n", "")
    lines = run("ls", "lake.c", "--recursive").stdout.splitlines()
    assert lines[:3] == ["lake.c  catalog v1", "└── s  schema v1", "    ├── inner  schema v1"]
    assert f"    ├── {RED}  table v1  \\x1b[31mred line two" in lines
    assert lines[-1] == "    └── t  fileset v1"
    assert "inner" not in run("ls", "lake.c").stdout


def test_ls_as_json(run: Run) -> None:
    (lake,) = document(run("ls", "--json"))["children"]
    assert (lake["kind"], lake["path"], lake["version"], lake["comment"]) == ("metalake", "lake", 1, "all of it")
    found = document(run("ls", "lake.c", "-r", "--json"))
    assert found["path"] == "lake.c"
    (schema,) = found["children"]
    names = [(child["kind"], child["name"]) for child in schema["children"]]
    assert names == [
        ("schema", "inner"),
        ("table", RED),
        ("table", "a.b"),
        ("table", "omega"),
        ("table", "t"),
        ("fileset", "t"),
    ]
    assert schema["children"][2]["path"] == "lake.c.s.`a.b`"


def test_a_name_that_is_not_utf8_is_shown_by_its_bytes(url: str) -> None:
    refused(call(url, "import", os.fsdecode(b"caf\xe9.jsonl")), r"caf\xe9.jsonl")


def test_a_name_that_ends_with_a_blank_is_shown_quoted(url: str) -> None:
    with ms.open(url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        store.schemas.create(("lake", "c", " s  "))
        store.tables.create(("lake", "c", " s  ", "t "), columns=[ms.Column(" id", "int")])
    out = here(url, "ls", "lake.c", "-r").stdout
    assert "── ` s  `  schema v1" in out
    assert "── `t `  table v1" in out
    shown = here(url, "show", "lake.c.` s  `.`t `").stdout
    assert shown.startswith("table lake.c.` s  `.`t `\n")
    assert "` id`" in shown
    refused(here(url, "show", "lake.c. s  .t"), "lake.c.` s  `.t does not exist")
    assert "create table lake.c.` s  `.`t ` v1" in here(url, "changes").stdout
    assert document(here(url, "ls", "lake.c", "--json"))["children"][0]["name"] == " s  "


def test_show_a_table(run: Run) -> None:
    out = run("show", "lake.c.s.t", "--kind", "table").stdout
    assert out.splitlines()[0] == "table lake.c.s.t"
    for part in ("by tester", "file:/data/t", "parquet", "1,234,567 rows", "map<string,list<int>>", RED, "the key"):
        assert part in out, part
    (header,) = (line.split() for line in out.splitlines() if line.startswith("Name"))
    assert header == ["Name", "Type", "Nullable", "Default", "Comment", "Nulls", "Min", "Max"]
    assert max(map(len, out.splitlines())) <= 100
    assert "\x1b" not in out


@pytest.mark.parametrize("obeyed", ["\x7f", "\x9b", "\u202e", "\u2066", "\u200f"])
def test_json_holds_nothing_that_a_terminal_obeys(sqlite_url: str, obeyed: str) -> None:
    """DEL, C1 and bidi controls are written as escapes, and mean the same to a program."""
    with ms.open(sqlite_url) as store:
        store.metalakes.create("m", comment=f"a{obeyed}b", properties={f"k{obeyed}": "v"})
    for words in (("show", "m"), ("ls",), ("changes",), ("history", "m")):
        done = here(sqlite_url, *words, "--json")
        assert done.returncode == 0
        assert obeyed not in done.stdout
    shown = document(here(sqlite_url, "show", "m", "--json"))
    assert (shown["comment"], shown["properties"]) == (f"a{obeyed}b", {f"k{obeyed}": "v"})


def test_show_as_json(run: Run) -> None:
    found = document(run("show", "lake.c.s.t", "--kind", "table", "--json"))
    assert [c["name"] for c in found["columns"]] == ["id", "tags", RED, "é"]
    assert found["columns"][0] | {"id": 0} == {
        "id": 0,
        "name": "id",
        "type": "long",
        "nullable": False,
        "default": None,
        "comment": "the key",
        "auto_increment": False,
    }
    assert (found["partitions"], found["statistics"]["crawl"]["rows"]) == (1, 1234567)
    assert (found["version"], found["properties"], found["created_by"]) == (2, {"owner": RED}, "tester")
    assert found["created_at"].endswith("+00:00")
    fileset = document(run("show", "lake.c.s.t", "--kind", "fileset", "--json"))
    assert fileset["locations"] == {"main": "s3://bucket/x"}


def test_show_other_kinds(run: Run) -> None:
    assert run("show", "lake").stdout.startswith("metalake lake\n")
    assert "relational" in run("show", "lake.c").stdout
    assert run("show", "lake.c.s.inner").stdout.startswith("schema lake.c.s.inner\n")
    assert run("show", "lake.c.s.`a.b`").stdout.startswith("table lake.c.s.`a.b`\n")
    assert "s3://bucket/x" in run("show", "lake.c.s.t", "--kind", "fileset").stdout
    refused(run("show", "lake.c.s.t"), "a table and of a fileset", "--kind table or --kind fileset")


def test_history(run: Run) -> None:
    out = run("history", "lake.c.s.omega").stdout.splitlines()
    assert out[0].split() == ["Version", "Time", "(UTC)", "Action", "By", "What"]
    assert out[2].endswith("rename  tester  lake.c.s.Ωmega -> lake.c.s.omega")
    found = document(run("history", "lake.c.s.t", "--kind", "table", "--json"))
    assert [(v["version"], v["action"]) for v in found["versions"]] == [(1, "create"), (2, "alter")]
    assert [c["change"] for c in found["versions"][1]["changes"]] == ["AddColumn", "SetProperty"]


def test_changes(run: Run) -> None:
    found = [json.loads(line) for line in run("changes", "--json").stdout.splitlines()]
    assert found[0]["path_after"] == "lake"
    assert found[-1]["action"] == "rename"
    rest = run("changes", "--json", "--after", found[2]["position"], "--limit", "2").stdout.splitlines()
    assert [json.loads(line) for line in rest] == found[3:5]
    lines = run("changes").stdout.splitlines()
    assert len(lines) == len(found)
    assert lines[0].startswith(found[0]["position"])
    assert run("changes", "--limit", "0").stdout == ""
    refused(run("changes", "--after", "somewhere"), "not a position")
    refused(run("changes", "--url", "sqlite:///x.db"), "--url comes before the command: metastore --url … changes")


# --- upkeep


def test_the_console_of_a_file_that_is_not_there(run: Run, tmp_path: Path) -> None:
    refused(run("--url", f"sqlite:///{tmp_path}/none.db", "console"), "there is no database", "name one with --url")


def test_verify(run: Run, url: str, tmp_path: Path) -> None:
    file = tmp_path / "verify.json"
    assert run("verify", "--report", str(file)).stdout == "No violations.\n"
    report = read_report(file)
    assert report is not None
    assert (report.count, report.violations) == (0, ())
    refused(run("verify", "--report", str(tmp_path / "none" / "x")), "there is no folder", "make it")
    for folder in (Path("/"), tmp_path):
        refused(run("verify", "--report", str(folder)), "it is a folder")
        assert not (folder.parent / f".{folder.name}.new").exists()
    refused(run("verify", "--backup", str(tmp_path), "--report", str(file)), "--report is for a database")
    assert run("verify").stdout == "No violations.\n"
    assert document(run("verify", "--json")) == {"violations": []}
    if url.startswith("sqlite"):
        import sqlite3

        with sqlite3.connect(url.removeprefix("sqlite:///")) as lite:
            lite.execute("UPDATE entity SET version = 9 WHERE id = (SELECT id FROM guard WHERE name = ?)", (RED,))
        lite.close()
        done = run("verify", "--report", str(file))
        assert done.returncode == 1
        report = read_report(file)
        assert report is not None
        assert (report.count, report.violations[0].path) == (1, f"lake.c.s.{RED}")
        assert f"lake.c.s.{RED}" in done.stdout
        assert done.stdout.splitlines()[-1] == "1 violation."
        (violation,) = document(run("verify", "--json"), code=1)["violations"]
        assert (violation["invariant"], violation["path"]) == (1, f"lake.c.s.{RED}")


def test_gc(run: Run, url: str) -> None:
    with ms.open(url) as store:
        store.schemas.drop("lake.c.s.inner")
    assert document(run("gc", "--retention", "7d", "--json"))["entities"] == 0
    nothing = {"entities": 0, "versions": 0, "operations": 0, "staged": 0, "overdue": []}
    assert document(run("gc", "--json")) == nothing  # 7d as well
    done = run("gc", "--retention", "0s", "--keep-versions", "1")
    assert done.stdout.startswith("Removed 1 entities, 2 old versions of others, ")
    refused(run("gc", "--retention", "soon"), "'soon' is not a duration", "7d")
    refused(run("gc", "--retention", "1d", "--keep-versions", "0"), "keep_versions")


@pytest.mark.each_run_on("sqlite", "postgres")
def test_migrate(url: str) -> None:
    assert here(url, "migrate").stdout.endswith("is up to date.\n")
    assert document(here(url, "migrate", "--json"))["migrated"] is True
    assert here(url, "verify").returncode == 0


# --- where it goes wrong


def test_paths_that_lead_nowhere(run: Run) -> None:
    refused(run("show", "lake.c.s.none"), "lake.c.s.none does not exist")
    refused(run("show", "lake.none.s.t"), "there is no lake.none")
    refused(run("ls", "none"), "none does not exist")
    refused(run("ls", "lake.c.s.omega"), "is a table")
    refused(run("history", "none.none"), "does not exist")
    refused(run("show", "lake..x"), "must not be empty")
    refused(run("show", "lake.c", "--kind", "table"), "path of a table is")
    refused(run("show", "lake.c", "--kind", "cube"), "'cube'")


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("foo", "cannot be parsed"),
        ("mysql://me:s3cret@host/db", "'mysql' is not supported"),
        ("sqlite:////nowhere/at/all.db", "cannot open"),
        ("postgresql://me:s3cret@127.0.0.1:1/db", "cannot connect"),
        ("postgresql://me:s3cret@127.0.0.1:port/db", "cannot be parsed"),
    ],
)
def test_urls(url: str, part: str) -> None:
    for words in (("ls",), ("migrate",), ("verify", "--json")):
        if words != ("migrate",) or "1:1" not in url:
            refused(here(url, *words), part if words != ("migrate",) or "nowhere" not in url else "")
    assert "s3cret" not in here(url, "ls").stderr


def test_a_url_without_its_option_is_not_shown() -> None:
    done = here(None, "postgresql://me:s3cret@host/db", "ls")
    refused(done)
    assert "s3cret" not in done.stderr


def test_a_wrong_password_is_not_shown(postgres_server: Any) -> None:
    url = postgres_server.url("none_such").replace("postgres@", "nobody:s3cret@")
    done = call(url, "ls")
    refused(done, "cannot connect to PostgreSQL")
    assert "s3cret" not in done.stderr
    done = here(url, "migrate")
    refused(done)
    assert "s3cret" not in done.stderr


def test_a_database_without_schema(postgres_databases: Any) -> None:
    url = postgres_databases.create_database()
    refused(here(url, "ls"), "run: metastore migrate")
    assert here(url, "migrate").returncode == 0
    assert here(url, "ls").returncode == 0
    postgres_databases.drop_database(url)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Give a folder that other users can read, and not write."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_file_that_cannot_be_written(open_folder: Path) -> None:
    file = open_folder / "store.db"
    fill(f"sqlite:///{file}")
    file.chmod(stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)
    open_folder.chmod(0o555)
    script = """if True:
        import contextlib, io, os, metastore.backends.sqlite.backend, metastore.cli.app, metastore.migrations
        with contextlib.redirect_stdout(io.StringIO()):  # imports all that other users may not be able to read
            metastore.cli.app.run(["--url", "memory://", "gc", "--retention", "0s"])
        os.getuid() or (os.setgid(65534), os.setuid(65534))
        metastore.cli.main()"""
    words = [sys.executable, "-c", script, "--url", f"sqlite:///{file}"]
    options: dict[str, Any] = {"capture_output": True, "encoding": "utf-8", "env": environment(), "cwd": "/"}
    refused(subprocess.run([*words, "gc", "--retention", "0s"], check=False, **options), "make the file and its folder")
    open_folder.chmod(0o755)


def test_crawl_says_what_is_wrong(sqlite_url: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    refused(here(sqlite_url, "crawl", str(tmp_path / "none"), "--into", "lake.c"), "none")
    refused(here(sqlite_url, "crawl", str(tmp_path), "--into", "lake"), "lake.main")
    refused(here(sqlite_url, "crawl", str(tmp_path)), "--into")


def test_the_bar_of_a_crawl_shows_no_share_that_nobody_knows() -> None:
    """Of the listing and Spark's start: the bar stayed at 0 %."""
    out = io.StringIO()
    with _progress(Console(file=out, force_terminal=True, width=100), quiet=False) as tell:
        tell("listing folders (300 so far)", 0.0)
    assert "listing folders (300 so far)" in out.getvalue()
    assert "%" not in out.getvalue()
    with _progress(Console(file=out, force_terminal=True, width=100), quiet=False) as tell:
        tell("crawling", 0.5)
    assert "50%" in out.getvalue()


def test_crawl_fails_on_error_if_asked(sqlite_url: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "in").mkdir()
    words = ("crawl", str(tmp_path / "in"), "--into", "lake.c", "--fail-on-error")
    assert here(sqlite_url, *words).returncode == 0
    (tmp_path / "in" / "broken.csv").symlink_to(tmp_path / "nothing")
    for more in ((), ("--json",), ("--dry-run",)):
        done = here(sqlite_url, *words, *more)
        assert (done.returncode, done.stderr) == (1, "")
        assert "broken.csv" in done.stdout
    assert here(sqlite_url, *words[:-1]).returncode == 0


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_crawl(java: Path, sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "good.csv").write_text("a,b\n1,x\n2,y\n")
    (tmp_path / "in" / "[red]bad.parquet").write_text("no parquet")
    words = ("crawl", str(tmp_path / "in"), "--into", "lake.c")
    options = {"env": environment(JAVA_HOME=str(java), SPARK_LOCAL_IP="127.0.0.1")}
    done = call(sqlite_url, *words, "--master", "local[1]", **options)
    assert done.returncode == 0, done.stderr
    assert "1 tables: 1 created, 0 altered, 0 unchanged; 1 failures." in done.stdout
    assert "[red]bad.parquet: " in done.stdout
    assert " attempts, 0 conflicts" in done.stdout
    again = here(sqlite_url, *words, "--json")  # without Spark
    found = json.loads(again.stdout)
    assert (found["created"], found["unchanged"], found["attempts"], len(found["failures"])) == (0, 1, 0, 1)


# --- how it behaves


def test_help_and_version() -> None:
    assert call(None, "--version").stdout.startswith("metastore ")
    assert "crawl" in here(None, "--help").stdout
    assert here(None).stdout.startswith("Usage: ")
    for command in ("migrate", "crawl", "ls", "show", "history", "changes", "verify", "gc"):
        assert "--json" in here("sqlite://", command, "--help").stdout
    refused(here(None, "nothing"), "nothing")


def test_the_url_of_the_environment(sqlite_url: str) -> None:
    fill(sqlite_url)
    assert here(None, "ls", env=environment(METASTORE_URL=sqlite_url)).stdout.startswith("lake")


def test_colours_and_encodings(sqlite_url: str) -> None:
    fill(sqlite_url)
    assert "\x1b[" in here(sqlite_url, "ls", "lake.c", env=environment(FORCE_COLOR="1")).stdout
    plain = here(sqlite_url, "ls", "lake.c", env=environment(FORCE_COLOR="1", NO_COLOR="1", TERM="xterm")).stdout
    assert "\x1b[3" not in plain.replace("\x1b[3m", "")
    done = call(sqlite_url, "ls", "lake.c", "-r", env=environment(PYTHONIOENCODING="ascii"))
    assert (done.returncode, done.stderr) == (0, "")
    found = document(call(sqlite_url, "history", "lake.c.s.omega", "--json", env=environment(PYTHONIOENCODING="ascii")))
    assert found["versions"][0]["path_after"] == "lake.c.s.Ωmega"


@pytest.mark.long
def test_a_reader_that_stops_reading(sqlite_url: str) -> None:
    with ms.open(sqlite_url) as store:
        store.metalakes.create_many(None, [{"name": f"a lake with a long name, number {n}"} for n in range(5000)])
    for words in ("changes", "changes --json", "ls", "ls --json"):
        command = f"{sys.executable} -m metastore --url {sqlite_url} {words} | head -n 1"
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, env=environment())
        assert done.stderr == ""
        assert done.stdout.count("\n") == 1


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupt(sqlite_url: str) -> None:
    with ms.open(sqlite_url) as store:
        store.metalakes.create_many(None, [{"name": f"a lake with a long name, number {n}"} for n in range(5000)])
    command = [sys.executable, "-m", "metastore", "--url", sqlite_url, "changes", "--json"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment()}
    # in the background of a shell SIGINT is ignored, and the process would inherit that
    with subprocess.Popen(command, preexec_fn=_heed_interrupts, **pipes) as process:  # noqa: PLW1509
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b'{"position"')
        time.sleep(0.2)  # the pipe is full by now, or will be: the process waits in it
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors.decode().splitlines() == ["metastore: interrupted"]
