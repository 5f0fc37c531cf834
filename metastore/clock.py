"""The clock: the only source of time, random numbers and new ids.

All other code gets a :class:`Clock`, so that tests can replace it. All waits also go through the clock: the async API
gives the sync code a clock with which a task waits in place of a thread.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

__all__ = [
    "SYSTEM",
    "Alive",
    "Clock",
    "Instant",
    "ThreadWaker",
    "Waker",
    "begins_again",
    "new_operation_id",
    "process_id",
]

T = TypeVar("T")

_BOOTTIME: int = getattr(
    time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC
)  # only Linux has it; elsewhere, the monotonic clock replaces it


class Alive(Protocol):
    """A thread or a task that runs code."""

    def is_alive(self) -> bool:
        """Whether it still runs."""


class Waker(Protocol):
    """An object with which one request waits."""

    def wait(self, seconds: float) -> bool:
        """Wait for :meth:`wake`, at most this many seconds; return whether it came."""

    def wake(self) -> None:
        """End one wait. Another thread may call this, even before the wait. A wait may also end without a reason."""


class ThreadWaker:
    """Waits on a lock of the thread's own, so that a wake-up reaches no other thread."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self, seconds: float) -> bool:
        """Wait for :meth:`wake`, at most ``seconds``; return whether it was called."""
        return self._lock.acquire(timeout=max(0.0, min(seconds, threading.TIMEOUT_MAX)))

    def wake(self) -> None:
        """Let the thread continue."""
        try:  # noqa: SIM105  (a context manager takes longer, in each call)
            self._lock.release()
        except RuntimeError:  # the lock is free: another call has woken the waiter
            pass


_pid = os.getpid()
_drawn: list[bytes] = []
"""Random bytes for the next operation ids. A system call releases the interpreter's lock, and many threads wait
long for it. So one call gets the bytes for many ids.
"""
_DRAWN, _EACH = 256, 10
"""How many ids one call gets bytes for, and how many bytes each needs."""


_forked: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


def begins_again(one: T, fork: Callable[[T], None]) -> None:
    """Call ``fork(one)`` in each child that is forked while the object exists: a child has no threads of its parent."""
    _forked[one] = fork


def _random_bytes() -> bytes:
    """Return ten bytes that no other call gets. (``list.extend`` and ``list.pop`` are atomic.)"""
    while True:
        try:
            return _drawn.pop()
        except IndexError:
            drawn = os.urandom(_EACH * _DRAWN)
            _drawn.extend([drawn[n : n + _EACH] for n in range(0, len(drawn), _EACH)])


def _in_child() -> None:
    global _pid  # noqa: PLW0603  (a fork is an event of the whole process)
    _pid = os.getpid()
    _drawn.clear()  # otherwise parent and child would draw the same ids
    for one, fork in list(_forked.items()):
        fork(one)


os.register_at_fork(after_in_child=_in_child)


def process_id() -> int:
    """Return this process's id without a system call, because each call of a store checks for a fork."""
    return _pid


@dataclass(frozen=True)
class Clock:
    """The system's clock, sleep, random numbers and operation ids."""

    monotonic = staticmethod(time.monotonic)
    """Return seconds on a clock that never goes back. (The C function itself, because it is called often.)"""

    def boottime(self) -> float:
        """Return seconds on a clock that never goes back, and that continues on Linux while the machine sleeps."""
        return time.clock_gettime(_BOOTTIME)

    def micros(self) -> int:
        """Return the wall clock's time, in microseconds since 1970, UTC."""
        return time.time_ns() // 1000

    def readers(self) -> tuple[Callable[[], float], Callable[[], float], Callable[[], float]]:
        """Return fast functions that read the monotonic, boottime and wall clock (seconds)."""
        if (type(self).monotonic, type(self).boottime, type(self).micros) == _READS:
            return time.monotonic, partial(time.clock_gettime, _BOOTTIME), time.time
        return self.monotonic, self.boottime, lambda: self.micros() / 1_000_000

    def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""
        time.sleep(seconds)

    def wait(self, future: Future[T], timeout: float | None = None) -> T:
        """Return the result of ``future``, which another thread or task sets. Raises TimeoutError, and its error."""
        return future.result(timeout)

    def waker(self) -> Waker:
        """Return an object with which the caller waits until another thread or task wakes it."""
        return ThreadWaker()

    def runner(self) -> Alive:
        """Return the thread or task that runs the caller. In one thread or task, two calls return equal values."""
        return threading.current_thread()

    def uniform(self, low: float, high: float) -> float:
        """Return a random number between ``low`` and ``high``."""
        return random.uniform(low, high)

    def operation_id(self) -> UUID:
        """Return a new UUIDv7 (RFC 9562, section 5.7): 48 bits of milliseconds, then 74 random ones."""
        random_bits = int.from_bytes(_random_bytes(), "big")
        value = (time.time_ns() // 1_000_000 & (1 << 48) - 1) << 80
        value |= 0x7 << 76 | (random_bits >> 68) << 64 | 0b10 << 62 | random_bits & (1 << 62) - 1
        return UUID(int=value)


_READS = (Clock.monotonic, Clock.boottime, Clock.micros)
SYSTEM = Clock()
new_operation_id = SYSTEM.operation_id
"""A new UUIDv7, for ``operation_id=`` of a mutation."""


class Instant(NamedTuple):
    """One moment on three clocks, in seconds."""

    monotonic: float
    boottime: float
    wall: float

    @classmethod
    def now(cls, clock: Clock) -> Instant:
        """Read all three clocks."""
        return cls(clock.monotonic(), clock.boottime(), clock.micros() / 1_000_000)
