"""How a manager's attempt meets the database: read, decide, commit, and again if it lost.

A manager hands over an *attempt*: a function that reads through a :class:`View`, decides with
pure functions, and returns either a :class:`Proposal` to commit or the value itself. On the
first attempt the view trusts the entities that the caller has in hand, which saves the read; an
error or a no-op that rests on such a guess is decided again from a fresh read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from metastore.arguments import positive_seconds
from metastore.backends.port import Backend, Step
from metastore.clock import Clock
from metastore.commit import Commit, Committed, Conflicted, Guard, Result, Write
from metastore.errors import BackendUnavailable, DeadlineExceeded, InvalidArgument, MetastoreError, OutcomeUnknown
from metastore.names import clean_text
from metastore.retry.policy import RetryPolicy
from metastore.retry.runner import Conflict, run

__all__ = ["Attempt", "Call", "Proposal", "Session", "View"]

T = TypeVar("T")
Results = tuple[Result | None, ...]


@dataclass(frozen=True)
class Proposal(Generic[T]):
    """A commit that an attempt proposes, and what the caller gets when it is applied."""

    guards: tuple[Guard, ...]
    writes: tuple[Write, ...]
    finish: Callable[[Results], T]
    skip_existing: bool = False


@dataclass(frozen=True)
class Call:
    """What one call brings along: who asks, and how long it may take (seconds)."""

    principal: str | None = None
    deadline: float | None = None

    def __post_init__(self) -> None:
        if self.principal is not None and ("\x00" in clean_text(self.principal, "the principal") or not self.principal):
            raise InvalidArgument("the principal must be a non-empty string without NUL")
        if self.deadline is not None:
            positive_seconds(self.deadline, "a deadline")


class View:
    """What one attempt sees: the backend, and whether what is in hand may be trusted."""

    def __init__(self, backend: Backend, trusting: bool) -> None:
        self.backend = backend
        self.trusting = trusting
        self.guessed = False

    def guess(self) -> bool:
        """Whether the attempt may use what is in hand instead of reading; if so, it is noted."""
        self.guessed = self.guessed or self.trusting
        return self.trusting


Attempt = Callable[[View], "Proposal[T] | T"]


@dataclass
class Session:
    """One backend, and how it is used. In a transaction nothing in hand is trusted."""

    backend: Backend
    clock: Clock
    policy: RetryPolicy
    principal: str | None
    in_transaction: bool = False
    counters: Counter[str] = field(default_factory=Counter)
    """attempts, commits, and conflicts by cause; of this process only."""

    def run(self, attempt: Attempt[T], call: Call, what: Callable[[], str]) -> T:
        """Run ``attempt`` until its proposal is committed or it settles on a value."""
        policy = self.policy if call.deadline is None else replace(self.policy, deadline=float(call.deadline))
        ends = self.clock.monotonic() + policy.deadline
        return run(lambda number: self._attempt(attempt, call, number, ends), policy, self.clock, what)

    def _attempt(self, attempt: Attempt[T], call: Call, number: int, ends: float) -> T:
        decided = self._decide(attempt, number == 1 and not self.in_transaction)
        if not isinstance(decided, Proposal):
            return decided
        commit = Commit(
            self.clock.operation_id(),
            self.principal if call.principal is None else call.principal,
            decided.guards,
            (),
            decided.writes,
            decided.skip_existing,
        )
        return decided.finish(self.commit(commit, ends))

    def _decide(self, attempt: Attempt[T], trusting: bool) -> Proposal[T] | T:
        view = View(self.backend, trusting)
        try:
            decided = attempt(view)
            if isinstance(decided, Proposal) or not view.guessed:
                return decided
        except MetastoreError:
            if not view.guessed:
                raise
        return attempt(View(self.backend, False))

    def commit(self, commit: Commit, ends: float) -> Results:
        """Send ``commit`` once; return its results, or raise Conflict when it was not applied."""
        self.counters["attempts"] += 1
        outcome = self.backend.commit(commit)
        if isinstance(outcome, Committed):
            self.counters["commits"] += 1
            return outcome.results
        if isinstance(outcome, Conflicted):
            self.counters[f"conflicts_{outcome.cause}"] += 1
            raise Conflict(outcome.cause, _detail(outcome))
        self.counters["unknown"] += 1
        return self._resolve(commit, ends)

    def _resolve(self, commit: Commit, ends: float) -> Results:
        """Find out what became of a commit whose answer was lost; make it impossible if it was not applied."""
        wait = self.policy.base
        while True:
            try:
                if self.backend.forbid(commit.operation_id):
                    raise Conflict("lost", "the connection was lost before the commit was applied")
                return _results(self.backend.steps(commit.operation_id), len(commit.writes))
            except (BackendUnavailable, DeadlineExceeded):  # the original may still be in flight
                if self.clock.monotonic() + wait > ends:
                    raise OutcomeUnknown(commit.operation_id) from None
            self.clock.sleep(self.clock.uniform(0.0, wait))
            wait = min(wait * 2, self.policy.cap)


def _detail(outcome: Conflicted) -> str:
    where = "" if outcome.id is None else f"entity {outcome.id}"
    found = "" if outcome.found is None else f" is at version {outcome.found}"
    return (where + found) or "changed meanwhile"


def _results(steps: list[Step], writes: int) -> Results:
    results: list[Result | None] = [None] * writes
    for step in steps:
        if step.entity_id is not None and step.version is not None:
            results[step.ordinal] = Result(step.entity_id, step.version, step.time)
    return tuple(results)
