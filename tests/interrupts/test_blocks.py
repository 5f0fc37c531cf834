"""Deadlines and connections end with their blocks, whatever line an interrupt hits.

Each run raises the error one line further down, until a run has no such line. The errors are kept, as a notebook or a
task queue keeps them: their frames must keep nothing.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from itertools import count
from typing import Any

import pytest

import metastore.backends.sql.pool as pooling
import metastore.block as blocks
from metastore import deadlines
from metastore.backends.sql.limits import Limits
from metastore.backends.sql.pool import Loan, WaitingPool
from metastore.block import Block
from metastore.clock import SYSTEM
from metastore.deadlines import cleaning, cleans_up, remaining, until
from metastore.errors import PoolExhausted
from metastore.governance import access
from tests.interrupts.raising import Raising
from tests.retry.fake import FakeClock
from tests.servers.process import wait_until

CODE = {access.__file__, deadlines.__file__, blocks.__file__, pooling.__file__}
LONG = 30.0


def everywhere(
    error: type[BaseException], call: Callable[[], Any], check: Callable[[], None], *, instructions: bool = False
) -> int:
    """Let ``call`` meet the error at each line; ``check`` what is left. Return how many lines there were."""
    kept: list[BaseException] = []
    for at in count(1):
        raising = Raising(CODE, at, error, instructions=instructions)
        try:
            raising.run(call)
        except BaseException as met:  # noqa: BLE001  (what it was is asserted below)
            kept.append(met)
        check()
        if raising.left:
            assert {type(met) for met in kept} == {error}
            return at - 1
    raise AssertionError


ERRORS = pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
STEPS = pytest.mark.parametrize("instructions", [False, True])


# --- blocks


class Noted(Block):
    """Notes whether it runs while its code does."""

    def __init__(self) -> None:
        self.begun = self.ended = False

    def __enter__(self) -> None:
        self.begun = self.runs

    def end(self, *_: object) -> None:
        self.ended = self.runs


@pytest.mark.parametrize("fails", [False, True])
def test_a_block_runs_from_its_first_line_to_its_last(fails: bool) -> None:
    block = Noted()
    with pytest.raises(KeyError) if fails else nullcontext(), block:
        assert block.runs
        if fails:
            raise KeyError
    assert block.begun
    assert block.ended, "it ran while it was ended: nobody else takes what it has"
    assert not block.runs


def test_a_generator_that_nobody_continues_ends_its_block() -> None:
    block = Noted()

    def generator() -> Iterator[None]:
        with block:
            yield

    steps = generator()
    next(steps)
    assert block.runs
    del steps
    gc.collect()
    assert not block.runs


# --- deadlines


@ERRORS
@STEPS
def test_no_deadline_is_left(error: type[BaseException], instructions: bool) -> None:
    clock = FakeClock()

    def call() -> None:
        with until(1.0), cleaning(2.0), until(0.5):
            remaining(clock, 7.0)

    def check() -> None:
        assert remaining(clock, 7.0) == 7.0
        assert not cleans_up()

    assert everywhere(error, call, check, instructions=instructions) > 20


@ERRORS
def test_the_deadline_around_stays(error: type[BaseException]) -> None:
    clock = FakeClock()

    def call() -> None:
        with until(1.0), cleaning(2.0):
            remaining(clock, 7.0)

    with until(clock.monotonic() + 5.0):
        assert everywhere(error, call, lambda: _is(remaining(clock, 7.0), 5.0)) > 10
    assert remaining(clock, 7.0) == 7.0


def _is(one: object, other: object) -> None:
    assert one == other


# --- connections


class Connection:
    """What a pool lends; it says whether a loan left something unfinished in it."""

    def __init__(self) -> None:
        self.unfinished = self.closed = False

    def close(self) -> None:
        self.closed = True


def pool_of(size: int, *, wait: float = LONG) -> WaitingPool:
    def settle(connection: Connection, error: type[BaseException] | None) -> bool:
        connection.unfinished = False
        return error is None

    return WaitingPool(Connection, settle, Limits(size, wait), wait)


def used(pool: WaitingPool) -> Connection:
    """Use a connection, and leave something unfinished in it."""
    connection: Connection
    with Loan[Connection](pool) as connection:
        assert not connection.unfinished
        assert not connection.closed
        connection.unfinished = True
        return connection


@ERRORS
@STEPS
def test_no_connection_is_taken(error: type[BaseException], instructions: bool) -> None:
    pool = pool_of(1)

    def check() -> None:
        assert pool.use().in_use == 0
        with until(SYSTEM.monotonic() + LONG):
            used(pool)
        assert len(pool._places) == 1

    assert everywhere(error, lambda: used(pool), check, instructions=instructions) > 20


def test_what_an_interrupt_left_unfinished_is_ended_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may block others: an open transaction of SQLite does."""
    pool = pool_of(2)
    with Loan[Connection](pool):
        monkeypatch.setattr(pool, "settle", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            used(pool)
        monkeypatch.undo()
    assert [place.connection.unfinished for place in pool._places] == [False, True]
    with Loan[Connection](pool) as connection:
        assert connection is pool._places[1].connection
    assert [place.settled for place in pool._places] == [True, True]


def test_a_place_is_used_again_after_an_interrupt_between_the_lines_that_close_it() -> None:
    pool = pool_of(1)
    used(pool)
    (place,) = pool._places
    place.connection, place.settled = None, False
    assert used(pool) is place.connection


def _interrupted(connection: Connection, error: type[BaseException] | None) -> bool:
    raise KeyboardInterrupt


@ERRORS
def test_a_waiting_call_that_is_interrupted_keeps_nobody_waiting(error: type[BaseException]) -> None:
    pool = pool_of(1)

    def call() -> None:
        with Loan[Connection](pool):
            release.set()

    def check() -> None:
        release.set()
        holder.result(LONG)
        assert used(pool) is not None
        assert pool.use().in_use == pool.use().waiting == 0

    def let_go(release: threading.Event) -> bool:
        """Let the holder end when the call waits, not before: a call that need not wait has fewer lines."""
        waits = wait_until(lambda: pool.use().waiting == 1 or release.is_set(), LONG)
        release.set()
        return waits

    with ThreadPoolExecutor(2) as threads:
        for at in count(1):
            release = threading.Event()
            holder = threads.submit(_hold, pool, release)
            assert wait_until(lambda: pool.use().in_use == 1, LONG)
            raising = Raising(CODE, at, error)
            letting_go = threads.submit(let_go, release)
            with suppress(error):
                raising.run(call)
            release.set()
            assert letting_go.result(LONG)
            check()
            if raising.left:
                break
    assert at > 40


def _hold(pool: WaitingPool, release: threading.Event) -> None:
    with Loan[Connection](pool):
        assert release.wait(LONG)


def test_who_came_first_is_served_first() -> None:
    pool, served = pool_of(1), list[int]()

    def call(number: int) -> None:
        with Loan[Connection](pool):
            served.append(number)

    with ThreadPoolExecutor(5) as threads:
        with Loan[Connection](pool):
            calls = []
            for number in range(5):
                calls.append(threads.submit(call, number))
                assert wait_until(lambda n=number: pool.use().waiting == n + 1, LONG)  # type: ignore[misc]
        for one in calls:
            one.result(LONG)
    assert served == list(range(5))


def test_a_call_waits_no_longer_than_its_deadline() -> None:
    pool = pool_of(1)
    with Loan[Connection](pool):
        began = SYSTEM.monotonic()
        with pytest.raises(PoolExhausted), until(SYSTEM.monotonic() + 0.05), Loan[Connection](pool):
            pass
        assert SYSTEM.monotonic() - began < LONG / 2
    assert used(pool)


# --- guesses


@STEPS
@ERRORS
def test_no_interrupt_lets_later_reads_guess(error: type[BaseException], instructions: bool) -> None:
    """Reads outside of an attempt that trusted what is remembered would show what was taken away."""

    def attempt() -> None:
        with access.guessing(True) as outer:
            assert access.guesses() is outer
            with access.guessing(False):
                assert access.guesses() is None

    def nothing_guesses() -> None:
        assert access.guesses() is None

    assert everywhere(error, attempt, nothing_guesses, instructions=instructions) > 10
