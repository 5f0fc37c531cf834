"""What was sent and waits in the database for a lock, while its connection is gone: it must not land any more.

Another session holds the row; the call that lost its connection goes on, or gives up; then the row is let go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from uuid import UUID

import pytest

import metastore as ms
from tests.concurrency.checks import seed, violations
from tests.concurrency.raw import at_work, connect, waiting_for_locks
from tests.concurrency.workers import outcome
from tests.progress.hooks import announces
from tests.servers.process import wait_until
from tests.servers.proxy import PostgresProxy

pytestmark = pytest.mark.postgres

PATH = "lake.cat.s.t"
Stores = tuple[ms.Store, ms.Store, PostgresProxy]


@pytest.fixture
def stores(postgres_url: str, postgres_address: tuple[str, int]) -> Iterator[Stores]:
    """Give a store that goes through a proxy, one that does not, and the proxy."""
    seed(postgres_url, PATH)
    with (
        PostgresProxy(*postgres_address) as proxy,
        ms.open(proxy.url_for(postgres_url), principal="victim") as store,
        ms.open(postgres_url) as direct,
    ):
        yield store, direct, proxy


@contextmanager
def in_flight(url: str, stores: Stores, call: Callable[[], object]) -> Iterator[Future[object]]:
    """Let the call wait in the database, for a row that is held until the end of the block; cut its connection."""
    _, direct, proxy = stores
    table = direct.tables.load(PATH)
    with ThreadPoolExecutor(1) as pool, connect(url) as foreign:
        foreign.execute("BEGIN")
        foreign.execute(f"SELECT FROM entity WHERE id = {table.id} FOR UPDATE")
        running = pool.submit(call)
        assert wait_until(lambda: waiting_for_locks(url) == 1, 10)
        proxy.cut_all()
        yield running
        assert waiting_for_locks(url) >= 1  # the original is still there
        foreign.execute("ROLLBACK")
        assert wait_until(lambda: at_work(url) == 0, 10)  # the original has ended, whatever it came to


def announce(store: ms.Store, announced: bool) -> None:
    table = store.tables.load(PATH)
    if announced:
        announces(store, table)
    else:
        store._session.hot.cool(table.id)


def adding(store: ms.Store, operation: UUID, seconds: float) -> Callable[[], object]:
    return lambda: store.tables.alter(PATH, ms.AddColumn("c", "int"), operation_id=operation, deadline=seconds)


@pytest.mark.parametrize("announced", [False, True], ids=["fast", "announced"])
def test_the_call_goes_on(postgres_url: str, stores: Stores, announced: bool) -> None:
    """Its successor lands, the original does not: the column is added once."""
    store, direct, _ = stores
    operation = ms.new_operation_id()
    announce(store, announced)
    with in_flight(postgres_url, stores, adding(store, operation, 30.0)) as running:
        assert wait_until(lambda: waiting_for_locks(postgres_url) == 2, 10)  # the original, and its successor
        assert direct.outcome(operation).state == ("pending" if announced else "cancelled")
    found = running.result(20)
    assert isinstance(found, ms.Table)
    assert [c.name for c in found.columns] == ["c"]
    assert [v.operation_id for v in direct.tables.history(PATH)].count(operation) == 1
    assert violations(postgres_url) == []


def gives_up(url: str, stores: Stores, announced: bool) -> tuple[str, int]:
    """Return what the caller was told, and how often the change is in history at the end."""
    store, direct, _ = stores
    operation = ms.new_operation_id()
    announce(store, announced)
    with in_flight(url, stores, adding(store, operation, 1.5)) as running:
        said = outcome(running.result, 20)
    return said, [v.operation_id for v in direct.tables.history(PATH)].count(operation)


@pytest.mark.parametrize("announced", [False, True], ids=["fast", "announced"])
def test_the_call_gives_up(postgres_url: str, stores: Stores, announced: bool) -> None:
    """It was said that nothing was applied, and nothing is, whatever waits in the database yet."""
    assert gives_up(postgres_url, stores, announced) == ("DeadlineExceeded", 0)
    assert stores[1].tables.load(PATH).columns == ()
    assert violations(postgres_url) == []


def test_without_a_tombstone_it_lands(postgres_url: str, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: the call goes on as if it had made the original impossible."""
    monkeypatch.setattr(stores[0]._session.backend, "forbid", lambda operation_id, life: 1)
    said, applied = gives_up(postgres_url, stores, announced=False)
    assert said != "ok"
    assert applied == 1
