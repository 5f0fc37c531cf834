"""Check plain arguments at run time, because callers need not use a type checker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from metastore.errors import InvalidArgument

__all__ = [
    "boolean",
    "function",
    "integer",
    "items",
    "known_keywords",
    "positive_integer",
    "positive_seconds",
    "shown",
    "text_in",
]

_LARGEST = (1 << 63) - 1
"""The largest integer that a database can hold."""
_LONGEST = 1_000_000_000.0
"""The longest time that an argument can give (seconds): about 31 years."""


def _whole(value: object) -> int | None:
    """Return ``value`` as a plain integer; None if it is a bool or not an int. A subclass's methods are not called."""
    is_one = issubclass(type(value), int) and not isinstance(value, bool)
    return int.__int__(cast(int, value)) if is_one else None


def boolean(value: object, what: str) -> bool:
    """Return ``value`` if it is a bool. Raises InvalidArgument, because the string "false", say, would be true."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"{what} must be True or False, not {shown(value)}")
    return value


def function(value: object, what: str) -> None:
    """Raise InvalidArgument if ``value`` cannot be called."""
    if not callable(value):
        raise InvalidArgument(f"{what} is a function, not {shown(value)}")


def integer(value: object, what: str) -> int:
    """Return ``value`` as a plain integer. Raises InvalidArgument if it is not one, or too large for a database."""
    number = _whole(value)
    if number is None or abs(number) > _LARGEST:
        raise InvalidArgument(f"{what} is an integer, not {shown(value)}")
    return number


def items(value: object, what: str) -> tuple[Any, ...]:
    """Return the items of ``value``. Raises InvalidArgument if it is not iterable, or is a string or bytes."""
    if type(value) is tuple:
        return value
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidArgument(f"{what} are given as a list or a tuple, not as {shown(value)}")
    return tuple(value)


def known_keywords(given: Mapping[str, object], known: Iterable[str], also: Iterable[str] = ()) -> None:
    """Raise TypeError for an unknown keyword, as Python does. The message also names the keywords in ``also``."""
    for keyword in given:
        if keyword not in known:
            names = ", ".join(sorted({*known, *also}))
            raise TypeError(f"unexpected keyword argument {keyword!r}; known are {names}")


def positive_integer(value: object, what: str, least: int = 1) -> int:
    """Return ``value`` as a plain integer from ``least`` to 2**63 - 1, or raise InvalidArgument."""
    number = _whole(value)
    if number is None or not least <= number <= _LARGEST:
        below = " and below 2**63" if number is not None and number > _LARGEST else ""
        raise InvalidArgument(f"{what} is an integer of at least {least}{below}, not {shown(value)}")
    return number


def positive_seconds(value: object, what: str) -> float:
    """Return ``value`` if it is a positive number of seconds, at most a billion, or raise InvalidArgument."""
    number = float.__float__(cast(float, value)) if issubclass(type(value), float) else _whole(value)
    if number is None or not 0 < number <= _LONGEST:
        raise InvalidArgument(f"{what} is a positive number of seconds, at most a billion, not {shown(value)}")
    return float(number)


def shown(value: object) -> str:
    """Return ``value`` as text for a message: in one line, and of limited length."""
    number = _whole(value)
    if number is not None and abs(number) > _LARGEST:
        return "a larger one" if number > 0 else "a negative one"  # Python refuses to format very large integers
    try:
        text = " ".join(repr(value).split())
        text.encode()
    except Exception:  # noqa: BLE001  (a caller's class may raise anything, and so does an integer that is too long to format)
        return f"a value of the type {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:80]}…"


def text_in(file: Path, what: str) -> str:
    """Return the text of a file that the caller names. Raises InvalidArgument if it cannot be read, or is not UTF-8."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        why = error.strerror or type(error).__name__
    except UnicodeDecodeError:
        why = "it is not UTF-8"
    raise InvalidArgument(f"{what} {file} cannot be read: {why}")
