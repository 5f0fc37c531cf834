"""Who waits is served in the order of arrival; who is dead is passed over; being woken is only a hint."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from math import inf
from multiprocessing.connection import Connection
from typing import Any, Self

import pytest

import metastore as ms
from metastore.backends.postgres import leases as postgres_leases
from metastore.port.leases import ALIVE, Looker
from tests.concurrency.raw import connect, rows
from tests.concurrency.workers import Job, Team, Turn
from tests.leases.fencing import late_commits
from tests.leases.worlds import Time
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import database_of
from tests.servers.process import wait_until
from tests.servers.proxy import PostgresProxy

pytestmark = pytest.mark.one_in(3)

_SPAWN = multiprocessing.get_context("spawn")
DEAD = ALIVE / 1_000_000
"""When a waiter who was not heard of counts as dead (seconds)."""
NEVER = 60.0
LISTENS = """FROM pg_stat_activity
    WHERE query LIKE '%LISTEN metastore%' AND datname = current_database() AND pid <> pg_backend_pid()"""


def in_line(url: str) -> int:
    return int(rows(url, "SELECT count(DISTINCT ticket) FROM lease_waiter")[0][0])


def arrive(turn: Turn, number: int) -> int | None:
    """Wait in line as number ``number``; hold the lease for a moment; return the token."""
    if number == 0:
        with turn.store.leases.acquire("work") as lease:
            turn.meet()
            assert wait_until(lambda: in_line(turn.url) == ARRIVALS - 1, 30)
            return lease.token
    turn.meet()
    assert wait_until(lambda: in_line(turn.url) >= number - 1, 30)
    with turn.store.leases.acquire("work", timeout=30.0) as lease:
        return lease.token


ARRIVALS = 6


def test_a_waiter_asks_again_before_it_counts_as_dead() -> None:
    clock = Time()
    began = clock.monotonic()
    Looker(clock, lambda: False, lambda: 0.01).wait(NEVER)
    assert clock.monotonic() - began < DEAD / 2


def test_in_the_order_of_arrival(team: Team, url: str) -> None:
    """By the tokens they got; with a release between each two."""
    tokens = team.run(url, [Job(arrive, n) for n in range(ARRIVALS)])
    assert tokens == [1 + 2 * n for n in range(ARRIVALS)]
    assert in_line(url) == 0


def test_who_comes_later_does_not_overtake(store: ms.Store, url: str) -> None:
    """Who does not wait is refused while others do, also while nobody has it."""
    with connect(url) as connection:
        now = "(SELECT max(acquired_at) FROM lease)"
        store.leases.acquire("work").release()
        held = store.leases.acquire("other")
        connection.execute(f"INSERT INTO lease_waiter SELECT 'work', 1, 'first', {now} + {ALIVE}")
        with pytest.raises(ms.LeaseHeld, match="others, who have waited longer") as error:
            store.leases.acquire("work")
        assert (error.value.owner, error.value.expires_at) == (None, None)
        with pytest.raises(ms.LeaseHeld):
            store.leases.acquire("work", timeout=0.3)
        assert store.leases.acquire("a third").release()
        with pytest.raises(ms.LeaseHeld):
            store.leases.acquire_many(["a third", "work"])
        assert store.leases.holder("a third") is None
        connection.execute("DELETE FROM lease_waiter")
        assert store.leases.acquire("work").token == 3
        held.release()


def _wait(pipe: Connection, url: str, timeout: float) -> None:
    with ms.open(url) as store:
        pipe.recv()
        try:
            with store.leases.acquire("work", timeout=timeout, owner="waiter") as lease:
                pipe.send(lease.token)
                pipe.recv()
        except ms.LeaseHeld as held:
            pipe.send(str(held))
        pipe.send("released")


class Waiter:
    """A process that waits in line, and holds the lease until it is told to release it."""

    def __init__(self, url: str, timeout: float = 30.0) -> None:
        self.pipe, theirs = _SPAWN.Pipe()
        self._url = url
        self.process = _SPAWN.Process(target=_wait, args=(theirs, url, timeout), daemon=True)
        self.process.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def line_up(self) -> None:
        before = in_line(self._url)
        self.pipe.send("line up")
        assert wait_until(lambda: in_line(self._url) == before + 1, 20)

    def said(self, within: float = 20.0) -> Any:
        assert self.pipe.poll(within)
        return self.pipe.recv()

    def signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def give_back(self) -> None:
        self.pipe.send("release")
        assert self.said() == "released"


@pytest.mark.each_run_on("postgres")
def test_waiters_who_do_not_live_are_passed_over(url: str) -> None:
    """Within seconds: the first was killed, the second stopped. A stopped one is served when it goes on."""
    with ms.open(url) as store, Waiter(url) as killed, Waiter(url) as stopped, Waiter(url) as third:
        with store.leases.acquire("work"):
            for waiter in (killed, stopped, third):
                waiter.line_up()
            killed.signal(signal.SIGKILL)
            stopped.signal(signal.SIGSTOP)
            began = time.monotonic()
        token = third.said(DEAD + 15.0)  # 3, or 2 where the machine was so slow that nobody waited for the killed one
        assert token in (2, 3)
        assert time.monotonic() - began < DEAD + 10
        stopped.signal(signal.SIGCONT)
        assert not stopped.pipe.poll(0.2)
        third.give_back()
        assert stopped.said() > token
        stopped.give_back()
        assert in_line(url) == 1  # the dead one, until gc forgets it
        with store.leases.acquire("work"):
            assert [holder.waiting for holder in store.leases.list()] == [0]
    assert late_commits(url) == []


def test_a_timeout_that_passes_says_who_has_it_and_leaves_the_line(store: ms.Store, url: str) -> None:
    with store.leases.acquire("work", owner="somebody") as lease:
        began = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(store.leases.acquire, "work", timeout=0.4)
            with pytest.raises(ms.LeaseHeld, match="held by somebody until") as held:
                waiting.result()
        assert 0.4 <= time.monotonic() - began < 10
        assert held.value.expires_at == lease.expires_at
        assert in_line(url) == 0


def test_the_end_of_its_time_is_not_slept_through(store: ms.Store) -> None:
    """A waiter waits until a dead holder's ttl is over, not until its own next look."""

    def waited(name: str) -> float:
        try:
            store.leases.acquire(name, ttl=0.4)
        except (ms.LeaseLost, ms.DeadlineExceeded, ms.OutcomeUnknown):  # the answer did not come in that time
            return inf
        began = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(store.leases.acquire, name, timeout=20.0).result().token == 2
        return time.monotonic() - began

    assert any(waited(f"work {n}") < 0.95 for n in range(10))  # on a busy machine, a single one may be late


def crossing(turn: Turn, number: int, times: int) -> float:
    """Take two of four names again and again; return the longest wait."""
    dice, longest = random.Random(number), 0.0
    turn.meet()
    for _ in range(times):
        names = dice.sample(["a", "b", "c", "d"], 2)
        began = time.monotonic()
        with turn.store.leases.acquire_many(names, timeout=30.0) as leases:
            longest = max(longest, time.monotonic() - began)
            assert sorted(leases) == sorted(names)
            turn.store.metalakes.alter("lake", ms.SetProperty(str(number), str(dict(leases))), lease=leases)
    return longest


def test_several_names_crosswise(team: Team, url: str) -> None:
    """All or none: no two wait for each other, and all are served."""
    with ms.open(url) as store:
        store.metalakes.create("lake")
        waits = team.run(url, [Job(crossing, n, 8) for n in range(8)])
        assert max(waits) < 20.0, waits
        assert list(store.leases.list()) == []
        assert in_line(url) == 0
        assert sum(event.action == "commit" for name in "abcd" for event in store.leases.audit(name)) == 2 * 8 * 8
    assert late_commits(url) == []


# --- PostgreSQL: woken, or not


@pytest.fixture
def listens_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter that does not look by itself for a long time must be woken."""
    monkeypatch.setattr(postgres_leases, "_POLL", NEVER)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def lines_up(url: str, waiting: Future[Any], *, nth: int = 1) -> None:
    assert wait_until(lambda: waiting.done() or in_line(url) == nth, 20)
    assert not waiting.done(), waiting.result()


@pytest.mark.postgres
@pytest.mark.usefixtures("listens_only")
@pytest.mark.parametrize("freed", ["release", "break_"])
def test_a_waiter_is_woken(
    postgres_url: str, postgres_address: tuple[str, int], pool: ThreadPoolExecutor, freed: str
) -> None:
    """After the lease became free the waiter sends one statement, and has it."""
    with PostgresProxy(*postgres_address) as proxy, ms.open(postgres_url) as store:
        lease = store.leases.acquire("work")
        with ms.open(proxy.url_for(postgres_url)) as waiter:
            waiting = pool.submit(waiter.leases.acquire, "work", timeout=30.0)
            lines_up(postgres_url, waiting)
            assert wait_until(lambda: rows(postgres_url, f"SELECT count(*) {LISTENS}") == [(1,)], 20)
            last = -1
            while last != (last := proxy.round_trips):
                time.sleep(0.05)  # until it has looked once more, and listens
            began = time.monotonic()
            assert lease.release() if freed == "release" else store.leases.break_("work")
            found = waiting.result(10)
            print(f"handed over within {(time.monotonic() - began) * 1000:.1f} ms")
            assert found.token == 3
            assert proxy.round_trips - last == 1
            assert found.release()


@pytest.mark.postgres
@pytest.mark.usefixtures("listens_only")
def test_who_leaves_the_line_wakes_the_next(postgres_url: str, pool: ThreadPoolExecutor) -> None:
    """The first one waits for two names, one of which is free; when it gives up, it is the second one's turn."""
    with ms.open(postgres_url) as store, ms.open(postgres_url) as one, ms.open(postgres_url) as two:
        store.leases.acquire("b")
        first = pool.submit(one.leases.acquire_many, ["a", "b"], timeout=2.0)
        lines_up(postgres_url, first)
        second = pool.submit(two.leases.acquire, "a", timeout=30.0)
        lines_up(postgres_url, second, nth=2)
        with pytest.raises(ms.LeaseHeld):
            first.result(10)
        assert second.result(20).token == 1


@pytest.mark.postgres
def test_behind_pgbouncer_nobody_is_woken(postgres_url: str, pgbouncer: PgBouncer, pool: ThreadPoolExecutor) -> None:
    """In transaction mode LISTEN is lost: the waiter looks by itself. The server's connections are not used up."""
    url = pgbouncer.url(database_of(postgres_url))
    with ExitStack() as stack:
        store = stack.enter_context(ms.open(postgres_url))
        waiters = [stack.enter_context(ms.open(url)) for _ in range(4)]
        lease = store.leases.acquire("work")
        waiting = [pool.submit(_has_it, waiter) for waiter in waiters]
        assert wait_until(lambda: in_line(postgres_url) == 4, 20)
        began = time.monotonic()
        lease.release()
        assert sorted(done.result(20) for done in waiting) == [3, 5, 7, 9]
        assert time.monotonic() - began < 4 * 1.0 + 15


def _has_it(store: ms.Store) -> int:
    with store.leases.acquire("work", timeout=30.0) as lease:
        return lease.token or 0


@pytest.mark.postgres
def test_a_listener_whose_connection_was_closed_looks_by_himself(postgres_url: str, pool: ThreadPoolExecutor) -> None:
    with ms.open(postgres_url) as store, ms.open(postgres_url) as waiter:
        lease = store.leases.acquire("work")
        waiting = pool.submit(waiter.leases.acquire, "work", timeout=30.0)
        lines_up(postgres_url, waiting)
        assert wait_until(lambda: rows(postgres_url, f"SELECT count(*) {LISTENS}") == [(1,)], 20)
        assert rows(postgres_url, f"SELECT pg_terminate_backend(pid) {LISTENS}") == [(True,)]
        lease.release()
        assert waiting.result(20).token == 3
