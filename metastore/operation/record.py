"""The row that says what became of an operation, under its id, at any time.

A lost answer is resolved by it: what may still be in flight is made impossible before the operation
is sent again (*claimed*). A repeat of a caller's id finds in it what the first call came to.
docs/progress.md has the states and why at most one of all messages is ever applied.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Generic, NoReturn, TypeVar, cast
from uuid import UUID

from metastore.errors import InvalidArgument, MetastoreError, OperationIdReused, outcome_forgotten
from metastore.metrics import Decided
from metastore.operation.keys import began
from metastore.operation.marks import LATE, ask_until_it_answers
from metastore.operation.outcome import entity_at, replay, with_origin
from metastore.operation.request import Call, Merge, Request
from metastore.operation.session import Session
from metastore.port.commit import CLAIMABLE, PENDING, Caller, Committed, Conflicted, Entry, Outcome, Unknown
from metastore.port.records import Step
from metastore.retry.runner import Conflict

__all__ = ["OperationRow", "detail", "refused_id"]

T = TypeVar("T")


class OperationRow(Generic[T]):
    """One operation: its id, and what is known of its row."""

    def __init__(self, session: Session, request: Request[T], call: Call) -> None:
        self._session = session
        self._backend = session.backend
        self._request = request
        self._policy = session.policy_of(call)
        self._ends = session.clock.monotonic() + self._policy.deadline
        self._principal = session.principal if call.principal is None else call.principal
        self.id = call.operation_id or session.clock.operation_id()
        self._caller: Caller | None = None
        if call.operation_id is not None:
            self._caller = Caller(began(self.id, session.clock), _digest(request))
        self._call = call
        self._merge = self._announceable(request.merge)
        self._claim = 0
        self._look = False  # the row must be looked at before anything else
        self._may_be_absent = False  # there may be no row to look at: a lease was lost, and this may be a repeat
        self._withdrawn = False  # it was an intent, which was taken back: that is no lost commit
        self._announced: int | None = None  # the entity on which the operation is pending
        self._decided_by: Decided = "self"

    def _announceable(self, merge: Merge | None) -> Merge | None:
        """What is done under a lease is not announced: whoever applied it would not hold the lease."""
        return merge if self._call.lease is None else None

    def _lost(self, unknown: Unknown) -> NoReturn:
        """The answer was lost: make what was sent impossible, or find that it was applied."""
        claim = ask_until_it_answers(self._session, self.id, self._policy.deadline, self._ends)
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
            if self._may_be_absent:
                raise Conflict("operation", "nothing is kept of the operation")
            raise outcome_forgotten(self.id)  # it was there; to send the change again could apply it twice
        first = steps[0]
        if self._caller is not None and not self._same_call(first):
            raise OperationIdReused(self.id)
        if first.action == PENDING:
            self._announced = first.entity_id
            raise Conflict("operation", "the operation is pending", 0.0)
        if first.action in CLAIMABLE:
            self._claim_again()
        steps = with_origin(steps, self._backend)
        first = steps[0]
        self._decided_by = "other" if self._announced is not None else "self"
        self._announced = None
        if self._merge is not None and first.seq is not None and first.entity_id is not None:
            self._session.hot.note(first.entity_id)
            return cast(T, entity_at(first, self._session.recent.of(first.entity_id)))
        return replay(steps, self._request.replay)

    def _id_is_known(self, cause: str) -> Conflict:
        """Return the conflict with a row that is there. Two calls with one id may claim it in turns: then by chance."""
        return Conflict(cause, "the operation id is known", 0.0 if self._claim <= 1 else None)

    def _same_call(self, first: Step) -> bool:
        """Whether the row is of a call like this one; of an id that no caller gave before, only the kind is known."""
        assert self._caller is not None
        kind, *_ = self._request.arguments() or (None,)
        return self._caller.digest == first.digest if first.digest else first.kind in (None, kind)

    def _claim_again(self) -> NoReturn:
        self._announced = None
        claim = self._backend.forbid(self.id, self._policy.deadline + LATE)
        if claim is None:
            self._look = True
        else:
            self._claim = claim
        self._withdrawn = True
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
                raise self._id_is_known(outcome.cause)
            raise Conflict(outcome.cause, detail(outcome))
        self._claim = 0
        return outcome.results[0].version if isinstance(outcome, Committed) and outcome.results[0] else 0

    def _stale(self) -> NoReturn:
        if self._backend.steps(self.id):
            self._look = True
            raise Conflict("operation", "the operation id is known", 0.0)
        self._backend.forget(0)  # only lowers a bound that a clock which was ahead has left behind, for later ids
        raise refused_id(self.id)


def refused_id(operation_id: UUID) -> InvalidArgument:
    """Return the error for an operation id that cannot be told from one that gc has forgotten."""
    if operation_id.version == 8:
        return InvalidArgument(
            f"the key {operation_id} cannot be told from one that gc has forgotten, because its retention is less than "
            "a minute, or this machine's clock differs from the database's by more than a minute; correct that"
        )
    return InvalidArgument(
        f"operation id {operation_id} cannot be told from one that gc has forgotten (its retention, and a minute), or "
        "is more than a minute ahead of the database's clock; take a new one, from ms.new_operation_id()"
    )


def detail(outcome: Conflicted) -> str:
    """Return what a conflict found, for a message."""
    where = "" if outcome.id is None else f"entity {outcome.id}"
    found = "" if outcome.found is None else f" is at version {outcome.found}"
    return (where + found) or "changed meanwhile"


def _digest(request: Request[Any]) -> str:
    """Return the fingerprint of a call's arguments."""
    try:
        text = json.dumps([request.verb, request.arguments()], sort_keys=True, default=str)
    except Exception as error:  # noqa: BLE001  (what a class of the caller's own raises when it is written)
        raise InvalidArgument(f"the arguments of the call would be no JSON: {type(error).__name__}") from None
    return hashlib.sha256(text.encode()).hexdigest()[:32]
