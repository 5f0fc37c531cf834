"""One ticket for all transactions of a process that wait for the same entities: they run one after the other.

A thread *enters* a door: the first one takes the ticket and waits for the turn. Those that come meanwhile wait in the
process. When a thread is done, one of them goes on in the same turn, with the same ticket. Those that come after the
turn has begun wait for another ticket, so that other processes have their turns.
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
"""A ticket that no thread used for longer may be gone (seconds)."""
_PATIENCE: Final = 5.0
"""After how long a thread continues beside a stuck one, with its own ticket (seconds)."""


class _Handed(NamedTuple):
    """The ticket that one thread hands to the next."""

    ticket: OwnTicket
    at: float
    """When, by the clock's ``monotonic``."""
    pid: int
    """The process of the threads: a forked child takes no part."""


class Door:
    """Where the threads of a process wait for the same entities."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lane: Lane[None, None] = Lane(clock, 1, patience=_PATIENCE)
        self._inside: list[Alive] = []
        """The threads that are in: more than one if a thread continued beside a stuck one."""
        self._until = 0
        """The threads that came before this number of the lane may still follow in the turn."""
        self._handed: _Handed | None = None
        """The ticket that one thread handed to the next, with the time and the process."""

    def enter(self, ends: float, me: Alive) -> Term | None:
        """Wait until no other thread of the process is in; the caller must ``leave``. Raises DeadlineExceeded.

        ``me``: the thread, or the task, of the function. None: it is in, with a transaction around this one. It must
        not wait for itself.
        """
        if me in self._inside:
            return None
        term = self._lane.lead() or self._lane.elected(self._lane.submit(None, ends), _expired)
        self._inside.append(me)
        return term

    def follow(self) -> OwnTicket | None:
        """Return the ticket with which the turn of the thread before continues; None: another ticket is needed."""
        handed, self._handed = self._handed, None
        if handed is None or handed.pid != os.getpid():
            return None
        if self._clock.monotonic() - handed.at > _STALE:
            handed.ticket.leave()
            return None
        return handed.ticket

    def begin(self) -> None:
        """Note that a turn begins: those that wait now take part in it."""
        self._until = self._lane.number()

    @property
    def goes_on(self) -> bool:
        """Whether another thread continues this turn."""
        return self._lane.waits_before(self._until)

    def leave(self, term: Term, ticket: OwnTicket | None, me: Alive) -> None:
        """Let the next thread continue: in the same turn, if its ticket still exists."""
        with suppress(ValueError):
            self._inside.remove(me)
        try:
            if ticket is not None and ticket.number is not None:
                if self.goes_on:
                    self._handed = _Handed(ticket, self._clock.monotonic(), os.getpid())
                else:
                    ticket.leave()
        finally:  # a cancellation or an interrupt may come while the ticket is left
            self._lane.leave(term)


def door_at(session: Session, ids: tuple[int, ...]) -> Door:
    """Return the door for these entities. A door that was forgotten costs one more ticket."""
    door: Door | None = session.doors.get(ids)
    if door is None:
        door = Door(session.clock)
        session.doors.set(ids, door)
    return door


def _expired() -> DeadlineExceeded:
    return DeadlineExceeded("the transaction was not run: others of this process were in line before it; call again")
