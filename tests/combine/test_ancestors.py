"""Paths whose ancestors another process has renamed, swapped, or made again: what a member knows is its own.

A request that knows where a path led before the rename, and one that knows it after, travel in one batch. Neither
vouches for the other: each is answered as if it were alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

import metastore as ms
from metastore import Store
from metastore.port.batches import Batch
from tests.combine.gate import batches_of, held, lanes, together

S, OLD, NEW = "lake.c.s", "lake.c.s_old", "lake.c.s_new"
Call = Callable[[], Any]


@pytest.fixture
def other(store: Store, url: str) -> Iterator[Store]:
    """Open the store of another process. Beside ``lake.c.s`` there is ``s_new``, with tables of the same names."""
    with ms.open(url, principal="other") as opened:
        opened.schemas.create(NEW)
        opened.tables.create_many(NEW, [{"name": f"t{n}", "comment": "new"} for n in range(8)])
        opened.tables.create(f"{S}.only")
        for schema in (S, NEW):  # where each led is known from here on
            store.tables.load(f"{schema}.t0")
        yield opened


def swap(other: Store) -> None:
    """Let the new schema take the old one's place, as in a blue-green deployment."""
    other.schemas.rename(S, "s_old")
    other.schemas.rename(NEW, "s")


def learn(store: Store, *schemas: str) -> None:
    """Let a process see where these paths lead now, and no others."""
    for schema in schemas:
        store.tables.exists(f"{schema}.t0")


def put(store: Store, path: str, key: str) -> Call:
    return lambda: store.tables.alter(path, ms.SetProperty(key, "1"))


def where(one: Any) -> str:
    """Return where an answer is, or the name of its error."""
    return one.path if isinstance(one, ms.Entity) else type(one).__name__ if isinstance(one, Exception) else str(one)


def test_reads_of_one_batch_after_a_swap(store: Store, other: Store) -> None:
    reads, _ = lanes(store)
    swap(other)
    learn(store, OLD)
    calls: list[Call] = [lambda path=path: store.tables.load(path) for path in (f"{S}.t1", f"{OLD}.t1", f"{NEW}.t1")]  # type: ignore[misc]
    calls += [lambda path=path: store.tables.exists(path) for path in (f"{S}.only", f"{OLD}.only", f"{NEW}.only")]  # type: ignore[misc]
    with batches_of(reads) as sizes:
        found = together(reads, calls)
    assert sizes[0] == 6
    assert [(where(one), getattr(one, "comment", None)) for one in found[:3]] == [
        (f"{S}.t1", "new"),
        (f"{OLD}.t1", None),
        ("EntityNotFound", None),
    ]
    assert found[3:] == [False, True, False]


@pytest.mark.parametrize("above", ["schema", "catalog", "metalake"])
def test_reads_below_an_ancestor_that_was_renamed(store: Store, other: Store, above: str) -> None:
    reads, _ = lanes(store)
    renames: dict[str, Call] = {
        "schema": lambda: other.schemas.rename(S, "q"),
        "catalog": lambda: other.catalogs.rename("lake.c", "q"),
        "metalake": lambda: other.metalakes.rename("lake", "q"),
    }
    renames[above]()
    now = {"schema": "lake.c.q", "catalog": "lake.q.s", "metalake": "q.c.s"}[above]
    learn(store, now)
    calls: list[Call] = [lambda path=path: store.tables.load(path) for path in (f"{S}.t1", f"{now}.t1")]  # type: ignore[misc]
    calls += [lambda: store.tables.exists(f"{S}.t2"), lambda: store.tables.exists(f"{now}.t2")]
    found = together(reads, calls)
    assert [where(one) for one in found] == ["EntityNotFound", f"{now}.t1", "False", "True"]
    for path in (f"{S}.t1", f"{now}.t1"):
        assert [where(one) for one in store.tables.load_many([path])] == [
            f"{now}.t1" if path.startswith(now) else "None"
        ]


def test_reads_below_an_ancestor_that_was_made_again(store: Store, other: Store) -> None:
    reads, _ = lanes(store)
    other.schemas.drop(S, cascade=True)
    other.schemas.create(S)
    other.tables.create(f"{S}.t1", comment="again")
    calls: list[Call] = [lambda: store.tables.load(f"{S}.t1"), lambda: store.tables.exists(f"{S}.t2")]
    calls += [lambda: store.tables.load(f"{NEW}.t1"), lambda: store.tables.exists(f"{S}.only")]
    found = together(reads, calls)
    assert [getattr(one, "comment", one) for one in found] == ["again", False, "new", False]


def test_a_path_that_leads_nowhere_any_more_is_forgotten(
    store: Store, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    other.schemas.rename(S, "s_old")
    assert not store.tables.exists(f"{S}.t1")  # alone: it learns that nothing is there
    reads, _ = lanes(store)
    asked: list[int] = []
    backend: Any = store._session.backend
    monkeypatch.setattr(backend, "find_below", lambda wanted: asked.append(len(wanted)))
    with held(reads), ThreadPoolExecutor(2) as pool:
        assert list(pool.map(store.tables.exists, [f"{S}.t1", f"{S}.t2"])) == [False, False]
    assert asked == []  # they wait for no batch: a batch could not look below a path that leads nowhere


@pytest.mark.parametrize("first", ["old knowledge", "new knowledge"])
def test_alters_of_one_batch_after_a_swap(store: Store, other: Store, first: str) -> None:
    _, writes = lanes(store)
    swap(other)
    learn(store, OLD)
    calls = [put(store, f"{S}.t1", f"k{n}") for n in range(4)] + [put(store, f"{OLD}.t1", f"o{n}") for n in range(2)]
    calls += [put(store, f"{NEW}.t1", "none"), put(store, f"{S}.only", "none"), put(store, f"{OLD}.only", "k")]
    wanted = [*[f"{S}.t1"] * 4, *[f"{OLD}.t1"] * 2, *["EntityNotFound"] * 2, f"{OLD}.only"]
    order = range(len(calls)) if first == "old knowledge" else range(len(calls) - 1, -1, -1)
    found = together(writes, [calls[n] for n in order])
    assert [where(one) for one in found] == [wanted[n] for n in order]
    assert set(other.tables.load(f"{S}.t1").properties) == {f"k{n}" for n in range(4)}
    assert set(other.tables.load(f"{OLD}.t1").properties) == {"o0", "o1"}
    assert other.verify() == []


def test_drops_and_renames_of_one_batch_after_a_swap(store: Store, other: Store) -> None:
    _, writes = lanes(store)
    swap(other)
    learn(store, OLD)
    calls: list[Call] = [lambda path=path: store.tables.drop(path) for path in (f"{S}.only", f"{OLD}.only")]  # type: ignore[misc]
    calls += [lambda path=path: store.tables.rename(path, "r") for path in (f"{S}.t1", f"{OLD}.t1", f"{NEW}.t1")]  # type: ignore[misc]
    calls += [lambda: store.tables.drop(f"{S}.t2"), lambda: store.tables.drop(f"{NEW}.t2")]
    calls += [lambda: store.tables.create(f"{S}.made"), lambda: store.tables.create(f"{NEW}.made")]
    found = together(writes, calls)
    assert [where(one) for one in found] == [
        *("False", "True", f"{S}.r", f"{OLD}.r", "EntityNotFound", "True", "False", f"{S}.made", "EntityNotFound"),
    ]
    assert other.tables.load(f"{S}.r").comment == "new"
    assert other.tables.load(f"{OLD}.r").comment is None
    assert (other.tables.exists(f"{S}.t2"), other.tables.exists(f"{OLD}.t2")) == (False, True)
    assert other.verify() == []


def test_paths_that_moved_are_followed_in_one_message(
    store: Store, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside constant renames each request that went alone would find its path outdated once more."""
    reads, writes = lanes(store)
    backend: Any = store._session.backend
    calls: list[tuple[Any, Callable[[str], Any]]] = [
        (reads, store.tables.load),
        (writes, lambda path: store.tables.alter(path, ms.SetComment("x"))),
    ]
    for lane, call in calls:
        other.schemas.rename(S, "q")
        other.schemas.rename("lake.c.q", "s")
        with monkeypatch.context() as patch:
            resolve = Mock(wraps=backend.resolve)
            patch.setattr(backend, "resolve", resolve)
            found = together(lane, [partial(call, f"{S}.t{n}") for n in range(5)])
        assert [where(one) for one in found] == [f"{S}.t{n}" for n in range(5)]
        assert [len(asked.args[0]) for asked in resolve.call_args_list] == [5]


def test_a_batch_after_a_swap_of_an_older_one(store: Store, other: Store) -> None:
    """What the last batch left behind was below a path that leads elsewhere now."""
    _, writes = lanes(store)
    together(writes, [put(store, f"{S}.t1", f"k{n}") for n in range(3)])
    swap(other)
    learn(store, OLD)
    found = together(writes, [put(store, f"{S}.t1", "a"), put(store, f"{OLD}.t1", "b"), put(store, f"{S}.t1", "c")])
    assert [where(one) for one in found] == [f"{S}.t1", f"{OLD}.t1", f"{S}.t1"]
    assert set(other.tables.load(f"{S}.t1").properties) == {"a", "c"}
    assert set(other.tables.load(f"{OLD}.t1").properties) == {"k0", "k1", "k2", "b"}


def test_a_batch_after_renames_of_its_tables(store: Store, other: Store) -> None:
    """The last batch altered t1 by its path and by an entity in hand: each knows another name of it."""
    _, writes = lanes(store)
    together(writes, [put(store, f"{S}.t1", "a"), put(store, f"{S}.t1", "b")])  # the next batch begins with this
    other.tables.rename(f"{S}.t1", "away")
    in_hand = other.tables.load(f"{S}.away")
    mine = store.tables.load(f"{S}.away")
    assert mine == in_hand
    calls = [put(store, f"{S}.t1", "none"), lambda: store.tables.alter(mine, ms.SetProperty("c", "1"))]
    calls += [put(store, f"{S}.away", "d")]
    found = together(writes, calls)
    assert [where(one) for one in found] == ["EntityNotFound", f"{S}.away", f"{S}.away"]
    assert set(other.tables.load(f"{S}.away").properties) == {"a", "b", "c", "d"}
    found = together(writes, [put(store, f"{S}.t1", "none"), put(store, f"{S}.away", "e")])
    assert [where(one) for one in found] == ["EntityNotFound", f"{S}.away"]


def test_a_rename_returns_what_was_committed(store: Store, other: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process's alter makes the version that the batch expects of its own: the batch's alter is lost."""
    _, writes = lanes(store)
    backend: Any = store._session.backend
    original = backend.write_together

    def overtaken(batch: Batch, patience: int) -> Any:
        monkeypatch.setattr(backend, "write_together", original)
        other.tables.alter(f"{S}.t1", ms.SetProperty("theirs", "1"))
        return original(batch, patience)

    monkeypatch.setattr(backend, "write_together", overtaken)
    calls: list[Call] = [put(store, f"{S}.t1", "mine"), lambda: store.tables.rename(f"{S}.t1", "r")]
    altered, renamed = together(writes, calls)
    history = list(other.tables.history(f"{S}.r"))
    shown = {one.version: one.entity for one in history}
    for one in (altered, renamed):
        if isinstance(one, ms.Entity):
            past: Any = shown[one.version]
            assert (one.path, one.properties) == (past.path, past.properties)
    assert isinstance(renamed, ms.Entity)
    assert [one.action for one in history][:2] == ["create", "alter"]
    assert other.verify() == []


@pytest.mark.parametrize("page", ["page", "names_page"])
@pytest.mark.parametrize("kind", ["swap", "rename"])
def test_the_first_page_of_a_schema_that_moves_meanwhile(
    store: Store, other: Store, page: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the path and the page, another process renames the schema."""
    backend: Any = store._session.backend
    name = "children" if page == "page" else "names"
    original = getattr(backend, name)

    def late(*arguments: Any) -> Any:
        monkeypatch.setattr(backend, name, original)
        swap(other) if kind == "swap" else other.schemas.rename(S, "s_old")
        return original(*arguments)

    monkeypatch.setattr(backend, name, late)
    ask = getattr(store.tables, page)
    if kind == "rename":
        with pytest.raises(ms.EntityNotFound):
            ask(S, size=3)
    else:
        first = ask(S, size=3)
        assert [getattr(one, "name", one) for one in first.items] == ["t0", "t1", "t2"]
        assert all(getattr(one, "comment", "new") == "new" for one in first.items)
        rest = ask(S, size=9, token=first.next_token)
        assert [getattr(one, "name", one) for one in rest.items] == [f"t{n}" for n in range(3, 8)]


def test_tasks_that_ask_the_old_path_and_the_new(store: Store, other: Store, url: str) -> None:
    """As a service sees it: nothing is arranged, the tasks only wait at the same time."""

    async def ask() -> tuple[list[Any], list[Any]]:
        opened = await ms.open_async(url)
        try:
            await opened.tables.load(f"{S}.t1")
            swap(other)
            paths = (f"{S}.t1", f"{OLD}.t1") * 8
            await opened.tables.exists(f"{OLD}.t1")
            loaded = await asyncio.gather(*[opened.tables.load(path) for path in paths])
            altered = await asyncio.gather(
                *[opened.tables.alter(path, ms.SetProperty(f"k{n}", "1")) for n, path in enumerate(paths)]
            )
            return loaded, altered
        finally:
            await opened.close()

    loaded, altered = asyncio.run(ask())
    assert {(one.path, one.comment) for one in loaded} == {(f"{S}.t1", "new"), (f"{OLD}.t1", None)}
    assert [one.path for one in altered] == [f"{S}.t1", f"{OLD}.t1"] * 8
    assert set(other.tables.load(f"{S}.t1").properties) == {f"k{n}" for n in range(0, 16, 2)}
    assert set(other.tables.load(f"{OLD}.t1").properties) == {f"k{n}" for n in range(1, 16, 2)}


def test_a_create_below_an_outdated_path_loses_one_batch(store: Store, other: Store) -> None:
    _, writes = lanes(store)
    store.tables.create(f"{S}.first")  # its parents are remembered
    swap(other)
    calls: list[Call] = [lambda n=n: store.tables.create(f"{S}.n{n}") for n in range(3)]  # type: ignore[misc]
    found = together(writes, calls)
    assert [where(one) for one in found] == [f"{S}.n{n}" for n in range(3)]
    assert store.metrics().conflicts == {"create": {"name": 3}}
    assert [other.tables.load(f"{S}.n{n}").id for n in range(3)] == [one.id for one in found]
