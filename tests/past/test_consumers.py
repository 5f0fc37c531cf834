"""Followers and consumers of the feed lose and repeat nothing, while others read and gc runs."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import timedelta

import pytest

import metastore as ms
from metastore import Store
from metastore.errors import EntityNotFound, HistoryGone, InvalidArgument, LeaseLost, VersionConflict
from metastore.transaction.transaction import Transaction

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite


@pytest.fixture
def tables(store: Store) -> Store:
    """Give the store with a schema and a table in it."""
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    store.tables.create("m.c.s.t", parents=True)
    return store


def test_a_selection(tables: Store) -> None:
    start = tables.position()
    other = tables.schemas.create("m.c.other")
    tables.tables.create("m.c.other.a")
    tables.tables.create("m.c.s.b")
    tables.schemas.rename("m.c.other", "new")
    tables.tables.alter("m.c.new.a", ms.SetComment("1"))
    tables.schemas.create("m.c.other")
    tables.tables.create("m.c.other.c")
    tables.tables.rename("m.c.new.a", "m.c.s.a")
    tables.tables.alter("m.c.s.a", ms.SetComment("2"))
    tables.catalogs.rename("m.c", "d")
    tables.schemas.alter("m.d.new", ms.SetComment("3"))

    def seen(**options: object) -> list[tuple[str, str | None]]:
        return [(c.action, c.path_after) for c in tables.changes(after=start, **options)]  # type: ignore[arg-type]

    assert seen(kinds=["schema"]) == [
        ("create", "m.c.other"),
        ("rename", "m.c.new"),
        ("create", "m.c.other"),
        ("alter", "m.d.new"),
    ]
    expected = [
        ("create", "m.c.other"),
        ("create", "m.c.other.a"),
        ("rename", "m.c.new"),
        ("alter", "m.c.new.a"),
        ("move", "m.c.s.a"),
        ("alter", "m.d.new"),
    ]
    assert seen(under="m.d.new") == seen(under=other) == expected
    assert seen(under="m.d.new", limit=2) == expected[:2]
    assert seen(under="m.d.new", kinds=["table"], limit=2) == [expected[1], expected[3]]
    with pytest.raises(EntityNotFound):
        seen(under="m.nothing")
    with pytest.raises(InvalidArgument):
        seen(kinds=[1])


def test_following_sees_every_change_as_it_comes(tables: Store) -> None:
    start, seen = tables.position(), list[str]()

    def follow() -> None:
        for change in tables.changes(after=start, kinds=["table"], follow=True, timeout=20):
            seen.append(change.path_after or "")
            if len(seen) == 60:
                return

    thread = threading.Thread(target=follow)
    thread.start()
    for n in range(60):
        tables.tables.create(f"m.c.s.t{n}")
    thread.join(60)
    assert seen == [f"m.c.s.t{n}" for n in range(60)]
    assert list(tables.changes(after=tables.position(), follow=True, timeout=0.05)) == []


def test_a_consumer_reads_on_where_it_was(tables: Store) -> None:
    assert tables.consumers.get("late").read() == []
    first = tables.consumers.get("c", start="beginning")
    everything = list(tables.changes())
    assert first.read() == everything
    assert first.lag().changes == len(everything)
    first.commit(everything[1].position)
    again = tables.consumers.get("c")
    assert again.read(2) == everything[2:4]
    assert [c.name for c in tables.consumers.list()] == ["c", "late"]
    second = tables.consumers.get("c")
    again.commit(everything[3].position)
    with pytest.raises(VersionConflict):
        second.commit(everything[2].position)
    assert second.position == again.position
    assert tables.consumers.get("at", start=everything[0].position).read(1) == everything[1:2]
    assert tables.consumers.drop("c")
    assert not tables.consumers.drop("c")
    with pytest.raises(EntityNotFound):
        second.commit(everything[3].position)
    with pytest.raises(InvalidArgument, match="now, beginning or a position"):
        tables.consumers.get("bad", start="yesterday")
    late = tables.consumers.get("late")
    assert (late.lag().changes, late.lag().seconds) == (0, 0.0)


def test_the_database_counts_what_is_unread(tables: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    everything, one = list(tables.changes()), tables.consumers.get("c", start="beginning")

    def read(*_: object) -> None:
        raise AssertionError("it reads the feed to count it")

    monkeypatch.setattr(type(tables._session.backend.past), "times", read)
    one.commit(everything[1].position)
    assert one.lag().changes == len(everything) - 2
    assert one.lag().seconds >= (tables._session.backend.now() - everything[2].time.timestamp() * 1e6) / 1e6 - 1


def count(tx: Transaction, changes: list[ms.Change]) -> None:
    """Add the number of changes of tables below m.c.s to a property."""
    table = tx.tables.load("m.c.s.t")
    new = sum(change.action == "create" and change.kind == "table" for change in changes)
    if new:
        tx.tables.alter(table, ms.SetProperty("seen", str(int(table.properties.get("seen", "0")) + new)))


def test_the_effect_of_each_change_is_there_once(tables: Store) -> None:
    """Three instances at once, beside a writer: each change is counted once, and some instance was too slow."""
    tables.consumers.get("counter")
    done, slower = threading.Event(), list[int]()

    def work() -> None:
        consumer = tables.consumers.get("counter")
        while True:
            finished = done.is_set()
            try:
                if consumer.run(count, limit=3) == 0 and finished:
                    return
            except VersionConflict:
                slower.append(1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(40):
        tables.tables.create(f"m.c.s.t{n}")
    done.set()
    for thread in threads:
        thread.join(60)
    assert tables.tables.load("m.c.s.t").properties["seen"] == "40"
    assert tables.verify() == []


def test_of_two_with_a_lease_one_works(tables: Store) -> None:
    """The one that was paused, and whose lease was taken over, writes nothing, although the position is still its."""
    tables.consumers.get("c", start="beginning")
    with tables.leases.acquire("c", owner="first") as lease:
        first = tables.consumers.get("c")
        assert first.run(count, limit=3, lease=lease) == 3
        assert tables.leases.break_("c")
        with tables.leases.acquire("c", owner="second") as other:
            with pytest.raises(LeaseLost):
                first.run(lambda tx, _: tx.tables.alter("m.c.s.t", ms.SetComment("late")), lease=lease)
            assert tables.tables.load("m.c.s.t").comment is None
            second = tables.consumers.get("c")
            assert second.position == first.position
            assert second.run(count, lease=other) > 0
    with pytest.raises(InvalidArgument):
        first.run(count, lease="c")  # type: ignore[arg-type]


DIES = """
import sys, metastore as ms
def effect(tx, changes):
    tables = [c for c in changes if c.kind == "table" and c.action == "create"]
    table = tx.tables.load("m.c.s.t")
    seen = int(table.properties.get("seen", "0")) + len(tables)
    tx.tables.alter(table, ms.SetProperty("seen", str(seen)))
    print("written", flush=True)
    if sys.argv[2] == "dies":
        sys.stdin.read()
with ms.open(sys.argv[1]) as store:
    print(store.consumers.get("c").run(effect), flush=True)
"""


@pytest.mark.only_whole(on="sqlite")
@pytest.mark.parametrize("server", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_a_consumer_that_is_killed_between_effect_and_commit(server: str, request: pytest.FixtureRequest) -> None:
    url: str = request.getfixturevalue(f"{server}_url")
    with ms.open(url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.tables.create("m.c.s.t", parents=True)
        store.consumers.get("c", start="beginning")
        for fate, seen in (("dies", None), ("lives", "1"), ("dies", "1")):
            child = subprocess.Popen(
                [sys.executable, "-c", DIES, url, fate], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            assert child.stdout is not None
            assert child.stdout.readline() == "written\n"
            if fate == "dies":
                child.kill()
            child.communicate()
            assert store.tables.load("m.c.s.t").properties.get("seen") == seen
        assert store.verify() == []


def test_nothing_moves_when_the_effect_fails(tables: Store) -> None:
    consumer = tables.consumers.get("c", start="beginning")

    def broken(tx: Transaction, changes: list[ms.Change]) -> None:
        tx.tables.alter("m.c.s.t", ms.SetComment("half"))
        raise RuntimeError(len(changes))

    with pytest.raises(RuntimeError):
        consumer.run(broken)
    assert tables.tables.load("m.c.s.t").comment is None
    assert tables.consumers.get("c").position == consumer.position
    assert consumer.run(lambda *_: None) == 4
    assert tables.consumers.get("c").read() == []


def test_gc_waits_for_consumers(tables: Store) -> None:
    consumer = tables.consumers.get("slow")
    for n in range(20):
        tables.tables.alter("m.c.s.t", ms.SetComment(str(n)))
    assert tables.gc(retention=timedelta(0), keep_versions=1).versions <= 1
    assert len(consumer.read()) == 20
    consumer.commit(consumer.read()[9].position)
    tables.gc(retention=timedelta(0), keep_versions=1)
    assert len(consumer.read()) == 10
    tables.gc(retention=timedelta(0), keep_versions=1, keep_unread=timedelta(0))
    with pytest.raises(HistoryGone) as gone:
        consumer.read()
    assert tables.consumers.get("next", start=gone.value.since).read() is not None


def test_an_instance_knows_its_position(tables: Store) -> None:
    """It is an attribute, in an async store too: asking for it sends nothing."""
    seen = [tables.consumers.get("a", start="beginning")]
    consumer = tables.consumers.get("b", start="beginning")
    first = consumer.read(limit=1)[-1].position
    consumer.commit(first)
    assert consumer.position == first == tables.consumers.list()[-1].position
    assert consumer.run(lambda tx, changes: None) > 0
    newest = tables.position()
    assert consumer.position == newest
    seen.append(tables.consumers.get("c"))
    consumer.reset("beginning")
    tables.close()
    assert consumer.position == seen[0].position != seen[1].position == newest
