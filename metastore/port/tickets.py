"""Tickets: transactions that wait in line for entities on which others write all the time.

A ticket is one row for each entity of a transaction. It carries no safety, the version does: a ticket only says who is
next. So it may be lost, or removed by any process that sees it stand still. While one is on an entity, ordinary
commits and helps there are refused ("ticket"), and so is the commit of a younger ticket. docs/progress.md has the
protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

__all__ = ["LONGEST_GAP", "NOBODY", "TICKETS_STAY", "Line", "Tickets"]

LONGEST_GAP: Final = 5_000_000
"""The longest time for which tickets do not count after a long turn (µs): others have their turn."""

TICKETS_STAY: Final = 60_000_000
"""After how long gc removes a ticket whose owner has died (µs)."""


class Line(NamedTuple):
    """Who is in line for some entities, before a ticket or at all."""

    held: bool = False
    """The own ticket is on each of the entities that exist."""
    head: int | None = None
    """The oldest of the tickets before it; None: there is none."""
    ahead: int = 0
    """How many tickets are before it."""
    patience: float = 0.0
    """How long the head may stand still before it may be removed (seconds)."""
    moves: int | None = None
    """The version of the head's entity: while it changes, the head's turn goes on."""
    gap: float = 0.0
    """How long it is still the others' turn, so that the own ticket does not count (seconds)."""


NOBODY: Final = Line()


class Tickets(Protocol):
    """The line of each entity."""

    def queue(self, ids: Sequence[int], patience: float) -> int:
        """Take a ticket for these entities, behind all that stand there; return its number.

        ``patience``: how long others wait for it if it stands still at the head (seconds).
        """
        ...

    def line(self, ids: Sequence[int], ticket: int | None) -> Line:
        """Return who stands before a ticket on any of these entities; None: who stands there at all."""
        ...

    def leave(self, ids: Sequence[int], ticket: int, gap: float = 0.0) -> bool:
        """Remove a ticket; False: it was not there any more.

        ``gap``: for so long the tickets on these entities do not count, those of the next ones too (seconds).
        """
        ...
