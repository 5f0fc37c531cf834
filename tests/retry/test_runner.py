"""The runner: how often it tries, how long it waits, what it says in the end. No test waits: the clock is injected."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

import pytest

from metastore.errors import (
    DeadlineExceeded,
    EntityAlreadyExists,
    OutcomeUnknown,
    PoolExhausted,
    RetriesExhausted,
    for_clients,
)
from metastore.retry.bucket import TokenBucket
from metastore.retry.policy import Attempt, RetryPolicy
from metastore.retry.runner import Conflict, Effort, run
from tests.retry.fake import FakeClock

OPERATION = UUID("01890000-0000-7000-8000-000000000001")
NOBODY_WON = ("lost", "serialization", "unavailable")
SOMEBODY_WON = ("self", "ancestor", "name", "not_empty", "read", "operation", "pending", "marked", "claim", "rejected")


def effort(
    policy: RetryPolicy, clock: FakeClock, what: str = "it", winner: Callable[[], str] | None = None, tokens: int = 1000
) -> Effort:
    """Return what a call is tried with; its bucket has ``tokens``, and gets two a second."""
    return Effort(policy, clock, TokenBucket(tokens, 2.0, clock), lambda: what, OPERATION, winner)


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
    assert run(work, effort(RetryPolicy(hooks=(seen.append,)), clock)) == "done"
    assert (work.numbers, clock.slept, clock.asked) == ([1], [], [])
    assert seen == [Attempt("it", OPERATION, 1, None, 0.0, 0.0)]


@pytest.mark.parametrize("losses", [1, 2, 7])
def test_attempts_are_counted_from_one(losses: int) -> None:
    clock = FakeClock()
    work = Work(clock, losses)
    assert run(work, effort(RetryPolicy(), clock)) == "done"
    assert work.numbers == list(range(1, losses + 2))
    assert len(clock.slept) == losses


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_waits_are_drawn_between_zero_and_the_ceiling(share: float) -> None:
    clock = FakeClock(share)
    policy = RetryPolicy(base=0.01, cap=0.1)
    run(Work(clock, 6), effort(policy, clock))
    ceilings = [policy.ceiling(n) for n in range(1, 7)]
    assert [low for low, _ in clock.asked] == [0.0] * 6
    assert [high for _, high in clock.asked] == pytest.approx(ceilings)
    assert clock.slept == pytest.approx([share * c for c in ceilings])


def test_retries_exhausted() -> None:
    clock = FakeClock(share=0.5)
    work = Work(clock, takes=0.25)
    with pytest.raises(RetriesExhausted) as caught:
        run(work, effort(RetryPolicy(attempts=3, base=1.0, cap=1.0, deadline=60.0), clock, "alter table 'a.b'"))
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
        run(work, effort(RetryPolicy(attempts=1), clock))
    assert (work.numbers, clock.slept) == ([1], [])


def test_deadline_exceeded() -> None:
    clock = FakeClock()
    work = Work(clock, takes=0.1)
    with pytest.raises(DeadlineExceeded) as caught:
        run(work, effort(RetryPolicy(deadline=2.0, base=0.5, cap=0.5), clock, "drop schema 'a.b.c'"))
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
        run(work, effort(RetryPolicy(deadline=1.0, base=0.3, cap=10.0), clock))
    assert max(work.began) - began <= 1.0 + 1e-9
    assert clock.monotonic() - began <= 1.0 + takes + 1e-9


def test_an_attempt_that_took_too_long_is_not_repeated() -> None:
    clock = FakeClock()
    work = Work(clock, takes=31.0)
    with pytest.raises(DeadlineExceeded, match=r"1 attempts in 31\.000 s"):
        run(work, effort(RetryPolicy(), clock))
    assert (work.numbers, clock.slept) == ([1], [])


def test_success_after_the_deadline_is_success() -> None:
    clock = FakeClock()
    assert run(Work(clock, losses=0, takes=99.0), effort(RetryPolicy(deadline=1.0), clock)) == "done"


def test_hooks_see_every_attempt() -> None:
    clock, one, two = FakeClock(share=0.5), list[Attempt](), list[Attempt]()
    policy = RetryPolicy(base=1.0, cap=4.0, hooks=(one.append, two.append))
    run(Work(clock, losses=3, takes=0.25), effort(policy, clock))
    assert one == two
    assert [(a.number, a.cause) for a in one] == [(1, "self"), (2, "self"), (3, "self"), (4, None)]
    assert [a.elapsed for a in one] == pytest.approx([0.25, 1.0, 2.25, 4.5])
    assert [a.wait for a in one] == pytest.approx([0.5, 1.0, 2.0, 0.0])
    assert [a.wait for a in one[:-1]] == clock.slept
    assert {(a.what, a.operation_id) for a in one} == {("it", OPERATION)}


def test_hooks_see_the_last_one_of_a_call_that_gives_up() -> None:
    clock, seen = FakeClock(), list[Attempt]()
    with pytest.raises(RetriesExhausted):
        run(Work(clock), effort(RetryPolicy(attempts=2, hooks=(seen.append,)), clock))
    assert [(a.number, a.cause, a.wait > 0) for a in seen] == [(1, "self", True), (2, "self", False)]


def test_a_hook_that_raises_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: Attempt) -> None:
        raise RuntimeError("broken hook")

    clock = FakeClock()
    work = Work(clock, losses=5)
    run(work, effort(RetryPolicy(hooks=(broken,)), clock))
    assert work.numbers == [1, 2, 3, 4, 5, 6]
    assert "a hook raised" in caplog.text


@pytest.mark.parametrize("kind", [EntityAlreadyExists, OutcomeUnknown, ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("losses", [0, 2])
def test_what_is_no_conflict_passes_through_at_once(kind: Callable[[str], BaseException], losses: int) -> None:
    clock, error, calls = FakeClock(), kind("a.b"), list[int]()

    def attempt(number: int) -> None:
        calls.append(number)
        if number <= losses:
            raise Conflict("name", "taken")
        raise error

    with pytest.raises(type(error)) as caught:
        run(attempt, effort(RetryPolicy(), clock))
    assert caught.value is error
    assert calls == list(range(1, losses + 2))
    assert len(clock.slept) == losses


def test_each_run_counts_for_itself() -> None:
    clock = FakeClock()
    policy = RetryPolicy(attempts=3)
    for _ in range(3):
        assert run(Work(clock, losses=2), effort(policy, clock)) == "done"


# --- how long a conflict says to wait, and the bucket


class Losing:
    """An attempt that loses with each of these conflicts in turn, and then is done."""

    def __init__(self, conflicts: Iterable[Conflict]) -> None:
        self.conflicts = iter(conflicts)

    def __call__(self, number: int) -> int:
        for conflict in self.conflicts:
            raise conflict
        return number


def losing(cause: str, times: int, wait: float | None = None) -> Losing:
    return Losing(Conflict(cause, "", wait) for _ in range(times))


@pytest.mark.parametrize("wait", [0.0, 0.3, 2.0])
def test_a_conflict_says_how_long_to_wait(wait: float) -> None:
    clock = FakeClock()
    assert run(losing("pending", 3, wait), effort(RetryPolicy(base=1.0, cap=1.0), clock)) == 4
    assert clock.slept == [wait] * 3
    assert clock.asked == []  # no jitter


def test_each_conflict_speaks_for_itself() -> None:
    """One without a wait gets what the policy says for the number of its attempt."""
    clock, seen = FakeClock(), list[Attempt]()
    conflicts = [Conflict("self", "", 0.0), Conflict("ancestor", ""), Conflict("marked", "", 0.2), Conflict("name", "")]
    assert run(Losing(conflicts), effort(RetryPolicy(base=1.0, cap=100.0, hooks=(seen.append,)), clock)) == 5
    assert clock.slept == [0.0, 2.0, 0.2, 8.0]
    assert [(a.cause, a.wait) for a in seen] == [
        ("self", 0.0),
        ("ancestor", 2.0),
        ("marked", 0.2),
        ("name", 8.0),
        (None, 0.0),
    ]


def test_a_wait_that_a_conflict_asks_for_ends_at_the_deadline() -> None:
    clock = FakeClock()
    began = clock.monotonic()
    with pytest.raises(DeadlineExceeded, match="2 attempts"):
        run(losing("marked", 9, 60.0), effort(RetryPolicy(deadline=1.5), clock))
    assert clock.monotonic() - began == pytest.approx(1.5)


@pytest.mark.parametrize("cause", NOBODY_WON)
def test_retries_that_nobody_won_take_tokens(cause: str) -> None:
    clock = FakeClock(share=0.0)
    assert run(losing(cause, 6), effort(RetryPolicy(), clock, tokens=3)) == 7
    assert clock.slept == pytest.approx([0.0, 0.0, 0.0, 0.5, 0.5, 0.5])


@pytest.mark.parametrize("cause", SOMEBODY_WON)
def test_retries_that_somebody_won_take_none(cause: str) -> None:
    """Somebody else's success is what they cost: there is no storm to bound."""
    clock = FakeClock(share=0.0)
    one = effort(RetryPolicy(), clock, tokens=1)
    assert run(losing(cause, 9), one) == 10
    assert clock.slept == [0.0] * 9
    assert one.bucket.take() == 0.0


def test_a_call_that_succeeds_at_once_takes_none() -> None:
    clock = FakeClock()
    one = effort(RetryPolicy(), clock, tokens=1)
    for _ in range(5):
        run(losing("lost", 0), one)
    assert one.bucket.take() == 0.0


def test_the_longer_wait_counts() -> None:
    """That of the jitter, of the conflict, or of the bucket."""
    clock = FakeClock()
    policy = RetryPolicy(base=0.2, cap=0.2)
    run(losing("unavailable", 3), effort(policy, clock, tokens=1))
    assert clock.slept == pytest.approx([0.2, 0.3, 0.5])  # a token comes every 0.5 s, from the first one on
    clock = FakeClock()
    run(losing("lost", 3, 0.1), effort(policy, clock, tokens=1))
    assert clock.slept == pytest.approx([0.1, 0.4, 0.5])
    clock = FakeClock()
    run(losing("busy", 2, 3.0), effort(policy, clock, tokens=1))
    assert clock.slept == [3.0, 3.0]


def test_calls_share_their_bucket() -> None:
    clock = FakeClock(share=0.0)
    one = effort(RetryPolicy(), clock, tokens=2)
    for _ in range(3):
        run(losing("lost", 1), one)
    assert clock.slept == pytest.approx([0.0, 0.0, 0.5])


def test_a_token_that_comes_after_the_deadline() -> None:
    clock = FakeClock(share=0.0)
    one = effort(RetryPolicy(deadline=1.0), clock, tokens=1)
    while one.bucket.take() < 60:
        pass
    began = clock.monotonic()
    with pytest.raises(DeadlineExceeded, match="unavailable"):
        run(losing("unavailable", 9), one)
    assert clock.monotonic() - began == pytest.approx(1.0)


# --- who won


@pytest.mark.parametrize("attempts", [None, 3])
def test_whoever_gives_up_says_who_won(attempts: int | None) -> None:
    clock, asked = FakeClock(), list[float]()

    def winner() -> str:
        asked.append(clock.monotonic())
        return "; operation 7 by ada made version 9"

    policy = RetryPolicy(attempts=attempts, deadline=2.0)
    with pytest.raises((DeadlineExceeded, RetriesExhausted)) as caught:
        run(Work(clock, takes=0.1), effort(policy, clock, "alter table 'a.b'", winner))
    assert type(caught.value) is (DeadlineExceeded if attempts is None else RetriesExhausted)
    message = str(caught.value)
    for part in ("alter table 'a.b'", "the last one on self (", "; operation 7 by ada made version 9); call again"):
        assert part in message
    assert asked == [clock.monotonic()]  # once, at the end


@pytest.mark.parametrize("attempts", [None, 3])
@pytest.mark.parametrize("cause", ["unavailable", "self"])
def test_a_server_tells_no_client_where_the_database_is(attempts: int | None, cause: str) -> None:
    """Where it is away until the end, as for a lease: the last conflict has the text of BackendUnavailable."""
    clock = FakeClock()

    def attempt(_: int) -> None:
        clock.go(0.1)
        raise Conflict(cause, "cannot connect to PostgreSQL at db.corp:5432")

    with pytest.raises((DeadlineExceeded, RetriesExhausted), match=r"db\.corp") as caught:
        run(attempt, effort(RetryPolicy(attempts=attempts, deadline=2.0), clock))
    assert ("db.corp" in for_clients(caught.value)) == (cause != "unavailable")


def test_nobody_asks_who_won_while_it_goes_on() -> None:
    def winner() -> str:
        raise AssertionError("asked")

    clock = FakeClock()
    for losses in (0, 5):
        assert run(Work(clock, losses), effort(RetryPolicy(), clock, winner=winner)) == "done"


def test_what_was_lost_before_counts_and_lasts_on() -> None:
    clock, seen = FakeClock(), list[Attempt]()
    clock.go(10.0)
    asked = effort(RetryPolicy(deadline=12.0, base=1.0, cap=64.0, hooks=(seen.append,)), clock)
    asked.lost, asked.started = 4, clock.monotonic() - 10.0
    work = Work(clock)
    with pytest.raises(DeadlineExceeded, match=r"7 attempts in 12\.000 s"):
        run(work, asked)
    assert work.numbers == [5, 6, 7]
    assert [(a.number, a.elapsed >= 10.0) for a in seen] == [(5, True), (6, True), (7, True)]
    assert clock.asked[0] == (0.0, 1.0)  # the wait is that after a first attempt


@pytest.mark.parametrize(("works", "waits", "error"), [(0.8, 0.2, DeadlineExceeded), (0.2, 0.8, PoolExhausted)])
def test_no_connection_at_the_deadline(works: float, waits: float, error: type[Exception]) -> None:
    """The error says on what the call has spent most of its time."""
    clock = FakeClock(share=0.0)

    def attempt(number: int) -> None:
        clock.go(works if number == 1 else waits)
        if number > 1:
            raise PoolExhausted("all are in use")
        raise Conflict("self", "somebody was faster", 0.0)

    with pytest.raises(error):
        run(attempt, effort(RetryPolicy(deadline=1.0), clock))
