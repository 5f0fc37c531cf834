"""Run a request in a store or a transaction: the entry point of this folder.

In a store, a request may become part of a batch (:mod:`metastore.combine`); otherwise ``once.py`` runs it. In a
transaction, its writes go into the transaction's overlay.
"""

from __future__ import annotations

import math
from typing import TypeVar

from metastore.deadlines import remaining
from metastore.errors import DeadlineExceeded, InvalidArgument
from metastore.kinds.entity import Entity
from metastore.operation.authorized import authorized
from metastore.operation.keys import began
from metastore.operation.once import once
from metastore.operation.record import refused_id
from metastore.operation.request import Call, Proposal, Request, View
from metastore.operation.session import ManagerSession, Session
from metastore.operation.tickets import running
from metastore.port.commit import Commit, Committed, Conflicted
from metastore.port.conditions import Caller
from metastore.port.records import Origin

T = TypeVar("T")


def perform(session: ManagerSession, request: Request[T], call: Call) -> T:
    """Run ``request`` until it is committed, or ends with a value or an error."""
    if session.access is not None:
        request = authorized(session.access, request, call)
    if not isinstance(session, Session):
        if session.read_only:
            raise InvalidArgument(session.read_only)
        if call.operation_id is not None:
            raise InvalidArgument("a transaction is one operation: leave operation_id out inside of it")
        if call.lease is not None:
            raise InvalidArgument("a transaction is one commit: give the lease to it, store.transaction(lease=…)")
        if call.reason is not None:
            raise InvalidArgument("a transaction has one reason: give it to transaction(), run() or exclusive()")
        result = _in_transaction(session, request, call)
        origin: Origin | None = session.backend.origin
    else:
        # before the commit: another thread may note a restart of the server before the commit returns
        origin = session.backend.known_origin
        around, combiner = running.get(), session.combiner
        if around is not None and not around.is_over:
            around.outdate()
            combiner = None  # a batch would wait for the function that waits for this call
        run = once if combiner is None else combiner.perform
        result = run(session, request, call)
        # send no query after a commit: its failure would turn the success into an error
        origin = origin or session.backend.known_origin
    # note the entity's database: later calls trust only entities that were committed there
    if isinstance(result, Entity):
        result.__dict__["origin"] = origin
    return result


def is_new(session: Session, call: Call) -> bool:
    """Whether the call's own operation id has no row yet. Raises InvalidArgument for a refused id."""
    assert call.operation_id is not None
    if session.backend.steps(call.operation_id):
        return False
    caller = Caller(began(call.operation_id, session.clock), "")
    outcome = session.backend.commit(Commit(session.clock.operation_id(), None, caller=caller))
    if isinstance(outcome, Conflicted) and outcome.cause == "stale_id":
        session.backend.forget(0)  # see OperationRow.look_next
        raise refused_id(call.operation_id)
    return True


def _in_transaction(session: ManagerSession, request: Request[T], call: Call) -> T:
    """Add the request's writes to the transaction's overlay, without a message. Raises DeadlineExceeded."""
    if remaining(session.clock, math.inf) <= 0:
        raise DeadlineExceeded("the deadline passed within the transaction; nothing was written; set a longer one")
    decided = request.attempt(View(session.backend, trusting=False))
    if not isinstance(decided, Proposal):
        return decided
    principal = session.principal if call.principal is None else call.principal
    commit = Commit(session.clock.operation_id(), principal, decided.guards, (), decided.writes, decided.skip_existing)
    outcome = session.backend.commit(commit)
    assert isinstance(outcome, Committed)
    return decided.finish(outcome.results)
