"""Checks of plain arguments, which callers may get wrong in spite of the types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from metastore.errors import InvalidArgument

__all__ = ["integer", "items", "known_keywords", "positive_integer", "positive_seconds", "shown"]

_LARGEST = (1 << 63) - 1
"""What a database's integers can hold."""
_LONGEST = 1_000_000_000.0
"""About 31 years: what a thread can wait."""


def integer(value: object, what: str) -> int:
    """Return ``value`` if it is an integer that a database can hold, else raise InvalidArgument."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST:
        raise InvalidArgument(f"{what} is an integer, not {shown(value)}")
    return value


def items(value: object, what: str) -> tuple[Any, ...]:
    """Return the items of ``value``, which is several of something and not one string."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidArgument(f"{what} are given as a list or a tuple, not as {shown(value)}")
    return tuple(value)


def known_keywords(given: Mapping[str, object], known: Iterable[str]) -> None:
    """Raise TypeError for a keyword that is not known, as Python itself does."""
    for keyword in given:
        if keyword not in known:
            raise TypeError(f"unexpected keyword argument {keyword!r}; known are {', '.join(sorted(known))}")


def positive_integer(value: object, what: str, least: int = 1) -> int:
    """Return ``value`` if it is an integer of at least ``least`` (and below 2**63), else raise InvalidArgument."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
        below = " and below 2**63" if isinstance(value, int) and value > _LARGEST else ""
        raise InvalidArgument(f"{what} is an integer of at least {least}{below}, not {shown(value)}")
    return value


def positive_seconds(value: object, what: str) -> float:
    """Return ``value`` if it is a positive number of seconds, at most a billion, else raise InvalidArgument."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LONGEST:
        raise InvalidArgument(f"{what} is a positive number of seconds, at most a billion, not {shown(value)}")
    return float(value)


def shown(value: object) -> str:
    """Return ``value`` as a message shows it: in one line, and not too long."""
    if isinstance(value, int) and abs(value) > _LARGEST:
        return "a larger one" if value > 0 else "a negative one"  # Python refuses to write the very large ones
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:80]}…"
