"""A commit that no replica has confirmed is not said to be applied: a fail-over would undo it.

PostgreSQL applies such a commit as soon as its wait is stopped. From then on all can read it, also the row of its
operation, at which a call looks whose answer was lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from uuid import UUID

import psycopg
import pytest

import metastore as ms
from metastore.backends.memory.backend import MemoryBackend
from metastore.backends.postgres.backend import PostgresBackend
from metastore.backends.postgres.fragments import CONFIRM
from metastore.leases.database import DatabaseBook
from metastore.operation.record import ask_until_it_answers
from metastore.port.commit import Conflicted, Unknown
from metastore.port.conditions import LeaseToken
from metastore.port.leases import Mirror, Take
from tests.cache.replicas import pair
from tests.combine.gate import batches_of, lanes
from tests.long import long_unless
from tests.servers.postgres import PostgresServer
from tests.servers.process import wait_until

pytestmark = [
    pytest.mark.skipif(not psycopg.capabilities.has_cancel_safe(), reason="needs psycopg with libpq 17"),
    pytest.mark.one_in(3),
]

PATHS = [f"m.c.s.t{n}" for n in range(8)]
COMMENT = ms.SetComment("x")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as one:
        yield one


@pytest.fixture
def url(server: PostgresServer) -> str:
    made = server.create_database()
    ms.migrate(made)
    with ms.open(made) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        for path in PATHS:
            store.tables.create(path, parents=True)
    return made


@contextmanager
def no_replica(server: PostgresServer) -> Iterator[None]:
    """Let all commits wait for a replica that is not there."""
    with psycopg.connect(server.dsn(), autocommit=True) as own:
        try:
            own.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            own.execute("SELECT pg_reload_conf()")
            assert wait_until(lambda: _waits_for_it(own), 30.0)
            yield
        finally:
            own.execute("ALTER SYSTEM RESET synchronous_standby_names")
            own.execute("SELECT pg_reload_conf()")


def _waits_for_it(connection: psycopg.Connection) -> bool:
    """Make a commit; return whether it waited. The server learns of the setting in the background."""
    warnings: list[psycopg.errors.Diagnostic] = []
    connection.add_notice_handler(warnings.append)
    over = threading.Event()

    def stop() -> None:
        while not over.wait(0.1):
            connection.cancel()

    stopper = threading.Thread(target=stop)
    stopper.start()
    try:
        with suppress(psycopg.errors.QueryCanceled):  # before the commit
            connection.execute(CONFIRM)
    finally:
        over.set()
        stopper.join()
    return bool(warnings)


def waits(server: PostgresServer, for_what: str = "SyncRep") -> list[int]:
    """Return the processes of the server that wait for something: their commits, for a replica."""
    with psycopg.connect(server.dsn()) as other:
        sql = "SELECT pid FROM pg_stat_activity WHERE wait_event = %s"
        return [pid for (pid,) in other.execute(sql, (for_what,))]


def in_a_transaction(store: ms.Store) -> object:
    with store.transaction() as tx:
        return tx.tables.alter(PATHS[0], COMMENT)


def leased(store: ms.Store) -> object:
    return store.leases.acquire("job", owner="me", ttl=30.0)


WRITES: dict[str, Callable[[ms.Store], object]] = {
    "alter": lambda store: store.tables.alter(PATHS[0], COMMENT),
    "transaction": in_a_transaction,
    "lease": leased,
}


def until_it_is_confirmed(server: PostgresServer, url: str) -> None:
    """A batch of writes at its deadline; then repeats of them, before a replica confirms and after."""
    with ms.open(url, deadline=2.0) as store:
        for path in PATHS:
            store.tables.load(path)

        def write(path: str) -> ms.OutcomeUnknown:
            with pytest.raises(ms.OutcomeUnknown) as caught:
                store.tables.alter(path, COMMENT)
            return caught.value

        with no_replica(server):
            with batches_of(lanes(store)[1]) as sizes, ThreadPoolExecutor(len(PATHS)) as pool:
                unknown = list(pool.map(write, PATHS))
            assert max(sizes) > 1
            # here, and nowhere else; on a slow machine the deadline comes before the second batch is applied
            versions = [store.tables.load(path).version for path in PATHS]
            assert 2 in versions
            assert set(versions) <= {1, 2}
            with pytest.raises(ms.OutcomeUnknown):
                store.tables.alter(PATHS[0], COMMENT, operation_id=unknown[0].operation_id)
        for path, error in zip(PATHS, unknown, strict=True):
            assert store.tables.alter(path, COMMENT, operation_id=error.operation_id).version == 2


@pytest.mark.parametrize("commits", long_unless(("on", "off"), lambda commits: commits == "off"))
def test_at_the_deadline_of_a_batch(server: PostgresServer, url: str, commits: str) -> None:
    """Also where the database's own transactions wait for nobody: the store's commits always wait."""
    with psycopg.connect(server.dsn(), autocommit=True) as own:
        own.execute(f"ALTER DATABASE {url.rpartition('/')[2]} SET synchronous_commit = '{commits}'")
    until_it_is_confirmed(server, url)


def test_without_the_confirmation_it_is_said_to_be_applied(
    server: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control."""
    monkeypatch.setattr(PostgresBackend, "confirm", MemoryBackend.confirm)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        until_it_is_confirmed(server, url)


@pytest.mark.parametrize("write", long_unless(WRITES, lambda write: write == next(iter(WRITES))))
def test_terminated_while_it_waits(server: PostgresServer, url: str, write: str) -> None:
    """The deadline is far away when the answer is lost; the call asks until it is over."""
    with ms.open(url, deadline=4.0) as store, ThreadPoolExecutor(1) as pool:
        store.tables.load(PATHS[0])
        with no_replica(server):
            began = time.monotonic()
            written = pool.submit(WRITES[write], store)
            assert wait_until(lambda: bool(waits(server)), 3.0)
            with psycopg.connect(server.dsn()) as other:
                for pid in waits(server):
                    other.execute("SELECT pg_terminate_backend(%s)", (pid,))
            with pytest.raises(ms.OutcomeUnknown):
                written.result(60.0)
            assert time.monotonic() - began > 3.0


@pytest.mark.parametrize("write", list(WRITES))
def test_confirmed_after_all(server: PostgresServer, url: str, write: str) -> None:
    """The replica is back before the deadline: the call says what it did, once."""
    with ms.open(url, deadline=60.0) as store, ThreadPoolExecutor(1) as pool:
        store.tables.load(PATHS[0])
        with no_replica(server):
            written = pool.submit(WRITES[write], store)
            assert wait_until(lambda: bool(waits(server)), 30.0)
            lost = waits(server)
            with psycopg.connect(server.dsn()) as other:
                for pid in lost:
                    other.execute("SELECT pg_terminate_backend(%s)", (pid,))
            assert wait_until(lambda: any(pid not in lost for pid in waits(server)), 30.0)  # it asks for confirmation
            assert not written.done()
        assert written.result(60.0) is not None
        if write != "lease":
            assert store.tables.load(PATHS[0]).version == 2


def test_a_repetition_about_a_lease_is_confirmed(server: PostgresServer, url: str) -> None:
    """The answer was lost, perhaps while the server was restarted: the second sending finds what the first one did."""
    with psycopg.connect(server.dsn(), autocommit=True) as own:  # the sessions' own setting waits for no replica
        own.execute(f"ALTER DATABASE {url.rpartition('/')[2]} SET synchronous_commit = 'local'")
    with ms.open(url, deadline=60.0) as store, ThreadPoolExecutor(3) as pool:
        rows = store._session.backend.leases
        ids = [ms.new_operation_id() for _ in range(5)]
        for name, operation in zip("ab", ids, strict=False):
            rows.take(Take(operation, None, (name,), (name,), "me", "first", 10**9, None))
        calls = (
            lambda: rows.break_("a", "a", ids[2], None),
            lambda: rows.release([LeaseToken("b", 1, 1, "first")], ["b"], ids[3], None),
            lambda: rows.mirror(Mirror(ids[4], None, "c", "c", 7, "me", "first")),
        )
        assert all(call() for call in calls)
        with no_replica(server):
            again = [pool.submit(call) for call in calls]
            assert wait_until(lambda: len(waits(server)) == len(calls) or any(one.done() for one in again), 30.0)
            assert not any(one.done() for one in again)
        assert all(one.result(60.0) for one in again)


@pytest.mark.parametrize("verb", ["break", "release"])
def test_a_lease_is_freed_twice_at_once(server: PostgresServer, url: str, verb: str) -> None:
    """The connection was cut while the first sending waited for its replica; the second one waits for the first."""
    with ms.open(url, deadline=60.0) as store, ThreadPoolExecutor(2) as pool:
        rows, sent = store._session.backend.leases, list[object]()
        rows.take(Take(ms.new_operation_id(), None, ("a",), ("a",), "me", "first", 10**9, None))

        def free(operation: UUID) -> int | Conflicted | Unknown:
            if verb == "break":
                return rows.break_("a", "a", operation, None)
            return rows.release([LeaseToken("a", 1, 1, "first")], ["a"], operation, None)

        def send(operation: UUID) -> int | Conflicted | Unknown:
            if sent:
                return free(operation)
            sent.append(pool.submit(free, operation))
            assert wait_until(lambda: bool(waits(server)), 30.0)
            return Unknown("cut")

        with no_replica(server):
            freed = pool.submit(DatabaseBook(store._session)._freed, verb, send)
            assert wait_until(lambda: bool(waits(server, "transactionid")), 30.0)
        assert freed.result(60.0) is True


@pytest.mark.parametrize("found_by", long_unless(("a repeat", "a lost answer"), lambda by: by == "a lost answer"))
def test_another_server_does_not_confirm_what_it_lacks(found_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row is found on a leader that dies then; the replica that takes its place never got the commit."""
    with pair() as servers:
        ports = f"{servers.leader.port},{servers.replica.port}"
        name = servers.url.rpartition("/")[2]
        url = f"postgresql+psycopg://postgres@/{name}?host=127.0.0.1,127.0.0.1&port={ports}"
        with ms.open(url, deadline=60.0) as store:
            operation = ms.new_operation_id()
            servers.replica.halt()
            store.tables.alter("lake.c.s.t", COMMENT, operation_id=operation)
            backend = store._session.backend
            original = backend.confirm

            def confirm(*arguments: UUID) -> object:
                monkeypatch.undo()
                servers.leader.kill()
                servers.replica.start()
                servers.promote()
                return original(*arguments)

            monkeypatch.setattr(backend, "confirm", confirm)
            if found_by == "a repeat":
                with suppress(ms.OutcomeUnknown):
                    store.tables.alter("lake.c.s.t", COMMENT, operation_id=operation)
                    assert store.tables.load("lake.c.s.t").comment == COMMENT.text
            else:
                ends = time.monotonic() + 60.0
                assert ask_until_it_answers(store._session, operation, 60.0, ends) is not None
