"""What was done for an operation before it runs alone."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from metastore.port.commit import Unknown

__all__ = ["Begun"]


@dataclass(frozen=True, slots=True)
class Begun:
    """The state of an operation whose first attempts were batches: see :mod:`metastore.combine`."""

    id: UUID
    started: float
    ends: float
    """Its deadline, by the clock's ``monotonic`` (seconds)."""
    lost: int
    """How many attempts it lost."""
    doubt: Unknown | None
    """A message of it was sent, and the answer was lost."""
    announce_on: int | None = None
    """The entity on which to announce it before any other attempt, because it lost its batches there; None: on none."""
