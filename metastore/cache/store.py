"""The cache of one store, if it has one: its figures, and the members of the database."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from metastore.arguments import boolean, integer, shown
from metastore.cache.options import Cache
from metastore.errors import InvalidArgument, PermissionDenied
from metastore.operation.session import Session
from metastore.port.backend import Backend
from metastore.port.members import Announces, MemberRow, MemberRows
from metastore.port.stats import CacheMember, CacheStats
from metastore.urls import parse_url

if TYPE_CHECKING:
    from metastore.cache.leased import Leased
    from metastore.cache.validated import Validated

__all__ = ["StoreCache", "cached", "check_cache"]


class StoreCache:
    """``store.cache``: the figures of a store's cache, and the members of its database."""

    def __init__(
        self,
        used: Validated | Leased | None,
        backend: Backend | None = None,
        refused: Callable[[str], PermissionDenied] | None = None,
    ) -> None:
        """``refused`` makes the error for a user, who may only see the figures; it is None if the store is trusted."""
        self.used = used
        self._backend = backend
        self._refused = refused

    def of_user(self, refused: Callable[[str], PermissionDenied]) -> StoreCache:
        """Return a view of the same cache for a user."""
        return StoreCache(self.used, self._backend, refused)

    def stats(self) -> CacheStats:
        """Return the figures since the store was opened; without a cache, all are 0."""
        return CacheStats() if self.used is None else self.used.stats()

    def members(self) -> tuple[CacheMember, ...]:
        """Return the processes that cache under a lease, oldest first; an empty tuple if the database has no such rows.

        Raises PermissionDenied for a user: call it on the store itself.
        """
        rows = self._rows()
        return () if rows is None else tuple([_member(row) for row in rows.members()])

    def evict(self, member: int, *, force: bool = False) -> bool:
        """Remove a member whose lease is over, so that no writer waits for it. Return False if no member has this id.

        A removed member that still serves would answer with old states. So for a member that renewed within its ttl,
        this raises InvalidArgument: wait until the ttl is over. ``force`` removes it in any case; use it only for a
        process that has certainly ended. Raises PermissionDenied for a user: call it on the store itself.
        """
        boolean(force, "force")
        wanted, rows = integer(member, "a member's id"), self._rows()
        if rows is None or rows.evict(wanted, force=force):
            return rows is not None
        for row in rows.members():
            if row.id == wanted:
                raise _serves(_member(row))
        return False

    def _rows(self) -> MemberRows | None:
        if self._refused is not None:
            raise self._refused("see the processes that cache, or evict one")
        return self._backend.cache_members if isinstance(self._backend, Announces) else None


def _member(row: MemberRow) -> CacheMember:
    def ago(at: int) -> float:
        return max(0.0, (row.now - at) / 1e6)

    waits = 0.0 if row.oldest is None else ago(row.oldest)
    return CacheMember(
        row.id, row.host, row.pid, row.ttl / 1e6, ago(row.joined_at), ago(row.renewed_at), row.behind, waits
    )


def _serves(member: CacheMember) -> InvalidArgument:
    left = max(0.0, member.ttl - member.renewed)
    return InvalidArgument(
        f"member {member.id} (process {member.pid} on {member.host}) renewed {member.renewed:.1f} s ago and may answer "
        f"from memory for another {left:.1f} s; wait that long, or stop the process and evict it with force"
    )


def cached(session: Session, options: Cache) -> Validated | Leased:
    """Return a new cache for a session. Raises InvalidArgument on a replica: its reads may be older than a write.

    Raises BackendRefused for a role that may not write the rows of a member.
    """
    from metastore.cache.leased import Leased  # noqa: PLC0415  (a process imports only what it uses)
    from metastore.cache.validated import Validated  # noqa: PLC0415

    _, replica = session.backend.event_at(0)
    if replica:
        session.backend.close()
        raise InvalidArgument("a cache needs the primary, and this is a replica; open it without cache=")
    if options.mode == "lease":
        assert isinstance(session.backend, Announces)
        try:
            return Leased(session.backend.cache_members, session.clock, options)
        except BaseException:
            session.backend.close()
            raise
    return Validated(session.backend, session.clock, session.policy.deadline, options)


def check_cache(cache: object, url: str | None) -> None:
    """Raise InvalidArgument if ``cache`` is not a cache, or not one that the database supports."""
    if cache is None:
        return
    if not isinstance(cache, Cache):
        raise InvalidArgument(f'a cache is ms.Cache("validate") or ms.Cache("lease"), not {shown(cache)}')
    if cache.mode == "lease" and not parse_url(url).is_postgres:
        raise InvalidArgument('ms.Cache("lease") needs PostgreSQL; use ms.Cache("validate") here')
