"""A small lake, stores that cache under a lease, and a wait until an answer is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import metastore as ms

__all__ = ["LONG", "keep", "lake", "leased"]

LONG = 30.0


def lake(url: str) -> None:
    """Make a schema with two tables, and another one with one."""
    with ms.open(url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        for path in ("lake.c.s.t", "lake.c.s.u", "lake.c.other.u"):
            store.tables.create(path, parents=True, comment="old")


@contextmanager
def leased(url: str, **options: Any) -> Iterator[ms.Store]:
    """Open a store with a lease cache."""
    with ms.open(url, cache=ms.Cache("lease", **options)) as store:
        yield store


def keep(store: ms.Store, read: Callable[[], object]) -> None:
    """Read until the answer comes from memory: while a change is announced, answers are not kept."""
    ends = time.monotonic() + LONG
    while True:
        read()
        before = store.cache.stats()
        read()
        if store.cache.stats().hits > before.hits and store.cache.stats().misses == before.misses:
            return
        assert time.monotonic() < ends, "the answer is never kept"
