"""Stores that are closed or pickled, entities that somebody tries to change."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any

import pytest

import metastore as ms
from tests.bad_input.conftest import TABLE
from tests.bad_input.refusal import refused

OPERATIONS: dict[str, Callable[[ms.Store], Any]] = {
    "ping": lambda s: s.ping(),
    "create": lambda s: s.schemas.create("m.c.x"),
    "create_many": lambda s: s.schemas.create_many("m.c", [{"name": "x"}]),
    "load": lambda s: s.tables.load(TABLE),
    "load_many": lambda s: s.tables.load_many([TABLE]),
    "exists": lambda s: s.tables.exists(TABLE),
    "list": lambda s: s.tables.list("m.c.s"),
    "names": lambda s: s.tables.names("m.c.s"),
    "alter": lambda s: s.tables.alter(TABLE, ms.SetComment("x")),
    "drop": lambda s: s.tables.drop(TABLE),
    "history": lambda s: s.tables.history(TABLE),
    "changes": lambda s: s.changes(),
    "run": lambda s: s.run(lambda tx: tx.tables.alter(TABLE, ms.SetComment("x"))),
    "gc": lambda s: s.gc(retention=timedelta(0)),
    "verify": lambda s: s.verify(),
}


def test_a_closed_store(kept: ms.Store, kept_url: str) -> None:
    with ms.open(kept_url) as store:
        table = store.tables.load(TABLE)
        listing = store.tables.list("m.c.s")
    for call in OPERATIONS.values():
        refused(ms.StoreClosed, lambda c=call: c(store), "closed", "open it again")  # type: ignore[misc]
    refused(ms.StoreClosed, lambda: store.tables.alter(table, ms.SetComment("x")), "closed")
    refused(ms.StoreClosed, lambda: listing, "closed")
    store.close()  # a second time: nothing
    assert store.counters["commits"] == 0


def test_a_transaction_that_outlives_its_store(kept: ms.Store, kept_url: str) -> None:
    def outlive() -> None:
        with ms.open(kept_url) as store, store.transaction() as tx:
            tx.tables.alter(TABLE, ms.SetComment("x"))
            store.close()

    refused(ms.StoreClosed, outlive, "closed")


def test_a_transaction_is_committed_once(kept: ms.Store) -> None:
    tx = kept.transaction()
    refused(ms.InvalidArgument, lambda: tx.tables.load(TABLE), "with block")
    with tx:
        tx.tables.load(TABLE)
    refused(ms.InvalidArgument, lambda: tx.tables.alter(TABLE, ms.SetComment("x")), "with block")
    refused(ms.InvalidArgument, tx.__enter__, "begun already")


def test_a_store_cannot_be_pickled(kept: ms.Store) -> None:
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="pickle the URL"):
            attempt(kept)


def entities(store: ms.Store) -> list[Any]:
    table = store.tables.load(TABLE)
    return [store.metalakes.load("m"), store.catalogs.load("m.c"), store.schemas.load("m.c.s"), table, *table.columns]


def test_entities_can_be_pickled(kept: ms.Store) -> None:
    for entity in [*entities(kept), *kept.changes(), *kept.tables.history(TABLE)]:
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            found = pickle.loads(pickle.dumps(entity, protocol))
            assert found == entity
            assert type(found) is type(entity)
        assert copy.deepcopy(entity) == entity
    table = pickle.loads(pickle.dumps(kept.tables.load(TABLE)))
    assert [c.name for c in table.columns] == ["id", "name"]
    assert table.created_by == "tester" or table.created_by is None
    assert kept.tables.alter(table) == table  # it is still good to be handed in


def test_entities_are_frozen(kept: ms.Store) -> None:
    for entity in entities(kept):
        for name in ("name", "version", "comment", "id", "anything"):
            with pytest.raises((AttributeError, FrozenInstanceError)):
                setattr(entity, name, "x")
            with pytest.raises((AttributeError, FrozenInstanceError)):
                delattr(entity, name)
    table = kept.tables.load(TABLE)
    with pytest.raises(TypeError):
        table.properties["k"] = "v"  # type: ignore[index]
    with pytest.raises((AttributeError, FrozenInstanceError)):
        next(kept.changes()).position = "x"  # type: ignore[misc]
    assert isinstance(table.columns, tuple)


def test_a_field_that_is_not_there(kept: ms.Store) -> None:
    with pytest.raises(AttributeError, match="Schema has no field 'columns'"):
        getattr(kept.schemas.load("m.c.s"), "columns")  # noqa: B009  (a type checker knows it too)


def test_entities_can_be_keys(kept: ms.Store) -> None:
    assert len({*entities(kept), *entities(kept)}) == len(entities(kept))
