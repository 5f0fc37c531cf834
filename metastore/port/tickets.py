"""Tickets: transactions that wait in line for entities on which others write all the time.

A ticket is one row for each entity of a transaction. Safety does not depend on it, but on the version: a ticket only
says who is next. So a ticket may be lost. Any process that sees a ticket without progress may remove it. While
an entity has a ticket, ordinary and helping commits on it are refused ("ticket"), and so is that of a younger ticket.
docs/progress.md has the protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from metastore.clock import Clock

LONGEST_GAP: Final = 5_000_000
"""The longest time for which tickets do not count after a long turn (µs): others have their turn."""

TICKETS_STAY: Final = 60_000_000
"""After how long gc removes a ticket whose owner has died (µs)."""


class Line(NamedTuple):
    """Who is in line for some entities, before a ticket or at all."""

    held: bool = False
    """The asker's own ticket is on each of these entities that exists."""
    head: int | None = None
    """The oldest of the tickets before it; None: there is none."""
    ahead: int = 0
    """How many tickets are before it."""
    patience: float = 0.0
    """How long the head may wait without a move before it may be removed (seconds)."""
    moves: int | None = None
    """The version of the head's entity: while it changes, the head's turn goes on."""
    gap: float = 0.0
    """How long the others' turn still lasts (seconds); until then the caller's ticket does not count."""


NOBODY: Final = Line()


class Notices(Protocol):
    """Ends waits early. Correctness does not depend on notices: one may be lost, and one may come without a reason."""

    def wait(self, name: int | UUID, seconds: float, longest: float, clock: Clock) -> None:
        """Wait until a notice names a ticket that may have its turn, or an operation that may be decided.

        At most this many seconds; while notices arrive, at most ``longest``.
        """


class Tickets(Protocol):
    """The line of each entity."""

    @property
    def notices(self) -> Notices | None:
        """The source of notices for those that wait; None: the backend has none."""

    def queue(self, ids: Sequence[int], patience: float) -> int:
        """Take a ticket for these entities, behind all existing ones; return its number.

        ``patience``: how long others wait for it if it does not move at the head (seconds).
        """

    def line(self, ids: Sequence[int], ticket: int | None) -> Line:
        """Return the line before a ticket on any of these entities; None: the whole line."""

    def leave(self, ids: Sequence[int], ticket: int, gap: float = 0.0) -> bool:
        """Remove a ticket; False: it was gone already.

        ``gap``: how long no ticket on these entities counts afterwards, even one that is taken later (seconds).
        """
