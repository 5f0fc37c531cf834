"""``store.losses()``: who lost to whom, on which entity, and by which cause."""

from __future__ import annotations

import pytest

import metastore as ms
from tests.contract.ground import Ground


def test_who_lost_to_whom(ground: Ground) -> None:
    store = ground.store
    ann, bob = store.bind(principal="ann"), store.bind(principal="bob")
    table = store.tables.create("m.c.one.contended")
    changed = bob.tables.alter(table, ms.SetComment("b"))
    ann.tables.alter(table, ms.SetProperty("k", "v"))  # in hand, and old by now
    with pytest.raises(ms.VersionConflict):
        _late(ann, bob, table)
    moved = store.tables.load("m.c.one.contended")
    bob.schemas.rename("m.c.one", "moved")
    ann.tables.alter(moved, ms.SetProperty("k", "x"))
    found = [one for one in store.losses() if one.principal == "ann"]
    assert [(one.verb, one.cause, one.path, one.won_by) for one in found] == [
        ("alter", "ancestor", "m.c.moved.contended", "bob"),
        ("transaction", "self", "m.c.moved.contended", "bob"),
        ("alter", "self", "m.c.moved.contended", "bob"),
    ]
    step = next(one for one in store.tables.history(changed) if one.version == changed.version)
    assert found[-1].won_operation == step.operation_id
    assert found[0].to_dict()["kind"] == "table"
    assert store.losses(1) == found[:1]
    store.users.create("m.ann")
    with pytest.raises(ms.PermissionDenied):
        store.as_user("ann").losses()


def _late(ann: ms.Store, bob: ms.Store, table: ms.Table) -> None:
    """Commit a transaction of one, whose table the other changes meanwhile."""
    with ann.transaction() as tx:
        there = tx.tables.load(table)
        bob.tables.alter(table, ms.SetComment("c"))
        tx.tables.alter(there, ms.SetProperty("k", "w"))
