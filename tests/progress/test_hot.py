"""One hot entity: every writer succeeds, after few attempts, and none is left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

import metastore as ms
from tests.concurrency.checks import seed, violations
from tests.concurrency.raw import connect, is_sqlite
from tests.concurrency.workers import Job, Team, Turn
from tests.progress.hooks import Lost

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

PATH = "lake.cat.s.t"
BOUND = 4
"""Failed attempts: one on the fast path, two once it is announced, and one for a batch that is full."""


def count_up(turn: Turn, number: int, threads: int, times: int) -> list[tuple[float, int]]:
    """Let threads, with a store each, count up a property of their own; return how long it took, and the attempts."""

    def write(thread: int) -> list[tuple[float, int]]:
        lost, found, key = Lost(), list[tuple[float, int]](), f"w{number}_{thread}"
        with ms.open(turn.url, principal=key, hooks=[lost]) as store:
            barrier.wait(60)
            for n in range(times):
                lost.causes.clear()
                began = time.monotonic()
                expected = None if n == 0 else str(n - 1)
                store.tables.alter(PATH, ms.SetProperty(key, str(n), expected=expected))
                found.append((time.monotonic() - began, len(lost.causes)))
        return found

    barrier = threading.Barrier(threads + 1)
    with ThreadPoolExecutor(threads) as pool:
        running = [pool.submit(write, thread) for thread in range(threads)]
        turn.meet()
        barrier.wait(60)
        return [one for done in running for one in done.result()]


def check_counts(url: str, processes: int, threads: int, times: int) -> None:
    with ms.open(url) as store:
        table = store.tables.load(PATH)
        keys = {f"w{n}_{k}" for n in range(processes) for k in range(threads)}
        assert table.properties == dict.fromkeys(keys, str(times - 1))
        assert table.version == 1 + len(keys) * times
        assert store.stats().pending == 0
    assert violations(url) == []


def test_32_writers_on_one_table(team: Team, url: str) -> None:
    """Field case 33: No failure, at any number of writers; there 4.6 % of the attempts succeed, most commits fail."""
    seed(url, PATH)
    found = [one for done in team.run(url, [Job(count_up, n, 4, 8) for n in range(8)]) for one in done]
    assert len(found) == 32 * 8
    print("attempts", sorted(a for _, a in found)[-5:], "slowest", max(found))
    assert max(attempts for _, attempts in found) <= BOUND
    check_counts(url, 8, 4, 8)


@pytest.mark.each_run_on("postgres")
def test_1000_merges_at_parallelism_50(team: Team, url: str) -> None:
    """Field case 66: No error; there 66 of them, without a queue for each owner."""
    seed(url, PATH)
    found = [one for done in team.run(url, [Job(count_up, n, 10, 20) for n in range(5)]) for one in done]
    assert len(found) == 1000
    print("attempts", sorted(a for _, a in found)[-5:], "slowest", max(found))
    assert max(attempts for _, attempts in found) <= BOUND
    check_counts(url, 5, 10, 20)


def keep_coming(turn: Turn, number: int) -> int:
    """Write on while others are at it."""
    done = 0
    turn.meet()
    while turn.go_on():
        turn.store.tables.alter(PATH, ms.SetProperty(f"new{number}", str(done)))
        done += 1
    return done


@contextmanager
def stall(url: str, entity_id: int) -> Iterator[None]:
    """Let nobody write the entity for the time of the block."""
    with connect(url) as foreign:
        foreign.execute("BEGIN IMMEDIATE" if is_sqlite(url) else "BEGIN")
        if not is_sqlite(url):
            foreign.execute(f"SELECT FROM entity WHERE id = {entity_id} FOR UPDATE")
        yield
        foreign.execute("ROLLBACK")


def ten_in_a_stall(turn: Turn) -> list[int]:
    """Queue ten commits behind a stall; return how many attempts of each failed."""
    table = turn.store.tables.load(PATH)
    turn.meet()

    def write(n: int) -> int:
        lost = Lost()
        with ms.open(turn.url, principal=f"queued{n}", hooks=[lost]) as store:
            barrier.wait(60)
            store.tables.alter(table, ms.SetProperty(f"queued{n}", "x"))
        return len(lost.causes)

    barrier = threading.Barrier(11)
    with ThreadPoolExecutor(10) as pool:
        running = [pool.submit(write, n) for n in range(10)]
        with stall(turn.url, table.id):
            barrier.wait(60)
            time.sleep(1.0)  # the stall itself
        return [done.result() for done in running]


def test_ten_queued_by_a_stall(team: Team, url: str) -> None:
    """Field case 65: New ones keep coming: each of the ten ends within a bounded number of attempts."""
    seed(url, PATH)
    attempts, *new = team.run(url, [Job(ten_in_a_stall), *[Job(keep_coming, n, background=True) for n in range(4)]])
    print("attempts", attempts, "new", new)
    assert len(attempts) == 10
    assert max(attempts) <= BOUND
    with ms.open(url) as store:
        table = store.tables.load(PATH)
        assert {k for k in table.properties if k.startswith("queued")} == {f"queued{n}" for n in range(10)}
        assert table.version == 1 + 10 + sum(new)
    assert violations(url) == []
