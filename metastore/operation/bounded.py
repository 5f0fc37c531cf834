"""A backend that bounds each call of a view by the view's deadline, unless the call has a deadline already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from metastore.clock import Clock
from metastore.deadlines import has_deadline, until
from metastore.port.backend import PARTS

_UNBOUNDED: Final = ("close", "hearing", "leases")
"""Leases have deadlines of their own: their renewal outlives the call."""


class Bounded:
    """A port whose calls each end within ``seconds``, unless a deadline is set already."""

    def __init__(self, port: Any, clock: Clock, seconds: float) -> None:
        self._port, self._clock, self._seconds = port, clock, seconds

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if name in _UNBOUNDED:
            return found
        if name in PARTS:
            return Bounded(found, self._clock, self._seconds)
        return self._in_time(found) if callable(found) else found

    def _in_time(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if has_deadline():
                return method(*arguments, **options)
            with until(self._clock.monotonic() + self._seconds):
                return method(*arguments, **options)

        return call
