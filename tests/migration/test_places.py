"""Revision 0011 mends what older programs left out of the past: places of steps, and the step that took a name."""

from __future__ import annotations

from datetime import timedelta

import pytest

import metastore as ms
from metastore import migrations
from metastore.urls import parse_url
from tests.migration.schema import connected, run
from tests.migration.test_time import places
from tests.past.test_as_of import grown
from tests.past.trees import tree, without_makers

pytestmark = pytest.mark.one_in(3)

OLD = "0010"
NOWHERE = "parent_id = NULL, name = NULL, fold = NULL, state = NULL"
NAMELESS = "family = NULL, key = NULL"


def damaged(url: str, *statements: str) -> list[ms.Violation]:
    """Let the database be one of a program of format 10 that has left these traces; return what verify finds there."""
    run(url, *statements)
    with ms.open(url) as store:
        found = store.verify()
    migrations.downgrade(parse_url(url), OLD)
    ms.migrate(url)
    return found


def grow(store: ms.Store) -> dict[str, int]:
    """Make tables whose alters stand before and behind all that can happen to a table; return their ids."""
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational", fold_case=True)
    made: dict[str, int] = {}
    for name in ("stays", "Renamed", "dropped", "moved", "`a.b``c`"):
        table = f"m.c.S.{name}"
        made[name] = store.tables.create(table, parents=True).id
        for n in range(4):
            store.tables.alter(table, ms.SetComment(str(n)))
    store.views.create("m.c.S.view", columns=[])
    store.tables.rename("m.c.S.Renamed", "again")
    store.tables.rename("m.c.S.`a.b``c`", "plain")
    store.tables.alter("m.c.S.plain", ms.SetComment("later"))
    store.tables.drop("m.c.S.dropped")
    store.tables.create("m.c.o.x", parents=True)
    store.tables.rename("m.c.S.moved", "m.c.o.moved")
    return made


@pytest.mark.parametrize("collected", [False, True], ids=["whole", "after gc"])
def test_alters_that_a_batch_carried_get_their_places(empty_url: str, collected: bool) -> None:
    """After a gc no step before the first alters is kept. Those of the table that was moved later are not damaged."""
    ms.migrate(empty_url)
    with ms.open(empty_url) as store:
        made = grow(store)
        trees = {change.position: tree(store.at(change.position)) for change in store.changes()}
        if collected:
            store.gc(retention=timedelta(0), keep_versions=3)
            trees = {store.position(): tree(store)}
    expected = places(empty_url)
    alters = f"action = 'alter' AND fold IS NOT NULL AND entity_id <> {made['moved'] if collected else 0}"
    found = damaged(empty_url, f"UPDATE operation SET {NOWHERE}, {NAMELESS} WHERE {alters}")
    assert {(v.invariant, v.entity_id) for v in found} >= {(15, made["stays"])}
    assert places(empty_url) == expected
    with ms.open(empty_url) as store:
        for position, then in trees.items():
            assert without_makers(tree(store.at(position))) == without_makers(then)
        assert store.verify() == []


def test_relations_of_programs_of_format_6_get_their_places(empty_url: str) -> None:
    """Those programs wrote every step of a relation without its place: the past had no tags and no owners."""
    ms.migrate(empty_url)
    with ms.open(empty_url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        ids = [store.tables.create(f"m.c.s.{name}", parents=True).id for name in ("kept", "gone")]
        store.tags.create("m.x")
        store.users.create("m.ann")
        for name in ("kept", "gone"):
            store.tags.attach(f"m.c.s.{name}", "m.x", kind="table")
        store.owners.set("m.c.s.kept", store.users.load("m.ann"), kind="table")
        before = store.position()
        store.tags.detach("m.c.s.gone", "m.x", kind="table")
    expected = places(empty_url)
    found = damaged(empty_url, f"UPDATE operation SET {NOWHERE}, {NAMELESS} WHERE other_id IS NOT NULL")
    assert {v.invariant for v in found} == {15}
    assert places(empty_url) == expected
    with ms.open(empty_url) as store:
        then, now = store.at(before), store.at(store.position())
        assert [[one.target_id for one in past.tags.targets("m.x")] for past in (then, now)] == [ids, ids[:1]]
        assert (owner := now.owners.of("m.c.s.kept", kind="table")) is not None
        assert owner.name == "ann"
        assert store.verify() == []


def test_a_name_that_no_step_took_is_taken_again(empty_url: str) -> None:
    """As two gc at once left it: the first step that is kept stands for the one that took the name."""
    ms.migrate(empty_url)
    with ms.open(empty_url) as store:
        grown(store, 72, 40)
        grow_more = store.metalakes.create("n")
        store.catalogs.create("n.c", type="relational", fold_case=True)
        store.tables.create("n.c.s.Straße", parents=True)
        store.tables.alter("n.c.s.Straße", ms.SetComment("x"))
        store.statistics.put_many("n.c.s.Straße", [store.statistics.row("z", {"n": 1})])
        store.gc(retention=timedelta(0), keep_versions=1)
        now, position = tree(store), store.position()
    expected = places(empty_url)
    found = damaged(empty_url, f"UPDATE operation SET {NAMELESS}")
    assert {v.invariant for v in found} == {15}
    assert grow_more.id in {v.entity_id for v in found}
    after = places(empty_url)
    assert [row[:5] for row in after] == [row[:5] for row in expected]
    assert [row for row in expected if row[5] is not None and row not in after] == []
    with ms.open(empty_url) as store:
        assert without_makers(tree(store.at(position))) == without_makers(now)
        assert store.verify() == []


def test_the_past_begins_behind_what_cannot_be_told(empty_url: str) -> None:
    """Nothing is kept before an alter, and behind it the table was moved; of another one a version is lost."""
    ms.migrate(empty_url)
    with ms.open(empty_url) as store:
        made = grow(store)
        store.tables.alter("m.c.S.stays", ms.SetComment("last"))
        positions = [change.position for change in store.changes()]
        now = tree(store)
    moved, stays = made["moved"], made["stays"]
    found = damaged(
        empty_url,
        f"UPDATE operation SET {NOWHERE} WHERE entity_id = {moved} AND action = 'alter'",
        f"DELETE FROM operation WHERE entity_id = {moved} AND version < 3",
        f"DELETE FROM operation WHERE entity_id = {stays} AND version = 5",
        "UPDATE info SET writer = 99, collected_seq = 1",
    )
    assert {(v.invariant, v.entity_id) for v in found} == {(1, moved), (15, moved), (1, stays)}
    with ms.open(empty_url) as store:
        assert store.verify() == []
        assert without_makers(tree(store.at(positions[-1]))) == without_makers(now)
        with pytest.raises(ms.errors.HistoryGone):
            store.at(positions[-2])


def test_there_and_back(empty_url: str) -> None:
    ms.migrate(empty_url)
    for revision, number in ((OLD, 10), ("0012", 12)):
        if number == 10:
            migrations.downgrade(parse_url(empty_url), revision)
        else:
            ms.migrate(empty_url)
        with connected(empty_url) as connection:
            row = connection.exec_driver_sql("SELECT format, compatible_from FROM info").one()
        assert tuple(row) == (number, number)
