"""Turn a PostgreSQL error from sending a commit into the commit's outcome."""

from __future__ import annotations

import psycopg

from metastore.backends.postgres import fragments
from metastore.backends.postgres.announcing import Unannounced
from metastore.backends.postgres.connection import NothingSent
from metastore.backends.postgres.read_errors import raise_read_error, refused_here
from metastore.port.commit import Cause, Conflicted, Unknown
from metastore.retry.classify import Consequence, of_sqlstate

CHECKS: dict[str | None, Cause] = {
    fragments.NOT_EMPTY: "not_empty",
    fragments.READ: "read",
    fragments.CLAIM: "claim",
    fragments.STALE_ID: "stale_id",
    fragments.LEASE: "lease",
    fragments.MARKED: "marked",
    fragments.PENDING: "pending",
    fragments.TICKET: "ticket",
    fragments.ANOTHER_RUN: "serialization",  # handled like a commit that was not sent
}
"""The cause of a conflict, by the SQLSTATE of the failed check."""

_UNIQUE: dict[str | None, Cause] = {
    "guard_live_name": "name",
    "owned_pkey": "name",
    "relation_pkey": "name",
    "operation_pkey": "operation",
    # two clients take a name for the first time: ON CONFLICT covers only the primary key
    "lease_token": "lease",
}
"""The cause of a conflict, by the unique index that refused a row."""


def outcome(error: psycopg.Error) -> Conflicted | Unknown:
    """Return the outcome that an error means, if it was raised while a commit was sent.

    Raises the caller's error if the commit was surely not applied and a repeat would not help. Raises Unannounced.
    """
    consequence = of_sqlstate(error.sqlstate)
    if isinstance(error, NothingSent) or refused_here(error):
        raise_read_error(error)  # the time was over, or the client refused a value: nothing was sent
    if consequence is Consequence.RETRY:
        return Conflicted("serialization")
    if consequence is Consequence.UNKNOWN:
        return Unknown(type(error).__name__)
    if error.sqlstate in (fragments.GENERATION_CHANGED, fragments.UNANNOUNCED):
        raise Unannounced from None
    if consequence is Consequence.CHECK:
        return Conflicted(CHECKS[error.sqlstate])
    if consequence is Consequence.UNIQUE and error.diag.constraint_name in _UNIQUE:
        return Conflicted(_UNIQUE[error.diag.constraint_name])
    return raise_read_error(error)
