"""Read times and durations: ``2026-11-22T10:00``, ``5 minutes ago``, ``7d``."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from metastore.arguments import shown
from metastore.clock import SYSTEM
from metastore.errors import InvalidArgument

__all__ = ["parse_duration", "when"]

_POSITION: Final = re.compile(r".*-[0-9a-f]{16}([0-9a-f]{8})?")
_UNITS: Final = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
_WORDS: Final = {"min": "m", "mins": "m", "sec": "s", "secs": "s"} | {
    word: letter for letter, unit in _UNITS.items() for word in (letter, unit, unit[:-1])
}
_AGO: Final = re.compile(r"(\d{1,9})\s*([a-z]+)\s+ago", re.IGNORECASE)


def when(text: str) -> str | datetime:
    """Return a position, or a time; a time without a time zone is UTC. Raises InvalidArgument.

    ``5 minutes ago`` counts back from now, by the clock of this machine.
    """
    if _POSITION.fullmatch(text):
        return text
    try:
        if (ago := _AGO.fullmatch(text.strip())) and (unit := _WORDS.get(ago[2].lower())):
            return datetime.fromtimestamp(SYSTEM.micros() / 1e6, UTC) - timedelta(**{_UNITS[unit]: int(ago[1])})
        time = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        message = (
            f"{shown(text)} is neither a position nor a time such as 2026-11-22T10:00 or '5 minutes ago'; "
            "metastore changes shows positions"
        )
        raise InvalidArgument(message) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def parse_duration(text: str) -> timedelta:
    """Return the duration for a text such as ``7d``, ``12h``, ``30m`` or ``0s``. Raises InvalidArgument."""
    match = re.fullmatch(r"(\d{1,9})([dhms])", text.strip())
    try:
        if match is not None:
            return timedelta(**{_UNITS[match[2]]: int(match[1])})
    except OverflowError:
        pass
    raise InvalidArgument(f"{shown(text)} is not a duration; write a number and d, h, m or s, such as 7d, 12h, 30m, 0s")
