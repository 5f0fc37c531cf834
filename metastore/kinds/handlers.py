"""The handlers of drops in steps, by kind: functions that destroy the data, which is outside the store.

A handler must be idempotent, and find the data by the entity's id. After a take-over, the previous process may still be
destroying data, and by then the path may lead to another entity.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction, signature
from typing import Any

from metastore.arguments import shown
from metastore.errors import InvalidArgument
from metastore.kinds.registry import kind_given

__all__ = ["Handler", "drop_handler", "handler_name", "on_drop"]

Handler = Callable[[Any], object]
"""A function of the pending drop (:class:`metastore.managers.drops.pending.PendingDrop`): destroys its data."""

_HANDLERS: dict[str, Handler] = {}


def on_drop(kind: str, handler: Handler) -> Handler:
    """Register ``handler`` to destroy the data of a kind when a drop in steps is resumed, and return it.

    The handler gets the pending drop, whose ``entity``, ``column`` or ``partition`` says what to destroy. It may be
    called more than once for a drop. The handler that was registered last for a kind is used. Raises InvalidArgument.
    """
    _HANDLERS[kind_given(kind).name] = checked(handler)
    return handler


def drop_handler(kind: str) -> Handler | None:
    """Return the handler of a kind; None: this process has not registered one."""
    return _HANDLERS.get(kind)


def checked(handler: Handler) -> Handler:
    """Return ``handler``. Raises InvalidArgument if it is async, or cannot be called with a pending drop.

    This is checked before the call, because once the call has begun, the drop can no longer be rolled back.
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
    """Return the module and the name of a kind's handler, for people to read; None: no handler."""
    handler = _HANDLERS.get(kind)
    if handler is None:
        return None
    name = getattr(handler, "__qualname__", type(handler).__qualname__)
    return f"{getattr(handler, '__module__', '')}:{name}"
