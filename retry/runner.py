"""Runs an attempt again until it commits, on tenacity.

An attempt raises :class:`Conflict` when another one may succeed; everything else it raises is
the caller's error and passes through. The first attempt runs without tenacity: most calls need
no more than one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from metastore.clock import Clock
from metastore.errors import DeadlineExceeded, RetriesExhausted
from metastore.retry.policy import Attempt, RetryPolicy

if TYPE_CHECKING:
    import tenacity

__all__ = ["Conflict", "run"]

T = TypeVar("T")


class Conflict(Exception):
    """This attempt lost. ``cause`` says to what; ``detail`` is for the message."""

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(cause, detail)
        self.cause = cause
        self.detail = detail


def run(attempt: Callable[[int], T], policy: RetryPolicy, clock: Clock, what: Callable[[], str]) -> T:
    """Call ``attempt(1)``, ``attempt(2)`` … until one returns; return what it returned.

    Raises DeadlineExceeded or RetriesExhausted, which name ``what()``, the attempts, the time and
    the last conflict.
    """
    started = clock.monotonic()
    try:
        return attempt(1)
    except Conflict as conflict:
        return _run_again(attempt, policy, clock, what, started, conflict)


class _Progress:
    """What is known of a call's attempts so far, in tenacity's terms."""

    def __init__(self, policy: RetryPolicy, clock: Clock, started: float, first: Conflict) -> None:
        self._policy = policy
        self._clock = clock
        self._started = started
        self.number = 1
        self.last = first

    def overdue(self) -> bool:
        return self.elapsed() >= self._policy.deadline

    def elapsed(self) -> float:
        return self._clock.monotonic() - self._started

    def stop(self, _: tenacity.RetryCallState) -> bool:
        return self.overdue() or (self._policy.attempts is not None and self.number >= self._policy.attempts)

    def wait(self, _: tenacity.RetryCallState) -> float:
        left = max(0.0, self._policy.deadline - self.elapsed())
        return self._clock.uniform(0.0, min(self._policy.ceiling(self.number), left))

    def report(self, wait: float) -> None:
        failed = Attempt(self.number, self.last.cause, self.elapsed(), wait)
        for hook in self._policy.hooks:
            hook(failed)


def _run_again(
    attempt: Callable[[int], T],
    policy: RetryPolicy,
    clock: Clock,
    what: Callable[[], str],
    started: float,
    first: Conflict,
) -> T:
    import tenacity  # noqa: PLC0415  (its import costs more than most calls)

    progress = _Progress(policy, clock, started, first)
    unreported: Conflict | None = first

    def step() -> T:
        nonlocal unreported
        if unreported is not None:  # the first attempt was made without tenacity
            conflict, unreported = unreported, None
            raise conflict
        progress.number += 1
        try:
            return attempt(progress.number)
        except Conflict as conflict:
            progress.last = conflict
            raise

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(Conflict),
        wait=progress.wait,
        stop=progress.stop,
        sleep=clock.sleep,
        before_sleep=lambda state: progress.report(state.upcoming_sleep),
    )
    try:
        return retrying(step)
    except tenacity.RetryError:
        progress.report(0.0)
    message = (
        f"{what()} was not applied: {progress.number} attempts in {progress.elapsed():.3f} s all conflicted, the last "
        f"one on {progress.last.cause} ({progress.last.detail}); call again"
    )
    if progress.overdue():
        raise DeadlineExceeded(message + ", with a longer deadline if this goes on")
    raise RetriesExhausted(message)
