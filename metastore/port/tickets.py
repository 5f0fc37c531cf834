"""Tickets: places in line of transactions, for entities that others write all the time.

A transaction has one row of its ticket for each entity. Safety depends on the version, not on the ticket: a ticket only
says whose turn it is. So a ticket may be lost, and any process may remove a ticket that makes no progress. While an
entity has a ticket, the database refuses ordinary and helping commits on it ("ticket"), and those with a younger
ticket. docs/progress.md has the protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from metastore.clock import Clock

LONGEST_GAP: Final = 5_000_000
"""The longest time for which tickets do not count after a long turn (µs), so that others have their turn."""

TICKETS_STAY: Final = 60_000_000
"""gc removes a ticket whose owner died after this time (µs)."""


class Line(NamedTuple):
    """The line for some entities: before a ticket, or all of it."""

    held: bool = False
    """The caller's own ticket is on each of these entities that exists."""
    head: int | None = None
    """The oldest ticket before it; None: there is none."""
    ahead: int = 0
    """How many tickets are before it."""
    patience: float = 0.0
    """How long the head may wait without a move before it may be removed (seconds)."""
    moves: int | None = None
    """The version of the head's entity: as long as it changes, the head makes progress."""
    gap: float = 0.0
    """How long the others' turn still lasts (seconds); until it ends, the caller's ticket does not count."""


NOBODY: Final = Line()


class Notices(Protocol):
    """Notices that end waits early. Correctness does not depend on them: a notice may be lost, or come needlessly."""

    def wait(self, name: int | UUID, seconds: float, longest: float, clock: Clock) -> None:
        """Wait until a notice names a ticket that may have its turn, or an operation that may be decided.

        Wait at most this many seconds; while notices arrive, at most ``longest``.
        """


class Tickets(Protocol):
    """The lines for entities."""

    @property
    def notices(self) -> Notices | None:
        """The source of notices for waiting calls; None: the backend has none."""

    def queue(self, ids: Sequence[int], patience: float) -> int:
        """Take a ticket for these entities, after all existing tickets; return its number.

        ``patience``: how long others wait for it if it does not move at the head (seconds).
        """

    def line(self, ids: Sequence[int], ticket: int | None) -> Line:
        """Return the line before a ticket on any of these entities; None: the whole line."""

    def leave(self, ids: Sequence[int], ticket: int, gap: float = 0.0) -> bool:
        """Remove a ticket; return False if it was gone already.

        ``gap``: afterwards no ticket on these entities counts for this time, not even a later one (seconds).
        """
