"""The interface between sync code and the event loop: a backend and a clock whose waits let other tasks run.

The core of an async store is a sync store with these two. In a greenlet (:mod:`metastore.aio.core`), each call of the
port goes to one of the store's threads, and the task waits for the thread. In a thread, such as the heartbeat of a
lease, each call is made directly.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar, cast

from metastore.aio.core import Core, current
from metastore.aio.threads import Job, Threads
from metastore.clock import Alive, Clock, Waker
from metastore.deadlines import stopping
from metastore.port.backend import PARTS, Backend
from metastore.port.feed import Hearing
from metastore.port.leases import LeaseRows
from metastore.port.leases import Waker as LeaseWaker
from metastore.port.members import Announces
from metastore.port.records import Origin
from metastore.port.stats import PoolUse

__all__ = ["AioBackend", "AioClock", "alone"]

T = TypeVar("T")

_AT_ONCE: Final = ("close", "hearing", "leases", "pool_use", "restorer", "snapshot", "waker")
"""Methods that need no thread, or that run in one already (reads of whole tables, a restore)."""


def _finished(core: Core, job: Job) -> Any:
    """Wait for a call to end, and return its result. If the task is cancelled meanwhile, end the call first."""
    cleaning = core.cleaning
    try:
        core.wait(job.done)
    except asyncio.CancelledError:
        if cleaning:  # the task was cancelled before: this call cleans up, so it runs to its end
            _until_over(core, job)
            return job.result()
        if not job.withdraw():
            job.stop()
            _until_over(core, job)
        raise
    except GeneratorExit:
        job.withdraw()
        job.stop()
        raise
    return job.result()


def _until_over(core: Core, job: Job) -> None:
    while not job.over:
        try:
            core.wait(job.again())
        except asyncio.CancelledError:
            continue


def alone(threads: Threads, call: Callable[[], T], *, waits: bool = False) -> T:
    """Make a call in a separate thread while other tasks run. If the caller is a thread, make the call directly."""
    core = current()
    return call() if core is None else cast(T, _finished(core, threads.alone(call, waits=waits)))


class _Door:
    """A port whose method calls go to the threads."""

    def __init__(self, port: Any, threads: Threads) -> None:
        self._port, self._threads = port, threads
        for name in dir(type(port)):
            if name[0] != "_" and name not in _AT_ONCE and callable(getattr(type(port), name)):
                setattr(self, name, partial(self._ask, name))

    def _ask(self, name: str, *arguments: Any, **options: Any) -> Any:
        core, method = current(), getattr(self._port, name)
        if core is not None:
            for_many = name == "find_below" or options.get("for_many", False)
            urgent, core.asked = core.asked or for_many, True
            return _finished(core, self._threads.submit(partial(method, *arguments, **options), urgent=urgent))
        stop = stopping()
        if stop is not None and stop.asked:  # the task of a long call, which runs in a thread, was cancelled
            stop.asked = False  # cleared, so that the call can clean up
            raise asyncio.CancelledError
        return method(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)


class AioBackend(_Door):
    """A backend whose calls go to the threads; see the module."""

    def __init__(self, backend: Backend, threads: Threads) -> None:
        super().__init__(backend, threads)
        self._rows = _Rows(backend.leases, threads)
        for name in PARTS:
            setattr(self, name, _Door(getattr(backend, name), threads))
        # since Python 3.12, isinstance does not find methods that only __getattr__ returns
        if isinstance(backend, Announces):
            self.cache_members = backend.cache_members

    @property
    def known_origin(self) -> Origin | None:
        return cast("Origin | None", self._port.known_origin)

    @property
    def origin(self) -> Origin:
        """The backend's origin. If it is not known, a thread asks the database for it."""
        return cast(Origin, self.known_origin or self.identify())

    @property
    def leases(self) -> LeaseRows:
        return cast(LeaseRows, self._rows)

    @contextmanager
    def hearing(self) -> Iterator[Hearing | None]:
        waking = self._port.hearing()
        ear = alone(self._threads, waking.__enter__, waits=True)
        try:
            yield None if ear is None else _AioEar(ear, self._threads)
        finally:
            waking.__exit__(None, None, None)

    def pool_use(self) -> PoolUse | None:
        """Return how many connections are in use. A call that waits for a thread counts as waiting for a connection."""
        use: PoolUse | None = self._port.pool_use()
        return use and replace(use, waiting=use.waiting + self._threads.waiting)

    def close(self) -> None:
        """Close the backend, and wait for the calls under way. (Runs in a separate thread.)"""
        self._port.close()
        self._threads.close()


class _Rows(_Door):
    """The rows of leases; their calls go to the threads."""

    @contextmanager
    def waker(self, *arguments: Any) -> Iterator[LeaseWaker]:
        waking = self._port.waker(*arguments)
        waker = alone(self._threads, waking.__enter__, waits=True)
        try:
            yield _AioWaker(waker, self._threads)
        finally:
            waking.__exit__(None, None, None)


class _AioEar:
    """Waits for hints in a separate thread, one for each follower of the feed."""

    def __init__(self, ear: Hearing, threads: Threads) -> None:
        self._ear, self._threads = ear, threads

    def wait(self, seconds: float) -> bool:
        return alone(self._threads, partial(self._ear.wait, seconds), waits=True)


class _AioWaker:
    """Waits in a separate thread, one for each waiter for leases."""

    def __init__(self, waker: LeaseWaker, threads: Threads) -> None:
        self._waker, self._threads = waker, threads

    def wait(self, seconds: float) -> None:
        alone(self._threads, partial(self._waker.wait, seconds), waits=True)


class AioClock(Clock):
    """A clock on which tasks wait."""

    def sleep(self, seconds: float) -> None:
        core = current()
        if core is None:
            super().sleep(seconds)
        elif not core.cleaning:  # a clean-up after a cancellation does not sleep
            core.wait(asyncio.sleep(seconds))

    def wait(self, future: Future[T], timeout: float | None = None) -> T:
        core = current()
        if core is None:
            return super().wait(future, timeout)
        return core.wait(_waited_for(future, timeout))

    def waker(self) -> Waker:
        return super().waker() if current() is None else _TaskWaker()

    def runner(self) -> Alive:
        core = current()
        return super().runner() if core is None else _Running(core.task)


async def _waited_for(future: Future[T], timeout: float | None) -> T:
    async with asyncio.timeout(timeout):
        return await asyncio.shield(asyncio.wrap_future(future))


class _TaskWaker:
    """A task waits until another task, or a thread, wakes it."""

    def __init__(self) -> None:
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._woken = False
        self._tick: asyncio.Future[None] | None = None

    def wait(self, seconds: float) -> bool:
        if not self._woken:
            self._tick = self._loop.create_future()
            timer = self._loop.call_later(max(0.0, seconds), self._end)
            try:
                cast(Core, current()).wait(self._tick)  # not the waker's own core: another task may have made the waker
            finally:
                timer.cancel()
        woken, self._woken = self._woken, False  # one wake ends one wait: a request that lost in a batch waits again
        return woken

    def wake(self) -> None:
        self._woken = True
        # The task's loop may be closed, even if the task has not ended: then nothing waits here.
        with suppress(RuntimeError):
            if threading.get_ident() == self._thread and not self._loop.is_closed():
                self._end()
            else:
                self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if self._tick is not None and not self._tick.done():
            self._tick.set_result(None)


class _Running:
    """A task as the holder of a lease."""

    def __init__(self, task: asyncio.Task[Any] | None) -> None:
        self._task = task

    def is_alive(self) -> bool:
        return self._task is None or not self._task.done()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Running) and other._task is self._task

    def __hash__(self) -> int:
        return hash(self._task)
