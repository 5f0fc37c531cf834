"""One logical operation, over all its attempts: from a request to its result, exactly once.

An operation begins on the *fast path*: read what is not in hand, decide, one compare-and-swap. A
change that loses is *announced* (:meth:`Operation._announce`): written down as an intent that
anybody may apply. From then on each attempt *helps*: it applies all that is pending on the entity,
its own among it, or finds that somebody else did. An exclusive operation that loses *marks* its
scope instead, so that others step aside.

The operation's row in the database, under its id, says at any time what became of it. A lost
answer is resolved by it; what may still be in flight is made impossible before it is sent again.
docs/progress.md has the protocol and its proof.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Generic, NoReturn, TypeVar, cast
from uuid import UUID

from metastore.backends.port import Pending, Step
from metastore.changes import FORMAT, EntityChange, encode
from metastore.commit import (
    CLAIMABLE,
    PENDING,
    Caller,
    Commit,
    Committed,
    Conflicted,
    Entry,
    Mark,
    Outcome,
    Unknown,
    Update,
    Write,
)
from metastore.deadlines import until
from metastore.errors import (
    BackendUnavailable,
    DeadlineExceeded,
    InvalidArgument,
    MetastoreError,
    OutcomeUnknown,
    RetriesExhausted,
    ScopeFrozen,
)
from metastore.helping import BATCH, leads_to, plan
from metastore.kinds import KINDS
from metastore.metrics import Decided
from metastore.names import format_path
from metastore.results import encode_error, encode_value, entity_at, merits, operation_time, replay
from metastore.retry.runner import Conflict, Effort, run
from metastore.session import Call, Proposal, Request, Results, Session, View
from metastore.settling import ask_until_it_answers, help_others, in_the_way

__all__ = ["Operation", "perform"]

T = TypeVar("T")

_MARK_TTL = 1.0
"""How long a mark of a rename, move or drop holds others up if its owner has died (seconds)."""
_PATIENCE = 5
"""How long an exclusive operation waits for those in flight before it marks its scope (milliseconds)."""
_GRACE = 0.5
"""How long, after a call's deadline, it is tried to withdraw what the call has announced (seconds)."""
_ESCALATES = ("self", "pending", "read")
"""Conflicts after which a change is announced: somebody else wrote the entity's row."""
_MARKS = ("self", "busy")
"""Conflicts after which an exclusive operation marks its scope."""


def perform(session: Session, request: Request[T], call: Call) -> T:
    """Run ``request`` until it is committed, or settled on a value or an error."""
    if session.in_transaction:
        if call.operation_id is not None:
            raise InvalidArgument("a transaction is one operation: leave operation_id out inside of it")
        return _in_transaction(session, request, call)
    return Operation(session, request, call).run()


def _in_transaction(session: Session, request: Request[T], call: Call) -> T:
    """Lay the request's writes over the transaction; nothing is sent."""
    decided = request.attempt(View(session.backend, trusting=False))
    if not isinstance(decided, Proposal):
        return decided
    principal = session.principal if call.principal is None else call.principal
    commit = Commit(session.clock.operation_id(), principal, decided.guards, (), decided.writes, decided.skip_existing)
    outcome = session.backend.commit(commit)
    assert isinstance(outcome, Committed)
    return decided.finish(outcome.results)


class Operation(Generic[T]):
    """See the module. Used by one thread, once."""

    def __init__(self, session: Session, request: Request[T], call: Call) -> None:
        self._session = session
        self._backend = session.backend
        self._request = request
        policy = session.policy if call.deadline is None else replace(session.policy, deadline=float(call.deadline))
        self._policy = policy
        self._ends = session.clock.monotonic() + policy.deadline
        self._principal = session.principal if call.principal is None else call.principal
        self.id = call.operation_id or session.clock.operation_id()
        self._caller: Caller | None = None
        if call.operation_id is not None:
            self._caller = Caller(operation_time(self.id), _digest(request))
        self._merge = request.merge
        self._claim = 0
        self._look = False  # the operation's row must be looked at before anything else
        self._announced: int | None = None
        self._held: int | None = None
        self._in_the_way: UUID | None = None
        self._overlook = False
        self._rejected: frozenset[UUID] = frozenset()
        self._most: int | None = None
        self._lost_to: int | None = None
        self._decided_by: Decided = "self"
        self._attempts = 0
        self._others = 0
        self._guessed = False  # the last commit rested on what was in hand
        self._last: Conflict | None = None

    # --- the whole

    def run(self) -> T:
        """Return the operation's result, or raise its error."""
        session, metrics = self._session, self._session.metrics
        effort = Effort(self._policy, session.clock, session.bucket, self._request.what, self.id, self._winner)
        started = session.clock.monotonic()
        metrics.begun()
        try:
            with until(self._ends):
                result = run(self._attempt, effort)
        except (DeadlineExceeded, RetriesExhausted, BackendUnavailable) as error:
            self._decided_by = "error"
            return self._give_up(error)
        except BaseException as error:
            self._decided_by = "error"
            if not isinstance(error, OutcomeUnknown):
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
        self._attempts, self._lost_to = number, None
        try:
            return self._try(number)
        except DeadlineExceeded:
            if self._last is None or self._session.clock.monotonic() < self._ends:
                raise
            raise self._last from None  # it is the call's time that is over, not one wait
        except Conflict as conflict:
            self._last = conflict
            if conflict.cause != "marked":
                self._in_the_way = None
            self._session.metrics.conflict(self._request.verb, conflict.cause, self._lost_to)
            raise
        except BackendUnavailable as error:
            if not error.transient:
                raise
            self._session.metrics.conflict(self._request.verb, "unavailable", None)
            self._last = Conflict("unavailable", str(error))
            raise self._last from error

    def _try(self, number: int) -> T:
        if self._look:
            return self._known()
        hot = self._hot()
        if hot is not None:
            self._announce(hot)
        if self._announced is not None:
            return self._help(self._announced)
        try:
            decided = self._decide(trusting=number == 1)
        except MetastoreError as error:
            if self._caller is None or not merits(error):
                raise
            return self._keep("failed", encode_error(error), error)
        if isinstance(decided, Proposal):
            return self._send(decided)
        self._decided_by = "value"
        if self._caller is None:
            return decided
        return self._keep("unchanged", encode_value(cast(Any, decided)), decided)

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

    def _send(self, proposal: Proposal[T]) -> T:
        exclusive = self._request.exclusive
        self._merge = self._request.merge or proposal.merge
        commit = Commit(
            self.id,
            self._principal,
            proposal.guards,
            (),
            proposal.writes,
            proposal.skip_existing,
            claim=self._claim,
            caller=self._caller,
            held=self._held,
            overlook=self._overlook,
            patience=_PATIENCE if exclusive and self._held is None else None,
        )
        outcome = self._backend.commit(commit)
        if isinstance(outcome, Committed):
            self._held = None
            return proposal.finish(outcome.results)
        if isinstance(outcome, Unknown):
            return self._lost(outcome)
        return self._refused(outcome, commit)

    def _refused(self, conflict: Conflicted, commit: Commit) -> NoReturn:
        cause = conflict.cause
        updated = next((w for w in commit.writes if isinstance(w, Update)), None)
        self._lost_to = conflict.id if updated is None else updated.id
        if cause == "stale_id":
            self._stale()
        if cause in ("operation", "claim"):
            self._look = True
            raise Conflict(cause, "the operation id is known", 0.0)
        if cause == "marked":
            self._step_aside([*[g.id for g in commit.guards], *_updated(commit.writes)])
        if updated is not None and cause in _ESCALATES and self._merge is not None:
            if conflict.found is not None and not self._guessed:
                self._session.metrics.overtaken(conflict.found - updated.version)
            self._announce(updated.id)
            raise Conflict(cause, _detail(conflict), 0.0)
        stale = cause == "self" and self._guessed  # what was in hand was old: that is no contention yet
        if updated is not None and cause in _MARKS and self._request.exclusive and not stale:
            self._mark(updated.id)
            raise Conflict(cause, _detail(conflict), 0.0)
        if cause == "pending":
            helped = [help_others(self._session, entity_id) for entity_id in _updated(commit.writes)]
            self._overlook = not all(helped)
            raise Conflict(cause, _detail(conflict), 0.0)
        raise Conflict(cause, _detail(conflict))

    # --- the operation's row

    def _lost(self, unknown: Unknown) -> NoReturn:
        """The answer was lost: make what was sent impossible, or find that it was applied."""
        claim = ask_until_it_answers(self._session, self.id, self._ends)
        if claim is None:
            self._look = True
            raise Conflict("lost", "the answer was lost", 0.0)
        self._claim = claim
        raise Conflict("lost", f"the connection was lost before the commit was applied ({unknown.reason})")

    def _known(self, steps: list[Step] | None = None) -> T:
        """Look at the operation's row; return its result, or go on from where it stands."""
        if steps is None:
            steps = self._backend.steps(self.id)
        self._look = False
        if not steps:
            raise Conflict("operation", "the operation's row is gone")
        first = steps[0]
        if self._caller is not None and first.digest not in (None, self._caller.digest):
            raise InvalidArgument(
                f"operation {self.id} was asked for already, with other arguments; take a new id for a new operation"
            )
        if first.action == PENDING:
            self._announced = first.entity_id
            raise Conflict("operation", "the operation is pending", 0.0)
        if first.action in CLAIMABLE:
            self._claim_again()
        self._decided_by = "other" if self._announced is not None else "self"
        self._announced = None
        if self._merge is not None and first.seq is not None and first.entity_id is not None:
            self._session.hot.note(first.entity_id)
            return cast(T, entity_at(first, self._session.recent.of(first.entity_id)))
        return replay(steps, self._request.replay)

    def _claim_again(self) -> NoReturn:
        self._announced = None
        claim = self._backend.forbid(self.id)
        if claim is None:
            self._look = True
        else:
            self._claim = claim
        raise Conflict("operation", "the operation was taken up again", 0.0)

    def _keep(self, action: Any, result: str, answer: T | MetastoreError) -> T:
        """Note what a caller's operation came to, before it is told."""
        entry = Entry(self.id, action, self._principal, result=result, claim=self._claim, caller=self._caller)
        self._written_down(self._backend.write_down(entry))
        if isinstance(answer, MetastoreError):
            raise answer
        return answer

    def _written_down(self, outcome: Outcome) -> int:
        """Return how many others were waiting."""
        if isinstance(outcome, Unknown):
            self._lost(outcome)
        if isinstance(outcome, Conflicted):
            if outcome.cause == "stale_id":
                self._stale()
            if outcome.cause in ("operation", "claim"):
                self._look = True
                raise Conflict(outcome.cause, "the operation id is known", 0.0)
            raise Conflict(outcome.cause, _detail(outcome))
        self._claim = 0
        return outcome.results[0].version if isinstance(outcome, Committed) and outcome.results[0] else 0

    def _stale(self) -> NoReturn:
        if self._backend.steps(self.id):
            self._look = True
            raise Conflict("operation", "the operation id is known", 0.0)
        raise InvalidArgument(
            f"operation id {self.id} is too old to be told from one that was forgotten, or from the future; "
            "take a new one, from ms.new_operation_id()"
        )

    # --- helping

    def _hot(self) -> int | None:
        merge = self._request.merge
        if merge is None or self._claim or self._announced is not None:
            return None
        hot = self._session.hot.find(merge.entity_id, merge.names and (merge.kind, merge.names))
        return hot if hot is not None and _can_be_written(merge.changes) else None

    def _announce(self, entity_id: int) -> None:
        """Write the operation down as an intent, which whoever writes the entity next applies."""
        merge = self._merge
        assert merge is not None
        changes = json.dumps(encode(merge.changes))
        entry = Entry(
            self.id,
            "pending",
            self._principal,
            entity_id=entity_id,
            kind=merge.kind,
            path=None if merge.names is None else format_path(merge.names),
            changes=changes,
            format=FORMAT,
            seconds=max(0.0, self._ends - self._session.clock.monotonic()),
            claim=self._claim,
            caller=self._caller,
        )
        self._others = self._written_down(self._backend.write_down(entry))
        self._announced = entity_id
        self._session.metrics.announced()
        self._session.hot.note(entity_id, merge.names and (merge.kind, merge.names))

    def _help(self, entity_id: int) -> T:
        """Apply what is pending, one's own among it, with one compare-and-swap; or find it done."""
        if self._others and not self._session.hot.leads(entity_id):
            done = self._wait_for_others(entity_id)
            if done is not None:
                return self._known([done])
        began = self._session.clock.monotonic()
        seen = self._backend.pending(entity_id, self.id, self._limit())
        own = seen.own
        if own is None or own.action != PENDING:
            return self._resolved(own, seen)
        known = seen.known
        if known is None or not known.live or not leads_to(own.path_before, known.record.chain):
            self._withdraw()
        planned = plan(seen, self.id, self._rejected, self._limit())
        assert known is not None
        assert planned is not None
        self._note_pending(seen)
        self._lost_to = entity_id
        try:
            outcome = self._backend.help(planned.help)
        except InvalidArgument:
            self._halve([one.operation_id for one in planned.help.resolutions])
        if isinstance(outcome, Committed):
            self._session.hot.took(self._session.clock.monotonic() - began)
            return self._helped(planned.help.resolutions, outcome.results, seen, planned.record)
        self._session.hot.follow()
        if isinstance(outcome, Unknown):
            raise Conflict("lost", "the answer was lost")
        if outcome.cause == "marked":
            self._step_aside([n.id for n in known.record.chain])
        if outcome.found is not None:
            self._session.metrics.overtaken(outcome.found - planned.help.version)
        raise Conflict(outcome.cause, _detail(outcome), 0.0)

    def _wait_for_others(self, entity_id: int) -> Step | None:
        """Let the oldest intent's owner apply this one too; return its row if he did.

        That saves work, and is no part of the proof: the oldest does not wait, and whoever has
        waited for some rounds in vain helps himself.
        """
        self._others, clock, hot = 0, self._session.clock, self._session.hot
        began = clock.monotonic()
        for wait in hot.waits():
            clock.sleep(min(wait, max(0.0, self._ends - clock.monotonic())))
            own, ahead = self._backend.turn(entity_id, self.id)
            if own is not None:
                hot.took((clock.monotonic() - began) / 1.0)  # the rest of one round, and the next
                return own
            if ahead == 0:
                break
        return None

    def _limit(self) -> int:
        return BATCH if self._most is None else self._most

    def _note_pending(self, seen: Pending) -> None:
        oldest = (seen.now - seen.intents[0].time) / 1e6
        self._session.metrics.pending(len(seen.intents), oldest)

    def _helped(self, resolutions: Any, results: Results, seen: Pending, record: Any) -> T:
        hot, entity_id = self._session.hot, record.chain[-1].id
        if len(resolutions) == 1:
            hot.cool(entity_id)
        else:
            hot.note(entity_id)
            hot.lead(entity_id)
        self._session.metrics.batch(len(resolutions))
        self._session.recent.note(record.chain)
        self._rejected, self._most = frozenset(), None
        for one, result in zip(resolutions, results, strict=True):
            if one.operation_id != self.id:
                continue
            assert result is not None
            if one.action not in CLAIMABLE:
                self._announced = None
            if one.action == "alter":
                record = record._replace(modified_at=result.time)
                return cast(T, KINDS[record.chain[-1].kind].entity(record))
            if one.action in CLAIMABLE:
                break
            steps = [cast(Step, seen.own)._replace(action=one.action, result=one.result)]
            return replay(steps, self._request.replay)
        self._look = True  # one's own is expired or moved, or was not among the batch
        raise Conflict("pending", "others came first", 0.0)

    def _resolved(self, own: Step | None, seen: Pending) -> T:
        """The intent is decided by somebody else."""
        if own is None or own.action in ("moved", "cancelled", "forbidden"):
            self._claim_again()
        if own.action == "expired":
            self._announced = None
            raise DeadlineExceeded(f"{self._request.what()} was not applied within its deadline; call again")
        self._decided_by, self._announced = "other", None
        self._session.hot.note(cast(int, own.entity_id))
        if own.seq is not None and seen.known is not None:
            return cast(T, entity_at(own, seen.known.record.chain))
        return replay([own], self._request.replay)

    def _withdraw(self) -> NoReturn:
        """What the intent names is not there any more: find out anew what the call means."""
        if self._backend.cancel(self.id):
            self._claim_again()
        self._look = True
        raise Conflict("ancestor", "the entity was renamed, moved or dropped", 0.0)

    def _halve(self, sent: Sequence[UUID]) -> NoReturn:
        """The database refuses a batch: try half of it, until the one that it refuses is alone."""
        if len(sent) == 1:
            self._rejected |= {sent[0]}
            self._most = None
        else:
            self._most = max(1, len(sent) // 2)
        raise Conflict("rejected", "the database refuses what somebody wants to write", 0.0)

    # --- marks

    def _mark(self, entity_id: int) -> None:
        outcome = self._backend.mark(Mark(self.id, entity_id, _MARK_TTL))
        if isinstance(outcome, Committed | Unknown):
            self._held = entity_id

    def _step_aside(self, ids: Sequence[int]) -> NoReturn:
        """Another operation is announced on a scope: let it pass, without a mark of one's own meanwhile."""
        found = in_the_way(self._backend, ids, self.id)
        if self._held is not None and (found.other is not None or not found.held):
            self._unmark()
        self._in_the_way, self._lost_to = found.other, None
        if found.other is None and found.quiet and self._request.exclusive:
            raise Conflict("marked", "others have their turn after an exclusive operation", found.quiet)
        raise Conflict("marked", f"operation {found.other} has the scope for itself")

    # --- the end

    def _give_up(self, error: MetastoreError) -> T:
        """The call's time is over: withdraw what is announced, unless it was applied meanwhile."""
        with until(self._session.clock.monotonic() + _GRACE):
            try:
                if self._announced is not None and not self._look:
                    self._look = not self._backend.cancel(self.id)
                if self._look:
                    return self._known()
                self._unmark()
            except Conflict:
                self._clean_up()
            except (BackendUnavailable, DeadlineExceeded):
                if self._announced is not None or self._look:
                    raise OutcomeUnknown(self.id) from error
        if self._last is not None and isinstance(self._last.__cause__, BackendUnavailable):
            raise self._last.__cause__ from None
        if self._in_the_way is not None and not isinstance(error, BackendUnavailable):
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

    def _unmark(self) -> None:
        if self._held is not None:
            self._backend.unmark(self._held, self.id)
            self._held = None

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


def _can_be_written(changes: Sequence[EntityChange]) -> bool:
    """Whether the changes are JSON: one that is not is refused when it is applied."""
    try:
        json.dumps(encode(tuple(changes)))
    except (TypeError, ValueError):
        return False
    return True


def _updated(writes: Sequence[Write]) -> list[int]:
    return [w.id for w in writes if isinstance(w, Update)]


def _detail(outcome: Conflicted) -> str:
    where = "" if outcome.id is None else f"entity {outcome.id}"
    found = "" if outcome.found is None else f" is at version {outcome.found}"
    return (where + found) or "changed meanwhile"


def _digest(request: Request[Any]) -> str:
    """Return the fingerprint of a call's arguments."""
    text = json.dumps([request.verb, request.arguments()], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
