"""Run a call that meets no competition: decide, commit, finish. Most calls need only this.

If the first attempt fails, the full :class:`~metastore.operation.operation.Operation` continues after it, because this
module does not react to conflicts. Three kinds of calls are full operations from the beginning: those under a lease,
those with an operation id of the caller, and those on an entity that others changed a moment ago.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from metastore.deadlines import until
from metastore.errors import BackendUnavailable
from metastore.metrics import Decided
from metastore.operation.begun import Begun, Met, begin
from metastore.operation.decide import commit_of, decide
from metastore.operation.ending import interrupted
from metastore.operation.intent import hot_now
from metastore.operation.operation import Operation
from metastore.operation.request import Call, Proposal, Request
from metastore.operation.session import Session
from metastore.port.commit import Committed, Conflicted, Unknown
from metastore.retry import logs
from metastore.retry.policy import Attempt
from metastore.retry.runner import Conflict, call_hooks

T = TypeVar("T")


def once(session: Session, request: Request[T], call: Call, lost: Callable[[], None] | None = None) -> T:
    """Return the result of a request, or raise its error. ``lost`` is called after each lost attempt."""
    begun = begin(session, request, call)
    session.metrics.begun()
    try:
        if call.operation_id is None and call.lease is None and hot_now(session, request.merge) is None:
            by: Decided | None = "error"
            try:
                with until(begun.ends):
                    done, by = session.backend.in_one_go(partial(_attempt, session, request, call, begun))
            except (BackendUnavailable, Conflict) as error:
                if isinstance(error, BackendUnavailable) and not error.transient:
                    raise
                done, by = Met(error), None
            finally:
                if by is not None:
                    note_end(session, request, begun.id, 1, session.clock.monotonic() - begun.started, by)
            if not isinstance(done, Met):
                return done
            begun.met = done
        return Operation(session, request, call, begun, lost).run()
    except BaseException as error:
        if not isinstance(error, Exception):
            interrupted(session, call, begun.id, error, sent=begun.sent)
        raise
    finally:
        session.metrics.ended()


def _attempt(
    session: Session, request: Request[T], call: Call, begun: Begun, refused: Conflicted | None = None
) -> tuple[T, Decided] | tuple[Met, None]:
    """Return the caller's value and how it was decided, or the conflict of this attempt. Raises the call's error.

    ``refused``: the outcome of an earlier commit that addressed the entity by name. Then this attempt reads.
    """
    # a user's rights depend on the entity itself, so it must be read
    naming = refused is None and session.access is None
    # look for taken names and for children only after a commit was refused because of them
    trusting = refused is None or refused.cause not in ("name", "not_empty")
    decided, guessed, run = decide(session, request, trusting=trusting, naming=naming)
    if not isinstance(decided, Proposal):
        return decided, "value"
    commit = commit_of(session, call, decided, begun.id, run, waits=request.exclusive or decided.exclusive)
    outcome = None
    if not (request.read_first and hot_now(session, decided.merge) is not None):
        begun.sent = True
        outcome = session.backend.commit(commit)
        begun.sent = isinstance(outcome, Unknown)
    if isinstance(outcome, Committed):
        return decided.finish(outcome.results), "self"
    if isinstance(outcome, Conflicted) and commit.by_name:
        # the parents have moved, or no entity has the name. No other writer competes, so this is not a lost attempt.
        return _attempt(session, request, call, begun, outcome)
    return Met(None, decided, commit, outcome, guessed, run), None


def note_end(
    session: Session, request: Request[Any], operation_id: UUID, number: int, elapsed: float, by: Decided
) -> None:
    """Count a call that ended with its attempt ``number``. If it succeeded, notify the log and the hooks.

    ``elapsed``: the time since the call began (seconds).
    """
    session.metrics.operation(request.verb, number, elapsed, by)
    if by == "error":
        return
    logs.done(request.what, operation_id, number, elapsed)
    if session.policy.hooks:
        call_hooks(session.policy.hooks, Attempt(request.what(), operation_id, number, None, elapsed, 0.0, None, None))
