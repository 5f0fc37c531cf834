"""The runner: how often it tries, how long it waits, what it says in the end. No test waits: the clock is injected."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metastore.errors import DeadlineExceeded, EntityAlreadyExists, RetriesExhausted
from metastore.retry.policy import Attempt, RetryPolicy
from metastore.retry.runner import Conflict, run
from tests.retry.fake import FakeClock


class Work:
    """An attempt that loses ``losses`` times (None: always) and takes ``takes`` seconds of the clock."""

    def __init__(self, clock: FakeClock, losses: int | None = None, takes: float = 0.0) -> None:
        self.clock, self.losses, self.takes = clock, losses, takes
        self.numbers: list[int] = []
        self.began: list[float] = []

    def __call__(self, number: int) -> str:
        self.numbers.append(number)
        self.began.append(self.clock.monotonic())
        self.clock.go(self.takes)
        if self.losses is None or len(self.numbers) <= self.losses:
            raise Conflict("self", f"entity 7 is at version {len(self.numbers)}")
        return "done"


def test_a_first_success_waits_for_nothing() -> None:
    clock, seen = FakeClock(), list[Attempt]()
    work = Work(clock, losses=0)
    assert run(work, RetryPolicy(hooks=(seen.append,)), clock, lambda: "it") == "done"
    assert (work.numbers, clock.slept, clock.asked, seen) == ([1], [], [], [])


@pytest.mark.parametrize("losses", [1, 2, 7])
def test_attempts_are_counted_from_one(losses: int) -> None:
    clock = FakeClock()
    work = Work(clock, losses)
    assert run(work, RetryPolicy(), clock, lambda: "it") == "done"
    assert work.numbers == list(range(1, losses + 2))
    assert len(clock.slept) == losses


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_waits_are_drawn_between_zero_and_the_ceiling(share: float) -> None:
    clock = FakeClock(share)
    policy = RetryPolicy(base=0.01, cap=0.1)
    run(Work(clock, 6), policy, clock, lambda: "it")
    ceilings = [policy.ceiling(n) for n in range(1, 7)]
    assert [low for low, _ in clock.asked] == [0.0] * 6
    assert [high for _, high in clock.asked] == pytest.approx(ceilings)
    assert clock.slept == pytest.approx([share * c for c in ceilings])


def test_retries_exhausted() -> None:
    clock = FakeClock(share=0.5)
    work = Work(clock, takes=0.25)
    with pytest.raises(RetriesExhausted) as caught:
        run(work, RetryPolicy(attempts=3, base=1.0, cap=1.0, deadline=60.0), clock, lambda: "alter table 'a.b'")
    assert work.numbers == [1, 2, 3]
    assert len(clock.slept) == 2  # and none after the last
    message = str(caught.value)
    for part in ("alter table 'a.b'", "3 attempts", "1.750 s", "self", "entity 7 is at version 3", "call again"):
        assert part in message
    assert len(message.splitlines()) == 1


def test_one_attempt_is_one_attempt() -> None:
    clock = FakeClock()
    work = Work(clock)
    with pytest.raises(RetriesExhausted, match=r"1 attempts in 0\.000 s"):
        run(work, RetryPolicy(attempts=1), clock, lambda: "it")
    assert (work.numbers, clock.slept) == ([1], [])


def test_deadline_exceeded() -> None:
    clock = FakeClock()
    work = Work(clock, takes=0.1)
    with pytest.raises(DeadlineExceeded) as caught:
        run(work, RetryPolicy(deadline=2.0, base=0.5, cap=0.5), clock, lambda: "drop schema 'a.b.c'")
    message = str(caught.value)
    last = len(work.numbers)
    for part in ("drop schema 'a.b.c'", f"{last} attempts", f"is at version {last}", "longer deadline"):
        assert part in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("takes", [0.001, 0.07, 5.0])
@pytest.mark.parametrize("share", [0.1, 1.0])
def test_nobody_sleeps_beyond_the_deadline(share: float, takes: float) -> None:
    """And no attempt begins after it: at the latest one begins just at it."""
    clock = FakeClock(share)
    work = Work(clock, takes=takes)
    began = clock.monotonic()
    with pytest.raises(DeadlineExceeded):
        run(work, RetryPolicy(deadline=1.0, base=0.3, cap=10.0), clock, lambda: "it")
    assert max(work.began) - began <= 1.0 + 1e-9
    assert clock.monotonic() - began <= 1.0 + takes + 1e-9


def test_an_attempt_that_took_too_long_is_not_repeated() -> None:
    clock = FakeClock()
    work = Work(clock, takes=31.0)
    with pytest.raises(DeadlineExceeded, match=r"1 attempts in 31\.000 s"):
        run(work, RetryPolicy(), clock, lambda: "it")
    assert (work.numbers, clock.slept) == ([1], [])


def test_success_after_the_deadline_is_success() -> None:
    clock = FakeClock()
    assert run(Work(clock, losses=0, takes=99.0), RetryPolicy(deadline=1.0), clock, lambda: "it") == "done"


def test_hooks_see_every_failed_attempt() -> None:
    clock, one, two = FakeClock(share=0.5), list[Attempt](), list[Attempt]()
    policy = RetryPolicy(base=1.0, cap=4.0, hooks=(one.append, two.append))
    run(Work(clock, losses=3, takes=0.25), policy, clock, lambda: "it")
    assert one == two
    assert [(a.number, a.cause) for a in one] == [(1, "self"), (2, "self"), (3, "self")]
    assert [a.elapsed for a in one] == pytest.approx([0.25, 1.0, 2.25])
    assert [a.wait for a in one] == pytest.approx([0.5, 1.0, 2.0])
    assert [a.wait for a in one] == clock.slept


def test_hooks_see_the_last_one_too() -> None:
    clock, seen = FakeClock(), list[Attempt]()
    with pytest.raises(RetriesExhausted):
        run(Work(clock), RetryPolicy(attempts=2, hooks=(seen.append,)), clock, lambda: "it")
    assert [(a.number, a.wait > 0) for a in seen] == [(1, True), (2, False)]


def test_a_hook_that_raises_stops_everything() -> None:
    def broken(_: Attempt) -> None:
        raise RuntimeError("broken hook")

    clock = FakeClock()
    work = Work(clock, losses=5)
    with pytest.raises(RuntimeError, match="broken hook"):
        run(work, RetryPolicy(hooks=(broken,)), clock, lambda: "it")
    assert work.numbers == [1]


@pytest.mark.parametrize("kind", [EntityAlreadyExists, ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("losses", [0, 2])
def test_what_is_no_conflict_passes_through_at_once(kind: Callable[[str], BaseException], losses: int) -> None:
    clock, error, calls = FakeClock(), kind("a.b"), list[int]()

    def attempt(number: int) -> None:
        calls.append(number)
        if number <= losses:
            raise Conflict("name", "taken")
        raise error

    with pytest.raises(type(error)) as caught:
        run(attempt, RetryPolicy(), clock, lambda: "it")
    assert caught.value is error
    assert calls == list(range(1, losses + 2))
    assert len(clock.slept) == losses


def test_each_run_counts_for_itself() -> None:
    clock = FakeClock()
    policy = RetryPolicy(attempts=3)
    for _ in range(3):
        assert run(Work(clock, losses=2), policy, clock, lambda: "it") == "done"
