"""When the current call must be over: known to whatever waits, without being handed down.

::

    with until(clock.monotonic() + 30.0):
        backend.commit(…)  # waits no longer than that, whatever it waits for

Instants are seconds on the clock's ``monotonic``. What is set holds for the thread (the context) that
set it. A generator shares its consumer's context: do not ``yield`` inside of the block.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from types import TracebackType

from metastore.clock import Clock

__all__ = ["remaining", "until"]

_ends: ContextVar[float | None] = ContextVar("metastore_ends", default=None)


class _Until:
    """Written out: contextlib's generator costs four times as much, and every call enters one."""

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
    """Let what is called in the ``with`` block be over by the instant ``ends``, or by an earlier one around it.

    ``math.inf``: the block has no end of its own, and no backend's default holds in it. Raises nothing.
    """
    return _Until(ends)


def remaining(clock: Clock, default: float) -> float:
    """Return how many seconds the current call has left, 0 or less if it is over; ``default`` if nothing is set."""
    ends = _ends.get()
    return default if ends is None else ends - clock.monotonic()
