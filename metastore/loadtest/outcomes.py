"""What an error says of an operation, and of what was there."""

from __future__ import annotations

from metastore.checker.records import Outcome, Seen
from metastore.errors import (
    BackendRefused,
    BackendUnavailable,
    DeadlineExceeded,
    EntityAlreadyExists,
    EntityNotFound,
    MetastoreError,
    OutcomeUnknown,
    RetriesExhausted,
    ScopeFrozen,
    VersionConflict,
)

__all__ = ["outcome_of", "seen_by"]

_GAVE_UP = (BackendUnavailable, DeadlineExceeded, RetriesExhausted, ScopeFrozen)
"""It was tried until the time was over, and the last attempt lost too."""


def outcome_of(error: MetastoreError) -> Outcome:
    """Return what became of an operation that raised ``error``."""
    if isinstance(error, OutcomeUnknown):
        return "unknown"
    if isinstance(error, BackendRefused):
        return "failed"
    return "conflicted" if isinstance(error, (*_GAVE_UP, VersionConflict)) else "failed"


def seen_by(error: MetastoreError) -> list[Seen]:
    """Return what ``error`` vouches for, of an operation that was addressed by path."""
    if isinstance(error, EntityNotFound):
        return [Seen(error.path, False)]
    if isinstance(error, EntityAlreadyExists):
        return [Seen(error.path, True)]
    return []
