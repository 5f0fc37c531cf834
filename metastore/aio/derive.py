"""Derive the async classes from the sync ones: one rule for each kind of result of a sync method.

A method becomes a coroutine. A method that returns an ``Iterator`` returns a :class:`Stream` instead. A method that
returns a context manager, such as a lease, returns an :class:`Opening`. A method that sends nothing (``bind``,
``manager``, ``transaction``, ``exclusive``) stays sync. A result is wrapped if its class has an async one; an argument
is unwrapped. A function given as an argument may be ``async def``: it is awaited where the sync code calls it.

The types that users see are in ``surface.pyi``, which is generated; a test compares it with the sync classes.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from functools import partial, update_wrapper, wraps
from types import TracebackType
from typing import Any, Final, Generic, NoReturn, Self, TypeVar, cast

from metastore.aio.core import current, run
from metastore.aio.port import alone
from metastore.aio.threads import Threads

__all__ = [
    "AT_ONCE",
    "INTERNAL",
    "OPENINGS",
    "WHOLE",
    "Derived",
    "Opening",
    "Room",
    "Stream",
    "derive",
    "is_iterator",
    "stands_for",
]

T = TypeVar("T")
D = TypeVar("D", bound="Derived")

AT_ONCE: Final = frozenset(
    {
        "as_user",
        "bind",
        "check",
        "exclusive",
        "is_over",
        "manager",
        "refused",
        "relations",
        "row",
        "seconds_left",
        "to_dict",
        "tokens",
        "transaction",
    }
)
"""Methods that stay sync: they send nothing, or (for leases) the sync code itself calls them."""
WHOLE: Final = frozenset(
    {"backup", "close", "create_many", "export_to", "gc", "import_from", "rotate", "scrub", "verify"}
)
"""Methods with long work: they run in a separate thread, where they do not block the loop."""
INTERNAL: Final = frozenset({"place", "relate", "unrelate"})
"""Methods that managers call on each other. They are not part of the public surface."""
OPENINGS: Final = frozenset({"Lease", "LeaseSet"})
"""Results that a caller can await, or enter directly with ``async with``."""
_DUNDERS: Final = ("__contains__", "__getitem__", "__iter__", "__len__")
_END: Final = object()


class Room:
    """The place where the calls of one store run. In a transaction, its tasks take turns, with one call at a time."""

    def __init__(self, threads: Threads, lock: asyncio.Lock | None = None) -> None:
        self.threads = threads
        self._lock = lock

    def one_at_a_time(self) -> Room:
        """Return a room on the same threads for one transaction."""
        return Room(self.threads, asyncio.Lock())

    async def call(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call a sync function. Other tasks run while it waits."""
        if self._lock is None:
            return await run(function, *arguments, **options)
        async with self._lock:
            return await run(function, *arguments, **options)


class Derived:
    """The base of an async object around a sync one."""

    def __init__(self, sync: Any, room: Room) -> None:
        self._sync, self._room = sync, room

    def __getattr__(self, name: str) -> Any:
        if name[0] == "_" or name in INTERNAL:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        value = getattr(self._sync, name)
        if inspect.ismethod(value):  # a method of another object, such as the manager of a relation
            return getattr(_wrapped(value.__self__, self._room), value.__name__)
        wrapped = _wrapped(value, self._room)
        if wrapped is not value:
            vars(self)[name] = wrapped  # a manager: wrapped once, and kept
        return wrapped

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for name in dir(self._sync) if name[0] != "_")} - INTERNAL)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "async stores and the objects that they return cannot be pickled; pickle the URL and open it there"
        )

    def __repr__(self) -> str:
        return f"<async {self._sync!r}>"


class Stream(AsyncIterator[T]):
    """The items of a sync iterator. Nothing is read before the first item is requested."""

    def __init__(self, room: Room, make: Callable[[], Iterator[T]]) -> None:
        self._room, self._make = room, make
        self._items: Iterator[T] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        item = await self._room.call(self._next)
        if item is _END:
            raise StopAsyncIteration
        return cast(T, _wrapped(item, self._room))

    def _next(self) -> object:
        return next(self.begun(), _END)

    def begun(self) -> Iterator[T]:
        """Return the sync iterator, after the checks that the sync method makes before its first item."""
        if self._items is None:
            self._items = iter(self._make())
        return self._items

    async def aclose(self) -> None:
        """End the stream: it yields nothing more."""
        self._items = iter(())


class Opening(Generic[T]):
    """An object that is opened by awaiting it, or by ``async with``, which closes it when the block ends."""

    def __init__(self, open_: Callable[[], Awaitable[T]]) -> None:
        self._open = open_
        self._opened: Any = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._open().__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._open()
        return cast(T, await self._opened.__aenter__())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.__aexit__(kind, error, trace)


# --- values, both ways

_CLASSES: dict[type, Callable[[Any, Room], Any]] = {}
"""The async class of each sync class that has one."""


def _wrapped(value: Any, room: Room) -> Any:
    cls = _CLASSES.get(type(value))
    return value if cls is None else cls(value, room)


def _plain(value: Any, room: Room) -> Any:
    if isinstance(value, Derived):
        return value._sync  # noqa: SLF001  (our own)
    if callable(value) and not isinstance(value, type):
        called = partial(_called, value, room, asyncio.get_running_loop())
        # this sets only ``__wrapped__``, through which inspect.signature finds the signature
        return update_wrapper(called, value, assigned=(), updated=())
    return value


def _called(function: Callable[..., Any], room: Room, loop: asyncio.AbstractEventLoop, *arguments: Any) -> Any:
    """Call a caller's function from sync code; if its result can be awaited, wait for that."""
    result = function(*[_wrapped(argument, room) for argument in arguments])
    if not inspect.isawaitable(result):
        return result
    core = current()
    if core is not None:
        return core.wait(result)
    if _runs_here(loop):  # a sync method on the loop's thread noticed a loss; it cannot await, so a task does
        task = loop.create_task(_awaited(result))
        _CALLED.add(task)
        task.add_done_callback(_CALLED.discard)
        return None
    return asyncio.run_coroutine_threadsafe(_awaited(result), loop).result()


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:  # this thread has no loop
        return False


_CALLED: set[asyncio.Task[Any]] = set()
"""Running tasks that no code waits for: the loop itself keeps no task alive."""


async def _awaited(result: Awaitable[T]) -> T:
    return await result


# --- classes


def derive(sync: type, *, alone_in_room: bool = False, base: type[Derived] = Derived) -> Any:
    """Return the async class of ``sync``. ``alone_in_room``: tasks that use the same object take turns."""
    public = [(name, value) for name, value in inspect.getmembers(sync, inspect.isfunction) if name[0] != "_"]
    methods = {name: value for name, value in public if name not in INTERNAL}
    members: dict[str, Any] = {name: _method(name, method) for name, method in methods.items()}
    for name, value in inspect.getmembers(sync, lambda member: isinstance(member, property)):
        if name[0] != "_":
            members[name] = property(partial(_read, name), doc=value.__doc__)
    members |= {name: _at_once(getattr(sync, name)) for name in _DUNDERS if hasattr(sync, name)}
    if hasattr(sync, "__enter__"):
        members |= {"__aenter__": _enter, "__aexit__": _close if "close" in methods else _exit}
    members |= {"__doc__": sync.__doc__, "__module__": "metastore.aio.surface"}
    derived = type(f"Async{sync.__name__}", (base,), members)
    _CLASSES[sync] = (lambda value, room: derived(value, room.one_at_a_time())) if alone_in_room else derived
    return derived


def stands_for(sync: type) -> Callable[[type[Derived]], type[Derived]]:
    """Return a decorator for an async class that is written by hand."""

    def note(cls: type[Derived]) -> type[Derived]:
        _CLASSES[sync] = cls
        return cls

    return note


def _method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    returns = str(function.__annotations__.get("return", ""))
    if name in AT_ONCE or not function.__module__.startswith("metastore."):
        return _at_once(function)
    if is_iterator(returns):
        return _stream(function)
    if returns in OPENINGS:
        return _opening(function)
    return _whole(function) if name in WHOLE else _coroutine(function)


def is_iterator(returns: str) -> bool:
    """Whether a method with this annotation yields its result."""
    return returns.startswith("Iterator[")


def _at_once(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def method(self: Derived, *arguments: Any, **options: Any) -> Any:
        return _wrapped(_bound(self, function, arguments, options)(), self._room)

    return method


def _coroutine(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    async def method(self: Derived, *arguments: Any, **options: Any) -> Any:
        return _wrapped(await self._room.call(_bound(self, function, arguments, options)), self._room)

    return method


def _whole(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    async def method(self: Derived, *arguments: Any, **options: Any) -> Any:
        call = _bound(self, function, arguments, options)
        return await self._room.call(alone, self._room.threads, call)

    return method


def _stream(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def method(self: Derived, *arguments: Any, **options: Any) -> Any:
        return Stream(self._room, _bound(self, function, arguments, options))

    return method


def _opening(function: Callable[..., Any]) -> Callable[..., Any]:
    call = _coroutine(function)

    @wraps(function)
    def method(self: Derived, *arguments: Any, **options: Any) -> Any:
        return Opening(partial(call, self, *arguments, **options))

    return method


def _bound(self: Derived, function: Callable[..., Any], arguments: Any, options: Any) -> Callable[[], Any]:
    room = self._room
    given = [_plain(argument, room) for argument in arguments]
    method = getattr(self._sync, function.__name__)  # a view of a store may have its own method
    return partial(method, *given, **{name: _plain(value, room) for name, value in options.items()})


def _read(name: str, self: Derived) -> Any:
    return _wrapped(getattr(self._sync, name), self._room)


async def _enter(self: D) -> D:
    await self._room.call(self._sync.__enter__)
    return self


async def _exit(self: Derived, kind: Any, error: Any, trace: TracebackType | None) -> None:
    await self._room.call(self._sync.__exit__, kind, error, trace)


async def _close(self: Any, *_: object) -> None:
    await self.close()
