"""Kinds that others declare: where they can stand, what is refused, and programs that do not know them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import pytest

import metastore as ms
from metastore.clock import SYSTEM
from metastore.kinds.change import encode
from metastore.kinds.registry import KINDS
from metastore.port.writes import Event, Update
from tests.contract import boards
from tests.contract.ground import Ground, commit_of, guards_of
from tests.contract.intents import announce

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite


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
    with pytest.raises(ms.InvalidArgument, match="already declared differently"):
        ms.Kind("note", parent="board", fields={"text": ms.Field(list, default=[])})
    assert KINDS["note"] is again


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


# --- changes that are not what they should be


def declare(name: str, *changes: type[ms.EntityChange], **options: Any) -> None:
    fields = {"items": ms.Field(list, default=[]), "owner": ms.Field(str, default=None)}
    ms.Kind(name, fields=fields, changes=changes, **options)


@dataclass(frozen=True)
class Destroy(ms.EntityChange, tag="tests.Destroy"):
    """Do to a document what no change may."""

    how: str

    def apply(self, doc: dict[str, Any], path: tuple[str, ...]) -> None:
        deep: Any = 1
        for _ in range(600):
            deep = [deep]
        ways: dict[str, Callable[[], object]] = {
            "clear": doc.clear,
            "properties": lambda: doc.pop("properties"),
            "comment": lambda: doc.update(comment=5),
            "values": lambda: doc.update(properties={"a": 1}),
            "surrogate": lambda: doc.update(items=["\ud800"]),
            "deep": lambda: doc.update(items=deep),
            "set": lambda: doc.update(items={1, 2}),
        }
        ways[self.how]()


@dataclass(frozen=True)
class Unreadable(ms.EntityChange, tag="tests.Unreadable"):
    """Its reader fails in a way that no reader should."""

    number: int

    def apply(self, doc: dict[str, Any], path: tuple[str, ...]) -> None:
        doc["items"].append(self.number)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> ms.EntityChange:
        return fields.nothing  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Named(ms.EntityChange, tag="tests.Named"):
    change: str


@pytest.mark.parametrize("how", ["clear", "properties", "comment", "values", "surrogate", "deep", "set"])
def test_a_change_cannot_destroy_what_others_rely_on(ground: Ground, how: str) -> None:
    declare("fragile", Destroy, Unreadable)
    made = ground.store.manager("fragile").create("m.c.one.x")
    with pytest.raises(ms.InvalidArgument):
        ground.store.manager("fragile").alter("m.c.one.x", Destroy(how))
    announced = announce(ground, made, changes=json.dumps(encode((Destroy(how),))))
    assert ground.store.manager("fragile").alter("m.c.one.x", ms.SetProperty("k", "v")).version == 2
    assert ground.store.outcome(announced).state in ("failed", "pending")
    assert ground.store.verify() == []


@dataclass(frozen=True)
class Leave(ms.EntityChange, tag="tests.Leave"):
    """Write a value into a field, whatever the field is declared as."""

    field: str
    value: Any

    def apply(self, doc: dict[str, Any], path: tuple[str, ...]) -> None:
        doc[self.field] = self.value

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> ms.EntityChange:
        return cls(**fields)


def declare_typed() -> None:
    ms.Kind(
        "typed",
        fields={
            "text": ms.Field(str, default=""),
            "size": ms.Field(int, default=1),
            "share": ms.Field(float, default=0.5),
            "tags": ms.Field(list, default=[]),
            "pair": ms.Field(tuple, default=(1, 2)),
            "links": ms.Field(dict, default={}),
            "panels": ms.Field(boards.panels, default=[]),
            "day": ms.Field(date.isoformat, default=date(2026, 1, 1), decode=date.fromisoformat),
            "cents": ms.Field(lambda euros: euros * 100, default=1, decode=lambda stored: stored // 100),
            "owner": ms.Field(str, optional=True),
            "colour": ms.Field(str, default="red", optional=True),
        },
        changes=(Leave,),
    )


@pytest.mark.each_run_on("memory")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("text", 5),
        ("text", None),
        ("size", "many"),
        ("size", True),
        ("size", 1.5),
        ("share", "half"),
        ("tags", {"a": 1}),
        ("pair", 5),
        ("links", []),
        ("panels", [{"title": "no name"}]),
        ("panels", 5),
        ("day", "yesterday"),
        ("day", 5),
        ("cents", "x"),
        ("cents", 150),
        ("owner", 5),
        ("colour", []),
    ],
)
def test_alter_checks_what_a_change_leaves_in_a_field(ground: Ground, name: str, value: object) -> None:
    declare_typed()
    says = f"the field '{name}' of a typed|a panel has"
    manager = ground.store.manager("typed")
    made = manager.create("m.c.one.x")
    with pytest.raises(ms.InvalidArgument, match=says):
        manager.alter("m.c.one.x", Leave(name, value))
    with ground.store.transaction() as tx, pytest.raises(ms.InvalidArgument, match=says):
        tx.manager("typed").alter("m.c.one.x", Leave(name, value))
    announced = announce(ground, made, changes=json.dumps(encode((Leave(name, value),))))
    assert manager.alter("m.c.one.x", ms.SetProperty("k", "v")).version == 2
    assert ground.store.outcome(announced).state == "failed"
    assert getattr(manager.load("m.c.one.x"), name) == getattr(made, name)


@pytest.mark.each_run_on("memory")
@pytest.mark.parametrize(
    ("name", "value", "shows"),
    [
        ("text", "new", "new"),
        ("size", 2, 2),
        ("share", 2, 2),
        ("tags", ["a"], ("a",)),
        ("pair", [3, 4], (3, 4)),
        ("links", {"a": "b"}, {"a": "b"}),
        ("panels", [{"name": "p", "query": "q"}], ({"name": "p", "query": "q"},)),
        ("day", "2026-02-03", date(2026, 2, 3)),
        ("cents", 200, 2),
        ("owner", "ann", "ann"),
        ("colour", None, None),
    ],
)
def test_alter_takes_what_fits_a_field(ground: Ground, name: str, value: object, shows: object) -> None:
    declare_typed()
    manager = ground.store.manager("typed")
    manager.create("m.c.one.x")
    assert getattr(manager.alter("m.c.one.x", Leave(name, value)), name) == shows
    assert manager.alter("m.c.one.x", ms.SetComment("and others")).version == 3
    assert getattr(manager.load("m.c.one.x"), name) == shows


def test_a_field_older_than_its_declaration_hinders_no_other_change(ground: Ground) -> None:
    made = ground.store.manager("board").create("m.c.one.b", owner="ann")
    event = Event("board", "alter", "m.c.one.b", "m.c.one.b")
    doc = json.dumps({**made.doc, "width": "wide"})
    ground.backend.commit(commit_of(Update(made.id, 1, event, doc=doc), guards=guards_of(made)))
    assert ground.store.manager("board").alter("m.c.one.b", boards.SetOwner("bob")).owner == "bob"


def test_optional_fields(ground: Ground) -> None:
    declare_typed()
    manager = ground.store.manager("typed")
    plain = manager.create("m.c.one.plain")
    assert (plain.owner, plain.colour) == (None, "red")
    given = manager.create("m.c.one.given", owner="ann", colour=None)
    assert (given.owner, given.colour) == ("ann", None)
    assert manager.load("m.c.one.given").owner == "ann"
    with pytest.raises(ms.InvalidArgument, match="'owner' of a typed"):
        manager.create("m.c.one.wrong", owner=5)
    assert ms.Field(str, optional=True) == ms.Field(str, default=None)
    with pytest.raises(ms.InvalidArgument, match="optional must be True or False"):
        ms.Field(str, optional="yes")  # type: ignore[arg-type]


def test_a_change_that_cannot_be_read_back_is_refused_and_stops_nobody(ground: Ground) -> None:
    declare("fragile", Destroy, Unreadable)
    manager = ground.store.manager("fragile")
    made = manager.create("m.c.one.x")
    for change in (Unreadable(1), Destroy({1, 2}), Destroy(b"x"), Destroy(float("nan"))):  # type: ignore[arg-type]
        with pytest.raises(ms.InvalidArgument):
            manager.alter("m.c.one.x", change)
    # another program, which can read it, wrote it down; and one more has another field in a change that we know
    other = '[{"change": "tests.Unreadable", "number": 1}]'
    newer = '[{"change": "tests.Destroy", "how": "clear", "colour": "red"}]'
    left = [announce(ground, made, changes=changes) for changes in (other, newer)]
    assert manager.alter("m.c.one.x", ms.SetProperty("k", "v")).version == 2
    assert [ground.store.outcome(one).state for one in left] == ["pending", "pending"]


def test_a_change_of_another_shape_does_not_stop_who_reads_history(ground: Ground) -> None:
    made = ground.store.manager("board").create("m.c.one.b", owner="ann")
    panel = {"change": "tests.AddPanel", "name": "p", "query": "q", "colour": "red"}
    event = Event("board", "alter", "m.c.one.b", "m.c.one.b", json.dumps([panel]))
    ground.backend.commit(commit_of(Update(made.id, 1, event, doc=made.record.doc), guards=guards_of(made)))
    (step,) = [v for v in ground.store.manager("board").history(made) if v.version == 2]
    assert encode(step.changes) == [panel]
    assert [c.version for c in ground.store.changes() if c.entity_id == made.id] == [1, 2]
    assert ground.store.verify() == []


def test_a_field_that_came_later_shows_its_default(ground: Ground) -> None:
    made = ground.store.manager("board").create("m.c.one.b", owner="ann")
    doc = {key: value for key, value in made.doc.items() if key != "width"}
    event = Event("board", "alter", "m.c.one.b", "m.c.one.b")
    ground.backend.commit(commit_of(Update(made.id, 1, event, doc=json.dumps(doc)), guards=guards_of(made)))
    assert ground.store.manager("board").load("m.c.one.b").width == 12
    assert ground.store.manager("board").alter("m.c.one.b", boards.SetOwner("bob")).width == 12
    assert ground.store.verify() == []


@pytest.mark.parametrize(
    "declaration",
    [
        lambda: ms.Kind("odd", parent=[[]]),  # type: ignore[arg-type]
        lambda: ms.Kind("odd", family=[]),  # type: ignore[arg-type]
        lambda: ms.Kind("odd", family="board"),
        lambda: ms.Kind("odd", family="table", container=True),
        lambda: ms.Kind("odd", fields={"class": str}),
        lambda: ms.Kind("odd", fields={"principal": str}),
        lambda: ms.Kind("odd", fields={"self": str}),
        lambda: ms.Kind("odd", fields={"record": str}),
        lambda: ms.Kind("odd", fields={"x": ms.Field(5)}),  # type: ignore[arg-type]
        lambda: ms.Kind("odd", fields={"x": ms.Field(int, default="x")}),
        lambda: ms.Kind("odd", changes=(Named,)),
    ],
)
def test_declarations_that_would_fail_later(declaration: Any) -> None:
    with pytest.raises(ms.InvalidArgument):
        declaration()
    assert "odd" not in KINDS


def test_values_that_cannot_be_shown_are_refused(ground: Ground) -> None:
    def broken(given: Any) -> Any:
        return {}[given]

    ms.Kind("strict", fields={"x": ms.Field(str, default="1", decode=int), "y": ms.Field(broken, default=None)})
    cycle: list[Any] = []
    cycle.append(cycle)
    declare("fragile", Destroy, Unreadable)
    strict, fragile = ground.store.manager("strict"), ground.store.manager("fragile")
    for manager, fields in ((strict, {"x": "abc"}), (strict, {"y": 1}), (fragile, {"items": cycle})):
        with pytest.raises(ms.InvalidArgument):
            manager.create("m.c.one.x", **fields)
    assert strict.create("m.c.one.x", x="7").x == 7
    assert fragile.create("m.c.one.x").owner is None
    with pytest.raises(ms.InvalidArgument, match="no kind"):
        ground.store.manager([])  # type: ignore[arg-type]
