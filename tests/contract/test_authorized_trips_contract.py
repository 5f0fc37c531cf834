"""How often a call of a user asks the database, beside the same call of a trusted store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from metastore.kinds.entity import Entity
from tests.contract.authorized import Lake, prepare
from tests.contract.ground import Ground

_ASKS = (
    *("resolve", "resolve_rights", "resolve_holding", "by_id", "by_id_holding", "hold", "rights"),
    *("children", "children_chosen", "names", "names_chosen", "commit", "reserve_ids", "related"),
)


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


def test_a_load_asks_in_the_same_message_whether_its_evidence_holds(asked: Any) -> None:
    plain, user = asked(lambda s: s.tables.load("lake.sales.eu.orders"))
    assert (plain, user) == (["resolve"], ["resolve_holding"])
    table: dict[Store, Entity] = {}

    def in_hand(store: Store) -> None:
        table[store] = store.tables.load(table.get(store) or "lake.sales.eu.orders")

    plain, user = asked(in_hand)
    assert (plain, user) == (["by_id"], ["by_id_holding"])


def test_evidence_that_is_not_remembered_or_old_costs_a_load_one_round_trip(store: Store) -> None:
    lake = prepare(store)
    role = lake.reader()
    counting = _Counting(store._session.backend)
    store._session.backend = counting
    store.as_user("ann@corp").tables.load("lake.sales.eu.orders")
    assert counting.asked == ["resolve_rights"]
    counting.asked.clear()
    store.as_user("ann@corp").tables.load("lake.sales.eu.orders")  # another view of the same user
    assert counting.asked == ["resolve_holding"]
    store.roles.revoke(role, "use_secret", lake.sales)  # nothing is taken away
    store.roles.grant(role, "use_secret", lake.sales)
    store.roles.revoke(role, "use_secret", lake.sales)
    counting.asked.clear()
    store.as_user("ann@corp").tables.load("lake.sales.eu.orders")
    assert counting.asked == ["resolve_holding", "rights"]


def test_the_tags_of_an_object_are_one_round_trip_or_two(asked: Any) -> None:
    """One, also by a path; two where a path may be of several kinds: which one it is is read first."""
    path = "lake.sales.eu.orders"
    assert asked(lambda s: s.tags.on(path, kind="table"))[0] == ["related"]
    assert asked(lambda s: s.tags.on(path))[0] == ["resolve", "related"]


def test_a_listing_reads_the_rights_once(asked: Any) -> None:
    plain, user = asked(lambda s: list(s.tables.list("lake.sales.eu")))
    assert sorted(plain) == ["children", "resolve"]
    assert sorted(user) == ["children", "resolve_holding", "rights"]


@pytest.mark.parametrize("usually", [False, True])
def test_a_listing_of_chosen_children_reads_no_other_documents(store: Store, usually: bool) -> None:
    lake = prepare(store)
    role = lake.reader() if usually else lake.role("few", ("use_catalog", "catalog", "lake.sales"))
    if not usually:
        lake.grant(role, ("use_schema", "schema", "lake.sales.eu"))
    names = [f"t{n:02}" for n in range(40)]
    store.tables.create_many("lake.sales.eu", [{"name": name} for name in names])
    chosen = names[3::9]
    lake.grant(role, *[("select_table", "table", f"lake.sales.eu.{name}") for name in chosen], deny=usually)
    store.tables.drop(f"lake.sales.eu.{chosen[0]}")
    every = sorted([*names, "orders", "refunds"])
    seen = [name for name in every if (name in chosen) != usually and name != chosen[0]]
    counting = _Counting(store._session.backend)
    store._session.backend = counting
    tables = store.as_user("ann@corp").tables
    assert [table.name for table in tables.list("lake.sales.eu")] == seen
    assert list(tables.names("lake.sales.eu")) == seen
    assert {"children_chosen", "names_chosen"} <= set(counting.asked)
    assert not {"children", "names"} & set(counting.asked)
    assert [table.name for table in tables.dropped("lake.sales.eu")] == ([] if usually else [chosen[0]])
    paged, token = [], None
    while True:
        page = tables.page("lake.sales.eu", size=3, token=token)
        paged += [table.name for table in page.items]
        token = page.next_token
        if token is None:
            break
    assert paged == seen


def test_an_entity_comes_with_whether_its_evidence_holds(ground: Ground) -> None:
    """A right that another process took away is noticed by the read that shows the entity."""
    backend, ids = ground.backend, [ground.one.id]
    held = [(ground.one.id, 1), (ground.catalog.id, 1)]
    assert backend.by_id_holding(ids, held) == (backend.by_id(ids), True)
    for lost in ([*held, (ground.two.id, 7)], [(ground.one.id, 2)], [*held, (999_999_999, 1)]):
        assert backend.by_id_holding(ids, lost) == (backend.by_id(ids), False)
