"""Open a store for asyncio. The event loop and greenlet are imported when the first store is opened."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from metastore.cache.options import Cache
from metastore.errors import InvalidArgument
from metastore.retry.policy import Hook
from metastore.urls import parse_url, require_file

if TYPE_CHECKING:
    from metastore.aio.surface import AsyncStore

__all__ = ["open_async"]


async def open_async(
    url: str | None = None,
    *,
    principal: str | None = None,
    deadline: float = 30.0,
    hooks: Iterable[Hook] = (),
    pool_size: int = 10,
    max_wait: float | None = None,
    admins: Iterable[str] = (),
    cache: Cache | None = None,
    read_from: Iterable[str] = (),
    must_exist: bool = False,
) -> AsyncStore:
    """Open a database for asyncio: ``url``, else METASTORE_URL, else ``sqlite:///metastore.db``.

    The options are the same as for :func:`metastore.open`. ``pool_size`` is also how many calls can wait for the
    database at once; on SQLite, only one can. Raises MigrationNeeded, BackendUnavailable, InvalidArgument.
    """
    try:
        import greenlet  # noqa: F401, PLC0415  (an extra)
    except ImportError:
        raise InvalidArgument("the async API needs greenlet: pip install 'versioned-metastore[async]'") from None
    from metastore.aio.store import opened  # noqa: PLC0415  (a process imports only what it uses)

    if must_exist:
        require_file(parse_url(url))
    return await opened(url, principal, deadline, hooks, pool_size, max_wait, admins, cache, read_from)
