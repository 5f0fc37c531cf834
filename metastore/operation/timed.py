"""Count and time the reads of a store by method, and give a view's reads their deadline."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from metastore.deadlines import until
from metastore.operation.session import ManagerSession

__all__ = ["timed", "timing"]

P = ParamSpec("P")
T = TypeVar("T")


def timed(session: ManagerSession, method: str, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Read, and note in the store's metrics how long ``method`` took, whether it succeeded or raised."""
    began = session.clock.monotonic()
    of_store = session.outer or session
    try:
        if not of_store.bounds_reads:
            return read(*args, **kwargs)
        with until(began + of_store.policy.deadline):
            return read(*args, **kwargs)
    finally:
        of_store.metrics.read(method, session.clock.monotonic() - began)


def timing(session: ManagerSession, method: str, read: Callable[P, T]) -> Callable[P, T]:
    """Return ``read``, timed: for what is called once for each page of a listing."""

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return timed(session, method, read, *args, **kwargs)

    return call
