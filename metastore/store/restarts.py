"""Forget what a store remembers when its server was started again: a backup may have been put back."""

from __future__ import annotations

from weakref import ref

from metastore.leases.leases import Leases
from metastore.operation.session import Session
from metastore.port.replica import Restarts

__all__ = ["forget_after_restarts"]


def forget_after_restarts(session: Session, leases: Leases) -> None:
    """Let the backend say when ids and versions may come again, so that nothing remembered is taken for true.

    The backend outlives a store that nobody uses any more. It must not keep the store's cache, which would never leave,
    nor its leases, which know the cache.
    """
    if not isinstance(session.backend, Restarts):
        return
    recent, rights, seals = session.recent, session.rights, session.seals
    held = ref(leases)
    kept = (lambda: None) if session.cache is None else ref(session.cache)

    def forget() -> None:
        recent.clear()
        rights.clear()
        if seals is not None:
            seals.clear()
        cache = kept()
        if cache is not None:
            cache.forget()
        holds = held()
        if holds is not None:
            holds._look_again()  # noqa: SLF001  (no user calls it)

    session.backend.when_started(forget)
