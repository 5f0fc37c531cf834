"""What PostgreSQL's rows and errors mean for a commit."""

from __future__ import annotations

from typing import Any

import psycopg

from metastore.backends.postgres import batch_sql as sql
from metastore.backends.postgres.connect import raise_read_error
from metastore.port.commit import Cause, Commit, Committed, Conflicted, Help, Outcome, Result, Unknown, Update
from metastore.retry.classify import Verdict, of_sqlstate

__all__ = ["altered", "created", "helped", "moved", "of_error", "of_rows"]

Row = tuple[Any, ...]

_CHECKS: dict[str | None, Cause] = {
    sql.NOT_EMPTY: "not_empty",
    sql.READ: "read",
    sql.CLAIM: "claim",
    sql.STALE_ID: "stale_id",
    sql.LEASE: "lease",
    sql.MARKED: "marked",
    sql.PENDING: "pending",
}
_UNIQUE: dict[str | None, Cause] = {
    "guard_live_name": "name",
    "owned_pkey": "name",
    "operation_pkey": "operation",
    "lease_token": "lease",  # two take a name for the first time: ON CONFLICT looks at its primary key only
}


def created(commit: Commit, row: Row) -> Outcome:
    """Of the statement that makes a single entity."""
    held, new_id, time, marked, *fenced = row
    if new_id is not None:
        return Committed((Result(new_id, 1, time),))
    if fenced == [False]:
        return Conflicted("lease")
    return Conflicted("name" if held == len(commit.guards) else "marked" if marked else "ancestor")


def altered(commit: Commit, write: Update, row: Row) -> Outcome:
    """Of the statement that alters a single document."""
    held, version, time, found, marked, *fenced = row
    if version is not None:
        return Committed((Result(write.id, version, time),))
    if fenced == [False]:
        return Conflicted("lease")
    if marked or held < len(commit.guards):
        return Conflicted("marked" if marked else "ancestor")
    # the version may be as expected in this statement's snapshot, and another one after the wait
    return Conflicted("self" if found != write.version else "pending", write.id, found)


def moved(commit: Commit, write: Update, row: Row) -> Outcome:
    """Of the statement that changes a single entity exclusively."""
    held, version, time, marked = row
    if version is not None:
        return Committed((Result(write.id, version, time),))
    if held <= len(commit.guards):
        return Conflicted("marked" if marked else "ancestor")
    return Conflicted("self")


def helped(help_: Help, row: Row) -> Outcome:
    """Of the statement that resolves intents."""
    held, cas, time, found, marked = row
    if time is not None:
        return Committed(help_.results(time))
    if marked or held < len(help_.guards):
        return Conflicted("marked" if marked else "ancestor")
    return Conflicted("pending" if cas else "self", help_.id, found)


def of_error(error: psycopg.Error) -> Outcome:
    """Of an error while a commit was sent; raises one that is the caller's."""
    verdict = of_sqlstate(error.sqlstate)
    if error.sqlstate is None and not isinstance(error, psycopg.OperationalError):
        raise_read_error(error)  # the client refused it, nothing was sent
    if verdict is Verdict.RETRY:
        return Conflicted("serialization")
    if verdict is Verdict.UNKNOWN:
        return Unknown(type(error).__name__)
    if verdict is Verdict.CHECK:
        return Conflicted(_CHECKS[error.sqlstate])
    if verdict is Verdict.UNIQUE and error.diag.constraint_name in _UNIQUE:
        return Conflicted(_UNIQUE[error.diag.constraint_name])
    return raise_read_error(error)


def of_rows(commit: Commit, rows: list[Row]) -> Outcome:
    """Of the general statement."""
    fenced, guards, reads, own, free, marked, *_ = rows[0]  # of several stages each holds, or all would have failed
    if not fenced:
        return Conflicted("lease")
    if not guards or marked:
        return Conflicted("marked" if marked else "ancestor")
    if not (reads and own and free):
        return Conflicted("read" if not reads else "self" if not own else "pending")
    results: list[Result | None] = [None] * len(commit.writes)
    for _, _, _, _, _, _, ordinal, row_id, version, at, *_ in rows:
        if ordinal is not None:
            results[ordinal] = Result(row_id, version, at)
    return Committed(tuple(results))
