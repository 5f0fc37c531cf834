"""Checks of plain arguments, which callers may get wrong in spite of the types."""

from __future__ import annotations

from metastore.errors import InvalidArgument

__all__ = ["positive_integer", "positive_seconds"]


def positive_integer(value: object, what: str, least: int = 1) -> int:
    """Return ``value`` if it is an integer of at least ``least``, else raise InvalidArgument."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidArgument(f"{what} is an integer of at least {least}, not {value!r}")
    return value


def positive_seconds(value: object, what: str) -> float:
    """Return ``value`` if it is a positive, finite number of seconds, else raise InvalidArgument."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise InvalidArgument(f"{what} is a positive number of seconds, not {value!r}")
    return float(value)
