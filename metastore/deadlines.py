"""The deadline of the current call, which every function that waits can read without an argument.

::

    with until(clock.monotonic() + 30.0):
        backend.commit(…)  # never waits past that instant

A call whose caller was cancelled is over at once: the thread that runs it has a :class:`Stop`.

Instants are seconds on the clock's ``monotonic``. A deadline holds for the thread (the context) that set it. A
generator shares its consumer's context: do not ``yield`` inside the block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Final

from metastore.clock import Clock

__all__ = ["GRACE", "Stop", "cleaning", "cleans_up", "remaining", "stoppable", "stopping", "until"]

GRACE: Final = 0.5
"""How long a call whose time is over, or that is interrupted, may clean up behind itself (seconds)."""


class Stop:
    """A flag that another thread sets to end a call early, as if its deadline were now."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        self.asked = False


_ends: ContextVar[float | None] = ContextVar("metastore_ends", default=None)
_stop: ContextVar[Stop | None] = ContextVar("metastore_stop", default=None)
_cleaning: ContextVar[bool] = ContextVar("metastore_cleaning", default=False)


class _Until:
    """The context manager that sets a deadline. A class: ``contextlib`` takes four times as long, on each call."""

    __slots__ = ("_ends", "_token")
    _token: Token[float | None]

    def __init__(self, ends: float) -> None:
        self._ends = ends

    def __enter__(self) -> None:
        around = _ends.get()
        self._token = _ends.set(self._ends if around is None else min(around, self._ends))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _ends.reset(self._token)


def until(ends: float) -> _Until:
    """Set the deadline of a ``with`` block to the instant ``ends``, or keep an earlier one around it.

    ``math.inf``: the block has no deadline of its own, and no default of a backend holds in it. Raises nothing.
    """
    return _Until(ends)


def remaining(clock: Clock, default: float) -> float:
    """Return how many seconds the current call has left, 0 or less if it has none; ``default`` without a deadline."""
    stop = _stop.get()
    if stop is not None and stop.asked:
        return 0.0
    ends = _ends.get()
    return default if ends is None else ends - clock.monotonic()


@contextmanager
def cleaning(ends: float) -> Iterator[None]:
    """Let a block withdraw what a call left behind, until the instant ``ends``.

    It may do so after the store was closed, and after a deadline around it. In most cases the call's own time is over,
    and it must ask once more to learn its outcome.
    """
    token, deadline = _cleaning.set(True), _ends.set(ends)
    try:
        yield
    finally:
        _ends.reset(deadline)
        _cleaning.reset(token)


def cleans_up() -> bool:
    """Whether the current call only withdraws what it left behind."""
    return _cleaning.get()


def stoppable(stop: Stop | None) -> None:
    """Let the calls of this context end when ``stop`` is set."""
    _stop.set(stop)


def stopping() -> Stop | None:
    """Return what ends the current call early; None: nothing does."""
    return _stop.get()
