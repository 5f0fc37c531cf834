"""``store.diff`` says what differs between two trees, and ``store.revert`` undoes it."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from metastore.errors import (
    DeadlineExceeded,
    EntityAlreadyExists,
    EntityNotFound,
    HistoryGone,
    InvalidArgument,
    MetastoreError,
    OutcomeUnknown,
    RetriesExhausted,
    ScopeFrozen,
)
from metastore.feed.feed import steps_between
from tests.past.test_as_of import grown
from tests.past.trees import tree

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite


def by_id(found: dict[tuple[str, str], Any]) -> dict[int, tuple[str, int]]:
    """Return path and version of each entity of a tree."""
    return {row[0]: (path, row[1]) for (_, path), row in found.items()}


@pytest.mark.only_whole(on="sqlite")
def test_the_difference_of_any_two_positions(store: Store) -> None:
    trees = grown(store, 100, 100)
    choose = random.Random(1)
    for _ in range(12):
        a, b = choose.sample(list(trees), 2)
        old, new = by_id(trees[a]), by_id(trees[b])
        found = [one for one in store.diff(a, b) if one.kind not in ("partition", "statistic")]
        said = {one.entity_id: one for one in found}
        assert len(said) == len(found)
        assert {i for i, (_, version) in new.items() if i in old and old[i][1] != version} <= set(said)
        for i in {*old, *new}:
            if i in said:
                assert (said[i].path_before, said[i].version_before) == old.get(i, (None, None))
                assert (said[i].path_after, said[i].version_after) == new.get(i, (None, None))
            else:  # it has no change of its own: only something above it has
                assert i not in old or i not in new or old[i][1] == new[i][1]
        assert set(said) <= {*old, *new}


def test_what_a_difference_says(store: Store) -> None:
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    for name in ("altered", "renamed", "moved", "dropped", "back"):
        store.tables.create(f"m.c.s.{name}", parents=True)
    store.schemas.create("m.c.other")
    store.tables.drop("m.c.s.back")
    a = store.position()
    store.tables.alter("m.c.s.altered", ms.SetComment("1"))
    store.tables.alter("m.c.s.altered", ms.SetProperty("k", "v"))
    store.tables.alter("m.c.s.renamed", ms.SetComment("2"))
    store.tables.rename("m.c.s.renamed", "new")
    store.tables.rename("m.c.s.moved", "m.c.other.moved")
    store.tables.drop("m.c.s.dropped")
    store.tables.restore("m.c.s.back")
    store.tables.create("m.c.s.made")
    store.tables.create("m.c.s.gone")
    store.tables.drop("m.c.s.gone")
    store.statistics.put_many("m.c.s.made", [store.statistics.row("rows", {"n": 1})])
    store.schemas.rename("m.c.other", "else")
    b = store.position()
    found = [(one.action, one.kind, one.path_before, one.path_after) for one in store.diff(a, b)]
    assert found == [
        ("renamed", "schema", "m.c.other", "m.c.else"),
        ("moved", "table", "m.c.s.moved", "m.c.else.moved"),
        ("altered", "table", "m.c.s.altered", "m.c.s.altered"),
        ("restored", "table", None, "m.c.s.back"),
        ("dropped", "table", "m.c.s.dropped", None),
        ("created", "table", None, "m.c.s.made"),
        ("created", "statistic", None, "m.c.s.made.rows"),
        ("renamed", "table", "m.c.s.renamed", "m.c.s.new"),
    ]
    altered = next(one for one in store.diff(a, b, under="m.c.s.altered"))
    assert altered.changes == (ms.SetComment("1"), ms.SetProperty("k", "v"))
    assert (altered.version_before, altered.version_after) == (1, 3)
    assert {one.kind for one in store.diff(a, under="m.c.else")} == {"schema", "table"}
    assert [one.action for one in store.diff(b, a, under="m.c.s.renamed")] == ["renamed"]
    assert list(store.diff(b)) == []
    with pytest.raises(EntityNotFound):
        store.diff(a, b, under="m.c.nothing")


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_going_back_to_random_positions(store: Store, seed: int) -> None:
    trees = grown(store, 200 + seed, 60)
    choose, tried = random.Random(seed), 0
    for position in choose.sample(list(trees), 8):
        try:
            planned = store.revert("m.c", to=position, dry_run=True)
            done = store.revert("m.c", to=position)
        except MetastoreError as error:
            assert isinstance(error, InvalidArgument | EntityAlreadyExists), error  # noqa: PT017  (purged, or taken)
            continue
        tried += 1
        assert [one.entity_id for one in planned] == [one.entity_id for one in done]
        assert shown(tree(store)) == shown(trees[position])
        assert store.verify() == []
        assert store.revert("m.c", to=position) == []
        assert store.revert("m.c", to=store.position()) == []
    assert tried >= 2


def shown(found: dict[tuple[str, str], Any]) -> dict[tuple[str, str], Any]:
    """Return what must be as it was: everything below the catalog but versions and times."""
    below = {key: row for key, row in found.items() if key[1].startswith("m.c")}
    return {key: (row[0], row[2], row[4], [r[1:2] + r[3:] for r in row[5:]]) for key, row in below.items()}


def test_names_that_changed_with_each_other_go_back(store: Store) -> None:
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    a = store.tables.create("m.c.s.a", parents=True)
    b = store.tables.create("m.c.s.b")
    before = store.position()
    store.tables.rename("m.c.s.a", "x")
    store.tables.rename("m.c.s.b", "a")
    store.tables.rename("m.c.s.x", "b")
    store.tables.create("m.c.s.c")
    store.schemas.rename("m.c.s", "renamed")
    assert len(store.revert("m.c.renamed", to=before)) == 3
    assert [(t.name, t.id) for t in store.tables.list("m.c.renamed")] == [("a", a.id), ("b", b.id)]
    assert store.verify() == []


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("what", ["drop", "alter", "row", "relation"])
def test_gc_while_the_changes_are_read(store: Store, monkeypatch: pytest.MonkeyPatch, what: str, late: bool) -> None:
    """What gc has deleted meanwhile is not "no difference"."""
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    table = store.tables.create("m.c.s.t", parents=True)
    store.tags.create("m.tag")
    acts: dict[str, Callable[[], object]] = {
        "drop": lambda: store.tables.drop("m.c.s.t"),
        "alter": lambda: store.tables.alter("m.c.s.t", ms.SetComment("new")),
        "row": lambda: store.statistics.put_many(table, [store.statistics.row("rows", {"n": 1})]),
        "relation": lambda: store.tags.attach(table, "m.tag"),
    }
    before = store.position()
    acts[what]()
    after = store.position()
    if what == "row":
        store.statistics.put_many(table, [store.statistics.row("rows", {"n": 2})])
    if what == "relation":
        store.tags.detach(table, "m.tag")
    store.tables.create("m.c.s.later")

    def steps(*arguments: Any, **options: Any) -> Any:
        read = list(steps_between(*arguments, **options)) if late else None
        for _ in range(2):  # the first makes what was dropped unrestorable
            store.gc(retention=timedelta(0), keep_versions=1)
        return steps_between(*arguments, **options) if read is None else read

    assert len(list(store.diff(before, after))) == 1
    monkeypatch.setattr("metastore.past.diff.steps_between", steps)
    with pytest.raises(HistoryGone):
        list(store.diff(before, after))


def test_what_was_purged_is_refused(store: Store) -> None:
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    store.tables.create("m.c.s.a", parents=True)
    before = store.position()
    store.tables.purge("m.c.s.a")
    store.tables.create("m.c.s.b")
    with pytest.raises(InvalidArgument, match=r"what was purged or destroyed cannot come back: m\.c\.s\.a"):
        store.revert("m.c.s", to=before)
    assert [t.name for t in store.tables.list("m.c.s")] == ["b"]


def test_a_partition_that_is_being_dropped_in_steps_is_not_there(store: Store) -> None:
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    table = store.tables.create("m.c.s.t", parents=True)
    empty = store.position()
    store.partitions.create(table, "day=1", values={"day": "1"})
    store.statistics.set(table, {"custom-rows": 5}, partition="day=1")
    there = store.position()
    pending = store.partitions.begin_drop(table, "day=1")
    for a, b, action in ((empty, None, None), (there, None, "dropped"), (store.position(), there, "created")):
        assert {one.action for one in store.diff(a, b)} == ({action} if action else set())
    pending.roll_back()
    assert {one.action for one in store.diff(empty)} == {"created"}


def test_a_newcomer_gives_a_name_back(store: Store) -> None:
    """The newcomer has the old name in another form: names are compared after NFC, and folded in this catalog."""
    store.metalakes.create("m")
    store.catalogs.create("m.f", type="relational", fold_case=True)
    old = store.tables.create("m.f.s.Straße", parents=True)
    accent = store.tables.create("m.f.s.caf\u00e9")
    before = store.position()
    store.tables.rename("m.f.s.Straße", "moved")
    store.tables.drop("m.f.s.caf\u00e9")
    store.tables.create("m.f.s.STRASSE")
    store.tables.create("m.f.s.CAFE\u0301")
    store.revert("m.f.s", to=before)
    assert {(t.name, t.id) for t in store.tables.list("m.f.s")} == {("Straße", old.id), ("caf\u00e9", accent.id)}
    assert store.verify() == []


def test_parents_and_rows_come_back(store: Store) -> None:
    """The parent was dropped, the table moved out before that; its statistics changed meanwhile."""
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    table = store.tables.create("m.c.s.inner.t", parents=True)
    store.statistics.put_many(table, [store.statistics.row("rows", {"n": 1}), store.statistics.row("gone", {"n": 2})])
    store.schemas.create("m.c.away")
    before = store.position()
    store.tables.rename("m.c.s.inner.t", "m.c.away.t")
    store.schemas.drop("m.c.s.inner")
    store.statistics.put_many("m.c.away.t", [store.statistics.row("rows", {"n": 9}), store.statistics.row("new", {})])
    store.statistics.drop("m.c.away.t", "gone")
    planned = [(one.action, one.kind, one.path_before, one.path_after) for one in store.revert("m.c.s", to=before)]
    assert ("moved", "table", "m.c.away.t", "m.c.s.inner.t") in planned
    assert store.tables.load("m.c.s.inner.t").id == table.id
    assert {row.name: dict(row.values) for row in store.statistics.list("m.c.s.inner.t")} == {
        "rows": {"n": 1},
        "gone": {"n": 2},
    }
    assert not store.tables.exists("m.c.away.t")
    assert store.verify() == []


def test_what_stands_in_a_frozen_scope_does_not_come_back(store: Store) -> None:
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    store.tables.create("m.c.s.t", parents=True)
    store.schemas.create("m.c.frozen")
    before = store.position()
    store.tables.rename("m.c.s.t", "m.c.frozen.t")
    kept_out = (ScopeFrozen, DeadlineExceeded, RetriesExhausted, OutcomeUnknown)
    with store.schemas.exclusive("m.c.frozen"), pytest.raises(kept_out):
        store.bind(deadline=0.3).revert("m.c.s", to=before)
    assert store.tables.exists("m.c.frozen.t")
    store.revert("m.c.s", to=before)
    assert store.tables.exists("m.c.s.t")
    assert store.verify() == []
