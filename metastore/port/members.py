"""The processes that cache under a lease, and the announcements to them: values, and the operations of a backend.

docs/cache.md has the protocol. A *member* is a process that keeps the entities that it reads. A commit is *announced*
before it changes something: each member forgets the entities that the announcement covers, and acknowledges it. A
member that does not answer counts as dead when its lease has ended by the announcer's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from metastore.port.intents import Help
from metastore.port.writes import Insert, Update, Write


class Covered(NamedTuple):
    """The entities that a commit changes, as an announcement describes them."""

    ids: frozenset[int] = frozenset()
    """Entities whose content changes."""
    scopes: frozenset[int] = frozenset()
    """Entities that change together with all entities below them; 0: all entities."""
    parents: frozenset[int] = frozenset()
    """Entities whose set of children changes."""

    def within(self, other: Covered) -> bool:
        """Whether ``other`` covers everything that this covers."""
        return self.ids <= other.ids and self.scopes <= other.scopes and self.parents <= other.parents

    def and_(self, other: Covered) -> Covered:
        """Return the union of the two."""
        return Covered(self.ids | other.ids, self.scopes | other.scopes, self.parents | other.parents)


NOTHING = Covered()


def covered(writes: Sequence[Write]) -> Covered:
    """Return the entities that these writes change.

    The announcement itself adds the entities' former parents. Owned rows and relations are not cached, so they count
    for nothing here.
    """
    ids, scopes, parents = set[int](), set[int](), set[int]()
    for write in writes:
        if isinstance(write, Insert):
            parents.add(write.parent_id)
        elif isinstance(write, Update):
            if write.scope_version is None:
                ids.add(write.id)
            else:
                scopes.add(write.id)
                if write.place is not None:
                    parents.add(write.place.parent_id)
    return Covered(frozenset(ids), frozenset(scopes), frozenset(parents))


def covered_by_help(help_: Help) -> Covered:
    """Return the entity of these intents, if resolving them changes it; otherwise nothing."""
    changes = any(one.action == "alter" for one in help_.resolutions)
    return Covered(ids=frozenset([help_.id])) if changes else NOTHING


class Announcement(NamedTuple):
    """An announcement, as a member sees it."""

    id: int
    xid: int
    covered: Covered


class Membership(NamedTuple):
    """One registration of a member. Each registration has its own incarnation."""

    id: int
    incarnation: str
    renewals: int = 0
    """How often the member has renewed it. A row with a smaller number comes from a restored backup."""


class MemberRow(NamedTuple):
    """A member, as others see it. Times are in microseconds since 1970."""

    id: int
    incarnation: str
    renewals: int
    ttl: int
    """Microseconds."""
    host: str
    pid: int
    joined_at: int
    renewed_at: int
    now: int
    """The database's time."""
    behind: int
    """The number of announcements that it has not acknowledged."""
    oldest: int | None
    """The time of the oldest of these."""


class Wake(Protocol):
    """The wait of a member, which an announcement ends."""

    def wait(self, seconds: float) -> None:
        """Wait for an announcement, at most this many seconds."""

    def wake(self) -> None:
        """End the wait. Another thread may call it."""

    def close(self) -> None:
        """Return the connection to the pool."""

    @property
    def listens(self) -> bool:
        """Whether announcements end a wait. Otherwise each wait lasts its full time."""


class MemberRows(Protocol):
    """The queries of a member and of an operator. They raise BackendUnavailable if the database does not answer.

    A member uses the connection of its ``wake``, because writers wait for it: it must not wait for a connection from
    the pool.
    """

    def wake(self) -> Wake:
        """Return the wait of a member, which also has the connection for the member's queries."""

    def join(self, wake: Wake, before: Membership | None, ttl: int, host: str, pid: int) -> Membership:
        """Register durably; remove ``before``, an earlier registration of this process whose lease is over."""

    def begin(self, wake: Wake) -> int:
        """Begin a new generation, from which on commits must be announced; return a transaction id."""

    def oldest(self, wake: Wake) -> int:
        """Return the id of the oldest running transaction."""

    def look(
        self, wake: Wake, member: Membership, apply: Callable[[Sequence[Announcement]], bool], *, renew: bool
    ) -> Membership | None:
        """Read the announcements, and let ``apply`` evict what they cover; acknowledge them if it returns True.

        ``renew``: also renew the registration, durably. Return the member's present row; None: the row is gone, or
        comes from a backup. An announcement that was read on one connection is never acknowledged on another, because a
        server may give transaction ids again after a crash.
        """

    def leave(self, wake: Wake | None, member: Membership) -> None:
        """Remove a registration whose lease is over."""

    def members(self) -> list[MemberRow]:
        """Return all members, each with its unacknowledged announcements."""

    def evict(self, member_id: int, *, force: bool) -> bool:
        """Remove a member that has not renewed for its ttl, or any with ``force``. Return False if it is not there."""

    def tidy(self, wake: Wake) -> None:
        """Remove members that were silent for their ttl, and announcements whose owners are gone.

        An owner that still waits, or whose call may still be sent, is not gone. So the limit is the longest ttl of all
        members, not the ttl of this one.
        """


@runtime_checkable
class Announces(Protocol):
    """A backend whose commits are announced to members."""

    @property
    def cache_members(self) -> MemberRows:
        """The rows of the members."""
