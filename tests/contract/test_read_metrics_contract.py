"""Every method that reads is counted, once for each answer that it waits for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import metastore as ms
from metastore.clock import SYSTEM

PATH = "lake.c.s"


@pytest.fixture
def filled(store: ms.Store) -> ms.Store:
    """Give a store with three tables, one of them dropped, and a partition."""
    store.metalakes.create("lake")
    store.catalogs.create("lake.c", type="relational")
    store.tables.create_many(store.schemas.create(PATH), [{"name": f"t{n}"} for n in range(3)])
    store.tables.drop(f"{PATH}.t2")
    table = store.tables.create(f"{PATH}.parts", columns=[ms.Column("day", "int")], partitioning=["day"])
    store.partitions.create(table, "day=1", values={"day": "1"})
    return store


READS: dict[str, tuple[str, Callable[[ms.Store], object], int]] = {
    "load": ("load", lambda s: s.tables.load(f"{PATH}.t0"), 1),
    "load_many": ("load_many", lambda s: s.tables.load_many([f"{PATH}.t0", f"{PATH}.t1"]), 1),
    "exists": ("exists", lambda s: s.tables.exists(f"{PATH}.none"), 1),
    "list": ("list", lambda s: list(s.tables.list(PATH, page_size=2)), 2),
    "names": ("names", lambda s: list(s.tables.names(PATH, page_size=2)), 2),
    "dropped": ("dropped", lambda s: list(s.tables.dropped(PATH)), 1),
    "page": ("page", lambda s: s.tables.page(PATH), 1),
    "names_page": ("page", lambda s: s.tables.names_page(PATH), 1),
    "dropped_page": ("page", lambda s: s.tables.dropped_page(PATH), 1),
    "history": ("history", lambda s: list(s.tables.history(f"{PATH}.t0")), 1),
    "history_page": ("page", lambda s: s.tables.history_page(f"{PATH}.t0"), 1),
    "find": ("find", lambda s: list(s.find(name="t*")), 1),
    "find_page": ("find", lambda s: s.find_page(text="t"), 1),
    "changes_page": ("changes_page", lambda s: s.changes_page(size=2), 1),
    "partitions.list": ("list", lambda s: list(s.partitions.list(f"{PATH}.parts")), 1),
    "partitions.load": ("load", lambda s: s.partitions.load(f"{PATH}.parts", "day=1"), 1),
    "partitions.page": ("page", lambda s: s.partitions.page(f"{PATH}.parts"), 1),
}


@pytest.mark.each_run_on("sqlite")
@pytest.mark.parametrize("call", READS)
def test_each_read_is_counted(filled: ms.Store, call: str) -> None:
    method, read, times = READS[call]
    before = filled.metrics().read_seconds
    read(filled.bind(principal="ann"))
    after = filled.metrics().read_seconds
    assert {name: seconds.count - (before[name].count if name in before else 0) for name, seconds in after.items()} == {
        **dict.fromkeys(before, 0),
        method: times,
    }
    assert after[method].total > 0


def test_a_read_that_fails_is_counted(filled: ms.Store) -> None:
    with pytest.raises(ms.EntityNotFound):
        filled.tables.load(f"{PATH}.none")
    assert filled.metrics().read_seconds["load"].count == 1


def test_a_read_in_a_transaction_is_counted(filled: ms.Store) -> None:
    with filled.transaction() as tx:
        tx.tables.load(f"{PATH}.t0")
    assert filled.metrics().read_seconds["load"].count == 1


def test_the_lag_is_the_time_since_what_was_read_last(filled: ms.Store) -> None:
    """It falls to nothing where the feed ends, and grows while nobody reads."""
    assert filled.metrics().feed_lag_seconds == {}
    changes = filled.changes()
    first = next(changes)
    lag = filled.metrics().feed_lag_seconds["changes"]
    age = SYSTEM.micros() / 1_000_000 - first.time.timestamp()
    assert age - 1 < lag <= age + 1
    assert filled.metrics().feed_lag_seconds["changes"] > lag
    rest = list(changes)
    assert filled.metrics().feed_lag_seconds["changes"] < age
    list(filled.changes(after=first.position, limit=len(rest) - 1))
    behind = filled.metrics().feed_lag_seconds["changes"]
    list(filled.changes(after=first.position, limit=len(rest) + 1))
    assert filled.metrics().feed_lag_seconds["changes"] < behind
