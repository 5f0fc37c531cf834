"""The newest attempts of a process that lost, as it noted them. ``store.losses()`` adds who won."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

__all__ = ["Losses", "Lost"]

_MOST: Final = 100


class Lost(NamedTuple):
    """An attempt that lost; the time is in microseconds since 1970."""

    time: int
    verb: str
    cause: str
    principal: str | None
    entity_id: int | None
    expected: int | None
    """The version of the entity that it expected."""


class Losses:
    """The newest losses. A deque's append is one step, so that no lock is taken."""

    def __init__(self) -> None:
        self._noted: deque[Lost] = deque(maxlen=_MOST)

    def add(self, lost: Lost) -> None:
        """Note a loss; the oldest one is forgotten."""
        self._noted.append(lost)

    def newest(self) -> list[Lost]:
        """Return the losses, the newest first."""
        return list(reversed(self._noted.copy()))
