"""The command line looks at the past, compares positions, and goes back."""

from __future__ import annotations

import json
from typing import Any

import pytest

import metastore as ms
from metastore.cli.app import run


@pytest.fixture
def position(sqlite_url: str) -> str:
    """Give the position at which the table ``m.c.s.t`` had no comment, and ``m.c.s.u`` was not there."""
    with ms.open(sqlite_url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.tables.create("m.c.s.t", parents=True)
        before = store.position()
        store.tables.alter("m.c.s.t", ms.SetComment("later"))
        store.tables.create("m.c.s.u")
    return before


def shown(capsys: pytest.CaptureFixture[str], url: str, *arguments: str) -> Any:
    """Return what a command writes as JSON: one value, or one for each line."""
    assert run(["--url", url, *arguments, "--json"]) == 0
    out = capsys.readouterr().out
    try:
        return json.loads(out)
    except ValueError:
        return [json.loads(line) for line in out.splitlines()]


def test_show_and_ls_at_a_position(sqlite_url: str, position: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, sqlite_url, "show", "m.c.s.t", "--at", position)["comment"] is None
    assert shown(capsys, sqlite_url, "show", "m.c.s.t")["comment"] == "later"
    assert [c["name"] for c in shown(capsys, sqlite_url, "ls", "m.c.s", "--at", position)["children"]] == ["t"]
    assert run(["--url", sqlite_url, "ls", "m.c.s", "--at", "then"]) == 1
    assert "neither a position nor a time" in capsys.readouterr().err


def test_diff_of_positions(sqlite_url: str, position: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = shown(capsys, sqlite_url, "diff", "--from", position)
    assert [(one["action"], one["path_after"]) for one in found] == [("altered", "m.c.s.t"), ("created", "m.c.s.u")]
    assert shown(capsys, sqlite_url, "diff", "m.c.s.u", "--from", position)["path_before"] is None
    assert run(["--url", sqlite_url, "diff", "--from", position]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("altered table m.c.s.t  v1 -> v2")
    assert run(["--url", sqlite_url, "diff"]) == 1


def test_pin_and_revert(sqlite_url: str, position: str, capsys: pytest.CaptureFixture[str]) -> None:
    (pin,) = shown(capsys, sqlite_url, "pin", "release", "--at", position)["pins"]
    assert position.startswith(pin["position"])
    assert [one["name"] for one in shown(capsys, sqlite_url, "pin")["pins"]] == ["release"]
    assert len(shown(capsys, sqlite_url, "revert", "m.c.s", "--to", position, "--dry-run")) == 2
    assert len(shown(capsys, sqlite_url, "revert", "m.c.s", "--to", position)) == 2
    assert shown(capsys, sqlite_url, "show", "m.c.s.t")["comment"] is None
    assert run(["--url", sqlite_url, "pin", "release", "--remove"]) == 0
    assert run(["--url", sqlite_url, "pin", "release", "--remove"]) == 1


def test_a_path_that_a_schema_and_a_table_share(
    sqlite_url: str, position: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with ms.open(sqlite_url) as store:
        store.schemas.create("m.c.s.t")
    calls = [
        (["diff", "m.c.s.t", "--from", position], "--kind"),
        (["changes", "--under", "m.c.s.t", "--after", position], "--under-kind"),
        (["revert", "m.c.s.t", "--to", position], "--kind"),
    ]
    for arguments, option in calls:
        assert run(["--url", sqlite_url, *arguments]) == 1
        assert "say which one" in capsys.readouterr().err
        assert [one["kind"] for one in shown_lines(capsys, sqlite_url, *arguments, option, "table")] == ["table"]


def shown_lines(capsys: pytest.CaptureFixture[str], url: str, *arguments: str) -> list[Any]:
    assert run(["--url", url, *arguments, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]
