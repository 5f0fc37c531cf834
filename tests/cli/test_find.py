"""``metastore find``: what the options choose, as a table and as JSON lines."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

import metastore as ms
from metastore.feed import feed
from metastore.managers import find
from tests.cli.test_cli import Run, here, refused

pytestmark = pytest.mark.each_run_on("sqlite")  # a command knows nothing of the database

RED = "\x1b[31mred"


@pytest.fixture
def run(url: str) -> Run:
    """Run a command on a database with two catalogs and names that are alike."""
    with ms.open(url) as store:
        store.metalakes.create("lake")
        for catalog in ("lake.a", "lake.b"):
            store.catalogs.create(catalog, type="relational")
            store.tables.create(f"{catalog}.s.orders", parents=True, comment=RED, properties={"owner": "ann", "k": "v"})
            store.tables.create(f"{catalog}.s.returns", properties={"owner": "ann"})
        store.views.create("lake.a.s.orders_v1", representations=[ms.SQL("spark", "select 1")])
    return lambda *words: here(url, *words)


def found(run: Run, *words: str) -> list[str]:
    done = run("find", *words, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    entities: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    return sorted(f"{entity['kind']} {entity['path']}" for entity in entities)


def test_every_option_chooses(run: Run) -> None:
    assert len(found(run)) == 10
    assert found(run, "lake.b") == ["schema lake.b.s", "table lake.b.s.orders", "table lake.b.s.returns"]
    assert found(run, "lake", "--children") == ["catalog lake.a", "catalog lake.b"]
    orders = ["table lake.a.s.orders", "table lake.b.s.orders"]
    assert found(run, "--name", "orders*") == [*orders, "view lake.a.s.orders_v1"]
    assert found(run, "lake.a", "--name", "orders*", "--kind", "table") == ["table lake.a.s.orders"]
    assert found(run, "--name", "*s_v?") == ["view lake.a.s.orders_v1"]
    both = ("--set-property", "owner=ann", "--set-property", "k=v")
    assert found(run, *both) == orders
    assert found(run, "--set-property", "owner=bob") == []


def test_what_looks_through_everything_goes_on_until_it_is_done(
    url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of these iterators ends at the store's deadline; at a terminal a person ends it."""
    with ms.open(url) as store:
        first = next(store.changes()).position
    for module in (find, feed):
        monkeypatch.setattr(module, "_PAGE", 1)
    monkeypatch.setattr("metastore.store.open_store", partial(ms.open, deadline=1e-6))
    searches = {"find": ["--text", "nowhere"], "changes": ["--kind", "topic"], "diff": ["lake.b.s", "--from", first]}
    for command, words in searches.items():
        done = run(command, *words)
        assert (done.returncode, done.stderr) == (0, ""), command


def test_the_table_has_a_line_for_each_entity(run: Run) -> None:
    lines = run("find", "lake.a", "--name", "orders*").stdout.splitlines()
    head, *rows = [line.split(None, 2) for line in lines]
    assert head == ["Kind", "Version", "Path"]
    assert sorted(rows) == [["table", "1", r"lake.a.s.orders  \x1b[31mred"], ["view", "1", "lake.a.s.orders_v1"]]
    assert {line.index("lake.a") for line in lines[1:]} == {lines[0].index("Path")}


def test_nothing_found_is_no_error(run: Run) -> None:
    done = run("find", "--name", "nothing")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_cannot_be_looked_for_is_refused(run: Run) -> None:
    refused(run("find", "lake.none"), "lake.none")
    refused(run("find", "--kind", "tabel"), "tabel", "table")
    refused(run("find", "--set-property", "owner"), "--set-property takes KEY=VALUE")
    refused(run("find", "--set-property", "a=1", "--set-property", "a=2"), "'a' twice")
