"""A search below a path, whose container is renamed meanwhile: what it returns is below that path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import metastore as ms
from metastore.managers import find as searching
from metastore.managers import find_page as paging
from tests.contract.ground import Ground

Act = Callable[[], object]
Search = Callable[..., Sequence[ms.Entity]]
"""Search below m.c.one for a name; call one function before the container is first read, and another one after."""


@pytest.fixture(params=["find", "find_page"])
def search(request: pytest.FixtureRequest, ground: Ground, monkeypatch: pytest.MonkeyPatch) -> Search:
    def by_find(before: Act, name: str, after: Act = bool) -> Sequence[ms.Entity]:
        read, waiting = searching._found, [after]

        def between(*arguments: Any) -> Iterator[ms.Entity]:
            yield from read(*arguments)
            while waiting:
                waiting.pop()()

        monkeypatch.setattr(searching, "_found", between)
        found = ground.store.find("m.c.one", name=name)
        before()
        return list(found)

    def by_page(before: Act, name: str, after: Act = bool) -> Sequence[ms.Entity]:
        read, waiting = paging._find_page, [after, before]

        def between(*arguments: Any) -> paging.FoundPage:
            if waiting:
                waiting.pop()()
            page = read(*arguments)
            while waiting:
                waiting.pop()()
            return page

        monkeypatch.setattr(paging, "_find_page", between)
        return ground.store.find_page("m.c.one", name=name).items

    return by_find if request.param == "find" else by_page


def swap(store: ms.Store) -> None:
    with store.transaction() as tx:
        tx.schemas.rename("m.c.one", "kept")
        tx.schemas.rename("m.c.two", "one")
        tx.schemas.rename("m.c.kept", "two")


def test_the_container_that_has_the_path_is_searched(ground: Ground, search: Search) -> None:
    other = ground.store.tables.create("t", parent=ground.two)
    (found,) = search(lambda: swap(ground.store), "t")
    assert (found.id, found.path) == (other.id, "m.c.one.t")


def test_an_empty_answer_is_of_the_container_that_has_the_path(ground: Ground, search: Search) -> None:
    other = ground.store.tables.create("only", parent=ground.two)
    assert [(one.id, one.path) for one in search(lambda: swap(ground.store), "only")] == [(other.id, "m.c.one.only")]


def test_a_container_that_took_the_path_of_a_dropped_one(ground: Ground, search: Search) -> None:
    other = ground.store.tables.create("t", parent=ground.two)

    def replaced() -> None:
        with ground.store.transaction() as tx:
            tx.schemas.drop("m.c.one", cascade=True)
            tx.schemas.rename("m.c.two", "one")

    assert [one.id for one in search(replaced, "t")] == [other.id]


def test_a_container_that_was_dropped_and_restored(ground: Ground, search: Search) -> None:
    schemas = ground.store.schemas
    found = search(lambda: schemas.drop("m.c.one", cascade=True), "t", lambda: schemas.restore("m.c.one"))
    assert [one.path for one in found] == ["m.c.one.t"]


def test_a_path_that_leads_nowhere_any_more(ground: Ground, search: Search) -> None:
    with pytest.raises(ms.EntityNotFound):
        search(lambda: ground.store.schemas.rename("m.c.one", "uno"), "t")


def test_an_entity_in_hand_is_searched_wherever_it_is(ground: Ground) -> None:
    found = ground.store.find(ground.one)
    ground.store.schemas.rename("m.c.one", "uno")
    assert [one.path for one in found] == ["m.c.uno.t"]
    assert [one.path for one in ground.store.find_page(ground.one).items] == ["m.c.uno.t"]


def test_a_rename_after_the_first_page(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "_PAGE", 2)
    for n in range(5):
        ground.store.tables.create(f"t{n}", parent=ground.one)
    found = ground.store.find("m.c.one", kind="table")
    next(found)
    swap(ground.store)
    with pytest.raises(ms.EntityNotFound, match="search again"):
        list(found)


def _after_each_read(monkeypatch: pytest.MonkeyPatch, act: Act) -> list[int]:
    """Call ``act`` after each search for the container's entities; return the list that gets an item for each."""
    reads, read, page_of = list[int](), searching._found, paging._find_page

    def found(*arguments: Any) -> Iterator[ms.Entity]:
        yield from read(*arguments)
        reads.append(1)
        act()

    def page(*arguments: Any) -> paging.FoundPage:
        one = page_of(*arguments)
        reads.append(1)
        act()
        return one

    monkeypatch.setattr(searching, "_found", found)
    monkeypatch.setattr(paging, "_find_page", page)
    return reads


@pytest.mark.parametrize("method", ["find", "find_page"])
def test_freezes_do_not_make_a_search_begin_again_for_ever(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def freeze() -> None:
        with ground.store.schemas.exclusive("m.c.one"):
            pass

    reads = _after_each_read(monkeypatch, freeze)
    search = getattr(ground.store.bind(deadline=5.0), method)
    found = search("m.c.one", name="nowhere")
    assert list(found if method == "find" else found.items) == []
    assert len(reads) == 2


@pytest.mark.parametrize("method", ["find", "find_page"])
def test_a_container_that_comes_back_after_each_search(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def comes_back() -> None:
        if len(reads) <= 3:
            ground.store.schemas.drop("m.c.one", cascade=True)
            ground.store.schemas.restore("m.c.one")

    reads = _after_each_read(monkeypatch, comes_back)
    found = getattr(ground.store, method)("m.c.one", name="nowhere")
    assert list(found if method == "find" else found.items) == []
    assert len(reads) == 4
