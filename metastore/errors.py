"""Every error a caller can meet.

A class exists only where the caller would act differently. Each message says what
was expected, what was found, and what to do next. No error carries a password or a
whole URL: see :func:`metastore.urls.redacted`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

__all__ = [
    "BackendUnavailable",
    "DeadlineExceeded",
    "EntityAlreadyExists",
    "EntityNotFound",
    "InvalidArgument",
    "LeaseHeld",
    "LeaseLost",
    "MetastoreError",
    "MigrationNeeded",
    "NotEmpty",
    "NotInUse",
    "OutcomeUnknown",
    "RetriesExhausted",
    "ScopeFrozen",
    "VersionConflict",
]


class MetastoreError(Exception):
    """The base of all of them. Next step: see the subclass. Its message is one line."""

    def __reduce__(self) -> tuple[Any, ...]:
        # the message is made from other arguments: a copy in another process keeps both
        return _copy, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        # names may hold these; other line breaks are control characters, which no name has
        return super().__str__().replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _copy(cls: type[MetastoreError], args: tuple[Any, ...], attributes: dict[str, Any]) -> MetastoreError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(attributes)
    return error


class InvalidArgument(MetastoreError):
    """The call makes no sense as it stands; nothing was written. Next step: correct it."""


class EntityNotFound(MetastoreError):
    """There is no such live entity (or column, or partition). Next step: create it, or look again."""

    def __init__(self, path: str, message: str | None = None) -> None:
        super().__init__(message or f"{path} does not exist")
        self.path = path


class EntityAlreadyExists(MetastoreError):
    """The name is taken. Next step: load what is there, or choose another name."""

    def __init__(self, path: str, message: str | None = None) -> None:
        super().__init__(message or f"{path} already exists")
        self.path = path


class NotEmpty(MetastoreError):
    """A container still has live children. Next step: ``cascade=True``, or drop them first."""


class NotInUse(MetastoreError):
    """An ancestor (metalake or catalog) is disabled. Next step: enable it."""


class VersionConflict(MetastoreError):
    """The caller's own precondition failed. Next step: load the entity and decide again.

    ``expected`` and ``found`` are versions, or property values for
    ``SetProperty(..., expected=)``, or None where there is nothing to compare with.
    """

    def __init__(self, path: str, expected: object, found: object, message: str | None = None) -> None:
        super().__init__(message or f"{path}: expected version {expected}, found {found}; load it and decide again")
        self.path = path
        self.expected = expected
        self.found = found


class DeadlineExceeded(MetastoreError):
    """The deadline (seconds) passed before the operation could commit; it was not applied.

    Next step: call again, with a longer ``deadline=`` if the entity is busy.
    """


class RetriesExhausted(MetastoreError):
    """The policy's attempts are used up; the operation was not applied. Next step: call again later."""


class ScopeFrozen(MetastoreError):
    """Another operation had the scope for itself until the deadline; nothing was written.

    ``operation`` is the id of the operation in the way: a freeze, or an exclusive operation such as
    a rename. Next step: call again later, or with a longer ``deadline=`` (``timeout=`` of a freeze).
    """

    def __init__(self, operation: UUID, message: str | None = None) -> None:
        super().__init__(message or f"operation {operation} has the scope for itself; call again later")
        self.operation = operation


class LeaseHeld(MetastoreError):
    """Somebody else has the lease, or waits for it since longer; nothing was changed.

    ``owner`` and ``expires_at``: who has it, and until when (UTC) unless it is renewed; both are None where nobody has
    it at the moment, because others come first. Next step: do something else, or wait with ``timeout=`` (seconds).
    """

    def __init__(
        self,
        name: str,
        owner: str | None,
        expires_at: datetime | None,
        message: str | None = None,
        *,
        waited: float = 0.0,
    ) -> None:
        who = "others, who have waited longer" if owner is None else owner
        until = "" if expires_at is None else f" until {expires_at.isoformat(timespec='milliseconds')}, unless renewed"
        again = "wait for it with timeout= (seconds), or call again later"
        if waited:
            again = f"it was waited for {waited:g} s: call again later, or wait longer"
        super().__init__(message or f"the lease {name!r} is held by {who}{until}; {again}")
        self.name = name
        self.owner = owner
        self.expires_at = expires_at


class LeaseLost(MetastoreError):
    """The lease is not the holder's any more: taken over, broken, released, or over.

    What was asked for was not applied (of ``create_many``: what was not committed by then). ``token`` is
    the one that holds no longer. Next step: stop the work that the lease was for, throw away what was
    not published, and acquire the lease anew, which gives another token.
    """

    def __init__(self, name: str, token: int | None, message: str | None = None) -> None:
        again = "stop the work it was for, and acquire it anew"
        super().__init__(message or f"the lease {name!r} does not have the token {token} any more; {again}")
        self.name = name
        self.token = token


class OutcomeUnknown(MetastoreError):
    """The acknowledgement was lost and the database could not be asked within the deadline, or gc deleted the answer.

    Next step: ``store.outcome(error.operation_id)`` says what became of it; or repeat the call with
    ``operation_id=error.operation_id``, which applies it at most once.
    """

    def __init__(self, operation_id: UUID, message: str | None = None) -> None:
        super().__init__(message or f"operation {operation_id} may or may not have been applied: its answer was lost")
        self.operation_id = operation_id


def outcome_forgotten(operation_id: UUID) -> OutcomeUnknown:
    """Return the error for an operation whose row gc may have deleted while the call was still going on."""
    return OutcomeUnknown(
        operation_id,
        f"operation {operation_id} may or may not have been applied: gc has deleted what was written down about it "
        "during the call; look at what it would have changed, and run gc with a retention above all deadlines",
    )


class BackendUnavailable(MetastoreError):
    """The database cannot be reached or refuses us; nothing was written. Next step: see the message."""

    transient = False
    """The server is not there at the moment: a mutation tries again until its deadline."""


class MigrationNeeded(MetastoreError):
    """The database's schema is older or newer than this program. Next step: see the message."""
