"""The state of a call after a lone first attempt, or after batches, with which a full operation continues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from metastore.errors import BackendUnavailable
from metastore.operation.request import Call, Proposal, Request
from metastore.operation.session import Session
from metastore.port.commit import Commit, Conflicted, Unknown
from metastore.retry.runner import Conflict


@dataclass(frozen=True, slots=True)
class Met:
    """The result of a call's first attempt, to which the full operation reacts."""

    error: BackendUnavailable | Conflict | None = None
    """The database was away, or the request itself saw that it lost; then all other fields are unset."""
    proposal: Proposal[Any] | None = None
    commit: Commit | None = None
    outcome: Conflicted | Unknown | None = None
    """None: nothing was sent, because others changed the entity a moment ago."""
    guessed: bool = False
    run: str | None = None


@dataclass(slots=True)
class Begun:
    """The state of a call that may later become a full operation: see :mod:`~.once` and :mod:`metastore.combine`."""

    id: UUID
    started: float
    """When the call began, by the clock's ``monotonic`` (seconds)."""
    ends: float
    """Its deadline, by the same clock."""
    lost: int = 0
    """How many batches it lost."""
    doubt: Unknown | None = None
    """A batch with this call was sent, and its answer was lost."""
    announce_on: int | None = None
    """The entity on which to announce it before any other attempt, after it lost its batches there; None: no entity.
    """
    sent: bool = False
    """A message may be in flight that writes under its id."""
    met: Met | None = None
    """The result of its first attempt, if that was made."""


def begin(session: Session, request: Request[Any], call: Call) -> Begun:
    """Begin the operation of a call at the present time."""
    operation_id = call.operation_id or request.id or session.clock.operation_id()
    return Begun(operation_id, session.clock.monotonic(), session.ends_of(call))
