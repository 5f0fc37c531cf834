"""The port of a lease store, called a *book*, and what every book promises.

A book is a database table, or objects in a bucket. For each name it has one entry, which is never deleted: a token,
the holder, and the time when the lease expires. *Take*, *release* and *break* are compare-and-swap on the entry. Each
makes the token grow; a renewal moves only the time.

A book returns only decided outcomes. If it sends a request again, or an answer is lost, it settles the outcome before
it returns: a grant in doubt is not a grant. If it cannot settle the outcome before the call's deadline
(:mod:`metastore.deadlines`), it raises BackendUnavailable, DeadlineExceeded or OutcomeUnknown. Then the caller must not
assume that it holds the lease; at worst, the lease becomes free after its ttl.

Times are those of the book's own clock (the database's, or the wall clock). They only decide who may take over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

from metastore.errors import MetastoreError
from metastore.port.conditions import LeaseToken
from metastore.port.unreadable import Unreadable

__all__ = ["Book", "Grant", "Holder", "LeaseEvent", "Queue", "Refusal", "Want"]


class Want(NamedTuple):
    """A request for leases: all of ``names`` (sorted, each once) or none."""

    names: tuple[str, ...]
    owner: str
    incarnation: str
    """The id of the holder's incarnation: new in each process, and in each store that is opened."""
    ttl: float
    """The time to live, in seconds."""
    ticket: str | None = None
    """The caller's place in the queue; None: the caller comes after all waiters."""


class Grant(NamedTuple):
    """A lease that the caller now holds."""

    name: str
    token: int | None
    """None: this format has no tokens (Hudi's lock files)."""
    expires_at: datetime
    fence: LeaseToken | None
    """The token that a commit under the lease requires; None: no store checks the token."""
    mark: str = ""
    """The book's id of this acquisition, for books whose token does not suffice."""


class Refusal(NamedTuple):
    """The first name that another process holds, or for which others have waited longer: no lease was taken."""

    name: str
    owner: str | None
    """The holder; None: nobody holds the lease, but others have waited longer."""
    expires_at: datetime | None
    seconds: float
    """Seconds until the lease may be taken over unless it is renewed; 0: unknown, because others come first."""


@dataclass(frozen=True)
class Holder:
    """The holder of a lease. ``expired``: its time is over, and the next process that asks gets the lease."""

    name: str
    token: int | None
    owner: str
    incarnation: str
    acquired_at: datetime
    expires_at: datetime
    expired: bool
    waiting: int = 0
    """How many processes wait for the lease."""


@dataclass(frozen=True)
class LeaseEvent:
    """One line of a lease's audit trail, oldest first.

    ``action`` is acquire, takeover (from a holder whose time was over), release, break, or commit: a commit under
    ``token`` that wrote the entity at ``path``. ``owner`` and ``incarnation`` identify the holder; for a commit, the
    holder of its token. ``operation_id`` and ``position`` (in the change feed) are None if no store keeps the lease.
    """

    action: str
    token: int
    time: datetime
    owner: str | None
    incarnation: str | None
    principal: str | None = None
    operation_id: UUID | None = None
    position: str | None = None
    path: str | None = None


class Queue(Protocol):
    """A place in the queue for some names. A waiter that leaves without the leases wakes the next one."""

    ticket: str

    def wait(self, seconds: float) -> None:
        """Return when it may be this waiter's turn, or after ``seconds``. Meanwhile, keep the place alive."""

    def served(self) -> None:
        """Note that this ticket has acquired the leases, so its place need not be given up."""


class Book(Protocol):
    """A book of leases with the promises in the module's docstring. Any thread may call any method."""

    def take(self, want: Want) -> tuple[Grant, ...] | Refusal:
        """Take all leases if each is free or expired, and no other process has waited longer; otherwise take none."""

    def renew(self, grants: Sequence[Grant], incarnation: str, ttl: float) -> datetime | None:
        """Renew all grants for ``ttl`` seconds from now; return when they expire, or None if one of them is lost."""

    def release(self, grants: Sequence[Grant], incarnation: str) -> bool:
        """Release those of the grants that the caller still holds, and no others. Return False if it held none."""

    def break_(self, name: str) -> bool:
        """Take a lease away from its holder. Return False if it has no holder."""

    def holders(
        self, names: Sequence[str] | None = None, unreadable: Callable[[MetastoreError], object] | None = None
    ) -> Iterator[Holder]:
        """Yield the holders of these leases (None: of all leases), by name. Free leases are left out.

        With None, entries that cannot be read are left out too, and ``unreadable`` gets their errors.
        """

    def granted(self, name: str, token: int) -> tuple[Grant, Holder] | None:
        """Return the grant with this token, and its holder; None: the lease has another token, or no holder."""

    def audit(self, name: str, unreadable: Unreadable | None = None) -> Iterator[LeaseEvent]:
        """Yield the stored events of a lease, oldest first. ``unreadable`` gets the errors of damaged rows."""

    def queue(self, want: Want, ends: float = math.inf) -> AbstractContextManager[Queue]:
        """Join the queue for the leases until the block ends. ``ends``: the deadline of the call (monotonic clock)."""
