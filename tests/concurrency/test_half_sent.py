"""A client falls silent while it sends a commit, and its connection stays open: it keeps no lock.

A process that is stopped falls silent, a virtual machine that is paused, a network that drops packets. The server does
not notice for a while, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import cast

import psycopg
import pytest

import metastore as ms
from metastore.backends.postgres.backend import PostgresBackend
from tests.combine.gate import lanes, together
from tests.concurrency.raw import rows
from tests.concurrency.silent import Swallower
from tests.servers.postgres import PostgresServer
from tests.servers.process import wait_until

LONG = 60.0
PATHS = [f"m.c.s.t{n}" for n in range(3)]
EXECUTE = b"E\x00\x00\x00\x09\x00\x00\x00\x00\x00"
"""The message that lets the server execute what was bound; it commits with the Sync behind it."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(in_memory=True) as own:
        yield own


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


Calls = list[Callable[[], object]]
BATCHES: dict[str, Callable[[ms.Store], Calls]] = {
    "creates, alters, renames": lambda store: [
        partial(store.tables.create, "m.c.s.new", comment="new " * 3000),
        partial(store.tables.alter, PATHS[0], ms.SetComment("old " * 3000)),
        partial(store.tables.rename, PATHS[1], "renamed"),
        partial(store.tables.rename, PATHS[2], "the_last"),
    ],
    "alters, renames": lambda store: [
        partial(store.tables.alter, PATHS[0], ms.SetComment("old")),
        partial(store.tables.rename, PATHS[2], "the_last"),
    ],
}


@pytest.mark.parametrize("batch", list(BATCHES))
def test_a_batch_is_not_executed_before_all_of_it_is_there(server: PostgresServer, url: str, batch: str) -> None:
    """The statements before the last one have arrived, but lock nothing; no time-out is needed for that."""
    with closing(Swallower(server.port)) as swallower, ThreadPoolExecutor(1) as pool, ms.open(url) as direct:
        with ms.open(swallower.url_for(url), deadline=LONG) as store:
            for path in PATHS:
                store.tables.load(path)
            swallower.swallow_behind(b"the_la")
            sent = pool.submit(together, lanes(store)[1], BATCHES[batch](store))
            assert swallower.cut.wait(LONG)
            for path in PATHS:
                assert direct.tables.alter(path, ms.SetProperty("k", "v"), deadline=LONG / 4).version == 2
            swallower.recover()
            for answer in sent.result(2 * LONG):  # the batch was not applied: it is sent again
                assert isinstance(answer, ms.Table)
        assert direct.tables.load("m.c.s.the_last").version == 3


def test_a_statement_without_its_end_lets_go_in_time(server: PostgresServer, url: str) -> None:
    """Only the last five bytes are missing. The transaction's time-out ends what the server waits for then."""
    with closing(Swallower(server.port)) as swallower, ms.open(url) as direct:
        backend = cast(PostgresBackend, direct._session.backend)
        with backend.pool.connection() as connection:
            if connection.info.server_version < 170000:
                pytest.skip("the server has no transaction_timeout")
        with ms.open(swallower.url_for(url), deadline=2.0) as store:
            for n in range(4):  # from the third time on it is prepared
                table = store.tables.alter(PATHS[0], ms.SetComment(f"{n}"))
            swallower.swallow_behind(EXECUTE)
            with pytest.raises(ms.OutcomeUnknown):
                store.tables.alter(table, ms.SetComment("half sent"))
            assert swallower.cut.is_set()
            assert direct.tables.alter(table, ms.SetComment("after it"), deadline=LONG / 2).version == table.version + 1
        swallower.recover()


def test_a_member_of_the_cache_sends_nothing_that_runs_without_its_end(server: PostgresServer, url: str) -> None:
    """Otherwise its row would stay locked until the time-out of its transaction, and no writer could give it up."""

    def renewals() -> tuple[str, int]:
        ((incarnation, count),) = rows(url, "SELECT incarnation, renewals FROM cache_member")
        return str(incarnation), int(str(count))

    with (
        closing(Swallower(server.port)) as swallower,
        ms.open(swallower.url_for(url), cache=ms.Cache("lease", ttl=0.5)),
    ):
        incarnation, before = renewals()
        swallower.swallow_behind(EXECUTE, beside=incarnation.encode())
        assert wait_until(lambda: swallower.cut.is_set() or renewals()[1] > before + 5, LONG)
        assert not swallower.cut.is_set()
    assert not swallower.cut.is_set(), "it has left"


@pytest.mark.parametrize(
    ("what", "value"), [("server_version", 160014), ("backend_pid", 0)], ids=["an older server", "a pooler"]
)
def test_nothing_that_lacks_its_end_is_executed(
    server: PostgresServer, url: str, what: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no time-out would end it: each statement is a simple query, whose end is the end of its message."""
    monkeypatch.setattr(psycopg.ConnectionInfo, what, property(lambda _: value))
    with closing(Swallower(server.port)) as swallower, ms.open(swallower.url_for(url), deadline=5.0) as store:
        swallower.swallow_behind(EXECUTE)
        for n in range(4):  # from the third time on it is prepared
            store.tables.alter(PATHS[0], ms.SetComment(f"{n}"))
            store.tables.create(f"m.c.s.new{n}")
            store.tables.rename(f"m.c.s.new{n}", f"newer{n}")
            store.run(lambda tx: tx.tables.alter(PATHS[1], ms.SetProperty("a\\'b", "%s")))
            with store.leases.acquire("work") as lease:
                store.partitions.create(PATHS[2], f"p{n}", values={"a": "1"}, lease=lease)
                lease.renew()
            with store.schemas.exclusive("m.c.s") as tx:
                tx.tables.drop(f"m.c.s.newer{n}")
        assert not swallower.cut.is_set()
        swallower.recover()
        assert store.tables.load(PATHS[1]).properties == {"a\\'b": "%s"}
        assert list(store.tables.names("m.c.s")) == ["t0", "t1", "t2"]
        assert store.verify() == []


def test_the_server_notices_a_client_that_is_gone(url: str) -> None:
    with ms.open(url, deadline=7.0) as store:
        backend = cast(PostgresBackend, store._session.backend)

        def setting(name: str) -> str:
            return str(backend._rows(f"SELECT current_setting('{name}', true)", {})[0][0])

        kept = [setting(f"tcp_keepalives_{name}") for name in ("idle", "interval", "count")]
        assert kept == ["5", "2", "3"]
        assert setting("statement_timeout") == "7s"
        assert setting("transaction_timeout") in ("8s", "None")  # PostgreSQL 17 and later
