"""The token bucket: what it grants in any stretch of time, by a clock that only goes when it is told to."""

from __future__ import annotations

import math
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metastore.clock import SYSTEM
from metastore.errors import InvalidArgument
from metastore.retry.bucket import TokenBucket
from tests.retry.fake import FakeClock


def test_a_full_bucket_grants_its_capacity_at_once() -> None:
    bucket = TokenBucket(3, 10.0, FakeClock())
    assert [bucket.take() for _ in range(6)] == pytest.approx([0, 0, 0, 0.1, 0.2, 0.3])


def test_a_bucket_of_one_spaces_evenly() -> None:
    bucket = TokenBucket(1, 4.0, FakeClock())
    assert [bucket.take() for _ in range(4)] == [0, 0.25, 0.5, 0.75]


def test_it_fills_with_time_and_not_beyond() -> None:
    clock = FakeClock()
    bucket = TokenBucket(2, 10.0, clock)
    assert [bucket.take() for _ in range(3)] == pytest.approx([0, 0, 0.1])
    clock.go(0.1)  # the third goes on now; there is none for a fourth
    assert bucket.take() == pytest.approx(0.1)
    clock.go(1000)
    assert [bucket.take() for _ in range(3)] == pytest.approx([0, 0, 0.1])


def test_it_is_full_at_first_whatever_the_clock_says() -> None:
    clock = FakeClock(_now=[-5.0])
    assert TokenBucket(1, 1.0, clock).take() == 0.0


def test_a_token_that_comes_too_late_is_not_taken() -> None:
    clock = FakeClock()
    bucket = TokenBucket(1, 10.0, clock)
    assert bucket.take(0.0) == 0.0
    for _ in range(3):  # a call that gives up leaves its token to others
        assert bucket.take(0.05) == pytest.approx(0.1)
    assert bucket.take(0.2) == pytest.approx(0.1)
    assert bucket.take() == pytest.approx(0.2)
    clock.go(0.3)
    assert bucket.take(0.0) == pytest.approx(0.0)


@pytest.mark.parametrize(("capacity", "rate"), [(0, 1.0), (-1, 1.0), (1, 0.0), (1, -2.0), (1, math.inf), (1, math.nan)])
def test_what_is_no_bucket(capacity: int, rate: float) -> None:
    with pytest.raises(InvalidArgument):
        TokenBucket(capacity, rate, FakeClock())


STEPS = st.lists(st.tuples(st.sampled_from([0.0, 0.01, 0.3, 7.0]) | st.floats(0, 3), st.none() | st.floats(0, 2)))


@given(st.integers(1, 8), st.floats(0.5, 200.0), STEPS)
@example(1, 1.0, [(0.0, None)] * 5)
def test_no_stretch_of_time_has_more_than_its_share(
    capacity: int, rate: float, steps: list[tuple[float, float | None]]
) -> None:
    """Not more than capacity + rate * t in any t seconds, and none has to wait that could go on."""
    clock = FakeClock()
    bucket = TokenBucket(capacity, rate, clock)
    granted: list[float] = []
    for pause, longest in steps:
        clock.go(pause)
        now = clock.monotonic()
        wait = bucket.take() if longest is None else bucket.take(longest)
        assert wait >= 0
        earlier = [sum(g >= start for g in granted) for start in granted]
        allowed = max(
            [now] + [start + (n + 1 - capacity) / rate for start, n in zip(granted, earlier, strict=True)]
        )  # the earliest instant at which one more breaks no promise
        assert now + wait == pytest.approx(allowed, abs=1e-6)
        if longest is None or wait <= longest:
            granted.append(now + wait)
    assert granted == sorted(granted)
    for i, start in enumerate(granted):
        for j in range(i, len(granted)):
            assert j - i + 1 <= capacity + rate * (granted[j] - start) + 1e-6


def test_threads_get_each_token_once() -> None:
    bucket = TokenBucket(50, 100.0, FakeClock())
    ready = threading.Barrier(8)

    def take(_: int) -> list[float]:
        ready.wait()
        return [bucket.take() for _ in range(500)]

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            waits = sorted(wait for found in threads.map(take, range(8)) for wait in found)
    finally:
        sys.setswitchinterval(before)
    assert waits == pytest.approx([0.0] * 50 + [n / 100 for n in range(1, 3951)], abs=1e-6)


def test_real_threads_that_wait_as_told_keep_to_the_rate() -> None:
    bucket = TokenBucket(5, 100.0, SYSTEM)
    began = SYSTEM.monotonic()

    def work(_: int) -> None:
        SYSTEM.sleep(bucket.take())

    with ThreadPoolExecutor(25) as threads:
        list(threads.map(work, range(25)))
    assert SYSTEM.monotonic() - began >= 20 / 100


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12 and later, where there are threads
def test_a_child_that_was_forked_while_a_thread_held_the_lock() -> None:
    bucket = TokenBucket(1, 1.0, FakeClock())
    with bucket._lock:
        child = os.fork()
        if not child:
            os._exit(0 if bucket.take() == 0.0 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
