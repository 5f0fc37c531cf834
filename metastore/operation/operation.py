"""One logical operation, over all its attempts: from a request to its result, exactly once.

An operation begins on the *fast path*: read what is not in hand, decide, one compare-and-swap. A
change that loses is *announced* (:meth:`Operation._announce`): written down as an intent that
anybody may apply. From then on each attempt *helps*: it applies all that is pending on the entity,
its own among it, or finds that somebody else did. An exclusive operation that loses *marks* its
scope instead, so that others step aside.

The operation's row in the database, under its id, says at any time what became of it. A lost
answer is resolved by it; what may still be in flight is made impossible before it is sent again.
docs/progress.md has the protocol and its proof. The operation's row is in ``operation_row``, what is
announced in ``announcing``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn, TypeVar, cast

from metastore.deadlines import remaining, until
from metastore.errors import (
    BackendUnavailable,
    DeadlineExceeded,
    InvalidArgument,
    LeaseLost,
    MetastoreError,
    OutcomeUnknown,
    RetriesExhausted,
    ScopeFrozen,
)
from metastore.kinds.entity import Entity
from metastore.operation.intent import Announced
from metastore.operation.keys import began
from metastore.operation.marks import MARK_TTL, help_others
from metastore.operation.outcome import encode_error, encode_value, merits
from metastore.operation.record import detail, refused_id
from metastore.operation.request import Call, Proposal, Request, View
from metastore.operation.session import ManagerSession, Session
from metastore.port.commit import (
    ROOT_ID,
    Caller,
    Commit,
    Committed,
    Conflicted,
    LeaseToken,
    Mark,
    Unknown,
    Update,
    Write,
)
from metastore.retry.runner import Conflict, Effort, run

__all__ = ["Operation", "is_new", "perform"]

T = TypeVar("T")

_PATIENCE = 50
"""How long an exclusive operation waits for those in flight before it marks its scope (milliseconds)."""
_GRACE = 0.5
"""How long, after a call's deadline, it is tried to withdraw what the call has announced (seconds)."""
_ROUNDS = 8
"""How often an attempt begins anew when its intent was withdrawn, before it waits."""
_ESCALATES = ("self", "pending", "read")
"""Conflicts after which a change is announced: somebody else wrote the entity's row."""
_MARKS = ("self", "busy")
"""Conflicts after which an exclusive operation marks its scope."""


def perform(session: ManagerSession, request: Request[T], call: Call) -> T:
    """Run ``request`` until it is committed, or settled on a value or an error."""
    if not isinstance(session, Session):
        if call.operation_id is not None:
            raise InvalidArgument("a transaction is one operation: leave operation_id out inside of it")
        if call.lease is not None:
            raise InvalidArgument("a transaction is one commit: give the lease to it, store.transaction(lease=…)")
        return _of(session, _in_transaction(session, request, call))
    return _of(session, Operation(session, request, call).run())


def _of(session: ManagerSession, result: T) -> T:
    """Note in an entity where it comes from: only what was committed here is trusted later."""
    if isinstance(result, Entity):
        result.__dict__["origin"] = session.backend.origin
    return result


def is_new(session: Session, call: Call) -> bool:
    """Whether nothing is kept of the call's own operation id yet. Raises InvalidArgument for one that is refused."""
    assert call.operation_id is not None
    if session.backend.steps(call.operation_id):
        return False
    caller = Caller(began(call.operation_id, session.clock), "")
    outcome = session.backend.commit(Commit(session.clock.operation_id(), None, caller=caller))
    if isinstance(outcome, Conflicted) and outcome.cause == "stale_id":
        session.backend.forget(0)  # see OperationRow
        raise refused_id(call.operation_id)
    return True


def _in_transaction(session: ManagerSession, request: Request[T], call: Call) -> T:
    """Lay the request's writes over the transaction; nothing is sent. Raises DeadlineExceeded."""
    if remaining(session.clock, math.inf) <= 0:
        raise DeadlineExceeded("the deadline passed before the transaction was complete; nothing was written")
    decided = request.attempt(View(session.backend, trusting=False))
    if not isinstance(decided, Proposal):
        return decided
    principal = session.principal if call.principal is None else call.principal
    commit = Commit(session.clock.operation_id(), principal, decided.guards, (), decided.writes, decided.skip_existing)
    outcome = session.backend.commit(commit)
    assert isinstance(outcome, Committed)
    return decided.finish(outcome.results)


class Operation(Announced[T]):
    """See the module. Used by one thread, once."""

    def __init__(self, session: Session, request: Request[T], call: Call) -> None:
        super().__init__(session, request, call)
        self._overlook = False  # what is pending there this program does not understand
        self._guessed = False  # the last commit rested on what was in hand
        self._attempts = 0
        self._unavailable: BackendUnavailable | None = None  # what the last attempt met
        self._again: Proposal[T] | None = None  # only a lock was in the way: the same once more

    # --- the whole

    def run(self) -> T:
        """Return the operation's result, or raise its error."""
        session, metrics = self._session, self._session.metrics
        effort = Effort(
            self._policy, session.clock, session.bucket, self._request.what, self.id, self._winner, self._was_helped
        )
        started = session.clock.monotonic()
        metrics.begun()
        try:
            with until(self._ends):
                result = run(self._attempt, effort)
        except OutcomeUnknown:
            self._decided_by = "error"
            raise
        except Exception as error:  # noqa: BLE001  (it is raised again, unless the operation was applied)
            self._decided_by = "error"
            return self._give_up(error)
        except BaseException:
            self._decided_by = "error"
            self._clean_up()
            raise
        finally:
            metrics.ended()
            seconds = session.clock.monotonic() - started
            metrics.operation(self._request.verb, self._attempts, seconds, self._decided_by)
        if self._held is not None:
            self._clean_up()
        return result

    def _attempt(self, number: int) -> T:
        self._attempts, self._lost_to, self._expected = number, None, None
        try:
            return self._try(number)
        except Conflict as conflict:
            self._unavailable = None
            if conflict.cause != "marked":
                self._in_the_way = None
            self._session.metrics.conflict(self._request.verb, conflict.cause, self._lost_to)
            conflict.entity_id, conflict.expected = self._lost_to, self._expected
            raise
        except BackendUnavailable as error:
            if not error.transient:
                raise
            self._session.metrics.conflict(self._request.verb, "unavailable", None)
            self._unavailable = error
            raise Conflict("unavailable", str(error)) from error

    def _try(self, number: int) -> T:
        """Make one attempt: it ends with a lost commit, not with finding that an intent was withdrawn."""
        for _ in range(_ROUNDS):
            self._withdrawn, again = False, self._withdrawn
            try:
                return self._step(number, again)
            except Conflict:
                if not self._withdrawn:
                    raise
        raise Conflict("operation", "the intent was withdrawn again and again")

    def _step(self, number: int, withdrawn: bool) -> T:
        if self._look:
            return self._known()
        hot = self._hot()
        if hot is not None:
            self._announce(hot)
        if self._announced is not None:
            return self._help(self._announced)
        try:
            again, self._again = self._again, None
            decided = self._decide(trusting=number == 1 and not withdrawn) if again is None else again
        except MetastoreError as error:
            if self._caller is None or not merits(error):
                raise
            return self._keep("failed", encode_error(error), error)
        if isinstance(decided, Proposal):
            return self._send(decided, withdrawn)
        self._check_lease()
        self._decided_by = "value"
        return decided if self._caller is None else self._keep("unchanged", encode_value(cast(Any, decided)), decided)

    def _check_lease(self) -> None:
        """Nothing is to be written: the lease must hold all the same."""
        leases = self._leases()
        if not leases:
            return
        outcome = self._backend.commit(Commit(self._session.clock.operation_id(), None, leases=leases))
        if isinstance(outcome, Conflicted):
            raise self._lease_lost() if outcome.cause == "lease" else Conflict(outcome.cause, detail(outcome))
        if isinstance(outcome, Unknown):
            raise Conflict("lost", "the answer was lost")

    def _leases(self) -> tuple[LeaseToken, ...]:
        try:
            return self._call.tokens()
        except LeaseLost:
            self._look = self._may_be_absent = self._caller is not None
            raise

    def _lease_lost(self) -> MetastoreError:
        self._look = self._may_be_absent = self._caller is not None  # a repeat of what was applied has its result
        return self._call.refused()

    def _decide(self, *, trusting: bool) -> Proposal[T] | T:
        recent = self._session.recent
        view = View(self._backend, trusting, recent)
        self._guessed = False
        try:
            decided = self._request.attempt(view)
            self._guessed = view.guessed
            if isinstance(decided, Proposal) or not view.guessed:
                return decided
            self._guessed = False
        except MetastoreError:
            if not view.guessed:
                raise
        return self._request.attempt(View(self._backend, False, recent))

    # --- the fast path

    def _send(self, proposal: Proposal[T], withdrawn: bool) -> T:
        exclusive = self._request.exclusive
        self._merge = self._announceable(self._request.merge or proposal.merge)
        updated = _updated(proposal.writes)
        if withdrawn and updated and self._merge is not None:
            self._announce(updated[0])
            return self._help(updated[0])
        commit = Commit(
            self.id,
            self._principal,
            proposal.guards,
            proposal.reads,
            proposal.writes,
            proposal.skip_existing,
            claim=self._claim,
            caller=self._caller,
            held=self._held,
            overlook=self._overlook,
            leases=self._leases(),
            patience=_PATIENCE if exclusive and self._held is None else None,
        )
        outcome = self._backend.commit(commit)
        if isinstance(outcome, Committed):
            self._held = None
            return proposal.finish(outcome.results)
        if isinstance(outcome, Unknown):
            return self._lost(outcome)
        if outcome.cause == "busy":
            self._again = proposal
        return self._refused(outcome, commit)

    def _refused(self, conflict: Conflicted, commit: Commit) -> NoReturn:
        cause = conflict.cause
        updated = next((w for w in commit.writes if isinstance(w, Update)), None)
        self._lost_to = conflict.id if updated is None else updated.id
        self._expected = None if updated is None else updated.version
        if cause == "lease":
            raise self._lease_lost()
        if cause == "stale_id":
            self._stale()
        if cause in ("operation", "claim"):
            self._look = True
            raise self._id_is_known(cause)
        if self._held is not None and cause in ("ancestor", "read"):
            self._check_mark(self._held)
        if cause == "marked":
            self._step_aside([*[g.id for g in commit.guards], *_updated(commit.writes)])
        if updated is not None and cause in _ESCALATES and self._merge is not None:
            if conflict.found is not None and not self._guessed:
                self._session.metrics.overtaken(conflict.found - updated.version)
            self._announce(updated.id)
            raise Conflict(cause, detail(conflict), 0.0)
        stale = cause == "self" and self._guessed  # what was in hand was old: that is no contention yet
        if updated is not None and cause in _MARKS and self._request.exclusive and not stale:
            self._mark(_waits_at(commit) if cause == "busy" else updated.id)
            raise Conflict(cause, detail(conflict), 0.0)
        if cause == "pending":
            helped = [help_others(self._session, entity_id) for entity_id in _updated(commit.writes)]
            self._overlook = not all(helped)
            raise Conflict(cause, detail(conflict), 0.0)
        raise Conflict(cause, detail(conflict), 0.0 if self._guessed else None)  # the next attempt reads first

    # --- marks

    def _mark(self, entity_id: int) -> None:
        outcome = self._backend.mark(Mark(self.id, entity_id, MARK_TTL))
        if isinstance(outcome, Committed | Unknown):
            self._held = entity_id

    # --- the end

    def _give_up(self, error: Exception) -> T:
        """The call failed, or its time is over: withdraw what is announced, unless it was applied meanwhile."""
        with until(self._session.clock.monotonic() + _GRACE):
            try:
                while self._announced is not None or self._look:
                    if not self._look and self._backend.cancel(self.id):
                        break
                    try:
                        return self._known()
                    except Conflict:  # it is pending, or may be claimed: neither for long
                        continue
                self._unmark()
            except (BackendUnavailable, DeadlineExceeded, InvalidArgument) as unasked:  # the last: the store was closed
                if self._announced is not None or self._look:
                    raise OutcomeUnknown(self.id) from error
                if isinstance(unasked, InvalidArgument):
                    raise  # what the operation came to
        in_time = not isinstance(error, DeadlineExceeded | RetriesExhausted)
        if not in_time and self._unavailable is not None:
            raise self._unavailable from None
        if not in_time and self._in_the_way is not None:
            raise ScopeFrozen(self._in_the_way, f"operation {self._in_the_way} is in the way: {error}") from None
        raise error

    def _clean_up(self) -> None:
        """After an error, or an interrupt: leave neither mark nor intent behind, as far as that is possible."""
        if self._announced is None and self._held is None:
            return
        with until(self._session.clock.monotonic() + _GRACE), suppress(MetastoreError):  # both end by themselves
            if self._announced is not None:
                self._backend.cancel(self.id)
            self._unmark()

    def _was_helped(self) -> bool:
        return self._decided_by == "other"

    def _winner(self) -> str:
        """Who won the last conflict, as far as the database can still be asked."""
        if self._lost_to is None:
            return ""
        with until(self._session.clock.monotonic() + _GRACE), suppress(MetastoreError):
            (known,) = self._backend.by_id([self._lost_to])
            steps = self._backend.history(self._lost_to, known.record.version - 1, 1) if known is not None else []
            if steps and steps[0].operation_id != self.id:
                by = "" if steps[0].principal is None else f" by {steps[0].principal}"
                return f"; operation {steps[0].operation_id}{by} made version {steps[0].version}"
        return ""


def _waits_at(commit: Commit) -> int:
    """Return where an exclusive operation waits for others: at its exclusive guard, if it has one, else at its entity.

    The root is never marked: a mark there would hold everybody up.
    """
    barred = [guard.id for guard in commit.guards if guard.exclusive and guard.id != ROOT_ID]
    return (barred or _updated(commit.writes))[0]


def _updated(writes: Sequence[Write]) -> list[int]:
    return [w.id for w in writes if isinstance(w, Update)]
