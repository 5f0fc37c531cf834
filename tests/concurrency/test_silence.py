"""A database that answers nothing at all, and does not hang up either: every call ends by its deadline.

The server is stopped with SIGSTOP (the kernel goes on accepting connections and bytes for it), or a
proxy swallows what it should carry.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import psycopg
import pytest

import metastore as ms
from metastore.backends.postgres.connect import Pool
from metastore.backends.postgres.connection import Connection, OutOfTime
from metastore.clock import SYSTEM
from metastore.deadlines import until
from metastore.urls import parse_url
from tests.concurrency.lent import lent
from tests.concurrency.silent import Swallower, hears_late_answers, stopped
from tests.servers.postgres import PostgresServer
from tests.servers.process import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.one_in(3)]

can_stop = pytest.mark.skipif(not psycopg.capabilities.has_cancel_safe(), reason="needs psycopg with libpq 17")

DEADLINE = 1.0
LATE = 4.0
"""How much later than its deadline a call may end here: 0.45 s by design, the rest for a busy machine."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as own:
        yield own


@pytest.fixture
def own_url(server: PostgresServer) -> str:
    url = server.create_database()
    ms.migrate(url)
    return url


@contextlib.contextmanager
def on_time(seconds: float = DEADLINE) -> Iterator[None]:
    """Check how long the block takes, also when it raises."""
    began = time.monotonic()
    try:
        yield
    finally:
        took = time.monotonic() - began
        assert took < seconds + LATE, f"{took:.3f} s"


@pytest.fixture
def swallower(server: PostgresServer) -> Iterator[Swallower]:
    proxy = Swallower(server.port)
    yield proxy
    proxy.close()


def seed(store: ms.Store) -> ms.Table:
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    return store.tables.create("m.c.s.t", parents=True)


Operation = Callable[[ms.Store, ms.Table], object]
ALL: dict[str, Operation] = {
    "load": lambda store, table: store.tables.load("m.c.s.t"),
    "load_many": lambda store, table: store.tables.load_many(["m.c.s.t", "m.c.s.u"]),
    "list": lambda store, table: list(store.tables.list("m.c.s")),
    "history": lambda store, table: list(store.tables.history(table)),
    "changes": lambda store, table: list(store.changes()),
    "ping": lambda store, table: store.ping(),
    "alter": lambda store, table: store.tables.alter(table, ms.SetComment("x")),
    "create": lambda store, table: store.tables.create("m.c.s.new"),
    "create_many": lambda store, table: store.tables.create_many("m.c.s", [{"name": "a"}, {"name": "b"}]),
    "rename": lambda store, table: store.tables.rename(table, "other"),
    "drop": lambda store, table: store.schemas.drop("m.c.s", cascade=True),
    "run": lambda store, table: store.run(lambda tx: tx.tables.alter(table, ms.SetComment("y"))),
}
NOT_APPLIED = (ms.DeadlineExceeded, ms.BackendUnavailable)
SENT = ("alter", "rename")
"""What sends its commit without a read before it: the server may have got it."""


def together(operate: Callable[[str], None], names: Collection[str] = ALL) -> None:
    """Call it with every name, each in a thread of its own: each waits out its deadline."""
    with ThreadPoolExecutor(len(names)) as threads:
        for done in [threads.submit(operate, name) for name in names]:
            done.result()


def warm(stores: Mapping[str, ms.Store]) -> None:
    """Let each store commit once: the first commit of a store asks whether caches are to be told of it."""
    for name, store in stores.items():
        store.metalakes.create(f"of_{name}")


@pytest.mark.parametrize("fresh", [False, True], ids=["warm", "fresh"])
def test_a_stopped_server(server: PostgresServer, own_url: str, fresh: bool) -> None:
    """Nothing was sent where the connection has to be opened first."""
    with contextlib.ExitStack() as stack:
        stores = {name: stack.enter_context(ms.open(own_url, deadline=DEADLINE)) for name in ALL}
        table = seed(stores["load"])
        warm(stores)
        for store in stores.values():
            if fresh:
                store._session.backend.pool.forget()  # type: ignore[attr-defined]

        def operate(name: str) -> None:
            with pytest.raises(ms.OutcomeUnknown if name in SENT and not fresh else NOT_APPLIED), on_time():
                ALL[name](stores[name], table)

        with stopped(server):
            together(operate)
        for store in stores.values():
            store.ping()
        assert stores["alter"].metalakes.create("again").version == 1


def test_a_proxy_that_swallows_everything(swallower: Swallower, own_url: str) -> None:
    with contextlib.ExitStack() as stack:
        url = swallower.url_for(own_url)
        stores = {name: stack.enter_context(ms.open(url, deadline=DEADLINE)) for name in ALL}
        table = seed(stores["load"])
        warm(stores)
        swallower.swallow("there", "back")

        def operate(name: str) -> None:
            with pytest.raises(ms.OutcomeUnknown if name in SENT else NOT_APPLIED), on_time():
                ALL[name](stores[name], table)

        together(operate)
        swallower.recover()
        for store in stores.values():
            assert store.tables.load("m.c.s.t") == table  # nothing got there


@pytest.mark.parametrize("lost", ["question", "answer"])
def test_a_commit_that_was_sent_is_unknown(server: PostgresServer, lost: str) -> None:
    urls = {name: server.create_database() for name in ("create", "create_many", "rename", "alter", "drop", "run")}

    def operate(name: str) -> None:
        with contextlib.closing(Swallower(server.port)) as swallower, ms.open(urls[name]) as direct:
            table = seed(direct)
            with ms.open(swallower.url_for(urls[name]), deadline=2 * DEADLINE) as store:  # it must come so far
                swallower.swallow_at(b"INSERT INTO", *(["there", "back"] if lost == "question" else ["back"]))
                with pytest.raises(ms.OutcomeUnknown) as caught, on_time(2 * DEADLINE):
                    ALL[name](store, table)
                swallower.recover()
                applied = bool(store._session.backend.steps(caught.value.operation_id))
                assert applied == (lost == "answer")

    for url in urls.values():
        ms.migrate(url)
    together(operate, urls)


def test_a_deadline_of_the_caller_ends_what_a_patient_store_waits_for(server: PostgresServer, own_url: str) -> None:
    with ms.open(own_url, deadline=60.0) as store:
        table = seed(store)

        def operate(name: str) -> None:
            ends = SYSTEM.monotonic() + DEADLINE
            with pytest.raises((ms.OutcomeUnknown, *NOT_APPLIED)), on_time(), until(ends):
                ALL[name](store, table)

        with stopped(server):
            together(operate)
        store.ping()


@pytest.mark.parametrize("name", ["alter", "create", "rename", "drop", "run"])
def test_a_deadline_of_one_call_ends_it(server: PostgresServer, own_url: str, name: str) -> None:
    """The argument ``deadline=``, on a patient store."""
    calls: dict[str, Operation] = {
        "alter": lambda store, table: store.tables.alter(table, ms.SetComment("x"), deadline=0.5),
        "create": lambda store, table: store.tables.create("m.c.s.new", deadline=0.5),
        "rename": lambda store, table: store.tables.rename(table, "other", deadline=0.5),
        "drop": lambda store, table: store.schemas.drop("m.c.s", cascade=True, deadline=0.5),
        "run": lambda store, table: store.run(lambda tx: tx.tables.load("m.c.s.t"), deadline=0.5),
    }
    with ms.open(own_url, deadline=60.0) as store:
        table = seed(store)
        with stopped(server), pytest.raises((ms.OutcomeUnknown, *NOT_APPLIED)), on_time(0.5):
            calls[name](store, table)


def test_many_threads_at_once(server: PostgresServer, own_url: str) -> None:
    """More of them than there may be connections."""
    with ms.open(own_url, deadline=DEADLINE) as store, ThreadPoolExecutor(40) as threads:
        table = seed(store)
        list(threads.map(lambda _: store.ping(), range(80)))

        def alter(_: int) -> None:
            with pytest.raises((ms.OutcomeUnknown, *NOT_APPLIED)), on_time():
                store.tables.alter(table, ms.SetComment("x"))

        with stopped(server):
            list(threads.map(alter, range(40)))
        list(threads.map(lambda _: store.ping(), range(80)))


def test_opening_a_store(server: PostgresServer, own_url: str) -> None:
    """Shorter than psycopg's connect_timeout can be."""
    with stopped(server), pytest.raises(ms.DeadlineExceeded, match="does not answer"), on_time(1.0):
        ms.open(own_url, deadline=1.0)
    ms.open(own_url, deadline=5.0).close()


def test_without_the_end_it_hangs(server: PostgresServer, own_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: psycopg's own wait."""
    done = threading.Event()

    def load(store: ms.Store) -> None:
        store.tables.load("m.c.s.t")
        done.set()

    with ms.open(own_url) as store:
        seed(store)
    with ms.open(own_url, deadline=1.0) as store:
        store.tables.load("m.c.s.t")
        monkeypatch.setattr(Connection, "wait", psycopg.Connection.wait)
        thread = threading.Thread(target=load, args=(store,), daemon=True)
        with stopped(server):
            thread.start()
            assert not done.wait(2.5)
        # the statement's time-out may come first now
        thread.join(10)
        assert not thread.is_alive()


# --- the server is alive, and only slow


def pool_of(url: str, timeout: float = 60.0) -> Pool:
    return Pool(parse_url(url), timeout)


def backends(url: str, condition: str) -> int:
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity "
            f"WHERE datname = current_database() AND pid <> pg_backend_pid() AND {condition}"
        ).fetchone()
    assert row is not None
    return int(row[0])


@can_stop
def test_a_live_server_says_that_nothing_was_applied_and_lets_go(own_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline of the call is shorter than the store's: it is the client that stops the statement."""
    hears_late_answers(monkeypatch)
    with ms.open(own_url, deadline=60.0) as store:
        table = seed(store)
        with psycopg.connect(own_url.replace("+psycopg", "")) as foreign:
            foreign.execute("SELECT * FROM entity FOR UPDATE")
            with pytest.raises(ms.DeadlineExceeded), on_time(), until(SYSTEM.monotonic() + DEADLINE):
                store.tables.alter(table, ms.SetComment("x"), deadline=DEADLINE)
            assert backends(own_url, "wait_event_type = 'Lock'") == 0
        assert store.tables.load("m.c.s.t") == table


@can_stop
def test_who_was_asked_to_stop_is_not_used_again(own_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order to stop may arrive late, and would meet the next statement."""
    hears_late_answers(monkeypatch)
    pool = pool_of(own_url)
    first = pool.fetch("SELECT pg_backend_pid()", {})
    assert pool.fetch("SELECT pg_backend_pid()", {}) == first
    with pytest.raises(psycopg.errors.QueryCanceled), until(SYSTEM.monotonic() + 0.2):
        pool.fetch("SELECT pg_sleep(30)", {})
    assert pool.fetch("SELECT pg_backend_pid()", {}) != first
    pool.close()


@can_stop
def test_the_order_to_stop_may_overtake_the_statement(own_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is asked to stop before it reads the statement ignores that."""
    hears_late_answers(monkeypatch)
    stop = Connection.stop
    pool = pool_of(own_url)
    ((pid,),) = pool.fetch("SELECT pg_backend_pid()", {})
    backend = psutil.Process(pid)

    def stop_first(self: Connection) -> None:
        stop(self)
        backend.resume()

    monkeypatch.setattr(Connection, "stop", stop_first)
    backend.suspend()
    with pytest.raises(psycopg.errors.QueryCanceled), until(SYSTEM.monotonic() + 0.2):
        pool.fetch("SELECT pg_sleep(30)", {})
    pool.close()


def test_an_answer_that_comes_while_it_is_stopped_counts(own_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hears_late_answers(monkeypatch)
    monkeypatch.setattr(Connection, "cancel_safe", lambda self, timeout: None)
    pool = pool_of(own_url)
    pool.fetch("SELECT 1", {})  # the connection is there
    with until(SYSTEM.monotonic() + 0.2):
        assert pool.fetch("SELECT 1 FROM pg_sleep(0.3)", {}) == [(1,)]
    assert [place.connection for place in pool._pool._places] == [None]
    pool.close()


@can_stop
def test_a_commit_that_waits_for_a_replica_is_unknown() -> None:
    """To stop that wait makes the server say that it is committed, which a failover would undo."""
    with PostgresServer() as server:
        url = server.create_database()
        ms.migrate(url)
        with ms.open(url) as store:
            table = seed(store)
        server.settings = {**server.settings, "synchronous_standby_names": "*"}
        server.restart()
        with ms.open(url, deadline=DEADLINE) as store:
            with pytest.raises(ms.OutcomeUnknown), on_time():
                store.tables.alter(table, ms.SetComment("x"))
            assert store.tables.load("m.c.s.t").version == 2  # here, but nowhere else


def test_waiting_for_a_free_connection(own_url: str) -> None:
    pool = pool_of(own_url)
    with contextlib.ExitStack() as stack:
        for _ in range(pool.limits.size):
            stack.enter_context(lent(pool))
        with pytest.raises(ms.PoolExhausted, match="became free"), on_time(0.3), until(SYSTEM.monotonic() + 0.3):
            pool.fetch("SELECT 1", {})
        began = time.monotonic()
        threading.Timer(0.2, stack.pop_all().close).start()
        with until(SYSTEM.monotonic() + 10):
            assert pool.fetch("SELECT 1", {}) == [(1,)]
        assert time.monotonic() - began < 5
    pool.close()


def test_a_call_that_is_over_sends_nothing(own_url: str) -> None:
    pool = pool_of(own_url)
    with until(SYSTEM.monotonic() - 1), pytest.raises(ms.DeadlineExceeded, match="before the database was asked"):
        pool.fetch("SELECT 1", {})
    assert pool.use().in_use == 0
    with pool.connection() as connection:
        with until(SYSTEM.monotonic() - 1), pytest.raises(OutOfTime):
            connection.execute("SELECT 1")
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    pool.close()


@can_stop
def test_without_a_deadline_each_wait_has_the_stores(own_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hears_late_answers(monkeypatch)
    pool = pool_of(own_url, 1.0)
    with pool.connection() as connection:
        connection.execute("SET statement_timeout = 0")
        for _ in range(3):
            connection.execute("SELECT pg_sleep(0.4)")
        with until(math.inf):
            connection.execute("SELECT pg_sleep(1.1)")
        with pytest.raises(psycopg.errors.QueryCanceled), on_time(1.0):
            connection.execute("SELECT pg_sleep(20)")
    pool.close()


def test_an_older_libpq_cannot_stop_a_statement(own_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its way to cancel may wait for ever."""

    def never(self: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(psycopg.capabilities, "has_cancel_safe", lambda check=False: False)
    monkeypatch.setattr(Connection, "cancel", never)
    pool = pool_of(own_url)
    with pytest.raises(OutOfTime), until(SYSTEM.monotonic() + 0.3), on_time(0.3):
        pool.fetch("SELECT pg_sleep(3)", {})
    assert pool.fetch("SELECT 1", {}) == [(1,)]
    pool.close()


def test_a_session_that_was_kept_may_be_dead(swallower: Swallower, own_url: str) -> None:
    """Who waits for a lease listens in a session of its own, which is kept for the next one."""
    pool = pool_of(swallower.url_for(own_url), 1.0)
    kept = pool.own_connection("LISTEN a")
    assert kept is not None
    pool.take_back_own(kept, usable=True)
    swallower.swallow("there", "back")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(pool.own_connection, "LISTEN b")
        try:
            with pytest.raises(ms.DeadlineExceeded, match="no connection"):
                waiting.result(2.0 + LATE)
        finally:
            swallower.recover()
    pool.close()


def test_few_of_such_sessions_are_kept(own_url: str) -> None:
    pool = pool_of(own_url)
    listened = [pool.own_connection("LISTEN a") for _ in range(3)]
    for one in listened:
        assert one is not None
        pool.take_back_own(one, usable=True)
    assert [one is not None and one.closed for one in listened] == [False, False, True]
    pool.close()
    assert all(one is not None and one.closed for one in listened)


_MANY_FILES = 1024
"""More than select(2) can look at."""


@contextlib.contextmanager
def many_files(count: int) -> Iterator[None]:
    """Let files be open, so that the next ones have high numbers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 2 * count), hard), hard))
    null = os.open(os.devnull, os.O_RDONLY)
    held = [null, *[os.dup(null) for _ in range(count)]]
    try:
        yield
    finally:
        for file in held:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class _SoftTimeLimit(Exception):
    """What a task queue raises in a task that takes too long."""


@can_stop
@pytest.mark.parametrize("error", [KeyboardInterrupt, _SoftTimeLimit])
@pytest.mark.parametrize("case", ["", "overtaken", "with many files"])
def test_what_an_interrupt_leaves_running_is_stopped(
    own_url: str, error: type[BaseException], case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """psycopg does so for an interrupt that meets its wait, and for no other.

    A server that is asked to stop before it reads the statement ignores that. A socket may have any number.
    """
    hears_late_answers(monkeypatch)
    pool = pool_of(own_url)
    stop = Connection.stop

    def interrupted() -> None:
        with pool.connection() as connection:
            backend = psutil.Process(connection.info.backend_pid)

            def stop_first(self: Connection) -> None:
                stop(self)
                backend.resume()

            if case == "overtaken":
                backend.suspend()
                monkeypatch.setattr(Connection, "stop", stop_first)
            connection.pgconn.send_query(b"SELECT pg_sleep(50)")
            raise error

    with many_files(_MANY_FILES * (case == "with many files")), pytest.raises(error):
        interrupted()
    assert wait_until(lambda: backends(own_url, "query LIKE '%pg_sleep(50)%' AND state = 'active'") == 0, 10)
    assert pool.fetch("SELECT 1", {}) == [(1,)]
    pool.close()
