"""``tags``, ``policies``, ``grant``, ``revoke``, ``who``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore.cli.app import run

Say = Callable[..., str]


@pytest.fixture
def say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    """Run a command on a small database; return what it wrote. ``code``: the exit code that is expected."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    with ms.open(url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        store.tables.create("lake.c.s.t", parents=True, columns=[ms.Column("a", "int")])
        store.tags.create("lake.pii", allowed_values=("email",))
        store.policies.create("lake.keep", supports=("schema",))
        store.roles.create("lake.reader")
        store.groups.create("lake.analysts")
        store.owners.set("lake.c.s.t", store.groups.load("lake.analysts"))

    def call(*arguments: str, code: int = 0) -> str:
        assert run(["--url", url, *arguments]) == code
        captured = capsys.readouterr()
        return captured.out if code == 0 else captured.out + captured.err

    return call


def lines(text: str) -> list[Any]:
    """Return what JSON lines say."""
    return [json.loads(line) for line in text.splitlines()]


def test_tags(say: Say) -> None:
    assert say("tags", "lake.c.s.t", "--column", "a", "--attach", "lake.pii=email") == "lake.pii = email\n"
    assert say("tags", "lake.c", "--kind", "catalog", "--attach", "lake.pii=email") == "lake.pii = email\n"
    assert say("tags", "lake.c.s.t") == "lake.pii = email  (from lake.c)\n"
    assert say("tags", "lake.pii", "--targets").splitlines() == [
        "catalog lake.c = email",
        "table lake.c.s.t  column a = email",
    ]
    (one,) = lines(say("tags", "lake.c.s.t", "--json"))
    assert (one["name"], one["inherited_from"]) == ("pii", "lake.c")
    assert "not attached to lake.c.s.t itself" in say("tags", "lake.c.s.t", "--detach", "lake.pii=email", code=1)
    assert say("tags", "lake.c", "--kind", "catalog", "--detach", "lake.pii") == ""
    assert "allows the values email" in say("tags", "lake.c.s.t", "--attach", "lake.pii=x", code=1)


def test_policies(say: Say) -> None:
    assert say("policies", "lake.c.s", "--attach", "lake.keep") == "lake.keep\n"
    assert say("policies", "lake.c.s.t") == "lake.keep  (from lake.c.s)\n"
    assert say("policies", "lake.keep", "--targets", "--json").count('"target_path": "lake.c.s"') == 1


def test_grants(say: Say) -> None:
    assert "granted select_table" in say("grant", "lake.reader", "select_table", "lake.c")
    assert "denied select_table" in say("grant", "lake.reader", "select_table", "lake.c.s.t", "--deny")
    assert "has the role" in say("grant", "lake.reader", "--to", "lake.analysts")
    bare = say("grant", "lake.reader", "--to", "ann", code=1)
    assert "ann has 1 name; expected is metalake.user or metalake.group" in bare
    assert say("who", "lake.c.s.t").splitlines() == [
        "owner: lake.analysts",
        "deny select_table  lake.reader  on lake.c.s.t",
        "allow select_table  lake.reader  on lake.c",
    ]
    shown = json.loads(say("who", "lake.c.s.t", "--json"))
    assert (shown["owner"], [grant["effect"] for grant in shown["grants"]]) == ("lake.analysts", ["deny", "allow"])
    assert "taken back" in say("revoke", "lake.reader", "select_table", "lake.c.s.t")
    refused = say("revoke", "lake.reader", "select_table", "lake.c.s.t", code=1)
    nothing = "the role lake.reader has no select_table on lake.c.s.t; nothing is taken back"
    assert refused == f"metastore: {nothing}; metastore who PATH shows what is granted\n"
    assert "taken back" in say("revoke", "lake.reader", "--from", "lake.analysts")
    refused = say("revoke", "lake.reader", "--from", "lake.analysts", code=1)
    assert "lake.analysts does not have the role lake.reader; nothing" in refused
    assert "not none; write TAG=VALUE" in say("tags", "lake.c.s.t", "--attach", "lake.pii", code=1)
    assert "name a privilege" in say("grant", "lake.reader", "select_table", code=1)


@pytest.mark.parametrize(
    "words",
    [
        "grant lake.reader select_table lake.c --to lake.analysts",
        "grant lake.reader --to lake.analysts --deny",
        "revoke lake.reader select_table lake.c --from lake.analysts",
        "tags lake.pii --targets --attach lake.pii=email",
        "tags lake.c.s.t --attach lake.pii=email --detach lake.pii=",
        "diff lake.c.s.t 1 --from 2026-11-22",
        "diff lake.c.s.t 1 --to 2026-11-22",
        "pin --at 2026-11-22",
        "pin --remove",
        "changes --timeout 1",
        "drops --json resume",
    ],
)
def test_an_option_without_effect_is_refused(say: Say, words: str) -> None:
    say("grant", "lake.reader", "select_table", "lake.c")
    before = say("changes")
    say(*words.split(), code=1)
    assert say("changes") == before


def test_all_of_it_as_json(say: Say) -> None:
    made = json.loads(say("grant", "lake.reader", "select_table", "lake.c", "--json"))
    assert {name: made[name] for name in ("role", "privilege", "effect", "kind", "path")} == {
        "role": "lake.reader",
        "privilege": "select_table",
        "effect": "allow",
        "kind": "catalog",
        "path": "lake.c",
    }
    member = {"role": "lake.reader", "member": "lake.analysts"}
    assert json.loads(say("grant", "lake.reader", "--to", "lake.analysts", "--json")) == member
    taken = {"role": "lake.reader", "privilege": "select_table", "on": "lake.c", "taken_back": True}
    assert json.loads(say("revoke", "lake.reader", "select_table", "lake.c", "--json")) == taken
    again = say("revoke", "lake.reader", "select_table", "lake.c", "--json", code=1)
    assert json.loads(again) == {**taken, "taken_back": False}
    assert json.loads(say("revoke", "lake.reader", "--from", "lake.analysts", "--json")) == {
        **member,
        "taken_back": True,
    }
    (one,) = lines(say("policies", "lake.c.s", "--attach", "lake.keep", "--json"))
    assert (one["kind"], one["path"], one["inherited_from"]) == ("policy", "lake.keep", None)
