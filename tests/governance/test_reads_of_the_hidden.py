"""What a user is told of what it does not see any more: typed errors, at once, and nothing of what is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from tests.contract.authorized import Lake, prepare
from tests.governance.test_read_after_revoked import Between

ANN = ("lake", "ann@corp")
T = "lake.sales.eu.orders"


@pytest.fixture
def lake() -> Iterator[Lake]:
    """Give the lake, which ann sees by one role."""
    with ms.open("memory://", admins=("root@corp",)) as store:
        made = prepare(store)
        role = made.reader()
        made.grant(role, ("modify_table", "catalog", "lake.sales"))
        yield made


WRITES: dict[str, Callable[[Store], Any]] = {
    "alter": lambda ann: ann.tables.alter(T, ms.SetComment("x")),
    "rename": lambda ann: ann.tables.rename(T, "x"),
    "move": lambda ann: ann.tables.rename(T, "lake.sales.us.x"),
    "drop": lambda ann: ann.tables.drop(T),
    "purge": lambda ann: ann.tables.purge(T),
    "create": lambda ann: ann.tables.create("lake.sales.eu.new"),
    "create_many": lambda ann: ann.tables.create_many("lake.sales.eu", [{"name": "x"}]),
    "restore": lambda ann: ann.tables.restore(T),
    "statistics": lambda ann: ann.statistics.set(T, {"custom-x": 1}),
    "partition": lambda ann: ann.partitions.create(T, "p", values={}),
    "tag": lambda ann: ann.tags.attach(T, "lake.tag", kind="table"),
    "begin_drop": lambda ann: ann.tables.begin_drop(T),
    "transaction": lambda ann: ann.run(lambda tx: tx.tables.alter(T, ms.SetComment("x"))),
}


@pytest.mark.parametrize("known", ["lake.sales", "lake.sales.eu", None])
@pytest.mark.parametrize("write", WRITES)
def test_a_write_by_path_after_a_revocation_ends(lake: Lake, write: str, known: str | None) -> None:
    """What is above is remembered as seen; what the path leads to is not remembered, so that its rights are read."""
    ann = lake.store.as_user("ann@corp")
    lake.store.schemas.create("lake.sales.us")
    if known is not None:
        ann.manager("schema" if known.endswith("eu") else "catalog").load(known)
    lake.store.roles.unassign("lake.reader", lake.store.users.load(ANN))
    ann._session.backend._base = between = Between(ann._session.backend._base)  # type: ignore[attr-defined]
    between.let_go_first(-1, lambda: None)
    with suppress(ms.EntityNotFound, ms.PermissionDenied):
        assert not WRITES[write](ann)
    assert between.asked < 40
    assert lake.store.tables.load(T).version == 1
