"""Go back: make an entity, and all below it, what it was at a position.

The entity itself keeps its present name and place. Below it, each entity gets back the place, the name, the document,
the owned rows and the relations that it had. Entities that were dropped or moved out come back; new ones are dropped.
Ids stay. History goes on: a revert is a change like others. Sources, crawls and jobs stay, because they record events.

Up to 10,000 entities go back in one transaction. More of them go back in chunks. Each chunk is a transaction. If a
chunk fails, those before it stay; the same call again does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from metastore.clock import process_id
from metastore.errors import EntityAlreadyExists, EntityNotFound, VersionConflict
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
"""How many entities, owned rows and relations go back in one transaction."""
_TRIES = 10
"""How often a revert makes a new plan because a name was taken, or an entity went, after the last plan."""
_CHUNK = 2000
"""How many steps a chunk has, where there are more."""
_PINNED = 600.0
"""How long a chunk keeps the past from gc (seconds)."""


class _Tried(Exception):
    """A plan can be carried out; nothing is committed."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan


def revert(
    session: Session, target: Target, kind: str | None, to: int, call: Call, *, dry_run: bool
) -> list[Difference]:
    """Make ``target`` and all below it what it was at ``to``; return what that changes. Raises as ``planned`` does."""
    there = newest_up_to(session.backend, to)
    plan = planned(session, target, kind, to)
    if dry_run:
        plan = _tried(session, target, kind, to, there, plan) if plan.wanted else plan
    elif not plan.wanted:
        run_transaction(session, lambda _: None, call)  # nothing to revert, but the lease is checked
    elif len(plan.wanted) <= _ATOMIC:
        plan = _at_once(session, target, kind, to, there, plan, call, dry_run=False)
    else:
        _in_chunks(session, to, there, plan, call)
    return [one.difference for one in plan.wanted]


def _tried(session: Session, target: Target, kind: str | None, to: int, there: str, plan: Plan) -> Plan:
    """Carry a plan out without the commit: what the call would refuse, the dry run refuses too."""
    try:
        return _at_once(session, target, kind, to, there, plan, Call(), dry_run=True)
    except _Tried as tried:
        return tried.plan


def _at_once(
    session: Session, target: Target, kind: str | None, to: int, there: str, plan: Plan, call: Call, *, dry_run: bool
) -> Plan:
    """Go back in one commit. After a conflict it plans again, for what the first plan could see.

    If each plan had the newcomers too, another process that makes some could keep it from its end for ever.
    """
    plans, first = [plan], plan.at

    def go_back(tx: Transaction) -> Plan:
        number_in(session.backend, there)  # another server may have taken over, and lack it
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


def _in_chunks(session: Session, to: int, there: str, plan: Plan, call: Call) -> None:
    steps = plan.steps()
    with _pinned(session, to) as pin:
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
    """Keep the past at a position from gc; give the pin's name."""
    pin, process = add_pin(session, f"revert {session.clock.operation_id()}", to, _PINNED).name, process_id()
    try:
        yield pin
    finally:
        if process == process_id():  # a hook may have forked: the pin belongs to the parent
            session.backend.readers.unpin(pin)
