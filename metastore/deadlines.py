"""The deadline of the current call, which every function that waits can read without an argument.

::

    with until(clock.monotonic() + 30.0):
        backend.commit(…)  # never waits past that instant

A call whose caller was cancelled ends at once: the thread that runs it has a :class:`Stop`.

Instants are seconds on the clock's ``monotonic``. A deadline applies to the thread (the context) that set it, while its
block runs: an interrupt leaves no deadline behind. A generator shares its consumer's context, so do not ``yield``
inside the block.
"""

from __future__ import annotations

from contextvars import ContextVar
from types import TracebackType
from typing import Final

from metastore.block import Block
from metastore.clock import Clock
from metastore.errors import DeadlineExceeded

__all__ = [
    "GRACE",
    "Stop",
    "check_time",
    "cleaning",
    "cleans_up",
    "has_deadline",
    "remaining",
    "stoppable",
    "stopping",
    "until",
]

GRACE: Final = 0.5
"""How long a call may clean up after its time is over, or after an interrupt (seconds)."""


class Stop:
    """A flag that another thread sets to end a call early, as if its deadline were now."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        self.asked = False


_stop: ContextVar[Stop | None] = ContextVar("metastore_stop", default=None)


class _Until(Block):
    """A block with a deadline. An interrupt may leave it in the context, but then it no longer runs."""

    __slots__ = ("around", "cleans", "ends")

    def __init__(self, ends: float, *, cleans: bool = False) -> None:
        self.ends, self.cleans = ends, cleans

    def __enter__(self) -> None:
        around = self.around = _blocks.get() and _innermost()
        if around is not None and not self.cleans:
            self.ends, self.cleans = min(self.ends, around.ends), around.cleans
        _blocks.set(self)

    def end(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if _blocks.get() is self:  # a generator that ends late must not end the block of its consumer
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
    """Return the seconds left for the current call (0 or less: it is over); ``default`` without a deadline."""
    stop = _stop.get()
    if stop is not None and stop.asked:
        return 0.0
    block = _blocks.get()
    if block is not None and not block.runs:
        block = _innermost()
    return default if block is None else block.ends - clock.monotonic()


def has_deadline() -> bool:
    """Whether the current call has a deadline; otherwise the default of a backend, or of a view, applies."""
    return _innermost() is not None


def check_time(clock: Clock) -> None:
    """Raise DeadlineExceeded if the current call, which reads page by page, has no time left for the next page."""
    if remaining(clock, 1.0) <= 0:
        message = "the deadline passed before anything more was found; read less, or set a longer one: bind(deadline=…)"
        raise DeadlineExceeded(message)


def cleaning(ends: float) -> _Until:
    """Return a block in which a call may clean up until the instant ``ends``.

    The block works after the store was closed, and after the deadline of an outer block. In most cases, the call's own
    time is over, but it must ask once more to learn its outcome.
    """
    return _Until(ends, cleans=True)


def cleans_up() -> bool:
    """Whether the current call only cleans up."""
    block = _innermost()
    return block is not None and block.cleans


def stoppable(stop: Stop | None) -> None:
    """Make the calls of this context end when ``stop`` is set."""
    _stop.set(stop)


def stopping() -> Stop | None:
    """Return the :class:`Stop` of the current context; None: there is none."""
    return _stop.get()
