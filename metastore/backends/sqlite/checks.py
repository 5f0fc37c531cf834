"""Check the preconditions of a commit on SQLite before it writes, and fail at the first one that does not hold.

As in :mod:`metastore.backends.sqlite.commit`, no other process writes meanwhile, so each result stays true.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar
from uuid import UUID

from metastore.backends.precondition import PreconditionFailed
from metastore.backends.sqlite import relations
from metastore.backends.sqlite.tickets import check_line
from metastore.clock import SYSTEM
from metastore.deadlines import remaining
from metastore.errors import DeadlineExceeded
from metastore.port.backend import DRIFT, LONGEST_QUIET, QUIET
from metastore.port.commit import Commit
from metastore.port.conditions import (
    DROPPED,
    LIVE,
    Absent,
    Caller,
    Children,
    Expect,
    Guard,
    Listing,
    Newest,
    Read,
    Relations,
)
from metastore.port.intents import CLAIMABLE, FORMAT
from metastore.port.writes import Update

T = TypeVar("T")

TAKEN = "(state = 0 OR state = 3)"
"""Entities that keep their name, and make their parent non-empty: live ones, and those being dropped in steps.

The index has the same condition.
"""

_LOOKS = 100
"""The clock is read after this many rows."""


def in_time(items: Sequence[T]) -> Iterator[T]:
    """Yield the items until the deadline, which is checked now and then. Raises DeadlineExceeded."""
    for n, item in enumerate(items):
        if n % _LOOKS == _LOOKS - 1 and remaining(SYSTEM, math.inf) <= 0:
            raise DeadlineExceeded(
                "the deadline passed while the commit was written; it was rolled back; call again, with a longer one"
            )
        yield item


# The others' turn lasts as long as the mark did, within limits.
CLEARED = f"""mark = NULL, marked_at = NULL, marked_until = NULL,
  quiet_until = :now + min(max({QUIET}, min(:now, marked_until) - marked_at), {LONGEST_QUIET})"""
THEIR_TURN = f"(quiet_until > :now AND quiet_until <= :now + {LONGEST_QUIET})"
"""Whether the others have their turn on a guard.

A turn that would last too long was set before the clock was set back, so it does not count.
"""
# An exclusive operation checks these before it continues: its own scope version, a mark, the others' turn.
STAND = f"SELECT scope_version, mark, {THEIR_TURN} FROM guard WHERE id = :id"


# SQLite uses the partial indexes of children only if a statement repeats their condition word for word. Otherwise each
# of these statements would read all guards.
_GONE = "state <> 0"
# The rows that a listing saw: (id, version) of a kind's children in one state. Any difference is a phantom.
_MEMBERS = """SELECT g.id, e.version FROM (
    SELECT id FROM guard WHERE parent_id = ? AND kind = ? AND state = ? AND {}) AS g
  CROSS JOIN entity e ON e.id = g.id"""
# The entity that a restore by name restores.
_NEWEST = f"""SELECT id FROM guard WHERE parent_id = ? AND kind = ? AND family = ? AND key = ? AND state = {DROPPED}
  AND {_GONE}
  ORDER BY dropped_at DESC, id DESC LIMIT 1"""


def check_caller(connection: Any, caller: Caller | None, now: int) -> None:
    """Refuse an operation id from the future, or one that may have been forgotten."""
    if caller is not None:
        ((forgotten,),) = connection.execute("SELECT forgotten FROM info").fetchall()
        if not forgotten + DRIFT <= caller.issued <= now + DRIFT:
            raise PreconditionFailed("stale_id")


def take_row(connection: Any, operation_id: UUID, claim: int) -> None:
    """Make room for an operation's row: no row exists, or it was claimed."""
    key = (str(operation_id),)
    if claim == 0:
        if connection.execute("SELECT 1 FROM operation WHERE operation_id = ? LIMIT 1", key).fetchone():
            raise PreconditionFailed("operation")
        return
    sql = f"""DELETE FROM operation WHERE operation_id = ? AND ordinal = 0 AND attempt = ?
      AND action IN ({", ".join("?" * len(CLAIMABLE))}) RETURNING 1"""
    if not connection.execute(sql, (*key, claim, *CLAIMABLE)).fetchall():
        raise PreconditionFailed("claim")


def check_guards(connection: Any, guards: Sequence[Guard], operation_id: UUID | None) -> None:
    """Refuse a guard if it is gone, has another scope version, or carries another operation's mark."""
    for guard in in_time(guards):
        row = connection.execute("SELECT scope_version, mark FROM guard WHERE id = ?", (guard.id,)).fetchone()
        if row is None or row[0] != guard.scope_version:
            raise PreconditionFailed("ancestor", guard.id, row and row[0])
        if row[1] is not None and row[1] != str(operation_id):
            raise PreconditionFailed("marked", guard.id)


def check_scope(connection: Any, commit: Commit, now: int) -> None:
    """Refuse a commit whose mark is gone, and a commit without a mark whose turn has not come."""
    if commit.held is not None:
        row = connection.execute("SELECT mark FROM guard WHERE id = ?", (commit.held,)).fetchone()
        if row != (str(commit.operation_id),):
            raise PreconditionFailed("marked", commit.held)
        return
    for write in commit.writes:
        if isinstance(write, Update) and write.scope_version is None:
            check_line(connection, write.id, commit.ticket, now)


def check_leases(connection: Any, commit: Commit) -> None:
    """Refuse a token that the lease no longer has, or a value that is not staged; note staged values as published."""
    for lease in commit.leases:
        sql = "SELECT 1 FROM lease WHERE name = ? AND token = ? AND incarnation = ?"
        if connection.execute(sql, (lease.name, lease.token, lease.incarnation)).fetchone() is None:
            raise PreconditionFailed("lease")
    for staged in commit.publishes:
        sql = "UPDATE staged SET state = 1 WHERE id = ? AND state = 0 RETURNING 1"
        if not connection.execute(sql, (str(staged),)).fetchall():
            raise PreconditionFailed("read")


def check_read(connection: Any, read: Read) -> None:
    """Refuse a read that would return something else now."""
    if isinstance(read, Expect):
        sql = f"SELECT version FROM {'owned' if read.owned else 'entity'} WHERE id = ?"
        row = connection.execute(sql, (read.id,)).fetchone()
        if row is None or row[0] != read.version:
            raise PreconditionFailed("read", read.id, row and row[0])
    elif not _is_true(connection.execute, read):
        raise PreconditionFailed("read", read.id if isinstance(read, Relations) else read.parent_id)


def _is_true(run: Any, read: Absent | Listing | Children | Newest | Relations) -> bool:
    if isinstance(read, Relations):
        return relations.members(run, read) == read.members
    if isinstance(read, Absent):
        sql = (
            "SELECT id FROM owned WHERE owner_id = ? AND kind = ? AND name = ?"
            if read.owned
            else "SELECT id FROM guard WHERE parent_id = ? AND family = ? AND key = ? AND state = 0"
        )
        return run(sql, (read.parent_id, read.family, read.key)).fetchone() is None
    if isinstance(read, Children):
        live = run(f"SELECT id FROM guard WHERE parent_id = ? AND {TAKEN}", (read.parent_id,))
        return any(row_id not in read.besides for (row_id,) in live) == read.there
    if isinstance(read, Newest):
        row = run(_NEWEST, (read.parent_id, read.kind, read.family, read.key)).fetchone()
        newest: int | None = row and row[0]
        return newest == read.id
    sql, state = (
        ("SELECT id, version FROM owned WHERE owner_id = ? AND kind = ?", ())
        if read.owned
        else (_MEMBERS.format(TAKEN if read.state == LIVE else _GONE), (read.state,))
    )
    return set(run(sql, (read.parent_id, read.kind, *state))) == read.members


def check_update(run: Any, commit: Commit, write: Update, now: int) -> None:
    """Refuse an update of an entity with another version, a mark, pending intents, another's turn, or children."""
    row = run("SELECT version FROM entity WHERE id = ?", (write.id,)).fetchone()
    if row is None or row[0] != write.version:
        raise PreconditionFailed("self", write.id, row and row[0])
    scope, mark, others_turn = run(STAND, {"id": write.id, "now": now}).fetchone()
    if mark is not None and mark != str(commit.operation_id):
        raise PreconditionFailed("marked", write.id)
    if write.scope_version is None:
        pending = "SELECT 1 FROM operation WHERE entity_id = ? AND action = 'pending' AND format <= ? LIMIT 1"
        carried = any(one.id == write.id for one in commit.carries)
        if not (commit.overlook or carried) and run(pending, (write.id, FORMAT)).fetchone():
            raise PreconditionFailed("pending", write.id)
    elif scope != write.scope_version:
        raise PreconditionFailed("ancestor", write.id, scope)
    elif commit.held != write.id and others_turn:
        raise PreconditionFailed("marked", write.id)
    if write.empty:
        sql = f"SELECT id FROM guard WHERE parent_id = ? AND {TAKEN} LIMIT 1"
        if run(sql, (write.id,)).fetchone():
            raise PreconditionFailed("not_empty", write.id)
