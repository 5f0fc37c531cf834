"""Count and time a store's reads by method, and apply a view's deadline to its reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from metastore.deadlines import until
from metastore.errors import DeadlineExceeded
from metastore.operation.session import ManagerSession

P = ParamSpec("P")
T = TypeVar("T")


def timed(session: ManagerSession, method: str, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``read``, and note in the store's metrics how long ``method`` took, even if it raised."""
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
    """Return a timed ``read``, for a function that is called once for each page of a listing."""

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return timed(session, method, read, *args, **kwargs)

    return call


def stepping(session: ManagerSession, found: Iterator[T], ends: float = math.inf) -> Iterator[T]:
    """Yield the items of ``found``. Each step is one call with the store's deadline; all steps must end by ``ends``.

    Nothing is yielded after ``ends``, even if the backend does not stop a statement then. A step that reads several
    pages, because it finds nothing in them, calls ``check_time`` before each.
    """
    clock, seconds = session.clock, (session.outer or session).policy.deadline
    more = True
    while more:
        with until(min(ends, clock.monotonic() + seconds)):
            try:
                one = next(found)
            except StopIteration:
                more = False
        if clock.monotonic() >= ends:
            raise DeadlineExceeded("the timeout passed before the search was over; search less, or longer")
        if more:
            yield one
