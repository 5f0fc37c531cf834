"""The instant by which a call must be over."""

from __future__ import annotations

import contextvars
import math
from concurrent.futures import ThreadPoolExecutor

import pytest

from metastore.deadlines import cleaning, cleans_up, remaining, until
from tests.retry.fake import FakeClock


def test_without_one_the_default_holds() -> None:
    assert remaining(FakeClock(), 7.0) == 7.0


def test_what_is_left_goes_down_and_below_zero() -> None:
    clock = FakeClock()
    with until(clock.monotonic() + 2.0):
        assert remaining(clock, 7.0) == 2.0
        clock.go(1.5)
        assert remaining(clock, 7.0) == 0.5
        clock.go(1.0)
        assert remaining(clock, 7.0) == -0.5
    assert remaining(clock, 7.0) == 7.0


def test_of_several_the_earliest_wins() -> None:
    clock = FakeClock()
    now = clock.monotonic()
    with until(now + 5):
        with until(now + 9):
            assert remaining(clock, 1.0) == 5
        with until(now + 3):
            with until(math.inf):
                assert remaining(clock, 1.0) == 3
            assert remaining(clock, 1.0) == 3
        assert remaining(clock, 1.0) == 5


def test_no_end_at_all_takes_the_defaults_place() -> None:
    with until(math.inf):
        assert remaining(FakeClock(), 7.0) == math.inf


def test_an_error_passes_and_ends_it() -> None:
    with pytest.raises(KeyError), until(0.0):
        raise KeyError
    assert remaining(FakeClock(), 7.0) == 7.0


def test_another_thread_has_its_own() -> None:
    clock = FakeClock()
    with until(clock.monotonic() + 2), ThreadPoolExecutor(1) as threads:
        assert threads.submit(remaining, clock, 7.0).result() == 7.0
        assert threads.submit(contextvars.copy_context().run, remaining, clock, 7.0).result() == 2


def test_what_cleans_up_has_a_time_of_its_own() -> None:
    """It begins when the call's own time is over."""
    clock = FakeClock()
    with until(clock.monotonic() - 1):
        with cleaning(clock.monotonic() + 0.5):
            assert cleans_up()
            assert remaining(clock, 7.0) == 0.5
            with until(clock.monotonic() + 9):
                assert remaining(clock, 7.0) == 0.5
        assert not cleans_up()
        assert remaining(clock, 7.0) == -1
