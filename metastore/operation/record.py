"""Read, claim and write an operation's row, which has its state or outcome at any time; check its leases.

The row resolves a lost answer: the owner ensures that no message in flight can be applied, and then sends the operation
again under a *claim*. A repeat of a caller's id finds the first call's result in the row. docs/progress.md has the
states, and the proof that at most one of all messages is ever applied.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, Literal, NoReturn
from uuid import UUID

from metastore.deadlines import until
from metastore.errors import (
    BackendRefused,
    BackendUnavailable,
    DeadlineExceeded,
    InvalidArgument,
    LeaseLost,
    MetastoreError,
    OperationIdRefused,
    OperationIdReused,
    OutcomeUnknown,
    outcome_forgotten,
)
from metastore.governance.privileges import OPERATIONS
from metastore.operation.begun import Begun
from metastore.operation.digest import digest, is_digest_of
from metastore.operation.kept_result import with_origin
from metastore.operation.keys import began
from metastore.operation.request import Call, Request
from metastore.operation.session import Session
from metastore.port.commit import Commit, CommitOutcome, Committed, Conflicted, Unknown
from metastore.port.conditions import Caller, LeaseToken
from metastore.port.intents import CLAIMABLE, PENDING, Entry
from metastore.port.records import Step
from metastore.retry.reactions import REACTIONS, Reaction
from metastore.retry.runner import Conflict

LATE = 1.0
"""How long after its deadline a call may still query its outcome (seconds)."""
_DEEDS: Final = {"create": ("create", "alter"), "rename": ("rename", "move")}
"""By verb of a call: the actions in its row, if the verb is not the only one."""
_GRACE = 0.5
"""How long a call may query which operation won, for the message of its error (seconds)."""


class OperationRow:
    """One operation's row: its id, the claim under which it is sent, and this process's knowledge of the row."""

    def __init__(self, session: Session, request: Request[Any], call: Call, begun: Begun) -> None:
        self._session = session
        self._request = request
        self._deadline = session.policy_of(call).deadline
        self.ends = begun.ends
        self.principal = session.principal if call.principal is None else call.principal
        self.reason = session.reason if call.reason is None else call.reason
        self.id = begun.id
        self.caller: Caller | None = None
        if call.operation_id is not None:
            self.caller = Caller(began(self.id, session.clock), digest(request))
        self.claim = 0
        self.look = False
        """The row must be read before anything else."""
        self.pending_on: int | None = None
        """The entity on which the operation is pending."""
        self.sent = begun.sent
        """A message may be in flight that writes under the operation's id."""
        self.withdrawn = False
        """The intent was withdrawn; that does not count as a lost commit."""
        self._may_be_absent = False
        self.is_repeat = False
        """The database knows the id: from an earlier call, or from a message of this call whose answer was lost."""

    def read(self) -> list[Step]:
        """Return the rows of the operation if it is decided; otherwise raise Conflict."""
        backend = self._session.backend
        # doubtful: the first call, or a helper, may have got no answer, so perhaps no replica has confirmed the commit
        doubtful = self.is_repeat or self.pending_on is not None
        steps = with_origin(backend.confirm(self.id) if doubtful else backend.steps(self.id), backend)
        foreign = bool(steps) and self.caller is not None and not self._is_of(self.caller, steps[0])
        self.look = False  # set after the queries: if one fails, the outcome must still be looked up
        if not steps:
            if self._may_be_absent:
                raise Conflict("operation", "the operation has no record")
            raise outcome_forgotten(self.id)  # its row existed: sending the change again could apply it twice
        first = steps[0]
        if first.ordinal != 0:  # gc has deleted the row with the fingerprint
            raise outcome_forgotten(self.id)
        if foreign:
            raise OperationIdReused(self.id)
        if first.action == PENDING:
            self.pending_on = first.entity_id
            raise Conflict("operation", "the operation is pending", 0.0)
        if first.action in CLAIMABLE:
            self.claim_again()
        return steps

    def _is_of(self, caller: Caller, first: Step) -> bool:
        """Whether the row belongs to a call like this one. A row without a fingerprint is compared by kind and verb."""
        if first.digest:
            seals = self._session.seals
            return is_digest_of(first.digest, self._request, caller.digest, None if seals is None else seals.sealer)
        kind, *_ = self._request.arguments() or (None,)
        if self._session.access is None:
            return self._wrote(first, kind)
        of_user = kind[0] if kind else None  # a user's arguments begin with the call's own: see authorized
        own = first.principal == self.principal or first.action in CLAIMABLE  # a withdrawn call has nothing to show
        return self._wrote(first, of_user) and own

    def _wrote(self, first: Step, kind: object) -> bool:
        """Whether a call on entities or rows of this kind may have written the step, or a row owned by one."""
        verb = self._request.verb
        if first.kind is None:  # the row of a pin or of a feed's consumer has no kind
            return first.action in CLAIMABLE
        if verb in OPERATIONS:  # such a call writes a row of the entity itself
            return first.kind == kind and first.action in (*_DEEDS.get(verb, (verb,)), *CLAIMABLE, PENDING)
        if first.kind == kind:
            return True
        owners = [] if first.owner_id is None else self._session.backend.by_id([first.owner_id])
        return any(owner is not None and owner.record.chain[-1].kind == kind for owner in owners)

    def claim_again(self) -> NoReturn:
        """Claim an operation again that was withdrawn: the next message is sent under a new claim."""
        self.pending_on = None
        claim = self._session.backend.forbid(self.id, self._deadline + LATE)
        if claim is None:
            self.look = True
        else:
            self.claim = claim
        self.withdrawn = True
        raise Conflict("operation", "the operation was taken up again", 0.0)

    def lost(self, unknown: Unknown) -> NoReturn:
        """Resolve a lost answer: ensure that the sent message is never applied, or find that it was."""
        claim = ask_until_it_answers(self._session, self.id, self._deadline, self.ends)
        self.sent = False
        if claim is None:
            self.look = self.is_repeat = True
            raise Conflict("lost", "the answer was lost", 0.0)
        self.claim = claim
        raise Conflict("lost", f"the connection was lost before the commit was applied ({unknown.reason})")

    def lease_lost(self) -> None:
        """Read the row before the lease's error is raised: a repeat of an applied call must return its result."""
        self.look = self._may_be_absent = self.caller is not None

    def look_next(self, cause: str) -> NoReturn:
        """Read the row next, because the database knows the id. Raises InvalidArgument if it refuses the id."""
        if cause == "stale_id" and not self._session.backend.steps(self.id):
            # a clock that was ahead may have raised this bound too far: lower it for later ids
            self._session.backend.forget(0)
            raise refused_id(self.id)
        self.look = self.is_repeat = True
        # two calls with one id may claim it alternately: a random wait separates them
        wait = 0.0 if self.claim <= 1 else None
        raise Conflict("operation" if cause == "stale_id" else cause, "the operation id is known", wait)

    def keep(self, action: Literal["failed", "unchanged"], result: str) -> None:
        """Write down the outcome of an operation with a caller's id, before the caller gets it."""
        self.write_down(Entry(self.id, action, self.principal, result=result, claim=self.claim, caller=self.caller))

    def write_down(self, entry: Entry) -> int:
        """Write the row without applying anything; return how many other intents were waiting."""
        self.sent = True
        outcome: CommitOutcome = self._session.backend.write_down(entry)
        if isinstance(outcome, Unknown):
            self.lost(outcome)
        if isinstance(outcome, Committed) and entry.action == PENDING:
            # before the message counts as answered: after an interrupt in between, the intent is withdrawn
            self.pending_on = entry.entity_id
        self.sent = False
        if isinstance(outcome, Conflicted):
            if REACTIONS[outcome.cause].other is Reaction.LOOK:
                self.look_next(outcome.cause)
            raise Conflict(outcome.cause, detail(outcome))
        self.claim = 0
        return outcome.results[0].version if isinstance(outcome, Committed) and outcome.results[0] else 0


class OwnLeases:
    """The leases of one operation. Before it reports a lease as lost, it reads the operation's row."""

    def __init__(self, session: Session, row: OperationRow, call: Call) -> None:
        self._session, self._row, self._call = session, row, call

    def tokens(self) -> tuple[LeaseToken, ...]:
        """Return the tokens that a commit requires. Raises LeaseLost."""
        try:
            return self._call.tokens()
        except LeaseLost:
            self._row.lease_lost()
            raise

    def refused(self) -> MetastoreError:
        """Return the error for a commit that found another token."""
        self._row.lease_lost()
        return self._call.refused()

    def check(self) -> None:
        """Check the leases of an operation that writes nothing: it must hold them too. Raises LeaseLost, Conflict."""
        leases = self.tokens()
        if not leases:
            return
        outcome = self._session.backend.commit(Commit(self._session.clock.operation_id(), None, leases=leases))
        if isinstance(outcome, Conflicted):
            if REACTIONS[outcome.cause].other is not Reaction.RAISE:
                raise Conflict(outcome.cause, detail(outcome))
            raise self.refused()
        if isinstance(outcome, Unknown):
            raise Conflict("lost", "the answer was lost")


def withdraw(session: Session, operation_id: UUID, life: float, *, sent: bool) -> None:
    """After an interrupt, ensure that an operation is not applied from now on, if the database answers.

    ``sent``: a message of the operation may be in flight; otherwise it is an intent. ``life``: the maximal duration of
    its call (seconds).
    """
    with suppress(MetastoreError):  # after an error, the intent ends at its deadline, a message with its connection
        if not sent or session.backend.forbid(operation_id, life + LATE) is None:
            session.backend.cancel(operation_id)


def tell_id(interrupt: BaseException, operation_id: UUID) -> None:
    """Add the operation's id to an interrupt, so that the caller can look at the operation's outcome.

    In an async call the interrupt is a CancelledError, which keeps its class, because asyncio compares it. It gets the
    attribute ``operation_id``.
    """
    vars(interrupt).setdefault("operation_id", operation_id)


def ask_until_it_answers(session: Session, operation_id: UUID, life: float, ends: float) -> int | None:
    """After a lost answer, return the claim under which the operation may be sent again; None: it is decided.

    Once this returns, no message sent before can be applied. ``life``: the maximal duration of the call (seconds).
    Raises OutcomeUnknown at the instant ``ends``, or if gc may have deleted the row meanwhile.
    """
    clock, wait = session.clock, session.policy.base
    while True:
        try:
            claim = session.backend.forbid(operation_id, life + LATE)
            # the row exists, but its commit may still wait for a replica, or another server may answer now that lacks
            # the row
            if claim is None and all(step.action in CLAIMABLE for step in session.backend.confirm(operation_id)):
                raise BackendUnavailable("another server answers now, which has not applied the operation")
        except OutcomeUnknown:  # gc may have deleted the row
            session.metrics.ambiguous("unknown")
            raise
        except (InvalidArgument, BackendRefused):  # the store was closed meanwhile, or the role lost a right
            session.metrics.ambiguous("unknown")
            raise OutcomeUnknown(operation_id) from None
        except (BackendUnavailable, DeadlineExceeded):
            if clock.monotonic() + wait > ends:
                session.metrics.ambiguous("unknown")
                raise OutcomeUnknown(operation_id) from None
        else:
            session.metrics.ambiguous("applied" if claim is None else "not_applied")
            return claim
        clock.sleep(clock.uniform(0.0, wait))
        wait = min(wait * 2, session.policy.cap)


def refused_id(operation_id: UUID) -> OperationIdRefused:
    """Return the error for an operation id that may be one that gc has forgotten."""
    if operation_id.version == 8:
        return OperationIdRefused(
            f"the key {operation_id} cannot be distinguished from one that gc has forgotten: the retention is less "
            "than a minute, or this machine's clock differs from the database's by more than a minute; correct that"
        )
    return OperationIdRefused(
        f"operation id {operation_id} cannot be distinguished from one that gc has forgotten (its retention, and a "
        "minute), or is more than a minute ahead of the database's clock; take a new one, from ms.new_operation_id()"
    )


def detail(outcome: Conflicted) -> str:
    """Return the finding of a conflict, for a message."""
    where = "" if outcome.id is None else f"entity {outcome.id}"
    version = "" if outcome.found is None else f" is at version {outcome.found}"
    otherwise = "others hold the locks" if outcome.cause in ("busy", "serialization") else "changed meanwhile"
    return (where + version) or otherwise


def winner(session: Session, entity_id: int, loser: UUID) -> str:
    """Return the operation that made an entity's newest version, for a message; "": the database does not show it."""
    with until(session.clock.monotonic() + _GRACE), suppress(MetastoreError):
        (known,) = session.backend.by_id([entity_id])
        steps = session.backend.history(entity_id, known.record.version - 1, 1) if known is not None else []
        if steps and steps[0].operation_id != loser:
            by = "" if steps[0].principal is None else f" by {steps[0].principal}"
            return f"; operation {steps[0].operation_id}{by} made version {steps[0].version}"
    return ""
