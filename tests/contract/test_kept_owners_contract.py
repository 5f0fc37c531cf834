"""What a user's ``create_many`` finds there already keeps its owner."""

from __future__ import annotations

from datetime import timedelta

import pytest

from metastore import Store
from metastore.operation.authorized import _owner
from metastore.operation.guards import guards_of
from metastore.port.commit import Commit, Committed
from metastore.port.writes import Event, Insert
from tests.contract.authorized import Lake, prepare
from tests.contract.ground import behind, interrupted

ROWS = [{"name": name} for name in ("orders", "later", "later")]


@pytest.fixture
def lake(store: Store) -> Lake:
    """Give the lake, where ann may create tables in sales.eu, and sees none of those that are there."""
    made = prepare(store)
    role = store.roles.create("lake.maker")
    made.grant(role, ("use_catalog", "catalog", "lake.sales"), ("use_schema", "schema", "lake.sales.eu"))
    made.grant(role, ("create_table", "schema", "lake.sales.eu"))
    store.roles.assign(role, store.users.load(("lake", "ann@corp")))
    store.owners.set(made.orders, ("lake", "bob@corp"))
    return made


def _owners(store: Store) -> list[str | None]:
    return [change.path_after for change in store.changes() if change.kind == "owner"]


@pytest.mark.parametrize("together", [False, True], ids=["alone", "in a transaction"])
def test_what_is_there_keeps_its_owner(lake: Lake, together: bool) -> None:
    store, ann = lake.store, lake.store.as_user("ann@corp")
    before = _owners(store)
    for written in (1, 0):
        if together:
            with ann.transaction() as tx:
                assert tx.tables.create_many(lake.schema, ROWS, if_exists="return") == written
        else:
            assert ann.tables.create_many(lake.schema, ROWS, if_exists="return") == written
    assert _owners(store) == [*before, "lake.sales.eu.later"]
    assert store.owners.of(lake.orders) == store.users.load(("lake", "bob@corp"))
    assert store.verify() == []


def test_what_is_made_meanwhile_keeps_its_owner(lake: Lake) -> None:
    store, ann = lake.store, lake.store.as_user("ann@corp")
    before = _owners(store)
    with interrupted(ann, lambda: store.tables.create("lake.sales.eu.later")):
        assert ann.tables.create_many(lake.schema, ROWS, if_exists="return") == 0
    assert _owners(store) == before
    assert store.verify() == []


def test_the_name_of_a_pending_drop_is_skipped(lake: Lake) -> None:
    store, ann = lake.store, lake.store.as_user("ann@corp")
    pending = store.tables.begin_drop(lake.orders)
    for written in (1, 0):
        assert ann.tables.create_many(lake.schema, ROWS, if_exists="return") == written
    pending.roll_back()
    assert store.owners.of(lake.orders) == store.users.load(("lake", "bob@corp"))
    assert store.verify() == []


def test_gc_removes_the_owners_of_nothing(lake: Lake) -> None:
    """Earlier programs wrote an owner for each row that was there already."""
    store, backend = lake.store, behind(lake.store)
    (entity_id,) = backend.reserve_ids(1)
    event = Event("table", "create", None, "lake.sales.eu.orders")
    made = Insert(lake.schema.id, "table", "table", "orders", "orders", False, "{}", event, entity_id)
    user = store.users.load(("lake", "ann@corp"))
    relate = _owner(made, user.id, user.path)
    guards = guards_of(lake.schema.record.chain)
    operation_id = store._session.clock.operation_id()
    assert isinstance(backend.commit(Commit(operation_id, "ann@corp", guards, (), (relate,))), Committed)
    store.tables.create("lake.sales.eu.later")
    assert {violation.invariant for violation in store.verify()} == {13, 14}

    store.gc(retention=timedelta(0))
    assert backend.relations("owner", [(entity_id, 0)]) == []
    assert store.verify() == []
