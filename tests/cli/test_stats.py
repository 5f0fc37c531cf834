"""``metastore stats``: how it is shown, and, on a real store, that it is."""

from __future__ import annotations

import dataclasses
import json
from typing import Self

import pytest

import metastore as ms
from metastore.cli.app import run
from metastore.stats import HotEntity, LineInfo, MarkInfo, Stats
from tests.cli.test_cli import document, here

QUIET = Stats(0, None, (), (), 0.0, 0, None, None, None, 2)
BUSY = Stats(
    pending=1234,
    oldest_pending_seconds=12.34,
    marks=(
        MarkInfo(3, "lake.c", "0190-a", 4.0, 26.0, False),
        MarkInfo(4, None, "0190-b", 90.0, -30.0, True),
    ),
    hot=(HotEntity(9, "lake.c.[red]x[/red]\x1b", "table", 54321), HotEntity(10, None, None, 3)),
    feed_lag_seconds=2.5,
    undecided_positions=17,
    oldest_transaction_seconds=3.0,
    multixact_members=1 << 31,
    multixact_age=1000,
    format=2,
    lines=(LineInfo(9, "lake.c.x", "table", 3, 1.25),),
)


class Store:
    def __init__(self, found: Stats) -> None:
        self._found = found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def stats(self) -> Stats:
        return self._found


def shown(found: Stats, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    monkeypatch.setattr("metastore.store.open_store", lambda *_, **__: Store(found))
    monkeypatch.delenv("COLUMNS", raising=False)
    assert run(["stats", *words]) == 0
    done = capsys.readouterr()
    assert done.err == ""
    return done.out


def test_stats_of_a_quiet_database(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(QUIET, monkeypatch, capsys).splitlines()
    assert [line.split("  ", 1)[0] for line in lines] == ["format", "pending intents", "feed"]
    assert lines[1].endswith(" 0")
    assert lines[2].endswith("up to date")


def test_stats_of_a_busy_database(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(BUSY, monkeypatch, capsys)
    for part in (
        "1,234, the oldest for 12.3 s",
        "17 changes wait behind a running transaction, the first for 2.5 s",
        "2,147,483,648 (50.0% of 4,294,967,296)",
        "lake.c.[red]x[/red]\\x1b",
        "(entity 10, purged)",
    ):
        assert part in out, out
    words = [line.split() for line in out.splitlines()]
    assert ["3", "lake.c", "0190-a", "4.0", "s", "in", "26.0", "s"] in words
    assert ["4", "(entity", "4,", "purged)", "0190-b", "90.0", "s", "expired"] in words
    assert ["54,321", "table", "lake.c.[red]x[/red]\\x1b"] in words
    assert not [line for line in out.splitlines() if line != line.rstrip()]


def test_stats_that_are_not_known(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    hidden = dataclasses.replace(QUIET, undecided_positions=None, feed_lag_seconds=None)
    assert "pg_read_all_stats" in shown(hidden, monkeypatch, capsys)


@pytest.mark.parametrize("found", [QUIET, BUSY], ids=["quiet", "busy"])
def test_stats_as_json(found: Stats, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(shown(found, monkeypatch, capsys, "--json")) == found.as_json()


@pytest.mark.skipif(not hasattr(ms.Store, "stats"), reason="Store.stats is not there yet")
def test_stats_of_a_real_store(url: str) -> None:
    with ms.open(url) as store:
        lake = store.metalakes.create("lake")
        for n in range(3):
            lake = store.metalakes.alter(lake, ms.SetComment(str(n)))
    found = document(here(url, "stats", "--json"))
    assert set(found) == {field.name for field in dataclasses.fields(Stats)}
    assert found["hot"] == [{"entity_id": lake.id, "path": "lake", "kind": "metalake", "writes": 4}]
    assert (found["pending"], found["marks"]) == (0, [])
    assert (found["multixact_age"] is None) == url.startswith("sqlite")
    lines = here(url, "stats").stdout.splitlines()
    assert lines[-1].split() == ["4", "metalake", "lake"]
