"""Reads that are counted: how many there were by method, and how long each took."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from metastore.operation.session import ManagerSession

__all__ = ["timed", "timing"]

P = ParamSpec("P")
T = TypeVar("T")


def timed(session: ManagerSession, method: str, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Read, and note in the store's metrics how long ``method`` took, whether it succeeded or raised."""
    began = session.clock.monotonic()
    try:
        return read(*args, **kwargs)
    finally:
        (session.outer or session).metrics.read(method, session.clock.monotonic() - began)


def timing(session: ManagerSession, method: str, read: Callable[P, T]) -> Callable[P, T]:
    """Return ``read``, timed: for what is called once for each page of a listing."""

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return timed(session, method, read, *args, **kwargs)

    return call
