"""What a backend does for leases: compare-and-swap on one row per name. Part of the port.

Each call is one attempt, one transaction and (on PostgreSQL) one round trip. Times are in microseconds: instants
since 1970 by the database's clock, and durations.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID

from metastore.port.commit import Conflicted, LeaseToken, Unknown

__all__ = [
    "ALIVE",
    "DOOMED",
    "PUBLISHED",
    "STAGED",
    "Fenced",
    "LeaseRow",
    "LeaseRows",
    "Mirror",
    "Staged",
    "Take",
    "Taken",
    "Waker",
    "changes_of",
    "fences",
]

ALIVE = 3_000_000
"""How long a waiter counts as alive after it was last heard of (µs). It must ask more often than that."""


STAGED, PUBLISHED, DOOMED = 0, 1, 2
"""The states of what was staged. What is doomed is being cleaned up: its value cannot be staged again meanwhile."""


class LeaseRow(NamedTuple):
    """One lease. ``owner`` and what follows are None where nobody holds it."""

    name: str
    id: int
    token: int
    owner: str | None
    incarnation: str | None
    acquired_at: int | None
    expires_at: int | None
    waiting: int = 0
    """How many wait for it and are alive."""


@dataclass(frozen=True, slots=True)
class Take:
    """Take all of ``names`` (sorted), or none, for ``ttl`` from now on.

    Those can be had that nobody holds, or whose time is over, and for which nobody waits who is alive and came
    before the ``ticket`` (None: nobody at all). A waiter's ticket is taken off the queue with it, else he is alive.
    """

    operation_id: UUID
    principal: str | None
    names: tuple[str, ...]
    paths: tuple[str, ...]
    """The names as the feed shows them."""
    owner: str
    incarnation: str
    ttl: int
    ticket: int | None


class Taken(NamedTuple):
    """The answer at the time ``now``: what was taken, in the order of the names; or nothing, and why."""

    now: int
    rows: tuple[LeaseRow, ...]
    held: LeaseRow | None
    """The first name that somebody holds."""
    ahead: str | None
    """The name for which somebody waits since longer."""


@dataclass(frozen=True, slots=True)
class Mirror:
    """Note the token of a lease that is kept elsewhere: ``token``, which must be greater; None: one more."""

    operation_id: UUID
    principal: str | None
    name: str
    path: str
    token: int | None
    owner: str
    incarnation: str


class Staged(NamedTuple):
    """What was produced under a lease. Once it is published it is visible, else nobody sees it."""

    id: UUID
    lease_id: int
    token: int
    lease: str
    entity_id: int
    key: str
    value: str
    principal: str | None
    time: int
    number: int
    state: int
    visible: bool = False
    """Of what was left behind: the same value was published."""


class Fenced(NamedTuple):
    """A commit that was made under a lease."""

    seq: int
    operation_id: UUID
    principal: str | None
    time: int
    path: str | None
    fences: str


class Waker(Protocol):
    """Tells a waiter when it may be its turn."""

    def wait(self, seconds: float) -> None:
        """Return after ``seconds``, or earlier if something changed that may concern it."""
        ...


class LeaseRows(Protocol):
    """Three keep it, as they keep :class:`metastore.port.backend.Backend`."""

    def take(self, take: Take) -> Taken | Conflicted | Unknown:
        """Take leases. An event *acquire* or *takeover* for each, whose version is the token."""
        ...

    def renew(self, held: Sequence[LeaseToken], ttl: int) -> int | None:
        """Let leases last for ``ttl`` from now; return until when. None: one of them has another token by now."""
        ...

    def release(self, held: Sequence[LeaseToken], paths: Sequence[str], operation_id: UUID, by: str | None) -> int:
        """Free those that still have these tokens, and wake who waits; return how many. An event *release* for each."""
        ...

    def break_(self, name: str, path: str, operation_id: UUID, by: str | None) -> bool:
        """Free a lease, whoever holds it; False: nobody does. An event *break*."""
        ...

    def mirror(self, mirror: Mirror) -> LeaseToken | Conflicted | Unknown | None:
        """Note a token; None: it is not greater than the one noted before by another holder. An event *mirror*."""
        ...

    def rows(self, names: Sequence[str] | None, after: str, limit: int) -> tuple[int, list[LeaseRow]]:
        """Return the time, and the leases with these names, or (None) those after a name that somebody holds."""
        ...

    def enter(self, names: Sequence[str], owner: str) -> int:
        """Stand in line for these names; return the ticket."""
        ...

    def leave(self, ticket: int, names: Sequence[str]) -> None:
        """Leave the line, and wake the next one if the lease is free."""
        ...

    def waker(self, ticket: int, names: Sequence[str]) -> AbstractContextManager[Waker]:
        """Watch these names for the holder of a ticket."""
        ...

    def stage(
        self, under: LeaseToken, staged_id: UUID, entity_id: int, key: str, value: str, by: str | None
    ) -> bool | None:
        """Write down what was produced, once for each id, if the lease still has this token.

        None: the same value was left behind, and is being cleaned up.
        """
        ...

    def staged(self, lease_id: int, token: int) -> list[Staged]:
        """Return what was staged under a token and is not published, oldest first."""
        ...

    def left_behind(self, after: UUID, limit: int) -> list[Staged]:
        """Return what was staged under tokens that no lease has any more, and not published, by id after ``after``."""
        ...

    def doom(self, staged_id: UUID) -> bool:
        """Let nobody stage this value again. False: it is staged under a token that a lease has, or was published."""
        ...

    def forget_published(self) -> None:
        """Delete what was published under tokens that no lease has any more, unless its value was left behind too."""
        ...

    def unstage(self, ids: Sequence[UUID]) -> None:
        """Forget what was staged."""
        ...

    def fenced(self, lease_id: int, after: int, limit: int) -> list[Fenced]:
        """Return the commits that were made under a lease, by position after ``after``."""
        ...

    def forget_waiters(self, before: int) -> None:
        """Delete who was last alive before a time."""
        ...


def fences(held: Sequence[LeaseToken]) -> str:
    """Return what a commit's row says of the leases that it was made under."""
    return json.dumps([[lease.id, lease.token] for lease in held])


def changes_of(owner: str | None, incarnation: str | None) -> str:
    """Return what the feed says of a lease's holder, as the changes of the event."""
    return json.dumps([{"change": "LeaseHolder", "owner": owner, "incarnation": incarnation}])
