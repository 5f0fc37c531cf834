"""Runs an attempt again until it commits, on tenacity.

An attempt raises :class:`Conflict` when another one may succeed; everything else it raises is
the caller's error and passes through. The first attempt runs without tenacity: most calls need
no more than one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from metastore.clock import Clock
from metastore.errors import DeadlineExceeded, RetriesExhausted
from metastore.retry.policy import Attempt, RetryPolicy

__all__ = ["Conflict", "run"]

T = TypeVar("T")


class Conflict(Exception):
    """This attempt lost. ``cause`` says to what; ``detail`` is for the message."""

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(cause, detail)
        self.cause = cause
        self.detail = detail


def run(attempt: Callable[[int], T], policy: RetryPolicy, clock: Clock, what: str) -> T:
    """Call ``attempt(1)``, ``attempt(2)`` … until one returns; return what it returned.

    Raises DeadlineExceeded or RetriesExhausted, which name ``what``, the attempts, the time and
    the last conflict.
    """
    started = clock.monotonic()
    try:
        return attempt(1)
    except Conflict as conflict:
        return _run_again(attempt, policy, clock, what, started, conflict)


def _run_again(
    attempt: Callable[[int], T], policy: RetryPolicy, clock: Clock, what: str, started: float, first: Conflict
) -> T:
    import tenacity  # noqa: PLC0415  (its import costs more than most calls)

    number = 1
    last = first
    ends = started + policy.deadline

    def step() -> T:
        nonlocal number, last
        if number == 1:
            number = 2
            raise first
        try:
            result = attempt(number)
        except Conflict as conflict:
            last = conflict
            number += 1
            raise
        return result

    def wait(state: tenacity.RetryCallState) -> float:
        ceiling = min(policy.ceiling(state.attempt_number), max(0.0, ends - clock.monotonic()))
        return clock.uniform(0.0, ceiling)

    def stop(state: tenacity.RetryCallState) -> bool:
        return clock.monotonic() >= ends or (policy.attempts is not None and state.attempt_number >= policy.attempts)

    def report(state: tenacity.RetryCallState) -> None:
        failed = Attempt(state.attempt_number, last.cause, clock.monotonic() - started, state.upcoming_sleep)
        for hook in policy.hooks:
            hook(failed)

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(Conflict),
        wait=wait,
        stop=stop,
        sleep=clock.sleep,
        before_sleep=report,
    )
    try:
        return retrying(step)
    except tenacity.RetryError as error:
        tried = error.last_attempt.attempt_number
    elapsed = clock.monotonic() - started
    report_last = Attempt(tried, last.cause, elapsed, 0.0)
    for hook in policy.hooks:
        hook(report_last)
    message = (
        f"{what} was not applied: {tried} attempts in {elapsed:.3f} s all conflicted, the last one on "
        f"{last.cause} ({last.detail}); call again"
    )
    if clock.monotonic() >= ends:
        raise DeadlineExceeded(message + ", with a longer deadline if this goes on")
    raise RetriesExhausted(message)
