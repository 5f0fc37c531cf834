"""Entities, errors and transactions that outlive what they were made for."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

import metastore as ms
from tests.contract.ground import Ground

ERRORS: list[ms.MetastoreError] = [
    ms.InvalidArgument("no"),
    ms.EntityNotFound("a.b"),
    ms.EntityAlreadyExists("a.b", "a.b is a view"),
    ms.VersionConflict("a.b", 1, 2),
    ms.OutcomeUnknown(UUID(int=7)),
]


@pytest.fixture
def dropped(ground: Ground) -> ms.Table:
    """Give the entity of a table that is dropped, as ``dropped`` lists it: with its version of now."""
    ground.store.tables.drop(ground.table)
    (found,) = ground.store.tables.dropped(ground.one)
    return found


USES: dict[str, Callable[[ms.Store, ms.Table], Any]] = {
    "alter": lambda s, t: s.tables.alter(t, ms.SetComment("x")),
    "alter expected": lambda s, t: s.tables.alter(t, ms.SetComment("x"), expected_version=t.version),
    "rename": lambda s, t: s.tables.rename(t, "zz"),
    "create a partition": lambda s, t: s.partitions.create(t, "p", values={}),
    "list partitions": lambda s, t: list(s.partitions.list(t)),
    "load": lambda s, t: s.tables.load(t),
}


class TestDropped:
    @pytest.mark.parametrize("use", USES.values(), ids=USES)
    def test_a_dropped_entity_in_hand_is_gone(
        self, ground: Ground, dropped: ms.Table, use: Callable[[ms.Store, ms.Table], Any]
    ) -> None:
        before = ground.dump()
        with pytest.raises(ms.EntityNotFound):
            use(ground.store, dropped)
        assert ground.store.tables.drop(dropped) is False
        assert ground.dump() == before

    def test_nothing_is_created_below_a_dropped_schema_in_hand(self, ground: Ground) -> None:
        ground.store.schemas.drop(ground.two, cascade=True)
        gone = next(s for s in ground.store.schemas.dropped("m.c") if s.name == "two")
        for use in (
            lambda: ground.store.tables.create("x", parent=gone),
            lambda: ground.store.tables.create_many(gone, [{"name": "x"}]),
            lambda: list(ground.store.tables.list(gone)),
        ):
            with pytest.raises(ms.EntityNotFound):
                use()
        assert ground.store.verify() == []

    def test_restored_in_a_folding_catalog_it_keeps_its_name(self, ground: Ground) -> None:
        store = ground.store
        store.catalogs.create("m.folding", type="relational", fold_case=True)
        store.tables.create("m.folding.S.Tab", parents=True)
        store.tables.drop("m.folding.s.TAB")
        assert store.tables.restore("m.folding.s.tab").path == "m.folding.S.Tab"


class TestTransactions:
    def test_what_it_made_is_found_by_its_entity_when_another_call_has_changed_it(self, ground: Ground) -> None:
        with ground.store.transaction() as tx:
            made = tx.tables.create("m.c.one.made")
        ground.store.tables.alter("m.c.one.made", ms.SetComment("x"))
        assert ground.store.tables.load(made).version == 2
        assert ground.store.tables.drop(made)

    def test_a_conflict_names_what_changed(self, ground: Ground) -> None:
        with pytest.raises(ms.VersionConflict) as caught, ground.store.transaction() as tx:  # noqa: PT012  (at its end)
            tx.tables.alter(ground.table, ms.SetComment("mine"))
            ground.store.tables.alter(ground.table, ms.SetComment("yours"), principal="bob")
        error = caught.value
        assert (error.path, error.expected, error.found) == ("m.c.one.t", 1, 2)
        assert "bob" in str(error)

    def test_a_conflict_names_the_ancestor_that_moved(self, ground: Ground) -> None:
        with pytest.raises(ms.VersionConflict) as caught, ground.store.transaction() as tx:  # noqa: PT012  (at its end)
            tx.tables.alter(ground.table, ms.SetComment("mine"))
            ground.store.schemas.rename("m.c.one", "uno")
        assert caught.value.path == "m.c.uno"

    def test_outside_its_block_it_does_nothing(self, ground: Ground) -> None:
        tx = ground.store.transaction()
        with pytest.raises(ms.InvalidArgument):
            tx.tables.create("m.c.one.new")
        with tx:
            assert tx.tables.exists("m.c.one.t")
        with pytest.raises(ms.InvalidArgument):
            tx.tables.create("m.c.one.new")
        assert not ground.store.tables.exists("m.c.one.new")

    def test_purge(self, ground: Ground) -> None:
        with ground.store.transaction() as tx:
            assert tx.tables.purge(ground.table)
            assert not tx.tables.exists("m.c.one.t")
        with pytest.raises(ms.EntityNotFound):
            ground.store.tables.restore("m.c.one.t", id=ground.table.id)
        assert ground.store.gc(retention=timedelta(days=1)).entities == 1
        assert ground.store.verify() == []

    def test_its_lease_has_its_place(self, ground: Ground) -> None:
        with ground.store.transaction(lease=None) as tx:
            tx.tables.load("m.c.one.t")
        assert ground.store.run(lambda tx: tx.tables.load("m.c.one.t").name, lease=None) == "t"
        with pytest.raises(ms.InvalidArgument):
            ground.store.transaction(lease="mine")  # type: ignore[arg-type]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_an_error_comes_whole_from_another_process(error: ms.MetastoreError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_a_change_comes_whole_from_another_process() -> None:
    """With its entity, which is made when it is asked for, and nothing but its fields."""
    with ms.open("memory://") as store:
        store.metalakes.create("lake")
        (one,), (version,) = store.changes(), store.metalakes.history("lake")
    for given in (one, version):
        copy = pickle.loads(pickle.dumps(given))
        assert set(vars(copy)) == {field.name for field in dataclasses.fields(copy)}
        assert (copy, copy.entity.name) == (given, "lake")


def test_an_alter_of_a_stale_entity_returns_its_present_scope_version(ground: Ground) -> None:
    """A change of rights raises the scope version alone: the version in hand is still the newest."""
    ground.store.owners.set(ground.table.path, ground.store.users.create((ground.table.names[0], "ann")), kind="table")
    answered = ground.store.tables.alter(ground.table, ms.SetComment("x"))
    assert answered.scope_version == ground.table.scope_version + 1
    assert answered.to_dict() == ground.store.tables.load(answered.path).to_dict()
