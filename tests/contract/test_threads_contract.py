"""One transaction and several threads: in turns, and never two at the same moment."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import metastore as ms
from tests.aio.facade import Facade
from tests.contract.ground import Ground


def test_threads_take_turns(ground: Ground) -> None:
    """As a pool of threads does that runs the steps of an event loop."""
    with ground.store.transaction() as tx:
        for n in range(5):
            with ThreadPoolExecutor(1) as pool:
                pool.submit(tx.tables.create, f"m.c.one.t{n}").result()
    assert len(list(ground.store.tables.names("m.c.one"))) == 1 + 5


def test_two_at_the_same_moment_are_refused(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    if isinstance(ground.store, Facade):
        pytest.skip("tasks of one transaction take turns: tests/aio")
    inside, go_on = threading.Event(), threading.Event()
    backend: Any = ground.backend
    resolve = backend.resolve

    def stopping(lookups: Any) -> Any:
        inside.set()
        assert go_on.wait(30)
        return resolve(lookups)

    with ground.store.transaction() as tx:
        with ThreadPoolExecutor(1) as pool, monkeypatch.context() as patched:
            patched.setattr(backend, "resolve", stopping)
            first = pool.submit(tx.tables.create, "m.c.two.first")
            assert inside.wait(30)
            with pytest.raises(ms.InvalidArgument, match="two threads use one transaction at the same moment"):
                tx.tables.create("m.c.two.second")
            go_on.set()
            first.result()
        tx.tables.create("m.c.two.third")
    assert list(ground.store.tables.names("m.c.two")) == ["first", "third"]
