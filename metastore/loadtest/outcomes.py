"""The outcome of an operation and its reads, from the error that it raised."""

from __future__ import annotations

from metastore.checker.records import Outcome, Seen
from metastore.errors import (
    BackendRefused,
    BackendUnavailable,
    DeadlineExceeded,
    EntityAlreadyExists,
    EntityNotFound,
    MetastoreError,
    NotEmpty,
    OutcomeUnknown,
    RetriesExhausted,
    ScopeFrozen,
    VersionConflict,
)

__all__ = ["outcome_of", "seen_by"]

_GAVE_UP = (BackendUnavailable, DeadlineExceeded, RetriesExhausted, ScopeFrozen)
"""Errors of operations that lost each attempt until their time was over."""


def outcome_of(error: MetastoreError) -> Outcome:
    """Return the outcome of an operation that raised ``error``."""
    if isinstance(error, OutcomeUnknown):
        return "unknown"
    if isinstance(error, BackendRefused):
        return "failed"
    return "conflicted" if isinstance(error, (*_GAVE_UP, VersionConflict)) else "failed"


def seen_by(error: MetastoreError, action: str, path: str, kind: str | None = None) -> list[Seen]:
    """Return the reads that ``error`` proves, for an operation by the path ``path``."""
    if isinstance(error, NotEmpty):
        return [Seen(path, True, kind=kind, of="children")]
    if isinstance(error, EntityNotFound) and action == "restore":
        return [Seen(path, False, kind=kind, of="dropped")]
    if isinstance(error, EntityNotFound):
        return [Seen(error.path, False, kind=kind)]
    if isinstance(error, EntityAlreadyExists):
        return [Seen(error.path, True, kind=kind)]
    return []
