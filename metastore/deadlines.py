"""The deadline of the current call, which every function that waits can read without an argument.

::

    with until(clock.monotonic() + 30.0):
        backend.commit(…)  # never waits past that instant

A call whose caller was cancelled is over at once: the thread that runs it has a :class:`Stop`.

Instants are seconds on the clock's ``monotonic``. A deadline holds for the thread (the context) that set it, while its
block runs: an interrupt leaves none behind. A generator shares its consumer's context: do not ``yield`` inside the
block.
"""

from __future__ import annotations

from contextvars import ContextVar
from types import TracebackType
from typing import Final

from metastore.block import Block
from metastore.clock import Clock
from metastore.errors import DeadlineExceeded

__all__ = ["GRACE", "Stop", "check_time", "cleaning", "cleans_up", "remaining", "stoppable", "stopping", "until"]

GRACE: Final = 0.5
"""How long a call whose time is over, or that is interrupted, may clean up behind itself (seconds)."""


class Stop:
    """A flag that another thread sets to end a call early, as if its deadline were now."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        self.asked = False


_stop: ContextVar[Stop | None] = ContextVar("metastore_stop", default=None)


class _Until(Block):
    """A block with a deadline. An interrupt can leave it in the context, but then it runs no longer."""

    __slots__ = ("around", "cleans", "ends")

    def __init__(self, ends: float, *, cleans: bool = False) -> None:
        self.ends, self.cleans = ends, cleans

    def __enter__(self) -> None:
        around = self.around = _blocks.get() and _innermost()
        if around is not None and not self.cleans:
            self.ends, self.cleans = min(self.ends, around.ends), around.cleans
        _blocks.set(self)

    def end(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if _blocks.get() is self:  # a generator that ends late must not end its consumer's block
            _blocks.set(self.around)


_blocks: ContextVar[_Until | None] = ContextVar("metastore_until", default=None)


def _innermost() -> _Until | None:
    """Return the innermost block that runs."""
    block = _blocks.get()
    while block is not None and not block.runs:
        block = block.around
    return block


until: Final = _Until
"""``with until(ends)``: set the deadline of a block to the instant ``ends``, or keep an earlier one around it.

``math.inf``: the block has no deadline of its own, and no default of a backend applies in it. Raises nothing.
"""


def remaining(clock: Clock, default: float) -> float:
    """Return how many seconds the current call has left, 0 or less if it has none; ``default`` without a deadline."""
    stop = _stop.get()
    if stop is not None and stop.asked:
        return 0.0
    block = _blocks.get()
    if block is not None and not block.runs:
        block = _innermost()
    return default if block is None else block.ends - clock.monotonic()


def check_time(clock: Clock) -> None:
    """Raise DeadlineExceeded if the current call, which reads page by page, has no time for the next page."""
    if remaining(clock, 1.0) <= 0:
        message = "the deadline passed before anything more was found; read less, or set a longer one: bind(deadline=…)"
        raise DeadlineExceeded(message)


def cleaning(ends: float) -> _Until:
    """Let a block withdraw what a call left behind, until the instant ``ends``.

    It may do so after the store was closed, and after a deadline around it. In most cases the call's own time is over,
    and it must ask once more to learn its outcome.
    """
    return _Until(ends, cleans=True)


def cleans_up() -> bool:
    """Whether the current call only withdraws what it left behind."""
    block = _innermost()
    return block is not None and block.cleans


def stoppable(stop: Stop | None) -> None:
    """Let the calls of this context end when ``stop`` is set."""
    _stop.set(stop)


def stopping() -> Stop | None:
    """Return what ends the current call early; None: nothing does."""
    return _stop.get()
