"""End an operation without a commit when its attempts are over; leave no intent and no mark behind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar
from uuid import UUID

from metastore.deadlines import GRACE, cleaning
from metastore.errors import (
    BackendUnavailable,
    DeadlineExceeded,
    InvalidArgument,
    MetastoreError,
    OutcomeUnknown,
    RetriesExhausted,
)
from metastore.operation.marks import OwnMark
from metastore.operation.record import OperationRow, tell_id, withdraw
from metastore.operation.request import Call
from metastore.operation.session import Session
from metastore.port.records import Step
from metastore.retry.runner import Conflict

T = TypeVar("T")


def give_up(
    session: Session,
    row: OperationRow,
    mark: OwnMark,
    error: Exception,
    unavailable: BackendUnavailable | None,
    ended: Callable[[list[Step]], T],
) -> T:
    """Withdraw the intent of a call that failed, or return its result if a helper applied it meanwhile.

    ``unavailable``: the error of the last attempt. ``ended`` returns the result, or raises the error, from the rows of
    a decided operation.
    """
    with cleaning(session.clock.monotonic() + GRACE):
        try:
            while row.pending_on is not None or row.look:
                if not row.look and session.backend.cancel(row.id):
                    break
                try:
                    return ended(row.read())
                except Conflict:  # the operation is pending or may be claimed; both states end soon
                    continue
            mark.remove()
        # InvalidArgument: the store was closed
        except (BackendUnavailable, DeadlineExceeded, InvalidArgument) as unasked:
            if row.pending_on is not None or row.look:
                raise OutcomeUnknown(row.id) from error
            if isinstance(unasked, InvalidArgument):
                raise  # the store was closed: the call ends with this error
    if not isinstance(error, DeadlineExceeded | RetriesExhausted):
        raise error
    if unavailable is not None:
        raise unavailable from None
    raise mark.blame(error) from error.__cause__


def clean_up(session: Session, row: OperationRow, mark: OwnMark, life: float) -> None:
    """Remove the mark and the intent after an error or an interrupt, if the database answers.

    ``life``: the operation may have begun this many seconds ago.
    """
    if not row.sent and row.pending_on is None and mark.held is None:
        return
    with cleaning(session.clock.monotonic() + GRACE), suppress(MetastoreError):  # otherwise both expire by themselves
        if row.sent or row.pending_on is not None:
            withdraw(session, row.id, life, sent=row.sent)
        mark.remove()


def interrupted(session: Session, call: Call, operation_id: UUID, interrupt: BaseException, *, sent: bool) -> None:
    """Ensure that an interrupted call is not applied from now on. ``sent``: a message may be in flight."""
    if sent:
        with cleaning(session.clock.monotonic() + GRACE):
            withdraw(session, operation_id, session.policy_of(call).deadline, sent=True)
    tell_id(interrupt, operation_id)
