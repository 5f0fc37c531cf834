"""What a caller may expect of positions, consumers and reverts without reading more than their signatures."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from metastore.errors import EntityNotFound, InvalidArgument, VersionConflict
from metastore.past import revert as reverting
from metastore.transaction.transaction import Transaction, run_transaction
from tests.past.trees import tree


@pytest.fixture
def lake(store: Store) -> Store:
    """Give the store with a table."""
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    store.tables.create("m.c.s.t", parents=True)
    return store


def test_a_position_is_the_same_word_everywhere(lake: Store) -> None:
    """The feed, views, pins and consumers name one position by one text, so that a caller can compare them."""
    changes = list(lake.changes())
    newest = lake.position()
    assert newest == changes[-1].position
    assert lake.at(newest).position == lake.pin("a").position == lake.pin("b", at=newest).position == newest
    assert [pin.position for pin in lake.pins()] == [newest, newest]
    assert lake.at(datetime.now(UTC) + timedelta(days=1)).position == newest
    assert [lake.at(change.position).position for change in changes[:-1]] == [c.position for c in changes[:-1]]
    assert lake.consumers.get("now").position == newest
    consumer = lake.consumers.get("c", start=changes[0].position)
    assert consumer.position == changes[0].position
    consumer.commit(changes[1].position)
    assert consumer.position == lake.consumers.get("c").position == changes[1].position


def test_threads_that_share_a_consumer(lake: Store) -> None:
    """Each change has its effect once: a thread that was slower than another one writes nothing."""
    for n in range(20):
        lake.tables.alter("m.c.s.t", ms.SetComment(str(n)))
    end, wanted = lake.position(), len(list(lake.changes()))
    consumer = lake.consumers.get("c", start="beginning")
    read = threading.Barrier(4, timeout=60)
    slower = list[int]()

    def effect(tx: Transaction, changes: list[ms.Change]) -> None:
        old = int(tx.metalakes.load("m").properties.get("seen", "0"))
        new = sum(change.position <= end for change in changes)
        tx.metalakes.alter("m", ms.SetProperty("seen", str(old + new)))

    def together(tx: Transaction, changes: list[ms.Change]) -> None:
        if not slower:
            read.wait()  # all four have read the same changes
        effect(tx, changes)

    def work() -> None:
        try:
            consumer.run(together, limit=3)
        except VersionConflict:
            slower.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    while consumer.position < end:
        consumer.run(effect, limit=5)
    assert lake.metalakes.load("m").properties["seen"] == str(wanted)
    assert len(slower) == 3
    with pytest.raises(VersionConflict):
        consumer.run(lambda tx, changes: consumer.run(effect))  # inside of itself
    with pytest.raises(InvalidArgument):
        consumer.run(None)  # type: ignore[arg-type]


def test_an_entity_that_was_renamed_and_altered_gets_its_content_back(lake: Store) -> None:
    """The target keeps its name and place, not its content."""
    table, then = lake.tables.load("m.c.s.t"), lake.position()
    lake.tables.alter(table, ms.SetComment("1"))
    lake.tables.rename("m.c.s.t", "u")
    planned = lake.revert("m.c.s.u", to=then, dry_run=True)
    assert [(one.action, one.path_before) for one in planned] == [("altered", "m.c.s.u")]
    assert lake.revert("m.c.s.u", to=then) == planned
    assert lake.tables.load("m.c.s.u").comment is None

    lake.schemas.create("m.c.other")
    lake.tables.rename("m.c.s.u", "m.c.other.v")
    assert lake.revert("m.c.other.v", to=then) == []
    assert lake.revert("m.c.s", to=then) != []  # what was moved out comes back
    assert lake.tables.load("m.c.s.t").id == table.id


def test_a_schema_that_was_renamed_altered_and_moved_goes_back(lake: Store) -> None:
    lake.schemas.create("m.c.top.deep", parents=True)
    lake.tables.create("m.c.top.deep.a")
    then = lake.position()
    lake.schemas.alter("m.c.top.deep", ms.SetProperty("k", "v"))
    lake.schemas.rename("m.c.top.deep", "m.c.s.d")
    lake.tables.drop("m.c.s.d.a")
    lake.revert("m.c.s.d", to=then)
    assert dict(lake.schemas.load("m.c.s.d").properties) == {}
    assert list(lake.tables.names("m.c.s.d")) == ["a"]
    assert lake.verify() == []


def test_what_is_as_it_was_is_not_reverted_again(lake: Store) -> None:
    then = lake.position()
    lake.tables.alter("m.c.s.t", ms.SetComment("1"))
    lake.tables.create("m.c.s.new")
    assert len(lake.revert("m.c", to=then)) == 2
    after, shown = lake.position(), tree(lake)
    assert lake.revert("m.c", to=then, dry_run=True) == []
    assert lake.revert("m.c", to=then) == []
    assert (lake.position(), tree(lake)) == (after, shown)


def test_the_past_takes_no_write(lake: Store) -> None:
    """Not one that would change nothing, either: what it would find there is no answer to it."""
    past: Any = lake.at(lake.position()).tables
    writes: tuple[Callable[[], Any], ...] = (
        lambda: past.create("m.c.s.t"),
        lambda: past.create("m.c.s.t", if_exists="return"),
        lambda: past.alter("m.c.s.t"),
        lambda: past.alter("m.c.s.t", ms.SetComment("1")),
        lambda: past.drop("m.c.s.nothing"),
        lambda: past.rename("m.c.s.t", "u"),
    )
    for write in writes:
        with pytest.raises(InvalidArgument, match="the past is read-only"):
            write()
    later = lake.tables.create("m.c.s.later")
    with pytest.raises(EntityNotFound, match="made later"):
        past.load(later)


def test_a_kind_that_is_none_is_refused(lake: Store) -> None:
    """A word such as ``tables`` would wait for ever."""
    with pytest.raises(InvalidArgument, match="there is no kind 'tables'"):
        next(lake.changes(kinds=["tables"], follow=True))


def test_a_pin_keeps_what_was_dropped_then(lake: Store) -> None:
    """The listing of what was dropped finds it by its name, although the step that took the name is gone."""
    lake.tables.drop("m.c.s.t")
    lake.tables.create("m.c.s.other")
    pinned = lake.at(lake.pin("p").position)
    lake.tables.restore("m.c.s.t")
    lake.tables.alter("m.c.s.t", ms.SetComment("1"))
    for _ in range(2):
        lake.gc(retention=timedelta(0), keep_versions=1)
        assert [table.path for table in pinned.tables.dropped("m.c.s")] == ["m.c.s.t"]
        assert list(pinned.tables.names("m.c.s")) == ["other"]
        assert not pinned.tables.exists("m.c.s.t")
    lake.schemas.drop("m.c.s", cascade=True)
    lake.gc(retention=timedelta(0), keep_versions=1)
    assert [table.path for table in pinned.tables.dropped("m.c.s")] == ["m.c.s.t"]
    assert lake.verify() == []


def test_a_newcomer_that_came_after_the_plan_gives_the_name_back(lake: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process takes the old name between the plan and its transaction: the revert plans again."""
    table, then = lake.tables.load("m.c.s.t"), lake.position()
    lake.tables.rename("m.c.s.t", "u")
    run, came = run_transaction, list[ms.Entity]()

    def late(*given: Any) -> Any:
        if not came:
            came.append(lake.tables.create("m.c.s.t"))
        return run(*given)

    monkeypatch.setattr(reverting, "run_transaction", late)
    assert [one.action for one in lake.revert("m.c.s", to=then)] == ["renamed", "dropped"]
    assert [one.id for one in lake.tables.list("m.c.s")] == [table.id]
    assert lake.verify() == []


def test_a_partition_that_was_made_again_gets_its_statistics_back(lake: Store) -> None:
    """It has the name and the values of the old one, so that only its statistics tell them apart."""
    table = lake.tables.create("m.c.s.p", columns=[ms.Column("d", "date")], partitioning=["d"])
    lake.partitions.create(table, "d=1", values={"d": "1"})
    lake.statistics.set(table, {"custom-a": 1}, partition="d=1")
    then = lake.position()
    lake.partitions.drop(table, "d=1")
    lake.partitions.create(table, "d=1", values={"d": "1"})
    assert lake.statistics.of(table, partition="d=1") == {}
    assert lake.revert(table, to=then)
    assert lake.statistics.of(table, partition="d=1") == {"custom-a": 1}
    assert lake.revert(table, to=then) == []


def test_reading_pins_waits_for_no_writer(sqlite_url: str) -> None:
    with ms.open(sqlite_url, deadline=5.0) as store:
        store.pin("a")
        with sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None) as writer:
            writer.execute("BEGIN IMMEDIATE")
            assert [pin.name for pin in store.pins()] == ["a"]
            writer.execute("ROLLBACK")


def test_all_pins_are_read_at_once(lake: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = [lake.pin(f"p{n}") for n in range(3)]

    def asked(*_: object) -> None:
        raise AssertionError("it asks for each pin")

    monkeypatch.setattr(type(lake._session.backend), "event_at", asked)
    assert lake.pins() == pinned
