"""Forget what a store remembers when its server was started again: a backup may have been put back."""

from __future__ import annotations

from weakref import ref

from metastore.operation.session import Session
from metastore.port.replica import Restarts

__all__ = ["forget_after_restarts"]


def forget_after_restarts(session: Session) -> None:
    """Let the backend say when ids and versions may come again, so that nothing remembered is taken for true.

    The backend outlives a store that nobody uses any more, and must not keep its cache: it would never leave.
    """
    if not isinstance(session.backend, Restarts):
        return
    recent, rights, seals = session.recent, session.rights, session.seals
    kept = (lambda: None) if session.cache is None else ref(session.cache)

    def forget() -> None:
        recent.clear()
        rights.clear()
        if seals is not None:
            seals.clear()
        cache = kept()
        if cache is not None:
            cache.forget()

    session.backend.when_started(forget)
