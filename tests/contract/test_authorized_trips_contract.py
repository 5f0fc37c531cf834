"""How often a call of a user asks the database, beside the same call of a trusted store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from tests.contract.authorized import Lake, prepare

_ASKS = ("resolve", "by_id", "hold", "rights", "children", "names", "commit", "reserve_ids")


class _Counting:
    """A backend that notes what it is asked."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in _ASKS:
            self.asked.append(name)
        return getattr(self._backend, name)


@pytest.fixture
def asked(store: Store) -> Callable[[Callable[[Store], object]], tuple[list[str], list[str]]]:
    """Give what returns what a call asks: of a trusted store, and of a user's whose evidence is remembered."""
    lake: Lake = prepare(store)
    role = lake.reader()
    lake.grant(role, *[(f"{word}_table", "catalog", "lake.sales") for word in ("modify", "create")])
    counting = _Counting(store._session.backend)
    store._session.backend = counting
    store._session.combiner = None
    ann = store.as_user("ann@corp")

    def ask(call: Callable[[Store], object]) -> tuple[list[str], list[str]]:
        found = []
        for one in (store, ann):
            for _ in range(2):
                counting.asked.clear()
                call(one)
            found.append(list(counting.asked))
        return found[0], found[1]

    return ask


def _change(store: Store) -> ms.SetProperty:
    return ms.SetProperty("n", str(ms.new_operation_id()))


def test_what_is_remembered_costs_a_change_no_round_trip(asked: Any) -> None:
    plain, user = asked(lambda s: s.tables.alter("lake.sales.eu.orders", _change(s)))
    assert user == plain == ["resolve", "commit"]
    held: dict[int, Any] = {}

    def in_hand(store: Store) -> None:
        table = held.get(id(store)) or store.tables.load("lake.sales.eu.refunds")
        held[id(store)] = store.tables.alter(table, _change(store))

    held.clear()
    in_hand_plain, in_hand_user = asked(in_hand)
    assert in_hand_plain == ["commit"]
    assert in_hand_user[-1] == "commit"
    assert "rights" not in in_hand_user
    plain, user = asked(lambda s: s.tables.create(f"lake.sales.eu.t{ms.new_operation_id().hex}"))
    assert user == plain == ["commit"]


def test_a_load_asks_whether_its_evidence_holds(asked: Any) -> None:
    plain, user = asked(lambda s: s.tables.load("lake.sales.eu.orders"))
    assert (plain, user) == (["resolve"], ["resolve", "hold"])


def test_a_listing_reads_the_rights_once(asked: Any) -> None:
    plain, user = asked(lambda s: list(s.tables.list("lake.sales.eu")))
    assert sorted(plain) == ["children", "resolve"]
    assert user.count("rights") == 1
    assert user.count("children") == 1
