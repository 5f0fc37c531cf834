"""What was done for an operation before it runs alone."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from metastore.port.commit import Unknown

__all__ = ["Begun"]


@dataclass(frozen=True, slots=True)
class Begun:
    """What was done for an operation before it came here: see :mod:`metastore.combine`."""

    id: UUID
    started: float
    ends: float
    """When its time is over, by the clock's ``monotonic``."""
    lost: int
    """How many attempts it lost."""
    doubt: Unknown | None
    """It was sent, and the answer was lost."""
    announce_on: int | None = None
    """The entity on which it is announced before any other attempt, because it lost its batches there."""
