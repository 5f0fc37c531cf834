"""The change feed of a user who sees little of it: it goes on past what is hidden, and reads that once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise

import pytest

import metastore as ms
from metastore import Store
from metastore.clock import Clock
from tests.contract.authorized import Lake, prepare
from tests.governance.test_read_after_revoked import Between

SCHEMA = "lake.sales.eu"
HIDDEN = "lake.hr.people.salaries"


@dataclass(frozen=True)
class _Acting(Clock):
    """A clock on which the next thing happens when somebody waits; at the end, a day has passed."""

    happens: list[Callable[[], object]] = field(default_factory=list)
    late: list[bool] = field(default_factory=list)

    def monotonic(self) -> float:
        return super().monotonic() + 86_400.0 * len(self.late)

    def sleep(self, seconds: float) -> None:
        if self.happens:
            self.happens.pop(0)()
        else:
            self.late.append(True)


@pytest.fixture
def lake() -> Iterator[Lake]:
    """Give the lake, in which ann reads sales; much happens in hr."""
    with ms.open("memory://") as store:
        made = prepare(store)
        made.reader()
        yield made


def _busy(store: Store, count: int = 30) -> None:
    """Change what ann does not see."""
    for n in range(count):
        store.tables.alter(HIDDEN, ms.SetComment(str(n)))


def _counted(store: Store) -> Between:
    """Count what the store is asked from now on."""
    between = store._session.backend = Between(store._session.backend)
    between.let_go_first(-1, lambda: None)
    return between


def _collect(store: Store) -> None:
    store.gc(retention=timedelta(0), keep_versions=1)


def _acting(store: Store, *happens: Callable[[], object]) -> None:
    store._session.clock = _Acting(happens=list(happens))


def test_a_follower_that_is_up_to_date_is_so_when_gc_has_removed_what_it_does_not_see(lake: Lake) -> None:
    store = lake.store
    begin = store.position()
    ann_clock = (lambda: _busy(store), lambda: None, lambda: _collect(store), lambda: None)
    seen = lambda: store.tables.alter(lake.orders, ms.SetComment("seen"))  # noqa: E731
    _acting(store, *ann_clock, seen)
    changes = list(store.as_user("ann@corp").changes(after=begin, follow=True, timeout=60.0))
    assert [change.path_after for change in changes] == [f"{SCHEMA}.orders"]


def test_a_follower_reads_hidden_changes_once(lake: Lake) -> None:
    store = lake.store
    begin = store.position()
    _busy(store)
    counted = _counted(store)
    asked: list[int] = []
    _acting(store, *[lambda: asked.append(counted.asked)] * 6)
    assert not list(store.as_user("ann@corp").changes(after=begin, follow=True, timeout=60.0))
    costs = {after - before for before, after in pairwise(asked)}
    assert costs == {3}  # the start of the feed, the change at the position, and the feed, which is at its end


@pytest.mark.parametrize("kinds", [None, ["table"]])
def test_an_entity_is_followed_through_renames_that_the_user_does_not_see(lake: Lake, kinds: list[str] | None) -> None:
    """The schema was below a catalog that ann does not see; its table has a past there."""
    store = lake.store
    store.catalogs.create("lake.old", type="relational")
    schema = store.schemas.create("lake.old.s")
    table = store.tables.create("lake.old.s.t")
    begin = store.position()
    store.catalogs.rename("lake.old", "older")
    store.tables.alter(table, ms.SetComment("there"))
    store.schemas.rename(schema, "lake.sales.s")
    store.tables.alter(table, ms.SetComment("here"))
    ann = store.as_user("ann@corp")
    mine = [c for c in ann.changes(after=begin, under=schema, kinds=kinds) if c.kind == "table"]
    assert [c.path_after for c in mine] == ["lake.older.s.t", "lake.sales.s.t"]


@pytest.mark.parametrize("limit", [1, 5])
def test_a_limit_does_not_make_hidden_changes_cost_more(lake: Lake, limit: int) -> None:
    store = lake.store
    begin = store.position()
    _busy(store, 100)
    store.tables.alter(lake.orders, ms.SetComment("seen"))
    counted = _counted(store)
    ann = store.as_user("ann@corp")
    assert [c.path_after for c in ann.changes(after=begin, limit=limit)] == [f"{SCHEMA}.orders"]
    assert counted.asked <= 8
    for n in range(limit + 1):
        store.tables.alter(lake.orders, ms.SetComment(f"seen {n}"))
    assert len(list(ann.changes(after=begin, limit=limit))) == limit


def test_pages_without_a_change_that_the_user_sees_do_not_count_towards_a_limit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metastore.feed.feed._PAGE", 4)
    begin = lake.store.position()
    _busy(lake.store, 20)
    lake.store.tables.alter(lake.orders, ms.SetComment("seen"))
    (seen,) = lake.store.as_user("ann@corp").changes(after=begin, limit=1)
    assert seen.path_after == f"{SCHEMA}.orders"


def test_pages_of_a_user_end_and_go_on_behind_what_is_hidden(lake: Lake) -> None:
    store = lake.store
    begin: str | None = store.position()
    for _ in range(2):
        _busy(store, 520)
        store.tables.alter(lake.orders, ms.SetComment(str(store.position())))
    everything = [c.position for c in store.changes(after=begin) if c.entity_id == lake.orders.id]
    ann, found, pages = store.as_user("ann@corp"), list[str](), 0
    while begin is not None:
        page = ann.changes_page(after=begin, size=2)
        found += [change.position for change in page.items]
        begin, pages = page.next_token, pages + 1
    assert found == everything
    assert 2 <= pages <= 5
