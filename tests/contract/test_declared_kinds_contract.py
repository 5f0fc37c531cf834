"""Kinds that others declare: where they can stand, what is refused, and programs that do not know them."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

import metastore as ms
from metastore.changes import encode
from metastore.clock import SYSTEM
from metastore.kinds import KINDS
from tests.contract import boards
from tests.contract.ground import Ground
from tests.contract.intents import announce


def test_a_kind_below_a_declared_one(ground: Ground) -> None:
    boards_, notes = ground.store.manager("board"), ground.store.manager("note")
    board = boards_.create("m.c.one.b", owner="ann")
    note = notes.create("m.c.one.b.n", text="hello")
    assert notes.create("k", parent=board).path == "m.c.one.b.k"
    assert [n.text for n in notes.list("m.c.one.b")] == ["", "hello"]
    with pytest.raises(ms.NotEmpty):
        boards_.drop("m.c.one.b")
    boards_.create("m.c.two.b", owner="bob")
    assert notes.rename(note, "m.c.two.b.n").id == note.id
    boards_.rename("m.c.two.b", "b2")
    assert notes.load("m.c.two.b2.n").text == "hello"
    assert boards_.drop("m.c.two.b2", cascade=True)
    assert not notes.exists("m.c.two.b2.n")
    boards_.restore("m.c.two.b2")
    assert notes.exists("m.c.two.b2.n")
    with pytest.raises(ms.EntityNotFound, match=r"m\.c\.none\.b"):
        notes.create("m.c.none.b.n", parents=True)
    assert ground.store.verify() == []


def test_a_program_that_does_not_know_the_kind(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves it alone, but sees it in the feed, in verify, and as what fills a schema; gc collects it."""
    board = ground.store.manager("board").create("m.c.two.b", owner="ann")
    ground.store.manager("note").create("m.c.two.b.n")
    announced = announce(ground, board, changes=json.dumps(encode((boards.SetOwner("bob"),))))
    monkeypatch.delitem(KINDS, "board")
    monkeypatch.delitem(KINDS, "note")
    with pytest.raises(ms.InvalidArgument, match="no kind 'board'"):
        ground.store.manager("board")
    seen = [c for c in ground.store.changes() if c.kind == "board"]
    assert [type(c.entity) for c in seen] == [ms.Entity]
    assert seen[0].entity is not None
    assert seen[0].entity.doc["owner"] == "ann"
    assert ground.store.verify() == []
    with pytest.raises(ms.NotEmpty):
        ground.store.schemas.drop("m.c.two")
    assert ground.store.outcome(announced).state == "pending"
    ground.store.schemas.rename("m.c.two", "deux")
    assert ground.store.schemas.drop("m.c.deux", cascade=True)
    assert ground.store.gc(retention=timedelta(0)).entities >= 3
    assert ground.store.verify() == []


def test_a_change_that_this_program_does_not_know_is_left_to_its_owner(ground: Ground) -> None:
    board = ground.store.manager("board").create("m.c.one.b", owner="ann")
    announced = announce(ground, board, changes='[{"change": "acme.Newer", "x": 1}]')
    assert ground.store.manager("board").alter("m.c.one.b", boards.SetOwner("bob")).owner == "bob"
    assert ground.store.outcome(announced).state == "pending"


def test_unknown_and_missing_fields(ground: Ground) -> None:
    manager = ground.store.manager("board")
    for fields, says in (
        ({}, "needs owner"),
        ({"owner": "a", "colour": "red"}, "has no field colour"),
        ({"owner": 1}, "of the type str"),
        ({"owner": "a", "width": True}, "of the type int"),
        ({"owner": "a", "panels": [{"name": "p"}]}, "a name and a query"),
        ({"owner": "\ud800"}, "surrogate"),
    ):
        with pytest.raises(ms.InvalidArgument, match=says):
            manager.create("m.c.one.b", **fields)
    assert not manager.exists("m.c.one.b")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Board", {}),
        ("", {}),
        ("schema", {}),
        ("table", {}),
        ("partition", {}),
        ("board", {"fields": {"x": int}}),
        ("orphan", {"parent": "nothing"}),
        ("below", {"parent": "table"}),
        ("own", {"parent": "own"}),
        ("mixed", {"parent": ("schema", "board")}),
        ("family", {"family": "schema"}),
        ("family", {"family": "nothing"}),
        ("field", {"fields": {"name": str}}),
        ("field", {"fields": {"operation_id": str}}),
        ("field", {"fields": {"x": 3}}),
        ("change", {"changes": (ms.Column,)}),
        ("change", {"changes": (ms.SetComment("x"),)}),
    ],
)
def test_a_declaration_that_cannot_be(name: str, options: dict[str, Any]) -> None:
    before = dict(KINDS)
    with pytest.raises(ms.InvalidArgument):
        ms.Kind(name, **options)
    assert before == KINDS


def test_the_same_declared_again_is_the_same() -> None:
    again = ms.Kind("note", parent="board", fields={"text": ms.Field(str, default="")})
    assert isinstance(again, ms.Kind)


def test_two_changes_of_one_tag() -> None:
    with pytest.raises(TypeError, match="give one of them another"):

        class AddPanel(ms.EntityChange, tag="tests.AddPanel"):
            pass


def test_where_kinds_can_stand(ground: Ground) -> None:
    ms.Kind("connection", parent="catalog")
    ms.Kind("policy_set", parent="metalake")
    ms.Kind("secret", parent=("catalog", "schema"))
    assert ground.store.manager("connection").create("m.c.x").path == "m.c.x"
    assert ground.store.manager("policy_set").create("m.x").path == "m.x"
    secrets = ground.store.manager("secret")
    assert [secrets.create(p).path for p in ("m.c.y", "m.c.one.y")] == ["m.c.y", "m.c.one.y"]
    assert list(secrets.names("m.c")) == list(secrets.names("m.c.one")) == ["y"]
    assert ground.store.verify() == []


def test_an_operation_id_replays_it(ground: Ground) -> None:
    manager, operation_id = ground.store.manager("board"), SYSTEM.operation_id()
    made = manager.create("m.c.one.b", owner="ann", operation_id=operation_id)
    again = manager.create("m.c.one.b", owner="ann", operation_id=operation_id)
    assert (made.id, made.version, again.id, again.version) == (again.id, 1, made.id, 1)
    assert ground.store.outcome(operation_id).result.owner == "ann"
