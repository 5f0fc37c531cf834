"""Forget what a store remembers when its server was restarted, because a backup may have been put back."""

from __future__ import annotations

from weakref import ref

from metastore.leases.leases import Leases
from metastore.operation.session import Session
from metastore.port.replica import Restarts

__all__ = ["forget_after_restarts"]


def forget_after_restarts(session: Session, leases: Leases) -> None:
    """Let the backend report when ids and versions may be given again, and then drop everything that is remembered.

    The backend may outlive a store that is no longer used. So it must not keep alive the store's cache, which would
    then never leave, or its leases, which refer to the cache.
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
