"""The parts of a general commit on PostgreSQL, which decide the text of its statement."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """The parts of a general commit's statement. Each shape has one text and one prepared plan."""

    updates: bool = False
    """It writes entities."""
    inserts: bool = False
    """It creates entities."""
    owned: bool = False
    """It writes or deletes owned rows."""
    relations: bool = False
    """It writes or removes relations."""
    skip_existing: bool = False
    """It skips inserts whose name is taken, and relations that exist already."""
    claimed: bool = False
    """It replaces the operation's tombstone, which stays if all inserts are skipped."""
    must: bool = False
    """It fails (LEASE, MARKED, PENDING or READ) if a precondition does not hold, so that the other statements of its
    message are not applied either.
    """
    overlook: bool = False
    """Pending intents do not block it."""
    queues: bool = False
    """Tickets older than its own block it."""
    fenced: bool = False
    """Leases must hold."""
    noted: bool = False
    """The leases, the evidence of rights, or the reason are noted."""
    publishes: bool = False
    """It makes staged values visible."""

    @property
    def writes(self) -> bool:
        """Whether it writes at all; otherwise it only checks."""
        return self.updates or self.inserts or self.owned or self.relations
