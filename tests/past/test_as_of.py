"""``store.at`` shows what was there: compared with what the store showed at that time."""

from __future__ import annotations

import random
import shutil
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from metastore.errors import EntityAlreadyExists, EntityNotFound, HistoryGone, InvalidArgument, MetastoreError
from metastore.past.reads import reads_at
from tests.past.trees import tree, without_makers

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

NAMES = ("a", "b", "A", "ß", "SS", unicodedata.normalize("NFD", "é"))
SCHEMAS = ("m.c", "m.f", "m.c.a", "m.c.b", "m.f.a", "m.f.b", "m.c.a.b", "m.f.ß")


def random_operation(store: Store, choose: random.Random) -> None:
    """Perform one operation that means something more or less often; errors on its merits do not matter."""
    schema = choose.choice(SCHEMAS[2:])
    path, other = f"{schema}.{choose.choice(NAMES)}", f"{choose.choice(SCHEMAS[2:])}.{choose.choice(NAMES)}"
    kind = choose.choice(["schemas", "tables", "tables", "tables", "views"])
    manager: Any = getattr(store, kind)
    name = path if kind != "schemas" else choose.choice(SCHEMAS[2:])
    verb = choose.choice(["create", "create", "alter", "alter", "rename", "drop", "restore", "many", "purge", "owned"])
    if verb == "create":
        manager.create(name, parents=True)
    elif verb == "alter":
        manager.alter(name, ms.SetProperty("k", str(choose.random())))
    elif verb == "rename":
        manager.rename(name, choose.choice([other, choose.choice(NAMES)]))
    elif verb == "drop":
        manager.drop(name, **({"cascade": True} if kind == "schemas" else {}))
    elif verb == "restore":
        manager.restore(name, to=choose.choice([None, other]) if kind != "schemas" else None)
    elif verb == "purge":
        manager.purge(name)
    elif verb == "owned":
        if choose.random() < 0.7:
            store.statistics.put_many(path, [store.statistics.row(choose.choice("xyz"), {"n": choose.randrange(10)})])
        else:
            store.statistics.drop(path, "x")
    else:
        with store.transaction() as tx:
            tx.tables.create(path, parents=True)
            tx.tables.alter(path, ms.SetComment("1"))
            tx.tables.create(other, parents=True)


def grown(store: Store, seed: int, steps: int) -> dict[str, Any]:
    """Make a random history; return the tree at the position after each change."""
    choose = random.Random(seed)
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    store.catalogs.create("m.f", type="relational", fold_case=True)
    trees = {store.position(): tree(store)}
    for _ in range(steps):
        try:
            random_operation(store, choose)
        except MetastoreError:
            continue
        trees[store.position()] = tree(store)
    return trees


@pytest.mark.only_whole(on="sqlite")
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_every_position_of_a_random_history(store: Store, seed: int) -> None:
    trees = grown(store, seed, 90)
    assert len(trees) > 25
    for position, then in trees.items():
        past = store.at(position)
        assert tree(past) == then
        assert past.position.startswith(position[: len(past.position)])


def test_a_path_that_was_left_leads_nowhere(store: Store) -> None:
    """A listing shows who is there; a path is followed from the last one that took each name."""
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    left = ["m.c.a.t", "m.c.b.t", "m.c.b.u"]
    table = store.tables.create(left[0], parents=True)
    store.schemas.create("m.c.b")
    positions = [store.position()]
    for path in left[1:]:
        table = store.tables.rename(table, path)
        positions.append(store.position())
    store.tables.drop(table)
    for there, position in zip([[path] for path in left] + [[]], [*positions, store.position()], strict=True):
        past = store.at(position)
        assert [one for one in left if past.tables.exists(one)] == there


def random_pins(store: Store, trees: dict[str, Any], choose: random.Random) -> list[str]:
    """Pin a few positions, by name; return them."""
    pinned = choose.sample(list(trees), 4)
    for n, position in enumerate(pinned):
        assert store.pin(f"pin {n}", at=position).position == position[: len(store.pins()[0].position)]
    return pinned


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_gc_keeps_what_pins_show(store: Store, seed: int) -> None:
    """At a pin, at ``since`` and later the past stays as it was; in between it is refused, never wrong."""
    trees = grown(store, 10 + seed, 100)
    pinned = random_pins(store, trees, random.Random(seed))
    now = tree(store)
    for _ in range(3):
        collected = store.gc(retention=timedelta(0), keep_versions=1)
        assert tree(store) == tree(store.at(store.position())) == now
        for position in pinned:
            assert without_makers(tree(store.at(position))) == without_makers(trees[position])
        assert refused(store, trees, pinned) > 5
        assert store.verify() == []
    assert collected.versions == collected.entities == 0


def refused(store: Store, trees: dict[str, Any], pinned: list[str]) -> int:
    """Return how many positions are refused; all others must show what was there."""
    refusals: dict[str, str] = {}
    for position, then in trees.items():
        try:
            past = store.at(position)
        except HistoryGone as gone:
            refusals[position] = gone.since
        else:
            assert without_makers(tree(past)) == without_makers(then)
    (since,) = set(refusals.values())
    assert max(refusals) < since
    assert not set(refusals) & set(pinned)
    store.at(since)
    return len(refusals)


def test_what_was_pinned_goes_after_the_pin(store: Store) -> None:
    """A later gc leaves nothing behind: the histories are as after a gc without pins."""
    trees = grown(store, 20, 80)
    pinned = random_pins(store, trees, random.Random(0))
    store.gc(retention=timedelta(0), keep_versions=1)
    kept = sum(1 for _ in store.changes())
    assert [pin.name for pin in store.pins()] == ["pin 0", "pin 1", "pin 2", "pin 3"]
    assert all(store.unpin(pin.name) for pin in store.pins())
    assert not store.unpin("pin 0")
    for _ in range(2):
        store.gc(retention=timedelta(0), keep_versions=1)
    assert sum(1 for _ in store.changes()) < kept
    assert store.verify() == []
    with pytest.raises(HistoryGone):
        store.at(min(pinned))
    with pytest.raises(HistoryGone):
        store.pin("late", at=min(pinned))
    assert tree(store.at(store.position())) == tree(store)


def test_a_view_notices_that_gc_overtook_it(store: Store) -> None:
    grown(store, 30, 10)
    table = store.tables.create("m.c.x.t", parents=True)
    past = store.at(store.position())
    later = store.tables.alter("m.c.x.t", ms.SetComment("1"))
    assert past.tables.load("m.c.x.t") == past.tables.load(later) == table
    for comment in "23":
        store.tables.alter("m.c.x.t", ms.SetComment(comment))
    store.gc(retention=timedelta(0), keep_versions=1)
    for read in (
        lambda: past.tables.load("m.c.x.t"),
        lambda: past.tables.load(table),
        lambda: list(past.tables.list("m.c.x")),
        lambda: list(past.tables.names("m.c.x")),
        lambda: past.tables.exists("m.c.x.t"),
        lambda: list(past.statistics.list(table)),
        lambda: list(past.tables.history(table)),
    ):
        with pytest.raises(HistoryGone):
            read()


def test_the_past_is_read_only(store: Store) -> None:
    grown(store, 40, 5)
    store.tables.create("m.c.x.t", parents=True)
    past = store.at(store.position())
    for write in (
        lambda: past.tables.create("m.c.x.u"),
        lambda: past.tables.alter("m.c.x.t", ms.SetComment("1")),
        lambda: past.tables.rename("m.c.x.t", "u"),
        lambda: past.tables.drop("m.c.x.t"),
        lambda: past.schemas.drop("m.c.x", cascade=True),
        lambda: past.tables.restore("m.c.x.t"),
        lambda: past.tables.create_many("m.c.x", [{"name": "u"}]),
    ):
        with pytest.raises((InvalidArgument, EntityNotFound)):
            write()
    assert [t.name for t in store.tables.list("m.c.x")] == ["t"]


def test_a_time_means_the_position_before_the_first_later_change(store: Store) -> None:
    grown(store, 50, 60)
    store.tables.create("m.c.x.t", parents=True)
    changes = list(store.changes())
    for n, change in enumerate(changes[:-1]):
        past = store.at(change.time)
        later = next(i for i, c in enumerate(changes) if c.time > change.time) if n else 0
        expected = min((c.position for c in changes[later:] if c.time > change.time), default=None)
        before = [c.position for c in changes if expected is None or c.position < expected]
        assert past.position.split("-")[1][:16] == before[-1].split("-")[1][:16]
    assert store.at(datetime.now(UTC) + timedelta(hours=1)).position[:30] == store.position()[:30]
    assert tree(store.at(changes[0].time - timedelta(days=1))) == {}


def test_bad_positions(store: Store) -> None:
    grown(store, 60, 5)
    for bad in (None, 1, "", "x", "x-1", store.position()[:-1]):
        with pytest.raises(InvalidArgument):
            store.at(bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="time zone"):
        store.at(datetime(2026, 1, 1))  # noqa: DTZ001  (what is refused)
    epoch = store.position().rpartition("-")[0]
    with pytest.raises(InvalidArgument, match="is ahead of the newest one"):
        store.at(f"{epoch}-{1 << 40:016x}")
    store.pin("a")
    with pytest.raises(EntityAlreadyExists):
        store.pin("a")


def test_a_transaction_is_seen_from_its_last_position_on(store: Store) -> None:
    store.metalakes.create("m")
    before = store.position()
    with store.transaction() as tx:
        tx.catalogs.create("m.c", type="relational")
        tx.schemas.create("m.c.s")
        tx.tables.create("m.c.s.t")
        tx.tables.alter("m.c.s.t", ms.SetComment("1"))
    inside = [change.position for change in store.changes(after=before)]
    assert len(inside) == 4
    for position in inside[:-1]:
        assert tree(store.at(position)) == tree(store.at(before))
    assert tree(store.at(inside[-1])) == tree(store)


def test_a_users_view_has_no_past(store: Store) -> None:
    """Rights of the past are not kept, so that a user could see what it may not see."""
    store.metalakes.create("m")
    store.users.create("m.ann")
    reads: list[Callable[[Any], Any]] = [
        lambda view: view.position(),
        lambda view: view.at(store.position()),
        lambda view: view.diff(store.position()),
        lambda view: view.revert("m", to=store.position()),
        lambda view: view.pin("p"),
        lambda view: view.pins(),
        lambda view: view.unpin("p"),
        lambda view: view.consumers.get("c"),
        lambda view: view.consumers.list(),
        lambda view: view.consumers.drop("c"),
    ]
    for read in reads:
        with pytest.raises(InvalidArgument, match="no past"):
            read(store.as_user("m.ann"))


def test_who_made_a_row_is_known_without_its_first_version(store: Store) -> None:
    """Of what is still there, its row says so."""
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    table = store.tables.create("m.c.s.t", parents=True)
    made = {store.tables.load(table).created_by}
    for who, n in ((store, 0), (store.bind(principal="bob"), 1)):
        who.statistics.put_many(table, [store.statistics.row("rows", {"n": n})])
        who.tables.alter("m.c.s.t", ms.SetComment(str(n)))
    store.gc(retention=timedelta(0), keep_versions=1)
    reads = reads_at(store._session, store._session.backend.watermark().position)
    rows = [row for row in reads.rows(0, 1 << 40) if row.kind in ("table", "statistic")]
    assert [row.version for row in rows] == [3, 2]
    assert {row.created_by for row in rows} == made


def test_a_chain_of_the_greatest_depth_is_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("sql.past", "sql.past_sql", "sql.decode"):
        monkeypatch.setattr(f"metastore.backends.{module}.DEEPEST", 4)
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    table = store.tables.create("m.c.s.t", parents=True)
    assert store.at(store.position()).tables.load(table).path == "m.c.s.t"


def test_a_lost_entity_of_a_view_is_not_the_one_that_has_its_id_now(tmp_path: Path) -> None:
    """A backup was put back in place; another view of the past shows the table that has the id."""
    url, backup = f"sqlite:///{tmp_path}/a.db", tmp_path / "backup.db"
    with ms.open(url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.schemas.create("m.c.s")
        start = store.position()
        store.backup(backup)
        store.tables.create("m.c.s.lost")
        lost = store.at(store.position()).tables.load("m.c.s.lost")
    shutil.copy(backup, tmp_path / "a.db")
    with ms.open(url) as store:
        assert store.tables.create("m.c.s.made").id == lost.id
        view = store.at(store.position())
        for read in (
            lambda: list(store.diff(start, under=lost)),
            lambda: view.tags.on(lost),
            lambda: view.owners.of(lost),
        ):
            with pytest.raises(EntityNotFound, match="not there any more"):
                read()
