"""What goes from an entity is read in pages, and the statistics of many partitions at once, on each backend."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from tests.contract.authorized import Lake, prepare

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite


class Noting:
    """A backend that notes what it is asked."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        if not callable(found):
            return found

        def ask(*arguments: Any, **options: Any) -> Any:
            self.asked.append(name)
            return found(*arguments, **options)

        return ask


@pytest.fixture
def lake(store: Store, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Give a lake whose role ``big`` has grants on six tables and a schema; a page has three, the first has two."""
    monkeypatch.setattr("metastore.managers.relations.reads._FIRST", 2)
    monkeypatch.setattr("metastore.managers.relations.reads._PAGE", 3)
    made = prepare(store)
    store.tables.create_many("lake.sales.eu", [{"name": f"t{n}"} for n in range(6)])
    big = made.role("big", *[("select_table", "table", f"lake.sales.eu.t{n}") for n in range(6)])
    made.grant(big, ("select_table", "table", "lake.sales.eu.t0"), deny=True)
    made.grant(big, ("use_schema", "schema", "lake.sales.eu"))
    return made


ALL = [
    ("lake.sales.eu", "allow"),
    ("lake.sales.eu.t0", "allow"),
    ("lake.sales.eu.t0", "deny"),
    *[(f"lake.sales.eu.t{n}", "allow") for n in range(1, 6)],
]


def shown(grants: Iterable[ms.Grant]) -> list[tuple[str, str]]:
    """Return where each grant is, and its effect."""
    return [(grant.path, grant.effect) for grant in grants]


def test_grants_come_in_pages(lake: Lake) -> None:
    session = lake.store._session
    noting: Any = Noting(session.backend)
    session.backend = noting
    assert shown(lake.store.roles.grants("lake.big")) == ALL
    assert noting.asked.count("related_page") == 4  # 2, 3 and 3 of the eight, and one that finds no more
    noting.asked.clear()
    assert shown(islice(lake.store.roles.grants(lake.store.roles.load("lake.big")), 2)) == ALL[:2]
    assert noting.asked.count("related_page") == 1


def test_a_page_without_anything_live_is_no_end(lake: Lake) -> None:
    for n in range(5):
        lake.store.tables.drop(f"lake.sales.eu.t{n}")
    assert shown(lake.store.roles.grants("lake.big")) == [ALL[0], ALL[-1]]


def test_a_role_that_goes_between_two_pages(lake: Lake) -> None:
    grants = lake.store.roles.grants("lake.big")
    next(grants)
    lake.store.roles.drop("lake.big")
    with pytest.raises(ms.EntityNotFound):
        list(grants)


def test_grants_in_a_transaction_and_in_the_past(lake: Lake) -> None:
    store = lake.store
    then = store.position()
    with store.transaction() as tx:
        tx.roles.revoke("lake.big", "select_table", "lake.sales.eu.t0")
        tx.roles.grant("lake.big", "select_table", "lake.sales.eu.orders")
        inside = shown(tx.roles.grants("lake.big"))
    assert sorted(inside) == sorted([("lake.sales.eu.orders", "allow"), ALL[0], *ALL[3:]])
    assert sorted(shown(store.roles.grants("lake.big"))) == sorted(inside)
    assert shown(store.at(then).roles.grants("lake.big")) == ALL


def test_a_user_sees_grants_on_what_it_sees(lake: Lake) -> None:
    store, ann = lake.store, lake.store.as_user("ann@corp")
    assert shown(ann.roles.grants("lake.big")) == []  # it may not use the catalog
    store.roles.grant("lake.big", "use_catalog", "lake.sales")
    assert shown(ann.roles.grants("lake.big")) == [
        ("lake.sales", "allow"),
        ALL[0],
        *ALL[3:],
    ]  # t0 is denied to it, and so hidden
    with pytest.raises(ms.EntityNotFound):
        list(store.as_user("bob@corp").roles.grants("lake.big"))


def test_the_statistics_of_many_partitions_are_one_read(lake: Lake) -> None:
    store, days = lake.store, [f"day={n}" for n in range(30)]
    for n, day in enumerate(days[:-1]):
        store.partitions.create(lake.orders, day, values={})
        store.statistics.set(lake.orders, {"custom-rows": n}, partition=day)
    session = store._session
    noting: Any = Noting(session.backend)
    session.backend = noting
    expected = {day: {"custom-rows": n} for n, day in enumerate(days[:-1])}
    for table in ("lake.sales.eu.orders", lake.orders):
        noting.asked.clear()
        assert store.statistics.of_partitions(table, [*days, days[0]]) == expected
        assert noting.asked == ["owning"]
    session.backend = noting._backend
    with store.transaction() as tx:
        tx.partitions.create(lake.orders, days[-1], values={})
        tx.statistics.set(lake.orders, {"custom-rows": 29}, partition=days[-1])
        assert tx.statistics.of_partitions(lake.orders, days[-2:]) == {
            days[-2]: {"custom-rows": 28},
            days[-1]: {"custom-rows": 29},
        }
    then = store.position()
    store.statistics.set(lake.orders, {"custom-rows": 0}, partition=days[0])
    assert store.at(then).statistics.of_partitions(lake.orders, days[:1]) == {days[0]: {"custom-rows": 0}}


def test_the_statistics_of_partitions_of_what_is_not_there(lake: Lake) -> None:
    store = lake.store
    view = store.views.create("lake.sales.eu.v", representations=[ms.SQL("spark", "SELECT 1")])
    dropped = store.tables.load("lake.sales.eu.t1")
    store.tables.drop(dropped)
    for table in ("lake.sales.eu.t1", "lake.sales.eu.v", dropped):
        with pytest.raises(ms.EntityNotFound):
            store.statistics.of_partitions(table, ["p"])
    with pytest.raises(ms.InvalidArgument):
        store.statistics.of_partitions(view, ["p"])
    lake.reader()
    ann = store.as_user("ann@corp")
    assert ann.statistics.of_partitions(lake.orders, ["p"]) == {}
    for hidden in ("lake.hr.people.salaries", lake.salaries):
        with pytest.raises(ms.EntityNotFound):
            ann.statistics.of_partitions(hidden, ["p"])
