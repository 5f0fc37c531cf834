"""One ticket for all transactions of a process that wait for the same entities; they run one after the other.

A thread *enters* a door: the first one takes the ticket and waits for the turn. Threads that come meanwhile wait in the
process. When a thread is done, one of them continues in the same turn, with the same ticket. Threads that come after
the turn has begun wait for another ticket, so that other processes have their turns.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final, NamedTuple

from metastore.clock import Alive, Clock
from metastore.combine.handle import Term
from metastore.combine.lane import Lane
from metastore.errors import DeadlineExceeded
from metastore.operation.session import Session
from metastore.operation.tickets import OwnTicket

_STALE: Final = 0.1
"""If no thread has used a ticket for longer, it may be gone (seconds)."""
_PATIENCE: Final = 5.0
"""After this time a thread continues beside a stuck one, with its own ticket (seconds)."""


class _Handed(NamedTuple):
    """A ticket that one thread passes to the next."""

    ticket: OwnTicket
    at: float
    """When, by the clock's ``monotonic``."""
    pid: int
    """The process of the threads; a forked child does not use the ticket."""


class Door:
    """The place where the threads of a process wait for the same entities."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lane: Lane[None, None] = Lane(clock, 1, patience=_PATIENCE)
        self._inside: list[Alive] = []
        """The threads inside; more than one if a thread continued beside a stuck one."""
        self._until = 0
        """Threads whose number in the lane is smaller may still follow in this turn."""
        self._handed: _Handed | None = None
        """The ticket that one thread has passed to the next."""

    def enter(self, ends: float, me: Alive) -> Term | None:
        """Wait until no other thread of the process is inside; the caller must ``leave``. Raises DeadlineExceeded.

        Return None if ``me``, the thread or task of the function, is inside already, because a transaction around this
        one entered: it must not wait for itself.
        """
        if me in self._inside:
            return None
        term = self._lane.lead() or self._lane.elected(self._lane.submit(None, ends), _expired)
        self._inside.append(me)
        return term

    def follow(self) -> OwnTicket | None:
        """Return the ticket with which the last thread's turn continues; None: another ticket is needed."""
        handed, self._handed = self._handed, None
        if handed is None or handed.pid != os.getpid():
            return None
        if self._clock.monotonic() - handed.at > _STALE:
            handed.ticket.leave()
            return None
        return handed.ticket

    def begin(self) -> None:
        """Note that a turn begins: the threads that wait now take part in it."""
        self._until = self._lane.number()

    @property
    def goes_on(self) -> bool:
        """Whether another thread continues this turn."""
        return self._lane.waits_before(self._until)

    def leave(self, term: Term, ticket: OwnTicket | None, me: Alive) -> None:
        """Let the next thread continue, in the same turn if its ticket still exists."""
        with suppress(ValueError):
            self._inside.remove(me)
        try:
            if ticket is not None and ticket.number is not None:
                if self.goes_on:
                    self._handed = _Handed(ticket, self._clock.monotonic(), os.getpid())
                else:
                    ticket.leave()
        finally:  # a cancellation or interrupt may come while the ticket is given up
            self._lane.leave(term)


def door_at(session: Session, ids: tuple[int, ...]) -> Door:
    """Return the door for these entities. If a door was forgotten, a new one costs one more ticket."""
    door: Door | None = session.doors.get(ids)
    if door is None:
        door = Door(session.clock)
        session.doors.set(ids, door)
    return door


def _expired() -> DeadlineExceeded:
    return DeadlineExceeded("the transaction was not run: others of this process were in line before it; call again")
