"""Tags, owners and other relations of the past: compared with what the store showed at that time."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

import metastore as ms
from metastore import Store, gc
from metastore.errors import EntityNotFound, HistoryGone, MetastoreError
from metastore.managers.all import Managers
from metastore.past import revert
from metastore.past.undo import Undoing

PATHS = ("m.c.s", "m.c.s.a", "m.c.s.b", "m.c.z", "m.c.z.a")
TAGS = ("m.red", "m.blue")


def kind_of(path: str) -> str:
    """Return the rows at a path."""
    return ("metalake", "catalog", "schema", "table")[path.count(".")]


def shown(managers: Managers) -> dict[tuple[Any, ...], Any]:
    """Return all that relations show, in both directions."""
    found: dict[tuple[Any, ...], Any] = {}
    for path in PATHS:
        for inherited in (False, True):
            found["on", path, inherited] = asked(
                lambda p=path, i=inherited: managers.tags.on(p, kind=kind_of(p), inherited=i)
            )
        found["owner", path] = asked(lambda p=path: managers.owners.of(p, kind=kind_of(p)))
        if kind_of(path) == "table":
            found["column", path] = asked(lambda p=path: managers.tags.on(p, kind="table", column="id"))
    for tag in TAGS:
        found["targets", tag] = asked(lambda t=tag: list(managers.tags.targets(t)))
        found["1", tag] = asked(lambda t=tag: list(managers.tags.targets(t, value="1")))
    return found


def asked(question: Any) -> Any:
    """Return the answer; the error's name where the object is not there."""
    try:
        return question()
    except EntityNotFound:
        return "not found"


def change(store: Store, choose: random.Random) -> None:
    """Change something about relations, or about what is at their ends."""
    path, tag = choose.choice(PATHS), choose.choice(TAGS)
    table = choose.choice([p for p in PATHS if kind_of(p) == "table"])
    value = choose.choice([None, "1", "2"])
    choices: list[Any] = [
        lambda: store.tags.attach(path, tag, value=value, kind=kind_of(path)),
        lambda: store.tags.attach(path, tag, value=value, kind=kind_of(path)),
        lambda: store.tags.attach(table, tag, column="id", kind="table"),
        lambda: store.tags.detach(path, tag, kind=kind_of(path)),
        lambda: store.owners.set(path, choose.choice(["m.ann", "m.bob"]), kind=kind_of(path)),
        lambda: store.tables.drop(table),
        lambda: store.tables.restore(table),
        lambda: store.tables.create(table, columns=[ms.Column("id", "long")]),
        lambda: store.tables.rename("m.c.s.a", "b"),
        lambda: store.tables.alter(table, ms.DropColumn("id")),
        lambda: store.schemas.drop("m.c.s", cascade=True),
        lambda: store.schemas.restore("m.c.s"),
        lambda: store.schemas.rename("m.c.s", "z"),
        lambda: store.schemas.create("m.c.s"),
        lambda: store.tags.drop(tag),
        lambda: store.tags.restore(tag),
    ]
    choose.choices(choices, [4, 4, 3, 1, 3, 1, 3, 3, 1, 1, 1, 3, 1, 2, 1, 3])[0]()


def history(store: Store, seed: int, steps: int) -> dict[str, Any]:
    """Make a random history; return what relations show at the position after each change."""
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    for schema in ("m.c.s", "m.c.z"):
        store.tables.create(f"{schema}.a", parents=True, columns=[ms.Column("id", "long")])
    for tag in TAGS:
        store.tags.create(tag)
    for user in ("m.ann", "m.bob"):
        store.users.create(user)
    choose, found = random.Random(seed), {store.position(): shown(store)}
    for _ in range(steps):
        try:
            change(store, choose)
        except MetastoreError:
            continue
        found[store.position()] = shown(store)
    return found


@pytest.mark.only_whole(on="sqlite")
def test_every_position_shows_the_relations_of_then(store: Store) -> None:
    found = history(store, 1, 80)
    assert len(found) > 25
    for key, least in ((("on", "m.c.s.a", True), 6), (("column", "m.c.s.a"), 5), (("targets", "m.red"), 8)):
        assert len({str(then[key]) for then in found.values()}) >= least
    for position, then in found.items():
        assert shown(store.at(position)) == then
    assert store.verify() == []


def test_pins_keep_relations_from_gc(store: Store) -> None:
    found = history(store, 2, 60)
    pinned = random.Random(3).sample(sorted(found), 4)
    for position in pinned:
        store.pin(position, at=position)
    now = shown(store)
    for _ in range(2):
        store.gc(retention=timedelta(0), keep_versions=1)
        assert shown(store) == shown(store.at(store.position())) == now
        for position in pinned:
            assert plain(shown(store.at(position))) == plain(found[position])
    with pytest.raises(HistoryGone):
        store.at(next(p for p in sorted(found) if p not in pinned))
    assert store.verify() == []


def test_what_went_with_the_other_end_leaves_nothing_behind(store: Store) -> None:
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    store.tables.create("m.c.s.t", parents=True)
    store.tags.create("m.red")
    store.tags.attach("m.c.s.t", "m.red", kind="table")
    store.tags.drop("m.red")
    for _ in range(3):
        store.gc(retention=timedelta(0), keep_versions=1)
    assert not any(change.kind == "tag_on" for change in store.changes())
    assert store.verify() == []


def plain(found: dict[tuple[Any, ...], Any]) -> dict[tuple[Any, ...], Any]:
    """Return what is shown without who made each relation, and when: gc may have removed its first step."""
    return {key: str(value) if key[0] == "owner" else value for key, value in found.items()}


def test_what_it_got_elsewhere_does_not_come_back_with_it(store: Store) -> None:
    """The table got an owner and a tag, moved out and was dropped there: then it had neither."""
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    store.tables.create("m.c.s.t", parents=True)
    store.users.create("m.ann")
    store.tags.create("m.tag")
    store.schemas.create("m.c.other")
    before = store.position()
    store.owners.set("m.c.s.t", "m.ann", kind="table")
    store.tables.rename("m.c.s.t", "m.c.other.t")
    store.tags.attach("m.c.other.t", "m.tag", kind="table")
    found = {(one.action, one.kind) for one in store.diff(before, under="m.c.s")}
    assert found == {("moved", "table"), ("created", "owner"), ("created", "tag_on")}
    store.tables.drop("m.c.other.t")
    store.revert("m.c.s", to=before)
    assert store.owners.of("m.c.s.t", kind="table") is None
    assert store.tags.on("m.c.s.t", kind="table") == []
    assert store.revert("m.c.s", to=before) == []


def test_gc_keeps_what_columns_have_until_no_revert_can_bring_them_back(store: Store) -> None:
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    columns = [ms.Column("id", "long"), ms.Column("email", "string")]
    table = store.tables.create("m.c.s.t", parents=True, columns=columns)
    store.policies.create("m.mask", content={})
    empty = store.position()
    store.policies.attach(table, "m.mask", column="email")
    masked = store.position()
    store.tables.alter(table, ms.DropColumn("email"))
    store.gc(retention=timedelta(days=7))  # as a server does each hour
    assert [one.kind for one in store.diff(empty)] == ["table"]  # made, and ended with its column
    assert [one.kind for one in store.diff(store.position(), empty)] == ["table"]
    store.revert("m.c.s.t", to=masked, kind="table")
    (found,) = store.policies.on_columns(table)
    assert (found.column, found.name) == ("email", "mask")
    assert store.at(store.position()).policies.on_columns(table) == [found]

    store.tables.alter(table, ms.DropColumn("email"))
    for _ in range(2):  # the first one makes the past begin after the column's end
        store.tables.create("m.c.s.other", if_exists="replace")
        store.gc(retention=timedelta(0), keep_versions=1)
    assert store._session.backend.sweep_relations(0, 100).columns == ()


def _with_a_tagged_column_that_was_dropped(store: Store) -> tuple[ms.Table, str]:
    """Return the table, and the position before the drop."""
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    store.tags.create("m.tag")
    table = store.tables.create("m.c.s.t", parents=True, columns=[ms.Column("id", "long"), ms.Column("a", "long")])
    store.tags.attach(table, "m.tag", column="a")
    tagged = store.position()
    store.tables.alter(table, ms.DropColumn("a"))
    return table, tagged


def test_gc_asks_of_each_version_whether_a_dropped_column_can_come_back(store: Store) -> None:
    table, tagged = _with_a_tagged_column_that_was_dropped(store)
    store.tables.alter(table, ms.SetComment("version 3"))
    assert list(store.find("m.c", text="tag")) == []  # the row is there still, but nobody sees it
    store.revert(table, to=tagged)
    back = store.position()
    store.tables.alter(table, ms.DropColumn("a"))

    store.gc(retention=timedelta(0), keep_versions=3)  # the past begins at version 3, which does not have the column
    store.revert(table, to=back)
    assert [tag.name for tag in store.tags.on(table, column="a")] == ["tag"]
    store.tables.alter(table, ms.DropColumn("a"))
    for text in ("8", "9"):
        store.tables.alter(table, ms.SetComment(text))
    store.gc(retention=timedelta(0), keep_versions=2)  # versions 8 and 9 differ, but neither has the column
    assert store._session.backend.sweep_relations(0, 100).columns == ()


@pytest.mark.parametrize("most", [revert._ATOMIC, 1], ids=["in one commit", "in several"])
def test_gc_beside_a_revert_loses_no_tag_of_a_column(store: Store, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    table, tagged = _with_a_tagged_column_that_was_dropped(store)
    store.tables.alter(table, ms.SetComment("other"))
    store.tables.create("m.c.s.new")

    monkeypatch.setattr(revert, "_ATOMIC", most)
    monkeypatch.setattr(revert, "_CHUNK", 1)
    run = Undoing.run

    def with_gc(*args: Any) -> None:
        run(*args)
        store.gc(retention=timedelta(0), keep_versions=1)

    monkeypatch.setattr(Undoing, "run", with_gc)
    store.revert("m.c.s", to=tagged)
    assert [tag.name for tag in store.tags.on(table, column="a")] == ["tag"]


def test_gc_that_sees_the_end_of_a_revert_loses_no_tag_of_a_column(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its look at the pins and its look at the newest change, the revert ends, and so does another gc."""
    table, tagged = _with_a_tagged_column_that_was_dropped(store)
    store.pin("of a revert", at=tagged)
    looks: list[str] = []

    class Looking:
        def __init__(self, backend: Any) -> None:
            self.backend = backend

        def __getattr__(self, name: str) -> Any:
            if name in ("readers", "watermark"):
                looks.append(name)
                if len(looks) == 2:
                    store.revert(table, to=tagged)
                    store.unpin("of a revert")
                    store.gc(retention=timedelta(0), keep_versions=2)  # so that the past begins with the drop
            return getattr(self.backend, name)

    kept = gc._kept_columns
    monkeypatch.setattr(gc, "_kept_columns", lambda backend, lost: kept(Looking(backend), lost))
    store.gc(retention=timedelta(0), keep_versions=1)
    assert len(looks) >= 2
    assert [tag.name for tag in store.tags.on(table, column="a")] == ["tag"]
