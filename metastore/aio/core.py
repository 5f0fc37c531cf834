"""Run sync code in a greenlet that lets the event loop run other tasks wherever the code waits.

``await run(fn)`` calls ``fn`` on the event loop's own thread. Where ``fn``, or anything that it calls, calls
:meth:`Core.wait`, the greenlet stops. The coroutine awaits in its place, and then the greenlet continues with the
result. No lock may be held meanwhile, because another task may need it on the same thread.

The greenlet shares the task's context, so a deadline that sync code sets also applies in the coroutines that it waits
for. Cancellation of the task is raised from :meth:`Core.wait`. The clean-up that the code then does is not cancelled a
second time.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final, ParamSpec, TypeVar, cast

from greenlet import getcurrent, greenlet

__all__ = ["Core", "current", "run"]

T = TypeVar("T")
P = ParamSpec("P")

_KEPT: Final = 256
"""How many greenlets a thread keeps for the next calls: making one takes longer than most calls."""


class Core(greenlet):  # type: ignore[misc]  # greenlet brings no types
    """A greenlet with the sync code of one call. After the call, it can serve another task."""

    def __init__(self) -> None:
        super().__init__(self._serve)
        self.task: asyncio.Task[Any] | None = None
        self.over = False
        self.cleaning = False
        """Whether the task was cancelled while this code waited. Then the code is cleaning up."""
        self.asked = False
        """Whether the call has used the backend before. Then its next use comes before the first one of other calls."""
        self._abandoned = False  # True once the coroutine was closed: then nothing can be awaited any more
        self._error: BaseException | None = None

    def begin(self, function: Callable[..., Any], arguments: Any, options: Any) -> Any:
        """Call ``function``; return its result if it has ended, else the awaitable that it waits for."""
        driver = getcurrent()
        self.parent, self.gr_context = driver, driver.gr_context
        self.task = asyncio.current_task()
        self.over = self.cleaning = self.asked = self._abandoned = False
        return self.switch(function, arguments, options)

    def _serve(self, function: Callable[..., Any], arguments: Any, options: Any) -> None:
        while True:
            result = None
            try:
                result = function(*arguments, **options)
            except BaseException as error:  # noqa: BLE001  (it is raised in the task)
                self._error = error
            self.over, self.task = True, None
            function, arguments, options = self.parent.switch(result)

    def ended(self, result: Any) -> Any:
        """Return the result of a call that has ended, or raise its error, and keep the greenlet for the next call."""
        error, self._error = self._error, None
        self.gr_context = None
        if len(_idle.cores) < _KEPT:
            _idle.cores.append(self)
        if error is None:
            return result
        try:
            raise error
        finally:
            del error  # the traceback refers to this frame, so the error would keep itself in memory

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Let the task await ``awaitable``, and return the result. Raises its errors, including CancelledError."""
        if self._abandoned:
            raise GeneratorExit
        try:
            return cast(T, self.parent.switch(awaitable))
        except asyncio.CancelledError:
            self.cleaning = True
            raise
        except GeneratorExit:
            self._abandoned = True
            raise


class _Idle(threading.local):
    """The idle greenlets of this thread."""

    def __init__(self) -> None:
        self.cores: list[Core] = []


_idle = _Idle()


def current() -> Core | None:
    """Return the core in which the caller runs; None: it runs directly in a thread."""
    here = getcurrent()
    return here if type(here) is Core else None


async def run(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Call a sync function; return its result. Other tasks run while it waits. Raises its errors."""
    core = _idle.cores.pop() if _idle.cores else Core()
    result = core.begin(function, arguments, options)
    while not core.over:
        try:
            value = await result
        except BaseException:  # noqa: BLE001  (any error goes to the sync code)
            result = core.throw(*sys.exc_info())
        else:
            result = core.switch(value)
    return cast(T, core.ended(result))
