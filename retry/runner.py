"""Run an attempt again until it commits, by means of the library tenacity.

An attempt raises :class:`Conflict` if another attempt may succeed; any other error is the caller's, and passes through.
The first attempt runs without tenacity, because most calls need only one. tenacity is imported with this module (6 ms),
so that the first conflict does not wait for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

import tenacity

from metastore.clock import Clock
from metastore.errors import DeadlineExceeded, OutcomeUnknown, PoolExhausted, RetriesExhausted
from metastore.retry import logs
from metastore.retry.bucket import TokenBucket
from metastore.retry.policy import Attempt, Hook, RetryPolicy
from metastore.retry.reactions import NOBODY_WON

T = TypeVar("T")
_log = logging.getLogger("metastore")

_CLOSE = 0.1
"""If a wait ends at most this long before the call's deadline, the deadline was the reason (seconds)."""


class Conflict(Exception):
    """This attempt lost. ``cause`` says why; ``detail`` is for the message.

    ``wait`` is how long to wait before the next attempt, in seconds; None: the policy decides. ``entity_id`` is the
    entity on which the attempt lost, and ``expected`` its version that the attempt expected, if they are known.
    """

    def __init__(
        self,
        cause: str,
        detail: str,
        wait: float | None = None,
        entity_id: int | None = None,
        expected: int | None = None,
    ) -> None:
        super().__init__(cause, detail)
        self.cause = cause
        self.detail = detail
        self.wait = wait
        self.entity_id = entity_id
        self.expected = expected


@dataclass(slots=True)
class Effort:
    """The settings for the attempts of one call, and the parts of its error message."""

    policy: RetryPolicy
    clock: Clock
    bucket: TokenBucket
    what: Callable[[], str]
    operation_id: UUID | None = None
    winner: Callable[[], str] | None = None
    """Called once, when the call gives up: returns who won."""
    helped: Callable[[], bool] | None = None
    """Called after success, if there are hooks: whether another operation's commit applied the call."""
    lost: int = 0
    """How many attempts the call has lost before, in batches. Its attempts are numbered from there."""
    started: float | None = None
    """The time when the call began, by the clock's ``monotonic``; None: it begins now."""
    ends: float | None = None
    """The deadline by the same clock, if an outer call ends earlier; None: the policy's deadline, from the start."""


def run(attempt: Callable[[int], T], effort: Effort) -> T:
    """Call ``attempt(1)``, ``attempt(2)`` … until one returns, and return its result.

    After lost batches, the first number is higher.

    Raises DeadlineExceeded or RetriesExhausted, which name the call, the attempts, the time, the last conflict and its
    winner.
    """
    started = effort.clock.monotonic() if effort.started is None else effort.started
    number = effort.lost + 1
    try:
        result = attempt(number)
    except Conflict as conflict:
        return _run_again(attempt, effort, started, conflict)
    except OutcomeUnknown:
        logs.unknown(effort.what(), effort.operation_id, number)
        raise
    if effort.policy.hooks:
        _Progress(effort, started, None).report(0.0)
    logs.done(effort.what, effort.operation_id, number, effort.clock.monotonic() - started)
    return result


class _Progress:
    """The attempts of a call so far, in the form that tenacity needs."""

    def __init__(self, effort: Effort, started: float, first: Conflict | None) -> None:
        self._effort = effort
        self._policy = effort.policy
        self._started = started
        self._ends = started + effort.policy.deadline if effort.ends is None else effort.ends
        self.number = effort.lost + 1
        self.last = first

    def left(self) -> float:
        return self._ends - self._effort.clock.monotonic()

    def overdue(self) -> bool:
        return self.left() <= 0

    def elapsed(self) -> float:
        return self._effort.clock.monotonic() - self._started

    def stop(self, _: tenacity.RetryCallState) -> bool:
        return self.overdue() or (self._policy.attempts is not None and self.number >= self._policy.attempts)

    def wait(self, _: tenacity.RetryCallState) -> float:
        left = max(0.0, self.left())
        assert self.last is not None
        wait = self.last.wait
        if wait is None:
            # lost batches count as attempts, but they did not wait: the backoff counts only the other attempts
            own = self.number - self._effort.lost
            wait = self._effort.clock.uniform(0.0, self._policy.ceiling(own))
        if self.last.cause in NOBODY_WON:
            wait = max(wait, self._effort.bucket.take(left))
        return min(wait, left)

    def report(self, wait: float) -> None:
        effort, last = self._effort, self.last
        if last is not None:
            logs.lost(effort.what, effort.operation_id, self.number, last.cause, last.detail)
        if not self._policy.hooks:
            return
        seen = Attempt(
            effort.what(),
            effort.operation_id,
            self.number,
            None if last is None else last.cause,
            self.elapsed(),
            wait,
            None if last is None else last.entity_id,
            None if last is None else last.expected,
            last is None and effort.helped is not None and effort.helped(),
        )
        call_hooks(self._policy.hooks, seen)


def call_hooks(hooks: Iterable[Hook], seen: Attempt) -> None:
    """Call each hook with an attempt. A hook's error is only logged: it must not make a commit look failed."""
    for hook in hooks:
        try:
            hook(seen)
        except Exception:  # noqa: BLE001
            _log.exception("a hook raised; it changes nothing")


def _run_again(attempt: Callable[[int], T], effort: Effort, started: float, first: Conflict) -> T:
    progress = _Progress(effort, started, first)
    unreported: Conflict | None = first

    def step() -> T:
        nonlocal unreported
        if unreported is not None:  # the first attempt ran without tenacity: report its conflict now
            conflict, unreported = unreported, None
            raise conflict
        progress.number += 1
        before = progress.elapsed()
        try:
            return attempt(progress.number)
        except Conflict as conflict:
            progress.last = conflict
            raise
        except (DeadlineExceeded, PoolExhausted) as error:
            waited = progress.elapsed() - before
            if progress.left() > _CLOSE or (isinstance(error, PoolExhausted) and waited > before):
                raise
            assert progress.last is not None
            raise progress.last from None  # the call's own time is over; the error names the last conflict

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(Conflict),
        wait=progress.wait,
        stop=progress.stop,
        sleep=effort.clock.sleep,
        before_sleep=lambda state: progress.report(state.upcoming_sleep),
    )
    try:
        result = retrying(step)
    except tenacity.RetryError:
        progress.report(0.0)
    except OutcomeUnknown:
        logs.unknown(effort.what(), effort.operation_id, progress.number)
        raise
    else:
        progress.last = None
        progress.report(0.0)
        logs.done(effort.what, effort.operation_id, progress.number, progress.elapsed())
        logs.helped(effort, progress.number)
        return result
    raise _gave_up(effort, progress)


def _gave_up(effort: Effort, progress: _Progress) -> DeadlineExceeded | RetriesExhausted:
    """Return, and log, the error of a call without a committed attempt."""
    last = progress.last
    assert last is not None
    winner = "" if effort.winner is None else effort.winner()
    message = (
        f"{effort.what()} was not applied: {progress.number} attempts in {progress.elapsed():.3f} s all conflicted, "
        f"the last one on {last.cause} ({last.detail}{winner}); call again"
    )
    logs.gave_up(message, effort.operation_id, progress.number)
    longer = ", with a longer deadline if this goes on"
    error = DeadlineExceeded(message + longer) if progress.overdue() else RetriesExhausted(message)
    error.names_place = last.cause == "unavailable"  # then the detail is the text of a BackendUnavailable
    return error
