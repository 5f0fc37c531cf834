"""The leases' part of the port: a compare-and-swap on one row for each name.

Each call is one attempt, one transaction and (on PostgreSQL) one round trip. Times are in microseconds: instants
since 1970 by the database's clock, and durations.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID

from metastore.clock import Clock
from metastore.deadlines import remaining
from metastore.port.commit import Conflicted, Unknown
from metastore.port.conditions import LeaseToken

ALIVE = 3_000_000
"""How long a waiter counts as alive after its last request (µs). It must send the next request earlier."""


PER_TIMELINE = 1 << 40
"""How many tokens a lease has on one timeline of its database (:func:`metastore.port.feed.on_timeline`): enough for
2,000 acquisitions per second in 8 years. Up to timeline 8,192 a token is below 2**53, so JSON represents it exactly."""

STAGED, PUBLISHED, DOOMED = 0, 1, 2
"""The states of staged values. A doomed value is being deleted, and cannot be staged again before that has ended."""


class LeaseRow(NamedTuple):
    """One lease. ``owner`` and the fields after it are None while nobody holds the lease."""

    name: str
    id: int
    token: int
    owner: str | None
    incarnation: str | None
    acquired_at: int | None
    expires_at: int | None
    waiting: int = 0
    """The number of live waiters."""


@dataclass(frozen=True, slots=True)
class Take:
    """Take all of ``names`` (sorted), or none, for ``ttl`` from now on.

    A lease is free if it has no holder, or its time is over. Also, no live waiter may be in line before ``ticket``
    (None: no live waiter at all). A waiter that takes the leases leaves the queue; another one is noted as alive.
    """

    operation_id: UUID
    principal: str | None
    names: tuple[str, ...]
    paths: tuple[str, ...]
    """The paths of the names, for the feed."""
    owner: str
    incarnation: str
    ttl: int
    ticket: int | None


class Taken(NamedTuple):
    """The answer at the time ``now``: the leases that were taken, in the order of the names; or none, and why."""

    now: int
    rows: tuple[LeaseRow, ...]
    held: LeaseRow | None
    """The first lease that another holder has."""
    ahead: str | None
    """The first name for which another waiter is earlier in line."""


@dataclass(frozen=True, slots=True)
class Mirror:
    """Note the token of a lease that is kept elsewhere. ``token`` must be greater than the last one; None: the next."""

    operation_id: UUID
    principal: str | None
    name: str
    path: str
    token: int | None
    owner: str
    incarnation: str


class Staged(NamedTuple):
    """A value that was produced under a lease. Readers see it after a commit has published it."""

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
    """For a value that was left behind: whether another step has published the same value."""


class Fenced(NamedTuple):
    """A commit that was made under a lease."""

    seq: int
    operation_id: UUID
    principal: str | None
    time: int
    path: str | None
    fences: str


class Waker(Protocol):
    """A waker of a waiter whose turn may have come."""

    def wait(self, seconds: float) -> None:
        """Return after ``seconds``, or earlier if a change may concern the waiter."""


class Looker:
    """A waker for a backend without notices: the waiter looks again after each ``pause`` (seconds)."""

    def __init__(self, clock: Clock, may_take: Callable[[], bool], pause: Callable[[], float]) -> None:
        self._clock, self._may_take, self._pause = clock, may_take, pause

    def wait(self, seconds: float) -> None:
        ends = self._clock.monotonic() + min(seconds, ALIVE / 3_000_000)
        while (left := min(ends - self._clock.monotonic(), remaining(self._clock, math.inf))) > 0:
            if self._may_take():
                return
            self._clock.sleep(min(left, self._pause()))


class LeaseRows(Protocol):
    """The operations of a backend for leases: take and renew leases, queue for them, stage values under them."""

    def take(self, take: Take) -> Taken | Conflicted | Unknown:
        """Take leases. For each, write an event *acquire* or *takeover*, whose version is the token."""

    def renew(self, held: Sequence[LeaseToken], ttl: int) -> int | None:
        """Extend leases to ``ttl`` from now; return their new end, or None if one of them has another token."""

    def release(
        self, held: Sequence[LeaseToken], paths: Sequence[str], operation_id: UUID, by: str | None
    ) -> int | Conflicted | Unknown:
        """Free the leases that still have these tokens; return how many. Each gets an event *release*; waiters wake."""

    def break_(self, name: str, path: str, operation_id: UUID, by: str | None) -> bool | Conflicted | Unknown:
        """Take a lease from its holder, and write an event *break*. Return False if the lease has no holder."""

    def mirror(self, mirror: Mirror) -> LeaseToken | Conflicted | Unknown | None:
        """Note a token, and write an event *mirror*. Return None if it is not greater than that of another holder."""

    def rows(self, names: Sequence[str] | None, after: str, limit: int) -> tuple[int, list[LeaseRow]]:
        """Return the time, and the leases with these ``names``; None: the held leases after the name ``after``."""

    def enter(self, names: Sequence[str], owner: str) -> int:
        """Join the queue for these names; return the ticket."""

    def leave(self, ticket: int, names: Sequence[str]) -> None:
        """Leave the queue, and wake the next waiter if a lease is free."""

    def waker(self, ticket: int, names: Sequence[str]) -> AbstractContextManager[Waker]:
        """Return a waker of these names for the waiter with this ticket."""

    def stage(
        self, under: LeaseToken, staged_id: UUID, entity_id: int, key: str, value: str, by: str | None
    ) -> bool | None:
        """Stage a value, once per id, if the lease still has this token.

        Return whether it did; None: the same value was left behind, and is being deleted.
        """

    def staged(self, lease_id: int, token: int) -> list[Staged]:
        """Return the values staged under a token that are not published, oldest first."""

    def left_behind(self, after: UUID, limit: int) -> list[Staged]:
        """Return unpublished values staged under tokens that no lease has any more, by id, after ``after``."""

    def doom(self, staged_id: UUID) -> bool:
        """Forbid staging this value again. Return False if a lease may publish it, or it is published or gone."""

    def forget_published(self) -> None:
        """Delete published rows whose tokens no lease has any more, unless the same value was left behind too."""

    def unstage(self, ids: Sequence[UUID]) -> None:
        """Delete these staged rows."""

    def fenced(self, lease_id: int, after: int, limit: int) -> list[Fenced]:
        """Return commits made under a lease, ordered by position, after ``after``."""

    def forget_waiters(self, before: int) -> None:
        """Delete the waiters that were last alive before a time."""


def fences(held: Sequence[LeaseToken]) -> str:
    """Return a commit's leases in the form for its row: JSON, pairs of id and token."""
    return json.dumps([[lease.id, lease.token] for lease in held])


def changes_of(owner: str | None, incarnation: str | None) -> str:
    """Return the changes in a lease's event as JSON text; they name the holder."""
    return json.dumps([{"change": "LeaseHolder", "owner": owner, "incarnation": incarnation}])
