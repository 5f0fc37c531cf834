"""The pool of connections: its size, how long a call waits for one, and what can be watched of it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any

import pytest

import metastore as ms
from tests.combine.gate import full_operations
from tests.concurrency.lent import lent
from tests.concurrency.raw import is_sqlite
from tests.contract.ground import Ground, prepare
from tests.servers.process import wait_until

pytestmark = pytest.mark.one_in(3)

SIZE = 2


@pytest.fixture
def small(url: str) -> Iterator[Ground]:
    """Give a small tree, in a store with two connections."""
    with ms.open(url, pool_size=SIZE, max_wait=0.2) as store:
        yield prepare(store)


def use(store: ms.Store) -> tuple[int, int, int]:
    pool = store.metrics().pool
    assert pool is not None
    return pool.size, pool.in_use, pool.waiting


def waits(store: ms.Store, count: int) -> bool:
    return use(store)[2] == count


def taken(store: ms.Store, stack: ExitStack, count: int = SIZE) -> None:
    """Take connections, as calls in other threads would."""
    backend: Any = store._session.backend
    for _ in range(count):
        stack.enter_context(lent(backend.pool))


def test_none_becomes_free(small: Ground) -> None:
    """Reads and writes give up in time, with an error that says what to do, and nothing is written."""
    store = small.store
    with ExitStack() as stack:
        taken(store, stack)
        for call in (
            lambda: store.tables.load("m.c.one.t"),
            lambda: store.tables.create("m.c.one.x"),
            lambda: store.tables.alter(small.table, ms.SetComment("x")),
            lambda: store.tables.alter(small.table, ms.SetComment("x"), operation_id=ms.key("k")),
            lambda: list(store.changes()),
        ):
            began = time.monotonic()
            with pytest.raises(ms.PoolExhausted, match="all 2 are in use") as caught:
                call()
            assert 0.1 < time.monotonic() - began < 15
            assert caught.value.code == "pool_exhausted"
            assert (caught.value.http_status, caught.value.retry_after) == (503, 1.0)
            assert isinstance(caught.value, ms.BackendUnavailable)
    assert store.tables.load("m.c.one.t") == small.table
    assert not store.tables.exists("m.c.one.x")


def test_calls_that_travel_together_wait_once(url: str) -> None:
    """A batch that gets no connection has waited for each of its calls: none of them waits again, alone."""
    with ms.open(url, pool_size=1, max_wait=1.0) as store, ExitStack() as stack:
        prepare(store)
        taken(store, stack, 1)

        def waited(n: int) -> float:
            began = time.monotonic()
            with pytest.raises(ms.PoolExhausted):
                _ = (
                    store.tables.exists("m.c.one.t")
                    if n % 2
                    else store.tables.alter("m.c.one.t", ms.SetComment(f"{n}"))
                )
            return time.monotonic() - began

        with ThreadPoolExecutor(6) as pool:
            times = list(pool.map(waited, range(6)))
    assert min(times) > 0.9
    # those that came while the first of each lane waited go with the next batch, which waits itself
    assert max(times) < 2.6
    assert sorted(times)[1] < 1.6


def test_the_deadline_comes_first(url: str) -> None:
    with ms.open(url, pool_size=1, max_wait=60.0) as store, ExitStack() as stack:
        prepare(store)
        taken(store, stack, 1)
        began = time.monotonic()
        with pytest.raises((ms.PoolExhausted, ms.DeadlineExceeded)):
            store.tables.create("m.c.one.x", deadline=0.2)
        assert time.monotonic() - began < 10


def test_the_gauges(url: str) -> None:
    with ms.open(url, pool_size=SIZE, max_wait=1.0) as store:
        prepare(store)
        the_gauges(store)


def the_gauges(store: ms.Store) -> None:
    assert use(store) == (SIZE, 0, 0)
    with ExitStack() as stack:
        stack.enter_context(full_operations(store))  # those that wait together would share one connection
        taken(store, stack, 1)
        assert use(store) == (SIZE, 1, 0)
        assert store.tables.exists("m.c.one.t")
        assert use(store) == (SIZE, 1, 0)
        taken(store, stack, 1)
        assert use(store) == (SIZE, 2, 0)
        seen: list[BaseException] = []

        def ask() -> None:
            try:
                store.tables.load("m.c.one.t")
            except ms.PoolExhausted as error:
                seen.append(error)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        most = 0
        while any(thread.is_alive() for thread in threads):
            most = max(most, use(store)[2])
        assert most == 3
        assert len(seen) == 3
    assert use(store) == (SIZE, 0, 0)


def test_the_memory_model_has_none() -> None:
    with ms.open("memory://", pool_size=3) as store:
        assert store.metrics().pool is None


def test_a_view_shows_the_same(small: Ground) -> None:
    with ExitStack() as stack:
        taken(small.store, stack, 1)
        assert use(small.store.bind(principal="ada")) == (SIZE, 1, 0)


def test_many_threads_share_few_connections(url: str) -> None:
    """Each waits for its turn; nobody is forgotten while a connection lies idle."""
    with ms.open(url, pool_size=SIZE, max_wait=20.0) as store:
        ground = prepare(store)

        def work(n: int) -> int:
            for k in range(30):
                store.tables.load(ground.table)
                if k % 10 == 0:
                    store.tables.create(f"m.c.two.t{n}_{k}")
            return n

        with ThreadPoolExecutor(12) as pool:
            assert list(pool.map(work, range(12))) == list(range(12))
        assert len(list(store.tables.names("m.c.two"))) == 36
        assert use(store) == (SIZE, 0, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the machine cannot fork")
def test_a_child_has_a_pool_of_its_own(small: Ground, url: str) -> None:
    """Those that the parent's threads have are not counted there. SQLite does not work there then, and says so."""
    refused = pytest.raises(ms.BackendRefused, match="was forked") if is_sqlite(url) else nullcontext()
    with ExitStack() as stack:
        taken(small.store, stack)
        child = os.fork()
        if child == 0:
            found = 1
            try:
                with refused:
                    assert small.store.tables.exists("m.c.one.t")
                found = 0 if use(small.store)[1] == 0 else 2
            finally:
                os._exit(found)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    "wrong", [{"pool_size": 0}, {"pool_size": "5"}, {"max_wait": 0}, {"max_wait": "1"}, {"max_wait": -1}]
)  # fmt: skip
def test_what_makes_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ms.InvalidArgument):
        ms.open("memory://", **wrong)


def test_prometheus_shows_them(small: Ground) -> None:
    client = pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")
    from metastore import prometheus

    registry = client.CollectorRegistry()
    prometheus.register(small.store, registry)
    with ExitStack() as stack:
        taken(small.store, stack, 1)
        values = [registry.get_sample_value(f"metastore_pool_{name}") for name in ("size", "in_use", "waiting")]
    assert values == [SIZE, 1, 0]


def test_calls_get_a_connection_in_the_order_in_which_they_came(url: str) -> None:
    """The one who gives back asks again at once, and waits behind all who were there before."""
    served: list[int] = []
    with ms.open(url, pool_size=1) as store, ThreadPoolExecutor(6) as threads:
        pool: Any = store._session.backend.pool  # type: ignore[attr-defined]

        def call(number: int) -> None:
            with pool.connection():
                served.append(number)

        with pool.connection():
            waiting = []
            for number in range(5):
                waiting.append(threads.submit(call, number))
                assert wait_until(partial(waits, store, number + 1), 20)
        call(5)
        for one in waiting:
            one.result(20)
        assert served == [0, 1, 2, 3, 4, 5]
        assert use(store) == (1, 0, 0)


def test_one_that_gives_up_lets_the_next_have_its_turn(url: str) -> None:
    with ms.open(url, pool_size=1) as store, ThreadPoolExecutor(3) as threads:
        store.metalakes.create("lake")
        with ExitStack() as stack:
            stack.enter_context(full_operations(store))
            taken(store, stack, 1)
            hasty = threads.submit(store.bind(deadline=1.5).metalakes.exists, "lake")
            assert wait_until(lambda: use(store)[2] == 1, 20)
            patient = [threads.submit(store.metalakes.exists, "lake") for _ in range(2)]
            assert wait_until(lambda: use(store)[2] == 3, 20)
            with pytest.raises(ms.MetastoreError):
                hasty.result(20)
            assert use(store)[2] == 2
        assert [one.result(20) for one in patient] == [True, True]
