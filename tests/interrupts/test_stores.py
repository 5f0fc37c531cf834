"""A store goes on after an error between any two lines of its cache, its pool, or its deadlines.

One store meets all of them, one after the other, in reads that ask, keep, evict, and answer from memory. Then it says
what another store says, which reads the database.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

import metastore as ms
import metastore.backends.postgres.connect
import metastore.backends.sqlite.connect
import metastore.block
import metastore.cache
import metastore.deadlines
from tests.interrupts.raising import Raising

CACHE = frozenset(str(file) for file in Path(metastore.cache.__file__).parent.glob("*.py"))
POOL = frozenset(
    str(module.__file__)
    for module in (
        metastore.backends.postgres.connect,
        metastore.backends.sql.pool,
        metastore.backends.sqlite.connect,
        metastore.backends.sqlite.forks,
        metastore.block,
        metastore.deadlines,
    )
)
DRIVER = frozenset(str(module.__file__) for module in (psycopg.connection, psycopg._pipeline, psycopg._pipeline_base))
NAMES = ["a", "b", "c", "d", "e"]


def _seed(store: ms.Store) -> None:
    store.metalakes.create("lake")
    store.catalogs.create("lake.c", type="relational")
    for name in NAMES:
        store.tables.create(f"lake.c.s.{name}", parents=True)


def _change(store: ms.Store, number: int) -> None:
    """Change something that the other store keeps: a table, its absence, or what is above it."""
    name = NAMES[number % len(NAMES)]
    store.tables.alter(f"lake.c.s.{name}", ms.SetComment(str(number)))
    if number % 4 == 0:
        store.tables.drop("lake.c.s.new")
    elif number % 4 == 2:
        store.tables.create("lake.c.s.new", if_exists="return")
    if number % 7 == 0:
        store.schemas.rename("lake.c.s", "s2")
        store.schemas.rename("lake.c.s2", "s")


def _read(store: ms.Store) -> list[Any]:
    """Read tables alone and together, and names that may not be there."""
    paths = [f"lake.c.s.{name}" for name in NAMES]
    tables = [*[store.tables.load(path) for path in paths[:3]], *store.tables.load_many(paths[2:])]
    names = ["lake.c.s.new", "lake.c.s2.a", "lake.x.s.a"]
    return [*[t and (t.id, t.version, t.comment) for t in tables], *[store.tables.exists(name) for name in names]]


def _everywhere(
    cached: ms.Store, other: ms.Store, code: frozenset[str], error: type[BaseException], places: Iterable[int]
) -> None:
    """Let some lines of a read meet the error, until a read has no such line."""
    kept: list[BaseException] = []
    for at in places:
        _change(other, at)
        raising = Raising(code, at, error)
        try:
            raising.run(lambda: _read(cached))
        except error as met:  # kept, with its frames: a notebook keeps the last one, a task queue all
            kept.append(met)
        for _ in range(2):
            assert _read(cached) == _read(other), f"after an error at line {at}"
        if raising.left:
            assert at > 100
            assert cached.cache.stats().hits > 0
            return


def _validates(url: str, code: frozenset[str], error: type[BaseException], places: Iterable[int]) -> None:
    with ms.open(url) as other, ms.open(url, cache=ms.Cache("validate", max_entries=6), pool_size=2) as cached:
        _seed(other)
        _everywhere(cached, other, code, error, places)
        pool = cached.metrics().pool
        assert pool is not None
        assert (pool.in_use, pool.waiting) == (0, 0)


def _leases(url: str, error: type[BaseException], places: Iterable[int]) -> None:
    options = ms.Cache("lease", max_entries=6)
    with ms.open(url) as other, ms.open(url, cache=options, pool_size=2) as cached:
        _seed(other)
        _everywhere(cached, other, CACHE, error, places)


CODES = pytest.mark.parametrize("code", [CACHE, POOL], ids=["cache", "pool"])
ERRORS = pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])


@CODES
def test_reads_that_are_validated(url: str, code: frozenset[str]) -> None:
    _validates(url, code, KeyboardInterrupt, count(1, 7 if url.startswith("sqlite") else 23))


@pytest.mark.long
@CODES
@ERRORS
def test_reads_that_are_validated_between_any_two_lines(
    url: str, code: frozenset[str], error: type[BaseException]
) -> None:
    _validates(url, code, error, count(1))


@pytest.mark.postgres
def test_reads_under_a_lease(postgres_url: str) -> None:
    _leases(postgres_url, KeyboardInterrupt, count(2, 11))


@pytest.mark.long
@pytest.mark.postgres
@ERRORS
def test_reads_under_a_lease_between_any_two_lines(postgres_url: str, error: type[BaseException]) -> None:
    _leases(postgres_url, error, count(1))


@pytest.mark.postgres
def test_reads_that_psycopg_does_not_end(postgres_url: str) -> None:
    """An interrupt in psycopg leaves its lock taken, or a pipeline begun, in a connection that seems idle."""
    with ms.open(postgres_url, deadline=10.0, pool_size=1) as store, ms.open(postgres_url) as other:
        _seed(other)
        paths = [f"lake.c.s.{name}" for name in NAMES]
        for at in count(1, 2):
            raising = Raising(DRIVER, at, KeyboardInterrupt)
            with suppress(KeyboardInterrupt):
                raising.run(lambda: store.tables.load_many(paths))
            assert store.bind(deadline=2.0).tables.load(paths[0]), f"after an interrupt at line {at}"
            assert None not in store.bind(deadline=2.0).tables.load_many(paths)
            if raising.left:
                break
        assert at > 100
