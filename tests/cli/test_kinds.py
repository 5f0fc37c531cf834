"""The command line and kinds: the built-in ones, and those that installed packages bring."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore.kinds.registry import KINDS
from tests.cli.test_cli import Run, call, document, environment, here, refused

pytestmark = [pytest.mark.each_run_on("sqlite"), pytest.mark.one_in(3)]  # a command knows nothing of the database

PLUGIN = """
import metastore as ms

ms.Kind("billboard", fields={"owner": str, "panels": ms.Field(list, default=[])}, container=True)
ms.Kind("memo", parent="billboard", fields={"text": str})
"""
FILL = """
import sys
import metastore as ms
import acme_kinds

with ms.open(sys.argv[1]) as store:
    store.manager("billboard").create("lake.c.s.sales", owner="ann", panels=["one"])
    store.manager("memo").create("lake.c.s.sales.n", text="hello")
"""


@pytest.fixture
def filled(url: str) -> Run:
    """Run a command on a database with one of each kind."""
    with ms.open(url, principal="tester") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        store.schemas.create("lake.c.s")
        columns = [ms.Column("id", "int")]
        store.views.create(
            "lake.c.s.v", columns=columns, representations=[ms.SQL("spark", "SELECT 1")], default_schema="s"
        )
        store.topics.create("lake.c.s.topic", comment="events")
        store.models.create("lake.c.s.m")
        store.models.add_version("lake.c.s.m", uris={"default": "s3://b/1", "onnx": "s3://b/2"}, aliases=["prod"])
        sql = ms.Implementation("sql", "a + 1", runtime="spark")
        plus = ms.Definition((ms.Column("a", "int", default="0"),), "int", (sql,))
        store.functions.create("lake.c.s.f", definitions=[plus], deterministic=True)
        rows = ms.Definition((), tuple(columns))
        store.functions.create("lake.c.s.rows", type="table", definitions=[rows])
    return lambda *words: here(url, *words)


def test_show(filled: Run) -> None:
    view = filled("show", "lake.c.s.v").stdout
    for part in ("view lake.c.s.v", "id", "int", "In spark", "SELECT 1", "looks in"):
        assert part in view
    model = filled("show", "lake.c.s.m").stdout
    assert "s3://b/1" in model
    assert "onnx: s3://b/2" in model
    assert "prod" in model
    function = filled("show", "lake.c.s.f").stdout
    for part in ("(a int = 0) -> int", "sql for spark: a + 1", "deterministic", "yes"):
        assert part in function
    assert "() -> table(id int)" in filled("show", "lake.c.s.rows").stdout
    assert "events" in filled("show", "lake.c.s.topic").stdout


def test_show_as_json(filled: Run) -> None:
    view = document(filled("show", "lake.c.s.v", "--json"))
    assert view["representations"] == [{"dialect": "spark", "text": "SELECT 1"}]
    model = document(filled("show", "lake.c.s.m", "--json"))
    assert [(v["name"], v["aliases"], v["uris"]["onnx"]) for v in model["versions"]] == [("1", ["prod"], "s3://b/2")]
    (definition,) = document(filled("show", "lake.c.s.f", "--json"))["definitions"]
    assert definition["implementations"][0]["body"] == "a + 1"


def test_ls_and_history(filled: Run) -> None:
    listed = document(filled("ls", "lake.c.s", "--json"))["children"]
    assert {child["kind"] for child in listed} == {"view", "topic", "model", "function"}
    assert "SetAlias" in filled("history", "lake.c.s.m").stdout
    refused(filled("show", "lake.c.s.v", "--kind", "table"), "does not exist")
    refused(filled("show", "lake.c.s.v", "--kind", "nothing"), "there is no kind 'nothing'")


def install(folder: Path, text: str) -> dict[str, Any]:
    """Install a package with kinds in ``folder``; return the options of processes that find it there."""
    (folder / "acme_kinds.py").write_text(text)
    info = folder / "acme_kinds-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-kinds\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[metastore.kinds]\nacme = acme_kinds\n")
    plain = environment()
    return {"env": {**plain, "PYTHONPATH": f"{plain['PYTHONPATH']}:{folder}"}}


@pytest.fixture
def apart(filled: Run, url: str) -> Run:
    """Run a command in a process of its own, which knows the built-in kinds and those of the packages it finds."""
    return lambda *words, **more: call(url, *words, **more)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_kinds_of_installed_packages(apart: Run, url: str, tmp_path: Path) -> None:
    there = install(tmp_path, PLUGIN)
    subprocess.run([sys.executable, "-c", FILL, url], check=True, **there)
    listed = document(apart("ls", "lake.c.s", "--recursive", "--json", **there))["children"]
    (board,) = [child for child in listed if child["kind"] == "billboard"]
    assert [memo["name"] for memo in board["children"]] == ["n"]
    shown = apart("show", "lake.c.s.sales", **there).stdout
    assert "billboard lake.c.s.sales" in shown
    assert "ann" in shown
    assert document(apart("show", "lake.c.s.sales.n", "--json", **there))["text"] == "hello"


@pytest.fixture
def without_the_package(filled: Run, url: str, tmp_path: Path) -> Run:
    """Run a command in a program that does not know two kinds of the database: in this one."""
    assert not {"billboard", "memo"} & KINDS.keys(), "another test of this process declares them"
    subprocess.run([sys.executable, "-c", FILL, url], check=True, **install(tmp_path, PLUGIN))
    return filled


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_ls_shows_what_is_of_a_kind_that_is_not_registered(without_the_package: Run) -> None:
    listed = without_the_package("ls", "lake.c", "--recursive")
    assert "sales  billboard v1  (kind not registered)" in listed.stdout
    assert "n  memo v1  (kind not registered)" in listed.stdout
    assert "topic  topic v1\n" in listed.stdout.replace("  events", "")
    told = listed.stderr.strip().splitlines()
    assert [line for line in told if "billboard, memo" in line and '"metastore.kinds"' in line] == told
    below = without_the_package("ls", "lake.c.s.sales").stdout
    assert below.splitlines()[0].startswith("lake.c.s.sales  billboard v1")
    assert "n  memo v1" in below
    (schema,) = document(without_the_package("ls", "lake.c", "--recursive", "--json"))["children"]
    (board,) = [child for child in schema["children"] if child["kind"] == "billboard"]
    assert board["registered"] is False
    assert [(memo["name"], memo["registered"]) for memo in board["children"]] == [("n", False)]
    assert not any("registered" in child for child in schema["children"] if child["kind"] == "view")


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_show_and_history_of_a_kind_that_is_not_registered(without_the_package: Run) -> None:
    shown = without_the_package("show", "lake.c.s.sales")
    for part in ("billboard lake.c.s.sales", "Fields, as stored", "owner", '"ann"', '["one"]'):
        assert part in shown.stdout
    assert "billboard" in shown.stderr
    assert "not registered in this program" in shown.stderr
    memo = document(without_the_package("show", "lake.c.s.sales.n", "--json"))
    assert (memo["kind"], memo["registered"], memo["document"]["text"]) == ("memo", False, "hello")
    assert "create" in without_the_package("history", "lake.c.s.sales.n").stdout
    chosen = without_the_package("show", "lake.c.s.sales", "--kind", "billboard", "--json")
    assert document(chosen)["document"]["owner"] == "ann"
    refused(without_the_package("show", "lake.c.s.sales", "--kind", "memo"), "there is no kind 'memo'")
    refused(without_the_package("show", "lake.c.s.none"), "does not exist")
    refused(without_the_package("show", "lake.c.s.sales.none"), "does not exist")


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_the_rest_of_the_commands_take_a_kind_that_is_not_registered(without_the_package: Run, tmp_path: Path) -> None:
    assert "billboard" in without_the_package("changes").stdout
    assert without_the_package("verify").returncode == 0
    file = tmp_path / "sales.jsonl"
    assert without_the_package("export", "lake.c.s.sales", "-o", str(file)).returncode == 0
    assert '"hello"' in file.read_text()


def test_a_broken_package_is_named(apart: Run, tmp_path: Path) -> None:
    refused(apart("ls", **install(tmp_path, "import nothing_of_this_name")), "acme_kinds", "nothing_of_this_name")
