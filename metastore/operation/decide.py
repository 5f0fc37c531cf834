"""Begin an attempt: decide on a request, and make a commit from its proposal."""

from __future__ import annotations

from typing import Any, TypeVar
from uuid import UUID

from metastore.errors import BackendUnavailable, MetastoreError
from metastore.operation.request import Call, Proposal, Request, View
from metastore.operation.session import Session
from metastore.port.commit import Commit

T = TypeVar("T")

_PATIENCE = 50
"""How long an exclusive operation waits for operations in flight before it marks its scope (milliseconds)."""


def decide(
    session: Session, request: Request[T], *, trusting: bool, naming: bool = False
) -> tuple[Proposal[T] | T, bool, str | None]:
    """Return the proposal or the caller's value, whether it rests on a guess, and the server's run.

    ``trusting``: the attempt may use loaded and remembered entities instead of a read. If a value or an error rests on
    such a guess, decide again from a read. ``naming``: see :class:`View`.
    """
    run = session.backend.origin.run  # read first: if the server restarts during the attempt, its later run differs
    view = View(session.backend, trusting, session.recent, naming=naming)
    try:
        decided = request.attempt(view)
        if isinstance(decided, Proposal) or not view.guessed:
            return decided, view.guessed, run
    except MetastoreError as error:
        if not view.guessed or isinstance(error, BackendUnavailable):  # BackendUnavailable never comes from a guess
            raise
    return request.attempt(View(session.backend, False, session.recent)), False, run


def commit_of(
    session: Session,
    call: Call,
    proposal: Proposal[Any],
    operation_id: UUID,
    run: str | None,
    *,
    waits: bool,
    **more: Any,
) -> Commit:
    """Return the commit of a proposal.

    ``waits``: wait for operations in flight at its guards. ``more``: other fields.
    """
    return Commit(
        operation_id,
        session.principal if call.principal is None else call.principal,
        proposal.guards,
        proposal.reads,
        proposal.writes,
        proposal.skip_existing,
        patience=_PATIENCE if waits else None,
        evidence=proposal.evidence,
        run=run,
        reason=session.reason if call.reason is None else call.reason,
        **more,
    )
