"""What a cached store answers, beside one without: the same; and what it never does."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import pytest

import metastore as ms
from metastore.cache.entries import Entries
from metastore.cache.entry import entry_of, listing_of
from metastore.kinds.entity import Entity
from metastore.operation.session import Listed
from metastore.port.touched import Touch


@pytest.fixture
def cached(url: str) -> Iterator[ms.Store]:
    with ms.open(url, cache=ms.Cache("validate")) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational", fold_case=True)
        store.tables.create("lake.c.s.t", parents=True, columns=[ms.Column("a", "int")])
        yield store


def test_a_second_read_is_the_same_entity(cached: ms.Store) -> None:
    cached.tables.load("lake.c.s.t")
    first = cached.tables.load("lake.c.s.t")
    assert cached.tables.load("lake.c.s.t") is first
    assert cached.tables.load(first) == first
    assert cached.tables.load(first) is cached.tables.load(first)
    assert cached.tables.alter(first, ms.AddColumn("b", "string")).version == 2
    assert [c.name for c in cached.tables.load("lake.c.s.t").columns] == ["a", "b"]
    assert cached.tables.load(first).version == 2
    assert cached.metrics().cache == cached.cache.stats() != ms.CacheStats()
    assert cached.tables.load("lake.c.s.t", version=1).version == 1


def test_errors_are_those_of_the_database(cached: ms.Store) -> None:
    for path in ("lake.c.s.none", "lake.c.none.t", "lake.none.s.t"):
        said = set()
        for _ in range(3):
            with pytest.raises(ms.EntityNotFound) as raised:
                cached.tables.load(path)
            said.add(str(raised.value))
        assert len(said) == 1
    with ms.open(str(cached._url.render_as_string(hide_password=False))) as plain:
        with pytest.raises(ms.EntityNotFound) as raised:
            plain.tables.load("lake.none.s.t")
        assert said == {str(raised.value)}
    table = cached.tables.load("lake.c.s.t")
    with pytest.raises(ms.InvalidArgument):
        cached.schemas.load(table)


def test_a_negative_answer_ends_in_a_catalog_that_folds_case(cached: ms.Store) -> None:
    assert [cached.tables.exists("lake.c.s.STRASSE") for _ in range(3)] == [False] * 3
    cached.tables.create("lake.c.s.stra\u00dfe")
    assert cached.tables.exists("lake.c.s.STRASSE")
    cached.tables.drop("lake.c.s.Strasse")
    assert not cached.tables.exists("lake.c.s.STRASSE")
    cached.tables.restore("lake.c.s.strasse")
    assert cached.tables.exists("lake.c.s.STRASSE")


def test_many_are_of_one_instant(cached: ms.Store) -> None:
    paths = ["lake.c.s.t", "lake.c.s.none"]
    for path in paths * 2:
        cached.tables.exists(path)
    before = cached.cache.stats().hits
    table, none = cached.tables.load_many(paths)
    assert table is not None
    assert none is None
    assert cached.cache.stats().hits == before + 2
    cached.tables.rename("lake.c.s.t", "none")
    assert [found and found.name for found in cached.tables.load_many(paths)] == [None, "none"]


def test_disabling_a_catalog_is_seen_below(cached: ms.Store) -> None:
    for _ in range(2):
        assert cached.tables.load("lake.c.s.t").record.chain[1].in_use
    cached.catalogs.disable("lake.c")
    assert not cached.tables.load("lake.c.s.t").record.chain[1].in_use


def test_a_transaction_and_a_user_read_the_database(cached: ms.Store) -> None:
    for _ in range(2):
        cached.tables.load("lake.c.s.t")
    before = cached.cache.stats()
    with cached.transaction() as tx:
        assert tx.tables.load("lake.c.s.t").version == 1
        tx.tables.alter("lake.c.s.t", ms.SetComment("tx"))
        assert tx.tables.load("lake.c.s.t").comment == "tx"
        assert cached.tables.load("lake.c.s.t").comment is None
    assert cached.cache.stats().misses == before.misses
    assert cached.tables.load("lake.c.s.t").comment == "tx"
    with pytest.raises(ms.EntityNotFound):
        cached.as_user("nobody").tables.load("lake.c.s.t")


def test_it_keeps_its_bounds(url: str) -> None:
    with ms.open(url, cache=ms.Cache("validate", max_entries=5)) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        store.schemas.create("lake.c.s")
        store.tables.create_many("lake.c.s", [{"name": f"t{n}"} for n in range(20)])
        for n in range(20):
            store.tables.load(f"lake.c.s.t{n}")
        stats = store.cache.stats()
        assert stats.entries == 5
        assert stats.evictions >= 14
        table = store.tables.load("lake.c.s.t1")
    entries = Entries(100, 10_000)
    for n in range(10):
        entries.put(n, entry_of(table, (), 0))
    assert 0 < entries.bytes <= 10_000
    kept = len(entries)
    entries.evict(Touch(1, table.id, "alter", table.path))
    assert len(entries) == 0
    assert entries.evictions == 10
    assert kept < 10
    assert not entries._of
    assert not entries._below
    assert isinstance(table, Entity)


def test_a_store_without_a_cache_shows_zeros(url: str) -> None:
    with ms.open(url) as store:
        assert store.cache.stats() == ms.CacheStats()
        assert store.metrics().cache is None
        assert store.cache.members() == ()
        assert store._session.cache is None


@pytest.mark.parametrize("mode", ["other", None, 1])
def test_what_is_not_there_is_refused(url: str, mode: Any) -> None:
    with pytest.raises(ms.InvalidArgument):
        ms.open(url, cache=ms.Cache(mode))
    with pytest.raises(ms.InvalidArgument):
        ms.open(url, cache=cast(Any, "validate"))
    if url.startswith("sqlite"):
        with pytest.raises(ms.InvalidArgument, match="PostgreSQL"):
            ms.open(url, cache=ms.Cache("lease"))
    for options in ({"max_entries": 0}, {"ttl": -1}, {"when_fenced": "never"}, {"max_bytes": 0}):
        with pytest.raises(ms.InvalidArgument):
            ms.Cache("validate", **options)
    with pytest.raises(ms.InvalidArgument, match=r"0\.1 s at least"):
        ms.Cache("lease", ttl=0.09)
    assert ms.Cache("lease", ttl=0.1).ttl == 0.1


def _in_child(store: ms.Store, pipe: multiprocessing.connection.Connection) -> None:
    before = store.cache.stats()
    pipe.send((store.tables.load("lake.c.s.t").comment, store.cache.stats().entries, before.hits + before.misses))
    pipe.recv()
    pipe.send(store.tables.load("lake.c.s.t").comment)


def test_a_forked_child_begins_with_nothing(cached: ms.Store) -> None:
    for _ in range(2):
        cached.tables.load("lake.c.s.t")
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_in_child, args=(cached, there))
    child.start()
    comment, entries, counted = here.recv()
    assert comment is None
    assert entries <= 1
    assert counted == 0, "the parent's figures are not the child's"
    cached.tables.alter("lake.c.s.t", ms.SetComment("new"))
    here.send("go")
    assert here.recv() == "new"
    child.join(30)


def _changes(value: Any) -> list[Callable[[], object]]:
    """Return calls that change each object and each list in a JSON value."""
    if isinstance(value, dict):
        below = [change for one in value.values() for change in _changes(one)]
        return [partial(value.update, k="poison"), partial(value.__setitem__, "k", "poison"), *below]
    if isinstance(value, list):
        below = [change for one in value for change in _changes(one)]
        return [partial(value.append, "poison"), partial(value.__setitem__, slice(0, 0), ["poison"]), *below]
    return []


def test_no_caller_can_change_what_the_cache_keeps(cached: ms.Store) -> None:
    cached.tables.create("lake.c.s.wide", columns=[ms.Column("a", "struct<b: int>")], properties={"k": "v"})
    cached.policies.create("lake.p", type="custom", content={"custom_rules": {"rows": [1, {"a": [2]}]}})
    loads: list[Callable[[], Entity]] = [
        lambda: cached.tables.load("lake.c.s.wide"),
        lambda: cached.policies.load("lake.p"),
    ]
    for load in loads:
        entity = load()
        before = json.dumps(entity.doc)
        fields = [getattr(entity, name) for name in (*type(entity).doc_fields, "properties", "doc")]
        changes = [change for field in fields for change in _changes(field)]
        assert len(changes) > 2
        for change in changes:
            with pytest.raises(TypeError, match="cannot be changed"):
                change()
        assert load() is entity
        assert json.dumps(load().doc) == before
        assert json.loads(before) == entity.doc == pickle.loads(pickle.dumps(entity.doc))


def test_exists_takes_a_path_only_with_and_without_a_cache(cached: ms.Store, store: ms.Store) -> None:
    for one in (cached, store):
        table = one.tables.create("lake.c.s.there", if_exists="return")
        assert one.tables.load(table) == one.tables.load("lake.c.s.there")
        with pytest.raises(ms.InvalidArgument):
            one.tables.exists(table)  # type: ignore[arg-type]


def test_long_names_of_a_listing_are_weighed() -> None:
    """A kept page takes at most about what it is counted for."""
    names = tuple([f"{n:0>200}" for n in range(50)])
    assert listing_of(Listed((), names, None)).size > sum(map(sys.getsizeof, names))
    tables = tuple([f"{n}" for n in range(50)])
    assert listing_of(Listed((), tables, None)).size < listing_of(Listed((), names, None)).size - 50 * 190
