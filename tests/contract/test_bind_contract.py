"""``store.bind``: a view for one request, which shares all but who asks and how long it may take."""

from __future__ import annotations

import time
from typing import Any

import pytest

import metastore as ms
from tests.contract.ground import Ground

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite


def test_it_asks_in_another_s_name(ground: Ground) -> None:
    store = ground.store
    ada = store.bind(principal="ada")
    assert ada.schemas.create("m.c.by_ada").created_by == "ada"
    assert ada.tables.alter("m.c.one.t", ms.SetComment("a")).modified_by == "ada"
    assert ada.tables.alter("m.c.one.t", ms.SetComment("b"), principal="bob").modified_by == "bob"
    with ada.transaction() as tx:
        tx.schemas.create("m.c.in_tx")
    assert store.schemas.load("m.c.in_tx").created_by == "ada"
    assert ada.partitions.create("m.c.one.t", "q", values={}).created_by == "ada"
    with ada.schemas.exclusive("m.c.two") as tx:
        tx.tables.create("m.c.two.frozen")
    assert store.tables.load("m.c.two.frozen").created_by == "ada"
    again = store._session.principal
    assert store.schemas.create("m.c.by_store").created_by == again
    with ada.leases.acquire("nightly") as lease:
        assert ada.schemas.create("m.c.leased", lease=lease).created_by == "ada"
        assert store.leases.holder("nightly") is not None
    by = {c.path_after: c.principal for c in store.changes()}
    assert by["m.c.by_ada"] == "ada"
    assert [c.principal for c in store.changes() if c.kind == "lease"] == ["ada", "ada"]


def test_a_name_that_says_another_name_is_what_its_characters_say(ground: Ground) -> None:
    class Liar(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "eve"

    made = ground.store.bind(principal=Liar("ada")).schemas.create("m.c.by_ada")
    assert type(made.created_by) is str
    assert f"{made.created_by}" == f"{ground.store.schemas.load(made).created_by}" == "ada"


def test_views_of_views(ground: Ground) -> None:
    ada = ground.store.bind(principal="ada")
    short = ada.bind(deadline=2.5)
    assert short._session.policy.deadline == 2.5
    assert short.schemas.create("m.c.x").created_by == "ada"
    assert short.bind(principal="bob")._session.policy.deadline == 2.5
    assert ground.store._session.policy.deadline == ada._session.policy.deadline == 30.0


def test_the_deadline_holds(ground: Ground) -> None:
    """A schema that another has for itself: the view gives up in its own time."""
    quick = ground.store.bind(deadline=1.0)
    with ground.store.schemas.exclusive("m.c.two", ttl=20.0):
        began = time.monotonic()
        with pytest.raises(ms.ScopeFrozen):
            quick.tables.create("m.c.two.x")
        assert time.monotonic() - began < 10
    assert ground.store.schemas.load("m.c.two")


def test_closing_a_view_closes_nothing(ground: Ground) -> None:
    with ground.store.bind(principal="ada") as view:
        view.schemas.create("m.c.x")
    view.close()
    assert view.schemas.exists("m.c.x")
    assert ground.store.schemas.exists("m.c.x")
    ground.store.close()
    with pytest.raises(ms.StoreClosed):
        view.schemas.exists("m.c.x")
    with pytest.raises(ms.StoreClosed):
        ground.store.bind(principal="bob").schemas.exists("m.c.x")


def test_what_is_shared(ground: Ground) -> None:
    store, view = ground.store, ground.store.bind(principal="ada")
    for name in ("backend", "bucket", "hot", "recent", "metrics", "clock"):
        assert getattr(view._session, name) is getattr(store._session, name)
    before = store.counters["commits"]
    view.schemas.create("m.c.x")
    assert store.counters["commits"] == view.counters["commits"] == before + 1
    assert repr(view) == repr(store)
    with pytest.raises(TypeError):
        view.__reduce__()


@pytest.mark.parametrize(
    "wrong", [{"principal": ""}, {"principal": 5}, {"deadline": 0}, {"deadline": "1"}, {"deadline": -1}]
)
def test_what_makes_no_sense(ground: Ground, wrong: dict[str, Any]) -> None:
    with pytest.raises(ms.InvalidArgument):
        ground.store.bind(**wrong)


def test_a_view_is_cheap(ground: Ground) -> None:
    """Far less than a call takes, on a busy machine as well."""
    best = min(_seconds(ground) for _ in range(20))
    assert best < 0.001


def _seconds(ground: Ground) -> float:
    began = time.perf_counter()
    for _ in range(10):
        ground.store.bind(principal="ada")
    return (time.perf_counter() - began) / 10
