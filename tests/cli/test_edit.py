"""The commands that change one entity: create, alter, rename, drop, restore, purge; and diff."""

from __future__ import annotations

import json
from typing import Any

import pytest

import metastore as ms
from tests.cli.test_cli import Run, here, refused

pytestmark = pytest.mark.each_run_on("sqlite")  # a command knows nothing of the database

PATH = "lake.c.s.orders"


@pytest.fixture
def run(url: str) -> Run:
    """Run a command on a database with one catalog."""
    with ms.open(url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
    return lambda *words: here(url, "--principal", "ann", *words)


def good(run: Run, *words: str) -> str:
    done = run(*words)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def bad(run: Run, *words: str) -> str:
    done = run(*words)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def shown(run: Run, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(good(run, *words, "--json"))
    return found


def made(run: Run) -> dict[str, Any]:
    columns = ["--column", "id:long not null", "--column", "amount:decimal(10,2)"]
    return shown(run, "create", "table", PATH, "--parents", *columns, "--set", "owner=ann", "--comment", "sold")


def test_create_makes_what_the_options_say(run: Run) -> None:
    table = made(run)
    assert (table["path"], table["version"], table["comment"], table["created_by"]) == (PATH, 1, "sold", "ann")
    assert table["properties"] == {"owner": "ann"}
    assert [(c["name"], c["type"], c["nullable"]) for c in table["columns"]] == [
        ("id", "long", False),
        ("amount", "decimal(10,2)", True),
    ]
    assert shown(run, "show", PATH)["id"] == table["id"]


def test_create_takes_the_fields_of_every_kind(run: Run) -> None:
    assert shown(run, "create", "schema", "lake.c.s")["kind"] == "schema"
    assert shown(run, "create", "view", "lake.c.s.v", "--sql", "spark=select a = 1")["representations"] == [
        {"dialect": "spark", "text": "select a = 1"}
    ]
    fileset = shown(run, "create", "fileset", "lake.c.s.f", "--field", 'locations={"main": "s3://b/x"}')
    assert fileset["locations"] == {"main": "s3://b/x"}
    assert shown(run, "create", "table", "lake.c.s.t", "--field", "location=file:/x")["location"] == "file:/x"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["create", "table", "lake.c.s.t"], "lake.c.s does not exist"),
        (["create", "tabel", "lake.c.s.t"], "there is no kind 'tabel'"),
        (["create", "schema", "lake.c.s", "--set", "owner"], "--set takes KEY=VALUE"),
        (["create", "schema", "lake.c.s", "--set", "a=1", "--set", "a=2"], "names 'a' twice"),
        (["create", "table", "lake.c.t", "--column", "id"], "--column takes NAME:TYPE"),
        (["create", "schema", "lake.c.s", "--field", "size=1"], "size"),
        (["create", "schema", "lake.c.s", "--if-exists", "maybe"], "if_exists"),
        (["alter", "lake.c"], "there is nothing to change"),
        (["alter", "lake.c", "--changes", "{"], "--changes takes JSON"),
        (["alter", "lake.c", "--changes", '{"change": "SetComment", "text": 1}'], "'text'"),
        (["alter", "lak", "--set", "a=b"], "did you mean lake?"),
        (["drop", "lake.x"], "lake.x does not exist"),
        (["restore", "lake.c"], "there is no dropped entity at lake.c"),
        (["creat", "schema", "lake.c.s"], "Did you mean 'create'"),
    ],
)
def test_what_is_wrong_is_one_line_and_writes_nothing(run: Run, words: list[str], says: str) -> None:
    before = good(run, "changes", "--json")
    assert says in bad(run, *words)
    assert good(run, "changes", "--json") == before


def test_alter_applies_all_its_options_as_one_version(run: Run) -> None:
    made(run)
    options = ["--set", "owner=bob", "--unset", "none", "--comment", "", "--location", "file:/data", "--format", "csv"]
    columns = ["--add-column", "address:struct<city: string>", "--rename-column", "amount:total"]
    table = shown(run, "alter", PATH, *options, *columns, "--drop-column", "id")
    assert (table["version"], table["comment"], table["properties"]) == (2, None, {"owner": "bob"})
    assert [c["name"] for c in table["columns"]] == ["total", "address"]
    table = shown(run, "alter", PATH, "--add-column", "address.zip:int", "--retype-column", "total:decimal(12,2)")
    assert [c["type"] for c in table["columns"]] == ["decimal(12,2)", "struct<city: string, zip: int>"]
    raw = '[{"change": "SetComment", "text": "all"}]'
    assert shown(run, "alter", PATH, "--changes", raw)["comment"] == "all"
    assert "unchanged" in good(run, "alter", PATH, "--comment", "all")


def test_expected_version_is_refused_and_nothing_is_written(run: Run) -> None:
    made(run)
    for words in (["alter", PATH, "--set", "a=b"], ["rename", PATH, "x"], ["drop", PATH]):
        assert "version 7" in bad(run, *words, "--expected-version", "7")
    assert shown(run, "show", PATH)["version"] == 1


def test_a_dry_run_shows_the_result_and_writes_nothing(run: Run) -> None:
    made(run)
    before = good(run, "changes", "--json")
    assert shown(run, "alter", PATH, "--set", "a=b", "--dry-run")["properties"] == {"owner": "ann", "a": "b"}
    for words in (
        ["create", "table", "lake.c.s.other"],
        ["alter", PATH, "--add-column", "x:int"],
        ["rename", PATH, "lake.c.s.other"],
        ["drop", "lake.c", "--cascade"],
    ):
        assert "nothing is written" in good(run, *words, "--dry-run")
    assert "amount" in bad(run, "alter", PATH, "--add-column", "amount:int", "--dry-run")
    assert good(run, "changes", "--json") == before


def test_rename_moves_drop_and_restore_bring_back(run: Run) -> None:
    first = made(run)
    good(run, "create", "schema", "lake.c.other")
    assert "renamed from lake.c.s.orders" in good(run, "rename", PATH, "lake.c.other.sold")
    assert "give --cascade" in bad(run, "drop", "lake.c.other")
    assert "restore lake.c.other.sold --id" in good(run, "drop", "lake.c.other.sold")
    good(run, "create", "table", "lake.c.other.sold")
    second = shown(run, "drop", "lake.c.other.sold")
    assert second["dropped"] is True
    assert shown(run, "restore", "lake.c.other.sold")["id"] == second["id"]
    assert shown(run, "restore", "lake.c.other.sold", "--id", str(first["id"]), "--to", PATH)["id"] == first["id"]


def test_purge_asks_unless_it_is_told_not_to(run: Run) -> None:
    first = made(run)
    good(run, "drop", PATH)
    assert "was not deleted; give --yes" in bad(run, "purge", PATH)
    gone = bad(run, "history", PATH)  # a person at a terminal asks who did it
    assert "a table of this name was dropped by ann at " in gone
    assert f"metastore restore {PATH} --id {first['id']}" in gone
    assert shown(run, "purge", PATH, "--yes")["purged"] is True
    assert "there is no dropped entity" in bad(run, "purge", PATH, "--yes")
    assert "does not exist" in bad(run, "history", PATH)
    assert first["id"] is not None


def test_diff_tells_columns_apart_by_their_ids(run: Run) -> None:
    made(run)
    good(run, "alter", PATH, "--rename-column", "amount:total", "--add-column", "city:string", "--set", "owner=bob")
    text = good(run, "diff", PATH, "1")
    assert "~ properties owner: ann -> bob" in text
    assert "~ columns total name: amount -> total" in text
    assert "+ columns city: string" in text
    assert "v2 alter by ann: " in text
    found = shown(run, "diff", PATH, "2", "1")
    assert {"path": ["columns", "city"], "before": found["differences"][-1]["before"], "after": None} in found[
        "differences"
    ]
    assert [step["version"] for step in found["versions"]] == [2]
    assert "versions 1 and 1 are equal" in good(run, "diff", PATH, "1", "1")
    assert "no version 9" in bad(run, "diff", PATH, "9")


def test_diff_shows_each_of_the_first_columns(run: Run) -> None:
    made(run)
    path = f"{PATH}_bare"
    good(run, "create", "table", path)
    good(run, "alter", path, "--add-column", "id:long", "--add-column", "city:string")
    text = good(run, "diff", path, "1", "2")
    assert text.splitlines()[:2] == ["+ columns id: long", "+ columns city: string"]
    assert good(run, "diff", path, "2", "1").splitlines()[:2] == ["- columns id: long", "- columns city: string"]
    found = shown(run, "diff", path, "1", "2")["differences"]
    assert [(one["path"], one["before"]) for one in found] == [(["columns", "id"], None), (["columns", "city"], None)]


def test_a_wrong_option_names_the_help_of_its_command(run: Run) -> None:
    assert bad(run, "create", "catalog", "m.c", "--type", "relational").endswith("; see: metastore create --help\n")
    assert "PATH'; see: metastore drops roll-back --help" in bad(run, "drops", "roll-back")
    assert "--sql takes DIALECT=TEXT, not 'x'" in bad(run, "create", "view", "m.c.s.v", "--sql", "x")
    assert "--rename-column takes OLD:NEW, not 'x'" in bad(run, "alter", PATH, "--rename-column", "x")
    assert bad(run, "nothing-such").endswith("'nothing-such'; see: metastore --help\n")


def test_show_version_shows_the_past(run: Run) -> None:
    made(run)
    good(run, "alter", PATH, "--set", "owner=bob")
    assert shown(run, "show", PATH, "--version", "1")["properties"] == {"owner": "ann"}
    assert "ann" in good(run, "show", PATH, "--version", "1")
    assert "no version 3" in bad(run, "show", PATH, "--version", "3")


def test_every_help_names_the_global_options(run: Run) -> None:
    for words in (["alter"], ["lease", "ls"], ["ls"], ["crawl"]):
        text = good(run, *words, "--help")
        assert "--url URL" in text, words


def test_a_field_that_is_needed(run: Run) -> None:
    refused(run("create", "catalog", "lake.new"), "a catalog needs type; add: --field type=VALUE")
    assert "TypeError" not in run("create", "catalog", "lake.new").stderr
    assert run("create", "catalog", "lake.new", "--field", "type=relational").returncode == 0
