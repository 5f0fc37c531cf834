"""A closed store says so, and one that cannot be opened says why, in few frames."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest

import metastore as ms
from tests.contract.ground import Ground

CALLS: list[Callable[[Ground], Any]] = [
    lambda g: g.store.tables.load("m.c.one.t"),
    lambda g: g.store.tables.create("m.c.one.new"),
    lambda g: g.store.tables.alter(g.table, ms.SetComment("late")),
    lambda g: g.store.tables.drop(g.table),
    lambda g: list(g.store.tables.list("m.c.one")),
    lambda g: list(g.store.changes()),
    lambda g: g.store.tables.create("m.c.one.new", operation_id=ms.new_operation_id()),
    lambda g: g.store.run(lambda tx: tx.tables.load("m.c.one.t")),
    lambda g: g.store.ping(),
    lambda g: g.store.leases.acquire("nightly", ttl=1.0),
]


@pytest.mark.each_run_on("sqlite")
@pytest.mark.parametrize("call", CALLS, ids=range(len(CALLS)))
def test_a_closed_store_says_so(ground: Ground, call: Callable[[Ground], Any]) -> None:
    ground.store.close()
    with pytest.raises(ms.StoreClosed, match="the store is closed; open it again") as caught:
        call(ground)
    assert (caught.value.code, caught.value.http_status) == ("store_closed", 503)


def test_so_does_the_memory_model() -> None:
    with ms.open("memory://") as store:
        backend = store._session.backend
    with pytest.raises(ms.StoreClosed):
        backend.ping()


@pytest.mark.parametrize(
    "url", ["postgresql://ada:hidden@127.0.0.1:1/lake", "sqlite:////no/such/folder/metastore.db"], ids=["pg", "sqlite"]
)
def test_a_refused_connection_is_one_short_error(url: str) -> None:
    with pytest.raises(ms.BackendUnavailable) as caught:
        ms.open(url)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert len(frames) <= 4, frames
    assert caught.value.__cause__ is None
    assert "hidden" not in "".join(traceback.format_exception(caught.value))
    assert "\n" not in str(caught.value)


def test_a_reused_operation_id_is_an_error_of_its_own(ground: Ground) -> None:
    own = ms.new_operation_id()
    ground.store.tables.create("m.c.two.t", operation_id=own)
    with pytest.raises(ms.OperationIdReused) as caught:
        ground.store.tables.create("m.c.two.other", operation_id=own)
    assert isinstance(caught.value, ms.InvalidArgument)
    assert caught.value.to_dict()["details"] == {"operation_id": str(own)}
    assert not ground.store.tables.exists("m.c.two.other")
