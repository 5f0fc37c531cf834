"""Several operations as one commit, with validated reads.

A transaction sends nothing before its end, so it locks nothing while Python runs. At the end it writes only if all that
it read is unchanged. That makes transactions strictly serializable: the commit validates all reads at one instant,
including absent names and listings.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from types import TracebackType
from typing import NoReturn, Self, TypeVar, cast
from uuid import UUID

from metastore.clock import process_id
from metastore.deadlines import GRACE, cleaning, until
from metastore.errors import (
    BackendUnavailable,
    DeadlineExceeded,
    InvalidArgument,
    MetastoreError,
    OperationIdReused,
    OutcomeUnknown,
    VersionConflict,
    outcome_forgotten,
)
from metastore.governance.seen import Seen
from metastore.managers.all import Managers
from metastore.operation.authorized import check_principal, with_evidence
from metastore.operation.digest import digest_of_one
from metastore.operation.dropping import pending_name
from metastore.operation.keys import began
from metastore.operation.marks import OwnMark
from metastore.operation.once import once
from metastore.operation.record import LATE, ask_until_it_answers, refused_id, tell_id, withdraw
from metastore.operation.request import Call, Request, Results
from metastore.operation.session import ManagerSession, Session
from metastore.operation.tickets import Loan, carrying, running, sent
from metastore.port.backend import Backend, Reads
from metastore.port.commit import Commit, CommitOutcome, Committed, Conflicted, Unknown
from metastore.port.conditions import Caller
from metastore.port.writes import Advance, Update
from metastore.retry.policy import RetryPolicy
from metastore.retry.reactions import REACTIONS, Reaction
from metastore.retry.runner import Conflict, Effort, run
from metastore.transaction.chained import InChain, code_of
from metastore.transaction.changed import Changed
from metastore.transaction.counted import Counted
from metastore.transaction.line import InLine
from metastore.transaction.one_at_a_time import OneAtATime
from metastore.transaction.overlay import Overlay

T = TypeVar("T")


class _NotOpen:
    """The replacement for the backend before the block begins and after it has ended."""

    def __getattr__(self, name: str) -> NoReturn:
        raise InvalidArgument("use a transaction only inside its with block, and only once; begin another")


_NOT_OPEN = cast(Reads, _NotOpen())
_NOTHING = Request[None](
    verb="transaction",
    what=lambda: "the transaction",
    attempt=lambda _: None,
    replay=lambda _: None,
    arguments=tuple,
)
"""A call that writes nothing, under the id that a transaction was given."""


class Transaction(Managers):
    """The managers of a store, whose operations become one commit when the block ends.

    Until then the times and versions in its results are provisional. Several threads may use it in turns; a use at the
    same moment raises InvalidArgument. At the end it raises VersionConflict if something that was read has changed.
    After an exception in the block, nothing is written.
    """

    def __init__(
        self,
        session: Session,
        call: Call,
        line: InLine | None = None,
        operation_id: UUID | None = None,
        counted: Counted | None = None,
    ) -> None:
        self._outer = session = session.of_transaction()
        self._call = call
        principal = session.principal if call.principal is None else call.principal
        backend = session.backend if session.access is None else session.access.backend
        self._overlay = Overlay(backend, session.clock, principal, None if line is None else line.meet)
        self._begun = False
        self._process = process_id()
        self._id = call.operation_id or operation_id or session.clock.operation_id()
        self._caller: Caller | None = None
        if call.operation_id is not None:
            own = digest_of_one(_NOTHING, session.clock.operation_id())
            self._caller = Caller(began(self._id, session.clock), own)
        self._line = line
        self._claim = 0
        self._counted = counted
        """The count of all runs of a function, or of this block's commit; None: the block has not ended."""
        self._mark = OwnMark(session.backend, self._id)
        self._scope = ""
        self._overlook = False  # True for a freeze: pending intents do not block its commit
        self._writes = False  # True if its last commit writes
        self._failed = False  # True after an error of the block: then only validate its reads
        self._carry = False  # True once others have announced changes to the written entities: the commit applies them
        self._loan = Loan(session)
        self._lent: int | None = None  # during an attempt: the ticket that a function around this block lends
        self.refused = self.is_in_line = False
        self.sent: UUID | None = None
        """The id of its operation, from the moment when a commit may have been sent."""
        self.began = 0.0
        self.publishes: tuple[UUID, ...] = ()
        self.advance: Advance | None = None
        """A consumer's new position, which the same commit notes."""
        self._inner = ManagerSession(_NOT_OPEN, session.clock, session.policy, principal, outer=session)
        self._inner.seals = session.seals
        self._inner.reason = session.reason if call.reason is None else call.reason
        if session.access is not None:
            check_principal(session.access, call)
            self._inner.access = session.access
        super().__init__(self._inner)

    def __enter__(self) -> Self:
        self._check_new()
        self._begun = True
        access = self._outer.access
        # the overlay notes all reads, so that the commit can validate them; a user sees only some of them
        shown = self._overlay if access is None else Seen(cast(Backend, self._overlay), access)
        self._inner.backend = cast(Reads, OneAtATime(shown))
        return self

    def _check_new(self) -> None:
        if self._begun:
            raise InvalidArgument("this transaction was begun already; begin another")
        self._process = process_id()

    @property
    def _is_inherited(self) -> bool:
        """Whether this process was forked after the transaction began. Then all its resources belong to the parent."""
        return self._process != process_id()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inner.backend = _NOT_OPEN
        if self._line is not None:
            # noted before the commit: if the commit is lost, the next turn must be long enough for such a run
            self._line.took(self._outer.clock.monotonic() - self.began)
        # a run's error counts only if its reads were true at one instant; otherwise the run is repeated
        self._failed = self._line is not None and isinstance(error, Exception) and not self._is_inherited
        if kind is None or self._failed:
            with Counted(self._outer) if self._counted is None else nullcontext(self._counted) as self._counted:
                self._commit(self._counted)

    def _commit(self, counted: Counted) -> None:
        self.sent = self._id
        if self._is_inherited:
            raise InvalidArgument(
                "a forked child has left the block of its parent's transaction; nothing was written; end the child "
                "inside of the block (os._exit), and let it begin a transaction of its own"
            )
        session, policy = self._outer, self._outer.policy_of(self._call)
        ends = session.ends_of(self._call)
        around = running.get()
        if around is not None:
            around.outdate()
        try:
            with until(ends):
                results = run(lambda _: self._send(counted, ends), effort_of(session, policy, self._id, ends))
            if self._failed:
                return
            if results == () and self._call.operation_id is not None:
                self._keep()
            self._overlay.committed(results)
            self._remember()
            counted.decided = "self" if self._writes else "value"
        except DeadlineExceeded as error:
            raise self._mark.blame(error) from error.__cause__
        except Exception:
            # other errors say whether the commit was applied; an interrupt does not, so the commit is withdrawn
            raise
        except BaseException as interrupt:
            with cleaning(session.clock.monotonic() + GRACE):
                withdraw(session, self._id, policy.deadline, sent=True)
            tell_id(interrupt, self._id)
            raise

    def _keep(self) -> None:
        """Write a row for the caller's id, although nothing was written, so that a repetition is recognised later."""
        once(self._outer, _NOTHING, self._call)

    def _remember(self) -> None:
        """Remember the settings of the catalogs that were read, so that the next transaction need not read them."""
        if self._outer.seals is not None:
            for catalog in self._overlay.entities.catalogs():
                self._outer.seals.validated(catalog)

    def enter_line(self) -> None:
        """Wait for the turn of a run that is in line."""
        if self._line is not None:
            self._line.enter(self._mark)
        self.began = self._outer.clock.monotonic()

    def leave_scope(self) -> None:
        """Remove the mark of a barred scope, unless a commit removed it."""
        if self._mark.held is not None and not self._is_inherited:
            with cleaning(self._outer.clock.monotonic() + GRACE), suppress(MetastoreError):
                self._mark.remove()

    def _send(self, counted: Counted, ends: float) -> Results | None:
        """Send the commit, if one is needed. Return None if it was applied, but its answer was lost."""
        counted.attempt()
        if self._overlay.is_old:
            self.refused = True  # store.run then calls the function again
            message = "the server was started again since the block has read; begin another transaction"
            raise VersionConflict("", None, None, message)
        commit = self._to_send()
        self._writes = commit.leaves_row
        # guards alone matter only if the block failed: its error may rest on the places of entities
        if not (commit.leaves_row or commit.reads or commit.leases or (self._failed and commit.guards)):
            return ()
        together = None if self._line is None else self._line.together(commit, self._overlay.looked_back)
        with self._loan.taken(ends) as self._lent:
            outcome = together or self._committed(self._in_line(commit))
        if isinstance(outcome, Conflicted):
            if outcome.cause == "ticket" and self._may_borrow(commit, ends):
                raise Conflict(outcome.cause, "it goes on the ticket of a function around it", 0.0)
            self._refused(outcome, commit)
        if isinstance(outcome, Unknown):
            if not commit.leaves_row:
                raise Conflict("lost", f"the connection was lost ({outcome.reason})")
            claim = self._ask(ends, travelled=together is not None)
            if claim is not None and together is not None:
                # perhaps the state that the block saw was never committed, and another commit has made that version
                # since
                self._refused(Conflicted("self"), commit)
            if claim is not None:
                self._claim = claim
                raise Conflict("lost", f"the connection was lost before the commit was applied ({outcome.reason})")
            if not self._is_own():
                raise self._reused()
        self._mark.held = None
        return outcome.results if isinstance(outcome, Committed) else None

    def _ask(self, ends: float, *, travelled: bool) -> int | None:
        """Return the claim for another attempt after a lost answer; None: it is decided. Raises DeadlineExceeded.

        If the time is over while a chain is under way, there is half a second more, as in a batch.
        """
        session, life = self._outer, self._outer.policy_of(self._call).deadline
        now = session.clock.monotonic()
        if not travelled or now < ends:
            return ask_until_it_answers(session, self._id, life, ends)
        with cleaning(now + GRACE):
            if ask_until_it_answers(session, self._id, life, now + GRACE) is None:
                return None
        raise DeadlineExceeded(
            "the transaction was not applied: its deadline passed while its chain was under way; call again"
        )

    def _may_borrow(self, commit: Commit, ends: float) -> bool:
        """Whether the commit can use the ticket of a function around the block; that function waits for the commit."""
        if self._line is not None or self._lent is not None:
            return False
        ids = [w.id for w in commit.writes if isinstance(w, Update) and w.scope_version is None]
        return self._loan.may_add([i for i in ids if Loan(self._outer).may_add([i], ends)], ends)

    def _to_send(self) -> Commit:
        """Return all reads and writes; after an error of the block, only the reads."""
        commit = self._overlay.commit_value(self._id, writes=not self._failed)
        if self._outer.access is not None:
            commit = with_evidence(commit, self._outer.access)
        commit = replace(commit, claim=self._claim, held=self._mark.held)
        if self._failed:
            return commit
        return replace(
            commit,
            overlook=self._overlook,
            leases=self._call.tokens(),
            caller=self._caller,
            publishes=self.publishes,
            advance=self.advance,
            reason=self._inner.reason,
        )

    def _in_line(self, commit: Commit) -> Commit:
        """Return the commit with the ticket, and with the intents on the entities that it writes."""
        if self._overlook:
            return commit
        line = self._line
        ticket = None if line is None else line.ticket
        if line is not None and ticket is not None:
            commit = replace(commit, ticket=ticket.number, leaves=line.leaves(ticket))
            return carrying(self._outer, commit, line.seen)
        if self._lent is not None:
            return carrying(self._outer, replace(commit, ticket=self._lent))
        return carrying(self._outer, commit) if self._carry else commit

    def _committed(self, commit: Commit) -> CommitOutcome:
        outcome = sent(self._outer.backend, commit)
        if not isinstance(outcome, Committed):
            return outcome
        if self._line is not None:
            if commit.leaves and self._line.ticket is not None:
                self._line.ticket.passed()
            self._line.chained.committed(commit, outcome.results)
        resolved = sum(len(one.resolutions) for one in commit.carries)
        if resolved:
            self._outer.metrics.batch(resolved)
        return outcome

    def _refused(self, refusal: Conflicted, commit: Commit) -> NoReturn:
        """React as the table says, and raise the conflict, or the error."""
        cause, held, mark = refusal.cause, self._mark.held, self._mark
        expected = None if refusal.found is None else refusal.found - 1
        self._outer.metrics.conflict("transaction", cause, refusal.id, expected, commit.principal)
        reactions = REACTIONS[cause]
        if reactions.transaction is Reaction.AT_ONCE:  # others have announced changes of the same entities
            self._carry = True  # the next attempt's commit applies these changes, too
            raise Conflict(cause, "others have announced changes", 0.0)
        if reactions.transaction is Reaction.STEP_ASIDE:
            if self._line is not None:
                self._line.leave()
            ids = [*[g.id for g in commit.guards], *[w.id for w in commit.writes if isinstance(w, Update)]]
            conflict = mark.step_aside(ids, keep=self._overlook)
            lapsed = held is not None and mark.held is None
        else:
            conflict = Conflict(cause, "changed meanwhile")
            lapsed = reactions.own_mark and mark.is_gone()
        if lapsed and self._overlook:
            raise self._lapsed()
        if reactions.transaction is not Reaction.RAISE:
            raise conflict
        if cause == "lease":
            raise self._call.refused()
        if cause == "name" and (pending := self._pending_name(commit)) is not None:
            raise pending  # another run would meet the same drop
        if cause in ("operation", "claim", "stale_id") and self._call.operation_id is not None:
            self._take_up(cause)
        self.refused = True
        # the change that caused the conflict, if the user sees it
        changed = self._overlay.changed(self._outer.backend if self._outer.access is not None else None)
        if self._line is not None:
            lost_on = None if changed is None else changed.id
            self.is_in_line = self._line.lost(commit, cause, self._overlay.entities.addresses(), lost_on)
        raise _error(conflict, changed) from None

    def _pending_name(self, commit: Commit) -> MetastoreError | None:
        session, access = self._outer, self._outer.access
        return pending_name(session.backend, None if access is None else access.backend, commit)

    def _stale(self) -> NoReturn:
        """Raise the error for the caller's id, which gc may have forgotten, or which is from the future."""
        if self._outer.backend.steps(self._id):
            raise self._reused()
        self._outer.backend.forget(0)  # a clock that was ahead may have left the bound too high
        raise refused_id(self._id)

    def _is_own(self) -> bool:
        """Whether this transaction was applied under the caller's id, and not an earlier one.

        Raises OutcomeUnknown.
        """
        if self._caller is None:
            return True
        try:
            steps = self._outer.backend.steps(self._id)
        except (InvalidArgument, BackendUnavailable, DeadlineExceeded):  # the store is closed, or the database is away
            raise OutcomeUnknown(self._id) from None
        if not steps or steps[0].ordinal != 0:
            raise outcome_forgotten(self._id)
        return steps[0].digest == self._caller.digest

    def _reused(self) -> OperationIdReused:
        return OperationIdReused(self._id, f"operation {self._id} is known already; ask store.outcome() about it")

    def _take_up(self, cause: str) -> NoReturn:
        """Send the commit again under a claim, if an earlier call with the caller's id was withdrawn."""
        if cause == "stale_id":
            self._stale()
        claim = self._outer.backend.forbid(self._id, self._outer.policy_of(self._call).deadline + LATE)
        if claim is None:
            raise self._reused()
        self._claim = claim
        raise Conflict(cause, "the operation was taken up again")

    def _lapsed(self) -> VersionConflict:
        self.refused = True
        message = "the freeze's ttl was over before its commit; nothing was written; freeze again, with a longer ttl"
        return VersionConflict(self._scope, None, None, f"{self._scope}: {message}")


def effort_of(
    session: Session, policy: RetryPolicy, operation_id: UUID, ends: float, what: str = "the transaction"
) -> Effort:
    """Return the limits on the attempts of a transaction."""
    return Effort(policy, session.clock, session.bucket, lambda: what, operation_id, ends=ends)


def _error(conflict: Conflict, changed: Changed | None) -> VersionConflict:
    what, again = "the transaction was not applied: ", "; run it again, or use store.run(fn), which does"
    if changed is None:
        path, why = "the transaction", f"a name or a listing that it read has changed ({conflict.cause})"
        return VersionConflict(path, None, None, what + why + again)
    if changed.expected is None:
        why = f"{changed.path} was renamed, moved, dropped, restored, enabled or disabled"
    else:
        now = "dropped" if changed.found is None else f"at version {changed.found}"
        by = "" if changed.principal is None else f" by {changed.principal}"
        why = f"{changed.path} was expected at version {changed.expected} and is {now}{by}"
    return VersionConflict(changed.path, changed.expected, changed.found, what + why + again)


def run_transaction(session: Session, fn: Callable[[Transaction], T], call: Call) -> T:
    """Run ``fn`` in transactions until one commits; return the last result of ``fn``."""
    last: Transaction | None = None
    counted = Counted(session)

    def attempt(_: int) -> T:
        nonlocal last
        transaction = last = Transaction(session, call, line, session.clock.operation_id(), counted)
        try:
            transaction.enter_line()
            with line.lending(), transaction:
                result = fn(transaction)
        except Exception as error:
            if transaction.refused:
                raise Conflict("read", str(error), 0.0 if transaction.is_in_line else None) from None
            raise
        finally:
            chained.ended()
            transaction.leave_scope()
        return result

    policy = session.policy_of(call)
    ends = session.ends_of(call)
    # these calls cannot join a chain: of a user, without lanes, under a lease, with an operation id or a reason
    rare = (
        session.access or session.combiner is None or call.lease or call.operation_id or call.reason or session.reason
    )
    chained = InChain(session, None if rare else code_of(fn))
    line = InLine(session, ends, chained)
    try:
        with counted, until(ends):
            try:
                return run(attempt, effort_of(session, policy, session.clock.operation_id(), ends))
            finally:
                line.over()
    except BaseException as error:
        # an interrupt may come after the commit, while the ticket is returned
        inside = getattr(error, "operation_id", None)  # the id of a call that the function has made
        if not isinstance(error, Exception) and last is not None and (last.sent or inside):
            vars(error)["operation_id"] = last._id  # noqa: SLF001  (the same module)
        raise
