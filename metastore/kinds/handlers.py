"""The handlers of drops in steps, by kind: what destroys the data that the store does not hold.

A handler must be idempotent, and find the data by the entity's id. After a take-over, the process that had the drop
before may still destroy data, and by then the path may lead to another entity.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction, signature
from typing import Any

from metastore.arguments import shown
from metastore.errors import InvalidArgument
from metastore.kinds.registry import KINDS

__all__ = ["Handler", "drop_handler", "handler_name", "on_drop"]

Handler = Callable[[Any], object]
"""Gets the pending drop (:class:`metastore.managers.drops.pending.PendingDrop`), and destroys its data."""

_HANDLERS: dict[str, Handler] = {}


def on_drop(kind: str, handler: Handler) -> Handler:
    """Let ``handler`` destroy the data of a kind when a drop in steps is resumed; return it.

    It is called with the pending drop, whose ``entity``, ``column`` or ``partition`` says what to destroy, perhaps more
    than once. The last one of a kind counts. Raises InvalidArgument.
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidArgument(f"there is no kind {shown(kind)}; known are {', '.join(sorted(KINDS))}")
    _HANDLERS[kind] = checked(handler)
    return handler


def drop_handler(kind: str) -> Handler | None:
    """Return the handler of a kind; None: there is none in this process."""
    return _HANDLERS.get(kind)


def checked(handler: Handler) -> Handler:
    """Return ``handler``. Raises InvalidArgument if it cannot be called with a pending drop.

    Found out now: once its call has begun, the drop cannot be rolled back any more.
    """
    if not callable(handler):
        raise InvalidArgument(f"a handler is a function that gets the pending drop, not {shown(handler)}")
    if iscoroutinefunction(handler) or iscoroutinefunction(type(handler).__call__):
        raise InvalidArgument(
            f"{shown(handler)} is async, and nothing would await it: register a function that returns when the data is "
            "destroyed, or give it to the resume() of an async store"
        )
    try:
        signature(handler).bind(None)
    except TypeError as error:
        raise InvalidArgument(f"a handler is called with the pending drop alone; {shown(handler)}: {error}") from None
    except ValueError:  # some functions written in C have no signature
        pass
    return handler


def handler_name(kind: str) -> str | None:
    """Return how people call the handler of a kind: its module and name."""
    handler = _HANDLERS.get(kind)
    if handler is None:
        return None
    name = getattr(handler, "__qualname__", type(handler).__qualname__)
    return f"{getattr(handler, '__module__', '')}:{name}"
