"""On PostgreSQL: who waits for whom at the row of a lease. Each order is arranged, and seen in the server's own tables.

What stands for a commit in flight, or a take-over in flight, is a transaction that is held open by hand.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import metastore as ms
from tests.concurrency.raw import dsn, rows, waiting_for_locks
from tests.servers.proxy import PostgresProxy

SHARED = "SELECT 1 FROM lease WHERE name = 'x' FOR KEY SHARE"
"""What a commit that is made under the lease does to its row."""
EXPIRE = "UPDATE lease SET expires_at = 0"
TAKE_OVER = "UPDATE lease SET token = token + 1, owner = 'other', incarnation = 'other' WHERE name = 'x'"


@pytest.fixture
def two(postgres_url: str) -> Iterator[tuple[ms.Store, ms.Store]]:
    """Give a store with a lake, opened twice."""
    with ms.open(postgres_url) as one, ms.open(postgres_url) as other:
        one.metalakes.create("lake")
        yield one, other


@contextmanager
def in_flight(url: str, *statements: str) -> Iterator[psycopg.Connection[Any]]:
    """Keep a transaction open after these statements."""
    with psycopg.connect(dsn(url)) as connection:
        for statement in statements:
            connection.execute(statement.encode())
        yield connection


def started(call: Callable[[], Any]) -> Future[Any]:
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001  (it is the caller's)
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def until_it_waits(url: str, future: Future[Any]) -> None:
    """Return when a session waits for a lock. What has ended instead did not wait."""
    pause = threading.Event()
    while waiting_for_locks(url) == 0:
        assert not future.done(), f"it did not wait: {future.exception() or future.result()}"
        pause.wait(0.005)


def test_a_take_over_waits_for_the_commit_in_flight(postgres_url: str, two: tuple[ms.Store, ms.Store]) -> None:
    one, other = two
    lease = one.leases.acquire("x")
    rows(postgres_url, EXPIRE + " RETURNING 1")
    with in_flight(postgres_url, SHARED) as commit:
        taking = started(lambda: other.leases.acquire("x", owner="other"))
        until_it_waits(postgres_url, taking)
        commit.commit()
    assert taking.result(30).token == 2
    with pytest.raises(ms.LeaseLost):
        one.metalakes.alter("lake", ms.SetComment("late"), lease=lease)


@pytest.mark.parametrize("ending", ["release", "break"])
def test_release_and_break_wait_for_the_commit_in_flight(
    postgres_url: str, two: tuple[ms.Store, ms.Store], ending: str
) -> None:
    one, other = two
    lease = one.leases.acquire("x")
    with in_flight(postgres_url, SHARED) as commit:
        ended = started(lease.release if ending == "release" else lambda: other.leases.break_("x"))
        until_it_waits(postgres_url, ended)
        commit.commit()
    assert ended.result(30) is True


def test_renewals_and_other_commits_pass_the_commit_in_flight(
    postgres_url: str, two: tuple[ms.Store, ms.Store]
) -> None:
    one, other = two
    with in_flight(postgres_url) as commit:
        lease = one.leases.acquire("x")
        commit.execute(SHARED)
        lease.renew()
        one.metalakes.alter("lake", ms.SetComment("beside"), lease=lease, deadline=5.0)
        with pytest.raises(ms.LeaseHeld):
            other.leases.acquire("x")
        assert waiting_for_locks(postgres_url) == 0


@pytest.mark.parametrize("how", ["committed", "rolled back"])
def test_a_commit_waits_for_the_take_over_in_flight(
    postgres_url: str, two: tuple[ms.Store, ms.Store], how: str
) -> None:
    """It then finds the new token: READ COMMITTED evaluates the condition on the newest row."""
    one, _ = two
    lease = one.leases.acquire("x")
    with in_flight(postgres_url, TAKE_OVER) as taking:
        writing = started(lambda: one.metalakes.alter("lake", ms.SetComment("mine"), lease=lease))
        until_it_waits(postgres_url, writing)
        taking.commit() if how == "committed" else taking.rollback()
    if how == "committed":
        assert isinstance(writing.exception(30), ms.LeaseLost)
        assert one.metalakes.load("lake").version == 1
        assert lease.lost.is_set()
    else:
        assert writing.result(30).comment == "mine"


@pytest.mark.parametrize("kind", ["create", "alter", "rename", "transaction", "freeze", "stage", "nothing to do"])
def test_every_shape_of_commit_waits(postgres_url: str, two: tuple[ms.Store, ms.Store], kind: str) -> None:
    """The statements for one insert, one altered document, everything else, several stages, and none."""
    one, _ = two
    one.metalakes.create("other", comment="same")
    lake = one.metalakes.load("lake")
    lease = one.leases.acquire("x")

    def several() -> None:
        with one.transaction(lease=lease) as tx:
            tx.metalakes.rename("lake", "was")
            tx.metalakes.create("lake")

    one.catalogs.create("lake.c", type="relational")
    one.schemas.create("lake.c.s")

    def freeze() -> None:
        with one.schemas.exclusive("lake.c.s", lease=lease) as tx:
            tx.tables.create("lake.c.s.t")

    calls: dict[str, Callable[[], object]] = {
        "create": lambda: one.metalakes.create("new", lease=lease),
        "alter": lambda: one.metalakes.alter("lake", ms.SetComment("late"), lease=lease),
        "rename": lambda: one.metalakes.rename("lake", "pond", lease=lease),
        "transaction": several,
        "freeze": freeze,
        "stage": lambda: lease.stage(lake, "pointer", "v1"),
        "nothing to do": lambda: one.metalakes.alter("other", ms.SetComment("same"), lease=lease),
    }
    before = rows(postgres_url, "SELECT (SELECT count(*) FROM operation), (SELECT count(*) FROM staged)")
    with in_flight(postgres_url, TAKE_OVER) as taking:
        late = started(calls[kind])
        until_it_waits(postgres_url, late)
        taking.commit()
    assert isinstance(late.exception(30), ms.LeaseLost)
    assert rows(postgres_url, "SELECT (SELECT count(*) FROM operation), (SELECT count(*) FROM staged)") == before


def test_a_clean_up_waits_for_the_staging_in_flight(postgres_url: str, two: tuple[ms.Store, ms.Store]) -> None:
    """What is staged again at this moment under a token that a lease has must not be cleaned up."""
    one, _ = two
    lake, value = one.metalakes.load("lake"), "s3://b/v1"
    late = one.leases.acquire("x")
    late.stage(lake, "pointer", value)
    one.leases.break_("x")
    one.leases.acquire("x", owner="again")
    staging = f"""INSERT INTO staged
      SELECT gen_random_uuid(), id, token, name, {lake.id}, 'pointer', '{value}', NULL, 1, 1, 0
      FROM lease WHERE name = 'x'"""
    garbage: list[str] = []
    with in_flight(postgres_url, "SELECT 1 FROM info FOR KEY SHARE", staging) as staged:
        collecting = started(lambda: one.gc(clean_up=lambda work: garbage.append(work.value)))
        until_it_waits(postgres_url, collecting)
        staged.commit()
    assert collecting.result(30).staged == 0
    assert garbage == []


def test_round_trips(postgres_address: tuple[str, int], postgres_url: str) -> None:
    """Acquire, release and renew are one round trip each; a commit under a lease has none more."""
    with PostgresProxy(*postgres_address) as proxy, ms.open(proxy.url_for(postgres_url)) as store:
        lake = store.metalakes.create("lake")

        def trips(call: Callable[[], object]) -> int:
            before = proxy.round_trips
            call()
            return proxy.round_trips - before

        def once() -> dict[str, int]:
            nonlocal lake
            counts: dict[str, int] = {}
            held: list[ms.Lease] = []
            counts["acquire"] = trips(lambda: held.append(store.leases.acquire("x")))
            (lease,) = held

            def alter(**options: Any) -> None:
                nonlocal lake
                lake = store.metalakes.alter(lake, ms.SetComment(f"{lake.version}"), **options)

            counts["renew"] = trips(lease.renew)
            counts["alter"] = trips(alter)
            counts["fenced alter"] = trips(lambda: alter(lease=lease))
            counts["create"] = trips(lambda: store.catalogs.create(f"a{lake.version}", parent=lake, type="model"))
            counts["fenced create"] = trips(
                lambda: store.catalogs.create(f"b{lake.version}", parent=lake, type="model", lease=lease)
            )
            counts["stage"] = trips(lambda: lease.stage(lake, "k", "v"))
            counts["release"] = trips(lease.release)
            counts["several"] = trips(lambda: held.append(store.leases.acquire_many(["p", "q", "r"])))  # type: ignore[arg-type]
            counts["release of several"] = trips(held[1].release)
            return counts

        for _ in range(4):  # psycopg prepares a statement at its third execution
            counts = once()
    assert set(counts.values()) == {1}, counts
