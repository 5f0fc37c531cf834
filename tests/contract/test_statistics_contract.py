"""Statistics: typed values of tables, partitions, filesets and models, on each backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from tests.contract.ground import interrupted

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

TABLE = "m.c.s.t"
VALUES: dict[str, Any] = {
    "custom-string": "é",
    "custom-long": 5,
    "custom-double": 5.0,
    "custom-boolean": True,
    "custom-list": [1, "a", [2.5]],
    "custom-map": {"a": {"b": False}},
}


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """Give a store with a table of two partitions, a fileset and a model."""
    with ms.open(url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.schemas.create("m.c.s")
        table = store.tables.create(TABLE)
        for name in ("p", "q"):
            store.partitions.create(table, name, values={})
        store.filesets.create("m.c.s.f")
        store.models.create("m.c.s.m")
        yield store
        assert store.verify() == []


_JSON = (dict, list, str, bool, int, float, type(None))


def typed(values: dict[str, Any]) -> dict[str, tuple[type, Any]]:
    """Return values with their types: to Python, True is 1. What JSON calls an object or an array is read-only."""
    return {name: (next(t for t in type(value).__mro__ if t in _JSON), value) for name, value in values.items()}


@pytest.mark.parametrize(
    "place",
    [(TABLE, {}), (TABLE, {"partition": "p"}), ("m.c.s.f", {"kind": "fileset"}), ("m.c.s.m", {"kind": "model"})],
)
def test_what_was_set_comes_back_with_its_type(store: Store, place: tuple[str, dict[str, Any]]) -> None:
    target, options = place
    assert store.statistics.of(target, **options) == {}
    store.statistics.set(target, VALUES, **options)
    store.statistics.set(target, {"custom-long": 6}, **options)  # others stay
    assert typed(store.statistics.of(target, **options)) == typed({**VALUES, "custom-long": 6})
    assert store.statistics.remove(target, ["custom-long", "custom-map", "custom-none"], **options) == 2
    assert store.statistics.of(target, **options).keys() == VALUES.keys() - {"custom-long", "custom-map"}
    events = len(list(store.changes()))
    store.statistics.set(target, {"custom-string": "é"}, **options)  # the same: nothing is written
    assert len(list(store.changes())) == events


def test_an_entity_in_hand_says_its_kind(store: Store) -> None:
    fileset = store.filesets.load("m.c.s.f")
    store.statistics.set(fileset, {"custom-files": 2})
    assert store.statistics.of(fileset) == {"custom-files": 2}
    assert store.statistics.of(TABLE) == {}


def test_tools_have_the_other_names(store: Store) -> None:
    store.statistics.put_many(TABLE, [store.statistics.row("crawl", {"rows": 5})])
    store.statistics.set(TABLE, {"custom-rows": 5})
    assert store.statistics.of(TABLE) == {"crawl": {"rows": 5}, "custom-rows": 5}
    with pytest.raises(ms.InvalidArgument, match="reserved for tools"):
        store.statistics.set(TABLE, {"crawl": 1})
    with pytest.raises(ms.InvalidArgument, match="reserved for tools"):
        store.statistics.remove(TABLE, ["crawl"])


def test_many_partitions(store: Store) -> None:
    store.statistics.set(TABLE, {"custom-rows": 1}, partition="p")
    store.statistics.set(TABLE, {"custom-rows": 2}, partition="q")
    assert store.statistics.of_partitions(TABLE, ["q", "p", "none"]) == {
        "q": {"custom-rows": 2},
        "p": {"custom-rows": 1},
    }


def test_a_partition_that_is_made_again_has_none(store: Store) -> None:
    store.statistics.set(TABLE, {"custom-rows": 1}, partition="p")
    store.partitions.drop(TABLE, "p")
    with pytest.raises(ms.EntityNotFound):
        store.statistics.of(TABLE, partition="p")
    with pytest.raises(ms.EntityNotFound):
        store.statistics.set(TABLE, {"custom-rows": 2}, partition="p")
    store.partitions.create(TABLE, "p", values={})
    assert store.statistics.of(TABLE, partition="p") == {}
    store.statistics.set(TABLE, {"custom-files": 2}, partition="p")
    assert store.statistics.of(TABLE, partition="p") == {"custom-files": 2}


@pytest.mark.parametrize("partition", [None, "p"])
def test_two_at_once_both_stay(store: Store, partition: str | None) -> None:
    with interrupted(store, lambda: store.statistics.set(TABLE, {"custom-a": 1}, partition=partition)):
        store.statistics.set(TABLE, {"custom-b": 2}, partition=partition)
    assert store.statistics.of(TABLE, partition=partition) == {"custom-a": 1, "custom-b": 2}


def test_in_a_transaction_and_with_the_table(store: Store) -> None:
    with store.transaction() as tx:
        tx.statistics.set(TABLE, {"custom-rows": 1})
        tx.statistics.set(TABLE, {"custom-rows": 2}, partition="p")
        assert tx.statistics.of(TABLE) == {"custom-rows": 1}
    store.tables.rename(TABLE, "u")
    store.tables.drop("m.c.s.u")
    with pytest.raises(ms.EntityNotFound):
        store.statistics.of("m.c.s.u")
    store.tables.restore("m.c.s.u")
    assert store.statistics.of("m.c.s.u", partition="p") == {"custom-rows": 2}


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.statistics.set(TABLE, {"rows": 1}),
        lambda s: s.statistics.set(TABLE, {"custom-": 1}),
        lambda s: s.statistics.set(TABLE, {"custom-a": None}),
        lambda s: s.statistics.set(TABLE, {"custom-a": float("nan")}),
        lambda s: s.statistics.set(TABLE, {"custom-a": 1 << 63}),
        lambda s: s.statistics.set(TABLE, {"custom-a": {1: 2}}),
        lambda s: s.statistics.set(TABLE, {"custom-a": b"x"}),
        lambda s: s.statistics.set(TABLE, {}),
        lambda s: s.statistics.set("m.c.s", {"custom-a": 1}, kind="schema"),
    ],
)
def test_what_does_not_fit_is_refused(store: Store, call: Callable[[Store], object]) -> None:
    with pytest.raises(ms.InvalidArgument):
        call(store)
    assert store.statistics.of(TABLE) == {}
