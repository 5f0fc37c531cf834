"""Revert: put an entity, and all below it, back to the state at a position.

The entity itself keeps its present name and place. Below it, each entity gets back its old place, name, document, owned
rows and relations. Entities that were dropped or moved out come back; new ones are dropped. Ids do not change. History
is not rewritten: a revert is a change like any other. Sources, crawls and jobs are left alone, because they record
events.

Up to 10,000 differences are reverted in one transaction. More are reverted in chunks; each chunk is a transaction.
If a chunk fails, those before it stay; the same call, repeated, does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from metastore.arguments import boolean
from metastore.clock import process_id
from metastore.errors import EntityAlreadyExists, EntityNotFound, MetastoreError, VersionConflict
from metastore.feed.feed import newest_up_to, number_in
from metastore.feed.position import now
from metastore.managers.target import Target
from metastore.operation.request import Call
from metastore.operation.session import Session
from metastore.past.diff import Difference
from metastore.past.pins import add_pin
from metastore.past.plan import Plan, Step, planned
from metastore.past.undo import Undoing
from metastore.transaction.transaction import Transaction, run_transaction

__all__ = ["revert"]

_ATOMIC = 10_000
"""How many entities, owned rows and relations one transaction may revert."""
_TRIES = 10
"""How often a revert makes a new plan because a name was taken, or an entity disappeared, since the last plan."""
_CHUNK = 2000
"""The number of steps in a chunk."""
_PINNED = 600.0
"""How long each chunk protects the past from gc (seconds)."""


class _Tried(BaseException):
    """A dry run has shown that a plan can be carried out. Nothing is committed.

    It derives from BaseException: after an Exception, its transaction would validate its reads. On SQLite, that takes a
    statement for each entity.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan


def revert(
    session: Session, target: Target, kind: str | None, to: int, call: Call, *, dry_run: bool
) -> list[Difference]:
    """Put ``target`` and all below it back to the state at ``to``; return the differences.

    Raises the errors of ``planned``.
    """
    boolean(dry_run, "dry_run")
    there = newest_up_to(session.backend, to)
    plan = planned(session, target, kind, to)
    if dry_run:
        plan = _tried(session, target, kind, to, there, plan) if plan.wanted else plan
    elif not plan.wanted:
        run_transaction(session, lambda _: None, call)  # check the lease, although there is nothing to revert
    else:
        with _pinned(session, to) as pin:  # so that gc keeps the tags of columns that come back
            if len(plan.wanted) <= _ATOMIC:
                plan = _at_once(session, target, kind, to, there, plan, call, dry_run=False)
            else:
                _in_chunks(session, to, there, plan, call, pin)
    return [one.difference for one in plan.wanted]


def _tried(session: Session, target: Target, kind: str | None, to: int, there: str, plan: Plan) -> Plan:
    """Carry out a plan without the commit, so that a dry run raises every error that the call would raise."""
    try:
        return _at_once(session, target, kind, to, there, plan, Call(), dry_run=True)
    except _Tried as tried:
        return tried.plan


def _at_once(
    session: Session, target: Target, kind: str | None, to: int, there: str, plan: Plan, call: Call, *, dry_run: bool
) -> Plan:
    """Revert in one commit. After a conflict, plan again, without entities that are newer than the first plan.

    If each plan included newer entities, a process that creates entities could keep the revert from ending.
    """
    plans, first = [plan], plan.at

    def go_back(tx: Transaction) -> Plan:
        number_in(session.backend, there)  # raises if another server has taken over that lacks this position
        if plans[-1].tried or plans[-1].run != session.backend.origin.run:
            plans.append(planned(session, target, kind, to, until=first))
        plans[-1].tried = True
        Undoing(session, tx, to, plans[-1]).run(plans[-1].steps())
        if dry_run:
            raise _Tried(plans[-1])
        return plans[-1]

    for _ in range(_TRIES):
        try:
            return run_transaction(session, go_back, call)
        except (EntityAlreadyExists, EntityNotFound):
            if (at := now(session)) == plans[-1].at:  # nothing has changed since the plan, so the error holds
                raise
            first = at  # a new entity may have taken an old name
    return run_transaction(session, go_back, call)


def _in_chunks(session: Session, to: int, there: str, plan: Plan, call: Call, pin: str) -> None:
    steps = plan.steps()
    for begin in range(0, len(steps), _CHUNK):
        session.backend.readers.extend(pin, _PINNED)
        run_transaction(session, _chunk(session, to, there, plan, steps[begin : begin + _CHUNK]), call)


def _chunk(session: Session, to: int, there: str, plan: Plan, steps: list[Step]) -> Callable[[Transaction], None]:
    def go_back(tx: Transaction) -> None:
        number_in(session.backend, there)
        if plan.run != session.backend.origin.run:
            message = "the server was started again, or another one has taken over: call revert again, for the rest"
            raise VersionConflict("", None, None, message)
        Undoing(session, tx, to, plan).run(steps)

    return go_back


@contextmanager
def _pinned(session: Session, to: int) -> Iterator[str]:
    """Protect the past at a position from gc while the block runs; yield the name of the pin."""
    pin, process = add_pin(session, f"revert {session.clock.operation_id()}", to, _PINNED).name, process_id()
    try:
        yield pin
    finally:
        if process == process_id():  # a hook may have forked; the pin belongs to the parent
            with suppress(MetastoreError):  # the pin expires anyway; an error here would mean that the revert failed
                session.backend.readers.unpin(pin)
