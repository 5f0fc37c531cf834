"""An async store that looks like a sync one, so that tests of the sync API judge the async one.

All of it runs on an event loop in another thread. A call from that thread itself (a test's interruption, in the middle
of another call) runs in the greenlet that it came from.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial, update_wrapper
from typing import Any, Self, cast

import metastore as ms
from metastore.aio.core import current, run
from metastore.aio.derive import Derived, Stream

__all__ = ["Facade", "Loop"]

_END = object()


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="loop", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        core = current()
        if core is not None:
            return core.wait(coroutine)
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Facade:
    """A sync face of an async object."""

    def __init__(self, behind: Any, loop: Loop) -> None:
        vars(self).update(_behind=behind, _loop=loop)

    @classmethod
    def open(cls, loop: Loop, url: str, **options: Any) -> ms.Store:
        return cast(ms.Store, cls(loop.run(ms.open_async(url, **options)), loop))

    def __getattr__(self, name: str) -> Any:
        if name[0] == "_" or name in ("staging", "mirror"):  # tests look behind the surface
            return getattr(self._behind._sync, name)
        return self._sync(getattr(self._behind, name))

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._behind._sync, name, value)

    def _sync(self, value: Any) -> Any:
        if inspect.ismethod(value) or inspect.isfunction(value):
            return self._method(value)
        return Facade(value, self._loop) if isinstance(value, Derived) else value

    def _method(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            given = [self._given(a) for a in arguments]

            async def made() -> Any:
                result = method(*given, **{name: self._given(value) for name, value in options.items()})
                return await result if inspect.isawaitable(result) else result

            result = self._loop.run(made())
            if isinstance(result, Stream):
                self._loop.run(run(result.begun))  # some sync methods check their arguments before the first item
                return self._yielded(result)
            return self._sync(result)

        return call

    def _given(self, value: Any) -> Any:
        if isinstance(value, Facade):
            return value._behind
        if callable(value) and not isinstance(value, type):
            # in the greenlet that calls it, as the test's function calls a sync store
            called = partial(self._called, value)
            return update_wrapper(called, value, assigned=(), updated=())  # it has the signature of the function
        return value

    def _called(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*[self._sync(argument) for argument in arguments])

    def _yielded(self, stream: AsyncIterator[Any]) -> Iterator[Any]:
        async def following() -> Any:
            return await anext(stream, _END)

        while (item := self._loop.run(following())) is not _END:
            yield self._sync(item)

    def __enter__(self) -> Self:
        entered = self._loop.run(self._behind.__aenter__())
        return cast(Self, self if entered is self._behind else self._sync(entered))

    def __exit__(self, *failed: object) -> None:
        self._loop.run(self._behind.__aexit__(*failed))

    def __reduce__(self) -> Any:
        return self._behind.__reduce__()

    def __repr__(self) -> str:
        return f"<sync {self._behind!r}>"
