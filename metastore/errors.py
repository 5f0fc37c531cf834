"""Every error that a call can raise.

A class of its own exists only where the caller acts differently. Each message says what happened, what was expected,
and what to do next. No error carries a password or a whole URL: see :func:`metastore.urls.redacted`.

For services, each class has a ``code`` (a word that never changes), the HTTP status that fits it, and ``retry_after``:
after how many seconds the same call may succeed; None: only after a change.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Final
from uuid import UUID

from metastore.plain import plain

__all__ = [
    "BackendRefused",
    "BackendUnavailable",
    "CacheFenced",
    "DeadlineExceeded",
    "DropPending",
    "EntityAlreadyExists",
    "EntityNotFound",
    "HistoryGone",
    "InvalidArgument",
    "LeaseHeld",
    "LeaseLost",
    "MetastoreError",
    "MigrationNeeded",
    "NotEmpty",
    "NotInUse",
    "OperationIdRefused",
    "OperationIdReused",
    "OutcomeUnknown",
    "PermissionDenied",
    "PoolExhausted",
    "RetriesExhausted",
    "ScopeFrozen",
    "SecretDamaged",
    "SecretKeyMissing",
    "SecretKeyWrong",
    "StoreClosed",
    "UnreadableRow",
    "VersionConflict",
]


class MetastoreError(Exception):
    """The base of all errors. Next step: see the subclass. Its message is one line."""

    code: ClassVar[str] = "metastore_error"
    """A stable word for programs: each class has its own."""
    http_status: ClassVar[int] = 500
    retry_after: float | None = None
    """After how many seconds the same call may succeed; None: only after a change."""
    names_place = False
    """Whether the message says where the database is, which only the operator of a server may know."""

    def __reduce__(self) -> tuple[Any, ...]:
        # a copy in another process keeps the message and the attributes; it skips __init__, which takes other arguments
        return _copy, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        # a name may contain these two line breaks; all others are control characters, which no name contains
        return super().__str__().replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")

    def to_dict(self) -> dict[str, Any]:
        """Return the error as plain JSON values; ``details`` holds its own attributes, such as ``path``."""
        details = {name: _json(value) for name, value in vars(self).items() if name[0] != "_" and name not in _INNER}
        head = {"code": self.code, "message": str(self), "http_status": self.http_status}
        return {**head, "retry_after": self.retry_after, "details": details}


_INNER = ("names_place", "retry_after", "transient")


def for_clients(error: MetastoreError) -> str:
    """Return the message for a client of a server: only the server's operator may know where the database is."""
    if not error.names_place:
        return str(error)
    if isinstance(error, BackendRefused):
        return "the database refuses this; the log of the server says why"
    return "the database does not answer now; try again later"


def _json(value: object) -> Any:
    try:
        return plain(value)
    except TypeError:
        return str(value)


def _copy(cls: type[MetastoreError], args: tuple[Any, ...], attributes: dict[str, Any]) -> MetastoreError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(attributes)
    return error


class InvalidArgument(MetastoreError):
    """An argument is wrong; nothing was written. Next step: correct the call."""

    code = "invalid_argument"
    http_status = 400


class OperationIdReused(InvalidArgument):
    """The operation id, or the key, belongs to a call with other arguments; nothing was written.

    Next step: take a new id for a new operation, or repeat the first call exactly.
    """

    code = "operation_id_reused"
    http_status = 422

    def __init__(self, operation_id: UUID, message: str | None = None) -> None:
        super().__init__(
            message
            or f"operation {operation_id} was called with other arguments before; take a new id for a new operation"
        )
        self.operation_id = operation_id


class OperationIdRefused(InvalidArgument):
    """The database cannot distinguish the operation id from one that gc has forgotten; nothing was written.

    The id is older than the history that gc keeps, or more than a minute ahead of the database's clock. Next step: find
    out the outcome of the operation (``store.outcome()``), then take a new id from ``ms.new_operation_id()``; correct
    the clocks if the id is new.
    """

    code = "operation_id_refused"
    http_status = 400


class HistoryGone(InvalidArgument):
    """gc has removed the history that the call needs, or a fail-over may have lost it.

    Next step: use a position from ``since`` on. A consumer of the feed reads the tables again, and follows the feed
    from there.
    """

    code = "history_gone"
    http_status = 410

    def __init__(self, since: str, message: str | None = None) -> None:
        super().__init__(
            message or f"gc has removed the history before {since}; use that position or a later one, or pin it"
        )
        self.since = since


class StoreClosed(InvalidArgument):
    """The store was closed before the call, or during it; nothing was written. Next step: open it again."""

    code = "store_closed"
    http_status = 503
    retry_after = 1.0

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or "the store is closed; open it again")


CREATE_IT: Final = "create it, or correct the path"
"""What to do about a path that does not exist."""


class EntityNotFound(MetastoreError):
    """No such live entity (or column, or partition) exists. Next step: create it, or correct the path."""

    code = "entity_not_found"
    http_status = 404

    missing: str | None = None
    """The topmost ancestor that does not exist; None: only the path's last name is missing."""

    def __init__(self, path: str, message: str | None = None, *, missing: str | None = None) -> None:
        super().__init__(message or f"{path} does not exist; {CREATE_IT}")
        self.path = path
        if missing is not None:
            self.missing = missing


class EntityAlreadyExists(MetastoreError):
    """The name is taken. Next step: load the existing one, or choose another name."""

    code = "entity_already_exists"
    http_status = 409

    def __init__(self, path: str, message: str | None = None) -> None:
        super().__init__(message or f"{path} already exists")
        self.path = path


class NotEmpty(MetastoreError):
    """A container still has live children. Next step: ``cascade=True``, or drop them first."""

    code = "not_empty"
    http_status = 409


class NotInUse(MetastoreError):
    """An ancestor (metalake or catalog) is disabled. Next step: enable it."""

    code = "not_in_use"
    http_status = 409

    def __init__(self, message: str, *, kind: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        """The kind of the disabled ancestor, if it is known."""


class DropPending(MetastoreError):
    """The entity, its column or its partition, or something above it, is being dropped in steps; nothing was written.

    ``operation`` is the id of the operation that began the drop, ``path`` the path that it drops. Next step: choose
    another name, or wait until the drop is finished or rolled back; ``store.drops.pending()`` lists it.
    """

    code = "drop_pending"
    http_status = 409

    def __init__(self, operation: UUID, message: str | None = None, *, path: str | None = None) -> None:
        what = "it" if path is None else path
        again = "wait until that is finished or rolled back; see store.drops.pending()"
        super().__init__(message or f"operation {operation} is dropping {what} in steps; {again}")
        self.operation = operation
        self.path = path


class PermissionDenied(MetastoreError):
    """The user sees the object, but may not do this to it; nothing was written.

    Next step: ask an owner of ``path``, or of anything above it, for the ``privilege``. The message names the rule that
    decided; ``store.allowed(user, privilege, on)`` explains a decision without acting.
    """

    code = "permission_denied"
    http_status = 403

    def __init__(self, user: str, privilege: str, path: str, message: str | None = None) -> None:
        super().__init__(message or f"{user} needs {privilege} on {path}; ask an owner of it, or of anything above it")
        self.user = user
        self.privilege = privilege
        self.path = path


class VersionConflict(MetastoreError):
    """The caller's own precondition failed. Next step: load the entity and decide again.

    ``expected`` and ``found`` are versions; property values for ``SetProperty(..., expected=)``; or None if there is
    nothing to compare.
    """

    code = "version_conflict"
    http_status = 412

    def __init__(self, path: str, expected: object, found: object, message: str | None = None) -> None:
        super().__init__(message or f"{path}: expected version {expected}, found {found}; load it and decide again")
        self.path = path
        self.expected = expected
        self.found = found


class DeadlineExceeded(MetastoreError):
    """The deadline (seconds) passed before the operation could commit; it was not applied.

    Next step: call again, with a longer ``deadline=`` if the entity is busy.
    """

    code = "deadline_exceeded"
    http_status = 504
    retry_after = 1.0


class RetriesExhausted(MetastoreError):
    """The policy's attempts are used up; the operation was not applied. Next step: call again later."""

    code = "retries_exhausted"
    http_status = 503
    retry_after = 1.0


class ScopeFrozen(MetastoreError):
    """Another operation had the scope exclusively until the deadline; nothing was written.

    ``operation`` is the id of the operation in the way: a freeze, or an exclusive operation such as
    a rename. Next step: call again later, or with a longer ``deadline=`` (``timeout=`` of a freeze).
    """

    code = "scope_frozen"
    http_status = 503
    retry_after = 1.0

    def __init__(self, operation: UUID, message: str | None = None) -> None:
        super().__init__(message or f"operation {operation} has the scope exclusively; call again later")
        self.operation = operation


class LeaseHeld(MetastoreError):
    """Another holder has the lease, or another waiter has waited longer; nothing was changed.

    ``owner`` is the holder, and ``expires_at`` the time when the lease expires unless it is renewed (UTC). Both are
    None if the lease has no holder, but other waiters come first. Next step: do other work, or wait with ``timeout=``
    (seconds).
    """

    code = "lease_held"
    http_status = 423
    retry_after = 1.0

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
    """The holder has lost the lease: it was taken over, broken or released, or its time is over.

    The call was not applied (``create_many`` keeps the chunks that it had committed). ``token`` is the lost token. Next
    step: stop the work under the lease, discard results that were not published, and acquire the lease again, which
    gives a new token.
    """

    code = "lease_lost"
    http_status = 409

    def __init__(self, name: str, token: int | None, message: str | None = None) -> None:
        again = "stop the work it was for, and acquire it again"
        super().__init__(message or f"the lease {name!r} does not have the token {token} any more; {again}")
        self.name = name
        self.token = token


class OutcomeUnknown(MetastoreError):
    """The acknowledgement was lost and the database could not be asked within the deadline, or gc deleted the answer.

    Next step: ``store.outcome(error.operation_id)`` shows the outcome; or repeat the call with
    ``operation_id=error.operation_id``, which applies it at most once.
    """

    code = "outcome_unknown"
    http_status = 503
    retry_after = 1.0

    def __init__(self, operation_id: UUID, message: str | None = None) -> None:
        super().__init__(message or f"operation {operation_id} may or may not have been applied: its answer was lost")
        self.operation_id = operation_id


class UnreadableRow(MetastoreError):
    """A row of the database is damaged: its document, its changes or its times cannot be read.

    ``kind``, ``entity_id``, ``version`` and ``position`` name the row, as far as they are known; ``why`` is the reason.
    Next step: ``metastore verify`` reports all such rows. A reader that takes ``unreadable=`` leaves them out, and
    calls that function with each error.
    """

    code = "unreadable_row"
    http_status = 500

    def __init__(
        self,
        row: str,
        why: str,
        *,
        kind: str | None = None,
        entity_id: int | None = None,
        version: int | None = None,
        position: str | None = None,
    ) -> None:
        again = "see: metastore verify; readers leave such rows out with unreadable=, commands with --skip-unreadable"
        super().__init__(f"{row} cannot be read: {why}; {again}")
        self.why = why
        self.kind = kind
        self.entity_id = entity_id
        self.version = version
        self.position = position


def outcome_forgotten(operation_id: UUID) -> OutcomeUnknown:
    """Return the error for an operation whose row gc may have deleted while the call was still running."""
    return OutcomeUnknown(
        operation_id,
        f"operation {operation_id} may or may not have been applied: gc has deleted its record during the call; "
        "load the entities that it would have changed, and run gc with a retention above all deadlines",
    )


class CacheFenced(MetastoreError):
    """The cache may be outdated: its lease is over, and not yet renewed.

    Nothing was read. Only stores with ``Cache("lease", when_fenced="raise")`` raise it. Next step: try again later; the
    cache joins again as soon as the database answers.
    """

    code = "cache_fenced"
    http_status = 503
    retry_after = 1.0


class BackendUnavailable(MetastoreError):
    """The database cannot be reached or refuses the connection; nothing was written. Next step: see the message."""

    code = "backend_unavailable"
    http_status = 503
    retry_after: float | None = 1.0
    names_place = True

    transient = False
    """Whether the server is only unavailable at the moment. Then a mutation tries again until its deadline."""


class BackendRefused(BackendUnavailable):
    """The database denies the operation, and would deny a repetition, too. Nothing was written.

    Next step: see the message; most often the database's owner must grant a right. A mutation never tries again.
    """

    code = "backend_refused"
    http_status = 503
    retry_after = None


class PoolExhausted(BackendUnavailable):
    """All connections of the process are in use, and none became free in time; nothing was written.

    Next step: call again later, or open the store with a larger ``pool_size``.
    """

    code = "pool_exhausted"
    http_status = 503
    names_place = False


class SecretKeyMissing(MetastoreError):
    """A property is secret, and this process cannot encrypt or decrypt; nothing was written.

    Next step: set ``METASTORE_SECRET_KEY``, or install the extra ``secrets``, as the message says.
    """

    code = "secret_key_missing"
    http_status = 500


class SecretKeyWrong(SecretKeyMissing):
    """No key of this process decrypts the data key; nothing was written. Next step: add the named key."""

    code = "secret_key_wrong"
    http_status = 500


class SecretDamaged(MetastoreError):
    """An encrypted value, or its data key, is damaged, destroyed or not in this database.

    Next step: set the property again, or restore a backup, as the message says.
    """

    code = "secret_damaged"
    http_status = 500


class MigrationNeeded(MetastoreError):
    """The database's schema is older or newer than this program. Next step: see the message."""

    code = "migration_needed"
    http_status = 503
    has_schema = True
    """False: the database is new, and a migration creates its first schema."""
