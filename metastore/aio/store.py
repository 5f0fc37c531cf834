"""Assemble an async store: the sync store, on a backend and a clock whose waits let other tasks run."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, cast

from metastore.aio.core import run
from metastore.aio.derive import Room
from metastore.aio.port import AioBackend, AioClock, alone
from metastore.aio.surface import AsyncStore
from metastore.aio.threads import Threads
from metastore.backends.sql.limits import Limits
from metastore.cache.options import Cache
from metastore.cache.store import check_cache
from metastore.database import replicas_of
from metastore.retry.policy import Hook
from metastore.store import Store, clean_admins, prepared

__all__ = ["opened"]


async def opened(
    url: str | None,
    principal: str | None,
    deadline: float,
    hooks: Iterable[Hook],
    pool_size: int,
    max_wait: float | None,
    admins: Iterable[str],
    cache: Cache | None = None,
    read_from: Iterable[str] = (),
) -> AsyncStore:
    """Open a store. Raises the errors of :func:`metastore.open`."""
    named = clean_admins(admins)
    check_cache(cache, url)
    connecting = Threads(Limits())
    prepare = partial(prepared, url, principal, deadline, hooks, pool_size, max_wait)
    parsed, backend, policy = await run(alone, connecting, prepare)
    size = pool_size if parsed.is_postgres else 1
    threads = Threads(Limits(size, max_wait), policy.deadline)
    try:
        found = replicas_of(parsed, read_from, policy.deadline, pool_size=pool_size, max_wait=max_wait)
    except BaseException:
        backend.close()
        raise
    # replicas have their own threads, so a replica that does not answer blocks no call of the primary
    replicas = {name: AioBackend(one, Threads(Limits(size, max_wait), policy.deadline)) for name, one in found.items()}
    make_store = partial(
        Store, parsed, AioBackend(backend, threads), policy, principal, AioClock(), named, cache, replicas
    )
    # in a thread, because the constructor asks databases: a cache does so before it serves, and replicas are checked
    store = make_store() if cache is None and not replicas else await run(alone, connecting, make_store)
    make: Any = AsyncStore
    return cast(AsyncStore, make(store, Room(threads)))
