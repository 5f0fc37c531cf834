"""Several operations of one process at once, which wait for each other in its lanes.

Each is a task, and one runs at a time, until it waits to be woken by another one, or until it ends. So a process stays
a function of the answers to its calls. A call of the port blocks the other tasks of its process. That loses little: the
tasks of another process do meanwhile what these would do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context

from greenlet import getcurrent, greenlet

__all__ = ["Tasks"]


class Tasks:
    """The tasks of one process."""

    def __init__(self) -> None:
        self._hub: greenlet | None = None
        self._ready: deque[greenlet] = deque()

    @property
    def running(self) -> bool:
        """Whether a task runs."""
        return self._hub is not None and getcurrent() is not self._hub

    def run(self, bodies: Sequence[Callable[[], None]], together: Callable[[], None]) -> None:
        """Begin all, one after the other; call ``together``; return when all have ended.

        An error of one ends all of them.
        """
        self._hub = getcurrent()
        begun = [greenlet(body) for body in bodies]
        try:
            for task in begun:
                task.gr_context = copy_context()
                task.switch()
            together()
            while self._ready:
                self._ready.popleft().switch()
            assert all(task.dead for task in begun), "a task waits, and nobody wakes it"
        finally:
            for task in begun:
                _end(task)
            self._ready.clear()
            self._hub = None

    def waker(self) -> Waker:
        """Return what the running task waits with."""
        return Waker(self)

    def wait(self) -> None:
        """Let another task run."""
        assert self._hub is not None
        self._hub.switch()

    def wake(self, task: greenlet) -> None:
        """Let a task run when its turn comes."""
        self._ready.append(task)


class Waker:
    """How a task waits: see :class:`metastore.clock.Waker`. Its patience never ends: no other task would hold it up."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks, self._task, self._woken = tasks, getcurrent(), False

    def wait(self, seconds: float) -> bool:
        """Wait for :meth:`wake`."""
        while not self._woken:
            self._tasks.wait()
        self._woken = False
        return True

    def wake(self) -> None:
        """Let the task go on."""
        self._woken = True
        self._tasks.wake(self._task)


class _Ended(BaseException):
    """Another task has ended the process."""


def _end(task: greenlet) -> None:
    while task and not task.dead:
        try:
            task.throw(_Ended)
        except BaseException:  # noqa: BLE001  (whatever it does then, the process is at an end)
            continue
