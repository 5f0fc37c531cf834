"""What keeps leases, and what it promises: a table of the store's database, or objects in a bucket.

For each name a book has one entry, which is never deleted: a token, and who holds it until when. *Take*, *give back*
and *break* are compare-and-swap on it, and each of them makes the token grow by one; a renewal moves only the time.

A book answers only with what is decided. Whatever it sends more than once, or whose answer was lost, it has settled
before it returns: a grant that is in doubt is no grant. What cannot be settled before the call's deadline
(:mod:`metastore.deadlines`) raises BackendUnavailable, DeadlineExceeded or OutcomeUnknown; then nobody may believe
to hold the lease, and at worst it is free again after its ttl.

Times are by the book's own clock (the database's, or the wall clock). They say who may take over, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

from metastore.port.commit import LeaseToken

__all__ = ["Book", "Grant", "Holder", "LeaseEvent", "Queue", "Refusal", "Want"]


class Want(NamedTuple):
    """What somebody asks for: all of ``names`` (sorted, each once) or none."""

    names: tuple[str, ...]
    owner: str
    incarnation: str
    """The holder's: new in each process, and in each store that is opened."""
    ttl: float
    """Seconds."""
    ticket: str | None = None
    """The place in the queue of who waits already; None: whoever waits comes first."""


class Grant(NamedTuple):
    """One name that is ours now."""

    name: str
    token: int | None
    """None: this kind of entry has none (Hudi's lock files)."""
    expires_at: datetime
    fence: LeaseToken | None
    """What a commit made under the lease requires; None: no store checks the token."""
    mark: str = ""
    """What the book itself knows this acquisition by, where it needs more than the token."""


class Refusal(NamedTuple):
    """Why nothing was taken: the first name that is somebody else's, or for which others wait since longer."""

    name: str
    owner: str | None
    """Who has it; None: nobody, but others come first."""
    expires_at: datetime | None
    seconds: float
    """How long until it may be taken over, if it is not renewed; 0: as soon as those who come first had it."""


@dataclass(frozen=True)
class Holder:
    """Who holds a lease. ``expired``: its time is over, so that whoever asks may take over; nobody has yet."""

    name: str
    token: int | None
    owner: str
    incarnation: str
    acquired_at: datetime
    expires_at: datetime
    expired: bool
    waiting: int = 0
    """How many wait for it."""


@dataclass(frozen=True)
class LeaseEvent:
    """One line of a lease's audit trail, oldest first.

    ``action`` is acquire, takeover (from one whose time was over), release, break, or commit: a commit that was made
    under ``token``, of what is at ``path``. ``owner`` and ``incarnation`` are the holder's, of a commit the token's.
    ``operation_id`` and ``position`` (in the change feed) are None where no store keeps the lease.
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
    """A place in the queue for some names. Leaving it wakes the next one, if nothing was taken."""

    ticket: str

    def wait(self, seconds: float) -> None:
        """Return when it may be our turn, or after ``seconds`` at the latest. Shows meanwhile that we are alive."""
        ...

    def served(self) -> None:
        """Note that the names were taken with this ticket: there is nothing to leave any more."""
        ...


class Book(Protocol):
    """See the module. All of it may be called by any thread."""

    def take(self, want: Want) -> tuple[Grant, ...] | Refusal:
        """Take all names that are free, or whose time is over, if nobody waits since longer. Else take none."""
        ...

    def renew(self, grants: Sequence[Grant], incarnation: str, ttl: float) -> datetime | None:
        """Let all grants last for ``ttl`` seconds from now; return until when. None: one is somebody else's by now."""
        ...

    def release(self, grants: Sequence[Grant], incarnation: str) -> bool:
        """Give back what is still ours of the grants. False: nothing was. Never touches somebody else's."""
        ...

    def break_(self, name: str) -> bool:
        """Take a lease away from whoever has it. False: nobody has."""
        ...

    def holders(self, names: Sequence[str] | None = None) -> Iterator[Holder]:
        """Yield who holds each of these names, or any, by name; names that nobody holds are left out."""
        ...

    def granted(self, name: str, token: int) -> tuple[Grant, Holder] | None:
        """Return the grant that has this token, and its holder; None: the lease has another token, or no holder."""
        ...

    def audit(self, name: str) -> Iterator[LeaseEvent]:
        """Yield what happened to a lease, as far as it is kept."""
        ...

    def queue(self, want: Want) -> AbstractContextManager[Queue]:
        """Stand in line for the names, until the block ends."""
        ...
