"""An interrupt between any two lines of a cached read leaves nothing behind that a later read can see."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Container
from types import FrameType
from typing import Any, cast

import pytest

import metastore as ms
from metastore.cache import entries, membership, positions, validated
from metastore.cache import leased as leased_module
from metastore.store import Store
from tests.cache.kept import keep, lake, leased
from tests.interrupts.raising import uncollected

_CODE = {entries.__file__, positions.__file__, validated.__file__}
_TABLES = tuple(f"m.c.s.t{n}" for n in range(4))


class _Interrupt:
    """Raises KeyboardInterrupt in this thread at one place of the cache's code where Python looks for signals.

    That is where a function begins, and after a call of a C function has returned. It is not within ``with lock:``.
    """

    def __init__(self, at: int, code: Container[str] = _CODE) -> None:
        self.left, self._code, self._uncollected = at, code, uncollected()

    def __enter__(self) -> None:
        self._uncollected.__enter__()
        sys.setprofile(self._look)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        sys.setprofile(None)
        self._uncollected.__exit__(None, None, None)
        return kind is KeyboardInterrupt

    def _look(self, frame: FrameType, event: str, _: Any) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename in self._code and self.left > 0:
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt


def test_no_interrupt_leaves_an_old_value(sqlite_url: str) -> None:
    """Another process changes what is kept; a read is interrupted; the next one shows the change."""
    with ms.open(sqlite_url) as other, ms.open(sqlite_url, cache=ms.Cache("validate")) as cached:
        _prepare(other)
        at, was_cut = 0, True
        while was_cut:
            at += 1
            for path in _TABLES:
                cached.tables.load(path)
            for path in _TABLES:
                other.tables.alter(path, ms.SetComment(f"{at}"))
            interrupt = _Interrupt(at)
            with interrupt:
                cached.tables.load(_TABLES[0])
            was_cut = not interrupt.left
            for path in _TABLES:
                assert cached.tables.load(path).comment == f"{at}", f"after the interrupt at place {at}"
        assert at > 30, "the read has that many places"


def _prepare(store: Store) -> None:
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    for path in _TABLES:
        store.tables.create(path, parents=True)


@pytest.mark.only_whole
def test_no_interrupt_keeps_a_forked_child_from_joining(postgres_url: str) -> None:
    """Its first read makes it a member. Wherever that is interrupted, later reads are kept, by one member."""
    lake(postgres_url)
    with leased(postgres_url) as cached:
        at = 0
        while _joins(cached, at := at + 1):
            pass
        assert at > 10, "the read has that many places"
        assert len(cached.cache.members()) == 1


def _joins(cached: Store, at: int) -> bool:
    """Fork a child whose first read is interrupted at a place; return whether the read has that place."""
    child = os.fork()
    if child:
        how = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert how in (_CUT, _WHOLE), f"after an interrupt at place {at}"
        return how == _CUT
    signal.alarm(20)  # whatever happens, the child ends
    try:
        interrupt = _Interrupt(at, {leased_module.__file__, membership.__file__, threading.__file__})
        with interrupt:
            cast(Any, cached._session.cache)._asked(1)
        keep(cached, lambda: cached.tables.load("lake.c.s.t"))
        threads = [one for one in threading.enumerate() if one.name == "metastore cache" and one.is_alive()]
        cached.close()
        os._exit(_WHOLE if interrupt.left else _CUT if len(threads) == 1 else 1)
    finally:
        os._exit(1)


_CUT, _WHOLE = 10, 11
