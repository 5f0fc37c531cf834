"""Apply a commit on SQLite, inside a transaction that excludes all other writers.

Before anything here runs, BEGIN IMMEDIATE has taken SQLite's only lock for writers. So no row needs a lock, every check
sees the newest committed rows, and its result stays true until COMMIT. Positions in the feed are drawn in the same
transaction, and so without gaps.
"""

from __future__ import annotations

from typing import Any

from metastore.backends.precondition import PreconditionFailed
from metastore.backends.sqlite.checks import (
    check_caller,
    check_guards,
    check_leases,
    check_read,
    check_scope,
    in_time,
    take_row,
)
from metastore.backends.sqlite.writer import UNMARK, Writer
from metastore.port.commit import MOVED, Commit
from metastore.port.writes import Result


def apply(connection: Any, commit: Commit, now: int) -> tuple[Result | None, ...]:
    """Check every precondition, then write; raise :class:`PreconditionFailed` if one does not hold."""
    check_caller(connection, commit.caller, now)
    if commit.leaves_row or commit.claim:
        take_row(connection, commit.operation_id, commit.claim)
    check_leases(connection, commit)
    check_guards(connection, commit.guards, commit.operation_id)
    check_scope(connection, commit, now)
    for read in in_time(commit.reads):
        check_read(connection, read)
    if commit.advance is not None:
        one = commit.advance
        sql = "UPDATE consumer SET seq = ?, moved_at = ? WHERE name = ? AND seq = ? RETURNING 1"
        if not connection.execute(sql, (one.to, now, one.name, one.seq)).fetchall():
            raise PreconditionFailed("read")
    for guard in commit.guards:
        if guard.bump:
            connection.execute("UPDATE guard SET scope_version = scope_version + 1 WHERE id = ?", (guard.id,))
    writer = Writer(connection, commit, now)
    results = tuple([writer.write(w) for w in in_time(commit.writes)])
    if sum(result is not None for result in results) > 1:  # a read of the past must show these rows together
        last = "(SELECT last_seq FROM info)"
        connection.execute(f"UPDATE operation SET through = {last} WHERE operation_id = ?", (str(commit.operation_id),))
    if not any(results):
        _keep_row(connection, commit, now)
    if commit.held is not None:
        connection.execute(UNMARK, {"id": commit.held, "operation_id": str(commit.operation_id), "now": now})
    return results


def _keep_row(connection: Any, commit: Commit, now: int) -> None:
    """Leave a row for a commit that wrote none: it moved a consumer, or the claimed tombstone stays."""
    if commit.advance is not None:
        action, result, attempt = "unchanged", MOVED, None
    elif commit.claim:
        action, result, attempt = "forbidden", None, commit.claim
    else:
        return
    sql = "INSERT INTO operation (operation_id, ordinal, time, action, result, attempt) VALUES (?, 0, ?, ?, ?, ?)"
    connection.execute(sql, (str(commit.operation_id), now, action, result, attempt))
