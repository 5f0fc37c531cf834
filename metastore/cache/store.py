"""The cache of one store: whether it has one, and its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metastore.arguments import shown
from metastore.cache.options import Cache
from metastore.errors import InvalidArgument
from metastore.operation.session import Session
from metastore.port.stats import CacheStats
from metastore.urls import parse_url

if TYPE_CHECKING:
    from metastore.cache.validated import Validated

__all__ = ["StoreCache", "cached", "check_cache"]


class StoreCache:
    """``store.cache``: the figures of what a store keeps."""

    def __init__(self, used: Validated | None) -> None:
        self.used = used

    def stats(self) -> CacheStats:
        """Return the figures since the store was opened; without a cache, all are 0."""
        return CacheStats() if self.used is None else self.used.stats()

    def members(self) -> tuple[()]:
        """Return the processes that hold a lease on what they keep: none, as there is no lease mode yet."""
        return ()


def cached(session: Session, options: Cache) -> Validated:
    """Return the cache of a session. Raises InvalidArgument on a replica: its reads may be older than a write."""
    from metastore.cache.validated import Validated  # noqa: PLC0415  (a process imports only what it uses)

    _, replica = session.backend.event_at(0)
    if replica:
        session.backend.close()
        raise InvalidArgument("a cache needs the primary, and this is a replica; open it without cache=")
    return Validated(session.backend, session.clock, session.policy.deadline, options)


def check_cache(cache: object, url: str | None) -> None:
    """Raise InvalidArgument for what is no cache, or one that the database cannot have."""
    if cache is None:
        return
    if not isinstance(cache, Cache):
        raise InvalidArgument(f'a cache is ms.Cache("validate"), not {shown(cache)}')
    if cache.mode == "lease":
        if parse_url(url).get_backend_name() != "postgresql":
            raise InvalidArgument('ms.Cache("lease") needs PostgreSQL; use ms.Cache("validate") here')
        raise InvalidArgument('ms.Cache("lease") is not there yet; use ms.Cache("validate")')
