"""Forks while calls are under way in other threads: the child works, or it is told that it cannot."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

import metastore as ms
from metastore.backends.sqlite import forks
from metastore.backends.sqlite.forks import Forks
from metastore.block import Block
from metastore.secrets.keyring import new_key
from tests.concurrency.checks import seed, violations
from tests.servers.process import wait_until

THREADS, CHILDREN = 6, 6
LONGEST = 60
TABLE = "lake.cat.s.t"

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the machine cannot fork"),
    pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning"),
]


def forked(work: Callable[[], bool], *, longest: int = LONGEST) -> int:
    """Fork; the child does the work, and ends well if that returned True."""
    pid = os.fork()
    if not pid:  # pragma: no cover  (in the child)
        code = 2
        try:
            signal.alarm(longest)
            code = 0 if work() else 1
        finally:
            os._exit(code)
    return pid


def ended_well(pid: int) -> bool:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_children_of_a_process_whose_threads_write(url: str) -> None:
    """Calls of other threads are under way at each fork; the child's own ones are applied, and so are theirs."""
    seed(url, TABLE)
    over, done = threading.Event(), [0] * THREADS
    with ms.open(url) as store, ms.open(url) as other, ThreadPoolExecutor(THREADS) as pool:

        def write(n: int) -> None:
            mine = (store, other)[n % 2]
            while not over.is_set():
                mine.tables.alter(TABLE, ms.SetProperty(f"p{n}", str(done[n])))
                done[n] += 1

        def child(k: int) -> bool:
            store.tables.alter(TABLE, ms.SetProperty(f"c{k}", "1"))
            return other.tables.create(f"lake.cat.s.c{k}").version == 1

        running = [pool.submit(write, n) for n in range(THREADS)]
        try:
            well = [ended_well(forked(lambda k=k: child(k))) for k in range(CHILDREN)]  # type: ignore[misc]
        finally:
            over.set()
        for one in running:
            one.result(LONGEST)
        assert well == [True] * CHILDREN
        versions = [version.version for version in store.tables.history(TABLE)]
        assert versions == list(range(1, 1 + len(versions)))
        assert len(versions) == 1 + sum(done) + CHILDREN
    assert violations(url) == []


def test_a_child_reads_a_field_that_a_thread_of_its_parent_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No lock of the field's class is held then: the child would inherit it, and wait for ever."""
    parent, computing, over = os.getpid(), threading.Event(), threading.Event()

    def slowly(properties: dict[str, str]) -> dict[str, str]:
        if os.getpid() == parent:
            computing.set()
            assert over.wait(LONGEST)
        return properties

    monkeypatch.setattr("metastore.kinds.entity.properties_shown", slowly)
    with ms.open("memory://") as store, ThreadPoolExecutor(1) as pool:
        lakes = [store.metalakes.create(name, properties={"k": name}) for name in ("one", "two")]
        running = pool.submit(lambda: lakes[0].properties["k"])
        assert computing.wait(LONGEST)
        well = ended_well(forked(lambda: lakes[1].properties["k"] == "two", longest=10))
        over.set()
        assert well
        assert running.result(LONGEST) == "one"


def altered(store: ms.Store) -> bool:
    return store.tables.alter(TABLE, ms.SetProperty("k", "1"), deadline=1.0).version == 2


@contextmanager
def writing(store: ms.Store) -> Iterator[None]:
    """Be in the middle of a write."""
    pool: Any = store._session.backend.pool  # type: ignore[attr-defined]
    with pool.connection() as connection:
        pool.begin(connection)
        yield


def test_a_child_that_inherits_a_connection_in_use_is_told(sqlite_url: str) -> None:
    seed(sqlite_url, TABLE)

    def told() -> bool:
        with pytest.raises(ms.BackendRefused, match="was forked while its parent used SQLite"):
            altered(store)
        with pytest.raises(ms.BackendRefused, match="spawn or forkserver"), ms.open(sqlite_url) as again:
            altered(again)
        return True

    with ms.open(sqlite_url) as store:
        with writing(store):
            child = forked(told)
        assert ended_well(child)
        assert altered(store)
        assert ended_well(forked(lambda: store.tables.load(TABLE).version == 2))
    assert violations(sqlite_url) == []


def test_such_a_child_would_wait_for_itself(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: nobody writes any more, but the child's copy of the library believes that somebody does."""
    monkeypatch.setattr(Forks, "check", lambda _: None)
    seed(sqlite_url, TABLE)
    read, write = os.pipe()

    def waits() -> bool:
        assert os.read(read, 1) == b"1"
        with pytest.raises(ms.DeadlineExceeded):
            altered(store)
        return True

    with ms.open(sqlite_url) as store:
        with writing(store):
            child = forked(waits)
        os.write(write, b"1")
        assert ended_well(child)


def started(pool: ThreadPoolExecutor, call: Callable[[], Any]) -> Future[Any]:
    """Let a thread make the call; return when it is about to."""
    ready = threading.Event()

    def work() -> Any:
        ready.set()
        return call()

    future = pool.submit(work)
    assert ready.wait(LONGEST)
    return future


class Use(Block):
    """A use of a connection: it enters the gate, and leaves it unless it is ``left`` behind."""

    def __init__(self, gate: Forks) -> None:
        self._gate = gate

    def __enter__(self) -> None:
        self._gate.enter(self)

    def end(self, *_: object) -> None:
        self._gate.leave(self)


def use(gate: Forks) -> None:
    with Use(gate):
        pass


def test_a_fork_waits_for_calls_and_new_calls_wait_for_the_fork() -> None:
    gate = Forks()
    with ThreadPoolExecutor(2) as pool:
        with Use(gate):
            fork = started(pool, gate.before)
            assert wait_until(lambda: bool(gate._forking), LONGEST)
            with Use(gate):  # a thread that the fork waits for must not wait for the fork
                call = started(pool, lambda: use(gate))
            assert not fork.done()
            assert not call.done()
        fork.result(LONGEST)
        assert not call.done()
        gate._forking.clear()
        pool.submit(gate.after_in_parent).result(LONGEST)
        call.result(LONGEST)


def test_a_call_that_takes_long_does_not_hold_a_fork_up_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "PATIENCE", 0.01)
    gate = Forks()
    with Use(gate):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(gate.before).result(LONGEST)
        gate.after_in_child()
        with pytest.raises(ms.BackendRefused):
            gate.check()
    with pytest.raises(ms.BackendRefused):
        gate.check()


def test_an_interrupted_call_leaves_no_use_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Forks()
    monkeypatch.setattr(gate, "leave", interrupted)
    with pytest.raises(KeyboardInterrupt):
        use(gate)
    monkeypatch.undo()
    assert gate._threads() == []


def interrupted(_: Block) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("why", ["a user creates", "a secret is encrypted"])
def test_children_use_no_ids_that_their_parent_reserved(url: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both need the id of a new entity before its commit: it is one of a block that the process reserved."""
    monkeypatch.setenv("METASTORE_SECRET_KEY", new_key())
    secret = {"token": "x"} if why == "a secret is encrypted" else {}
    with ms.open(url) as store:
        store.metalakes.create("lake")
        store.users.create("lake.ann")
        store.catalogs.create("lake.cat", type="relational", properties={"metastore.secret-properties": "token"})
        store.owners.set(store.catalogs.load("lake.cat"), "lake.ann")
        one = store if secret else store.as_user("ann")
        one.schemas.create("lake.cat.s", properties=secret)

        def creates(child: int) -> Callable[[], bool]:
            return lambda: all(one.tables.create(f"lake.cat.s.t{child}_{n}", properties=secret) for n in range(3))

        children = [forked(creates(n)) for n in range(2)]
        assert [ended_well(child) for child in children] == [True, True]
        one.tables.create("lake.cat.s.last", properties=secret)
        assert len(list(one.tables.names("lake.cat.s"))) == 7
