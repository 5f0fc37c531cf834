"""An interrupt between any two lines of a cached read leaves nothing behind that a later read can see."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import metastore as ms
from metastore.cache import entries, positions, validated
from metastore.store import Store

_CODE = {entries.__file__, positions.__file__, validated.__file__}
_TABLES = tuple(f"m.c.s.t{n}" for n in range(4))


class _Interrupt:
    """Raises KeyboardInterrupt in this thread at one place of the cache's code where Python looks for signals.

    That is where a function begins, and after a call of a C function has returned. It is not within ``with lock:``.
    """

    def __init__(self, at: int) -> None:
        self.left = at

    def __enter__(self) -> None:
        sys.setprofile(self._look)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        sys.setprofile(None)
        return kind is KeyboardInterrupt

    def _look(self, frame: FrameType, event: str, _: Any) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename in _CODE and self.left > 0:
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
