"""Apply a commit on SQLite, inside a transaction that excludes all other writers.

BEGIN IMMEDIATE has taken SQLite's one lock for writers before anything here runs. So no row needs a lock, every check
sees the newest committed rows, and what it saw stays true until COMMIT. Positions in the feed are drawn in the same
transaction, hence without gaps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar
from uuid import UUID

from metastore.backends.precondition import PreconditionFailed
from metastore.backends.sqlite import relations
from metastore.backends.sqlite.text import is_no_text
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
from metastore.port.leases import fences
from metastore.port.note import note_of
from metastore.port.unreadable import damaged
from metastore.port.writes import Delete, Insert, Put, Relate, Result, Update, Write

__all__ = [
    "CLEARED",
    "STAND",
    "THEIR_TURN",
    "UNMARK",
    "apply",
    "check_guards",
    "next_id",
    "next_seq",
    "take_row",
]

T = TypeVar("T")

_TAKEN = "(state = 0 OR state = 3)"
"""What has its name and fills its parent: what is live, or being dropped in steps. As the index has it."""

_LOOKS = 100
"""After how many rows the clock is read."""


def apply(connection: Any, commit: Commit, now: int) -> tuple[Result | None, ...]:
    """Check every precondition, then write; raise :class:`PreconditionFailed` when one does not hold."""
    take_row(connection, commit.caller, commit.operation_id, commit.claim, now)
    _check_leases(connection, commit)
    check_guards(connection, commit.guards, commit.operation_id)
    _check_scope(connection, commit, now)
    for read in in_time(commit.reads):
        _check_read(connection, read)
    if commit.advance is not None:
        one = commit.advance
        sql = "UPDATE consumer SET seq = ?, moved_at = ? WHERE name = ? AND seq = ? RETURNING 1"
        if not connection.execute(sql, (one.to, now, one.name, one.seq)).fetchall():
            raise PreconditionFailed("read")
    for guard in commit.guards:
        if guard.bump:
            connection.execute("UPDATE guard SET scope_version = scope_version + 1 WHERE id = ?", (guard.id,))
    writer = _Writer(connection, commit, now)
    results = tuple([writer.write(w) for w in in_time(commit.writes)])
    if sum(result is not None for result in results) > 1:  # the past shows its rows together
        last = "(SELECT last_seq FROM info)"
        connection.execute(f"UPDATE operation SET through = {last} WHERE operation_id = ?", (str(commit.operation_id),))
    if commit.claim and not any(results):  # nothing takes the tombstone's place: it stays
        sql = "INSERT INTO operation (operation_id, ordinal, action, time, attempt) VALUES (?, 0, 'forbidden', ?, ?)"
        connection.execute(sql, (str(commit.operation_id), now, commit.claim))
    if commit.held is not None:
        connection.execute(UNMARK, {"id": commit.held, "operation_id": str(commit.operation_id), "now": now})
    return results


def in_time(items: Sequence[T]) -> Iterator[T]:
    """Yield the items until the deadline, which is checked now and then. Raises DeadlineExceeded."""
    for n, item in enumerate(items):
        if n % _LOOKS == _LOOKS - 1 and remaining(SYSTEM, math.inf) <= 0:
            raise DeadlineExceeded(
                "the deadline passed while the commit was written; it was rolled back; call again, with a longer one"
            )
        yield item


# The others' turn lasts as long as the mark did, in limits.
CLEARED = f"""mark = NULL, marked_at = NULL, marked_until = NULL,
  quiet_until = :now + min(max({QUIET}, min(:now, marked_until) - marked_at), {LONGEST_QUIET})"""
THEIR_TURN = f"(quiet_until > :now AND quiet_until <= :now + {LONGEST_QUIET})"
"""Whether it is the others' turn on a guard. One that would last longer dates from before the clock was set back."""
# What an exclusive operation looks at before it goes on: its own scope version, a mark, the others' turn.
STAND = f"SELECT scope_version, mark, {THEIR_TURN} FROM guard WHERE id = :id"
UNMARK = f"UPDATE guard SET {CLEARED} WHERE id = :id AND mark = :operation_id RETURNING 1"


# What a listing saw: (id, version) of the children of a kind in a state. Any difference is a phantom.
_MEMBERS = """SELECT g.id, e.version FROM guard g JOIN entity e ON e.id = g.id
  WHERE g.parent_id = ? AND g.kind = ? AND g.state = ?"""
# What a restore by name means.
_NEWEST = f"""SELECT id FROM guard WHERE parent_id = ? AND kind = ? AND family = ? AND key = ? AND state = {DROPPED}
  ORDER BY dropped_at DESC, id DESC LIMIT 1"""


_STANDS = """SELECT scope_version, in_use, parent_id, name, fold, state, family, key FROM guard WHERE id = ?"""


def _mark(connection: Any, entity_id: int) -> str | None:
    row: tuple[str | None] | None = connection.execute("SELECT mark FROM guard WHERE id = ?", (entity_id,)).fetchone()
    return None if row is None else row[0]


def take_row(connection: Any, caller: Caller | None, operation_id: UUID, claim: int, now: int) -> None:
    """Check a caller's operation id, and make room for the operation's row: there is none, or it was claimed."""
    if caller is not None:
        ((forgotten,),) = connection.execute("SELECT forgotten FROM info").fetchall()
        if not forgotten + DRIFT <= caller.issued <= now + DRIFT:
            raise PreconditionFailed("stale_id")
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
    """Refuse what does not hold: a scope version, or another operation's mark."""
    for guard in in_time(guards):
        row = connection.execute("SELECT scope_version, mark FROM guard WHERE id = ?", (guard.id,)).fetchone()
        if row is None or row[0] != guard.scope_version:
            raise PreconditionFailed("ancestor", guard.id, row and row[0])
        if row[1] is not None and row[1] != str(operation_id):
            raise PreconditionFailed("marked", guard.id)


def _check_scope(connection: Any, commit: Commit, now: int) -> None:
    """Refuse a commit whose mark is gone; without a mark, one whose turn it is not."""
    if commit.held is not None:
        if _mark(connection, commit.held) != str(commit.operation_id):
            raise PreconditionFailed("marked", commit.held)
        return
    for write in commit.writes:
        if isinstance(write, Update) and write.scope_version is None:
            check_line(connection, write.id, commit.ticket, now)


def _check_leases(connection: Any, commit: Commit) -> None:
    """Refuse a token that the lease has no longer; note what was staged as published."""
    for lease in commit.leases:
        sql = "SELECT 1 FROM lease WHERE name = ? AND token = ? AND incarnation = ?"
        if connection.execute(sql, (lease.name, lease.token, lease.incarnation)).fetchone() is None:
            raise PreconditionFailed("lease")
    for staged in commit.publishes:
        sql = "UPDATE staged SET state = 1 WHERE id = ? AND state = 0 RETURNING 1"
        if not connection.execute(sql, (str(staged),)).fetchall():
            raise PreconditionFailed("read")


def next_id(connection: Any) -> int:
    """Draw an id."""
    ((new,),) = connection.execute("UPDATE info SET last_id = last_id + 1 RETURNING last_id").fetchall()
    return int(new)


def next_seq(connection: Any) -> int:
    """Draw a position in the feed."""
    ((new,),) = connection.execute("UPDATE info SET last_seq = last_seq + 1 RETURNING last_seq").fetchall()
    return int(new)


def _check_read(connection: Any, read: Read) -> None:
    if isinstance(read, Relations):
        relations.check(connection, read)
    else:
        _check_other_read(connection, read)


def _check_other_read(connection: Any, read: Expect | Absent | Listing | Children | Newest) -> None:
    if isinstance(read, Expect):
        sql = f"SELECT version FROM {'owned' if read.owned else 'entity'} WHERE id = ?"
        row = connection.execute(sql, (read.id,)).fetchone()
        if row is None or row[0] != read.version:
            raise PreconditionFailed("read", read.id, row and row[0])
    elif isinstance(read, Absent):
        sql = (
            "SELECT id FROM owned WHERE owner_id = ? AND kind = ? AND name = ?"
            if read.owned
            else "SELECT id FROM guard WHERE parent_id = ? AND family = ? AND key = ? AND state = 0"
        )
        if connection.execute(sql, (read.parent_id, read.family, read.key)).fetchone():
            raise PreconditionFailed("read", read.parent_id)
    elif isinstance(read, Children):
        live = connection.execute(f"SELECT id FROM guard WHERE parent_id = ? AND {_TAKEN}", (read.parent_id,))
        if any(row_id not in read.besides for (row_id,) in live) != read.there:
            raise PreconditionFailed("read", read.parent_id)
    elif isinstance(read, Newest):
        row = connection.execute(_NEWEST, (read.parent_id, read.kind, read.family, read.key)).fetchone()
        if (row and row[0]) != read.id:
            raise PreconditionFailed("read", read.parent_id)
    else:
        sql, state = (
            ("SELECT id, version FROM owned WHERE owner_id = ? AND kind = ?", ())
            if read.owned
            else (_MEMBERS, (read.state,))
        )
        if set(connection.execute(sql, (read.parent_id, read.kind, *state))) != read.members:
            raise PreconditionFailed("read", read.parent_id)


def _check_update(run: Any, commit: Commit, write: Update, now: int) -> None:
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
        sql = f"SELECT id FROM guard WHERE parent_id = ? AND {_TAKEN} LIMIT 1"
        if run(sql, (write.id,)).fetchone():
            raise PreconditionFailed("not_empty", write.id)


class _Writer:
    """Applies writes one by one."""

    def __init__(self, connection: Any, commit: Commit, now: int) -> None:
        self._connection = connection
        self._run = connection.execute
        self._commit = commit
        self._now = now
        self._logged = 0

    def write(self, write: Write) -> Result | None:
        if isinstance(write, Insert):
            return self._insert(write)
        if isinstance(write, Update):
            _check_update(self._run, self._commit, write, self._now)
            return self._update(write)
        if isinstance(write, Put):
            return self._put(write)
        return self._relate(write) if isinstance(write, Relate) else self._delete(write)

    def _insert(self, write: Insert) -> Result | None:
        # asked, not left to the unique index: an error would not say which name is taken
        sql = f"SELECT id FROM guard WHERE parent_id = ? AND family = ? AND key = ? AND {_TAKEN}"
        if self._run(sql, (write.parent_id, write.family, write.key)).fetchone():
            if self._commit.skip_existing:
                return None
            raise PreconditionFailed("name", write.parent_id)
        row_id = next_id(self._connection) if write.id is None else write.id
        self._run(
            """INSERT INTO guard (id, parent_id, kind, family, name, key, fold, state, in_use, scope_version)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (row_id, write.parent_id, write.kind, write.family, write.name, write.key, write.fold, LIVE, True, 1),
        )
        by, now = self._commit.principal, self._now
        self._run("INSERT INTO entity VALUES (?, 1, ?, ?, ?, ?, ?)", (row_id, write.doc, by, now, by, now))
        place = (write.parent_id, write.name, write.fold, LIVE, write.family, write.key)
        return self._log(write, row_id, 1, None, (1, True, write.doc, *place))

    def _update(self, write: Update) -> Result:
        if write.scope_version is not None:
            self._stand(write)
            self._run(UNMARK, {"id": write.id, "operation_id": str(self._commit.operation_id), "now": self._now})
            # intents on the entity are sent away; the attempt counts, so that a late claim of such a row fails
            sql = """UPDATE operation SET action = 'moved', attempt = coalesce(attempt, 0) + 1
            WHERE entity_id = ? AND action = 'pending'"""
            self._run(sql, (write.id,))
        ((doc,),) = self._returned(
            write,
            write.id,
            """UPDATE entity SET version = version + 1, doc = coalesce(?, doc), modified_by = ?, modified_at = ?
            WHERE id = ? RETURNING doc""",
            (write.doc, self._commit.principal, self._now, write.id),
        )
        scope, in_use, *place = self._run(_STANDS, (write.id,)).fetchone()
        if write.scope_version is None or place[3] != LIVE:
            place[4:] = None, None  # it does not take the name: it has it already, or gave it up
        return self._log(write, write.id, write.version + 1, None, (scope, in_use, doc, *place))

    def _returned(self, write: Update | Delete, row_id: int, sql: str, parameters: tuple[Any, ...]) -> list[Any]:
        """Run a write of one row; return what it returns. Raises UnreadableRow."""
        try:
            rows: list[Any] = self._run(sql, parameters).fetchall()
        except Exception as error:
            if not is_no_text(error):
                raise
            why = UnicodeError("one of its texts is not UTF-8")
            raise damaged(why, write.event.kind, row_id, write.version) from None
        return rows

    def _stand(self, write: Update) -> None:
        place = write.place
        if place is not None:
            sql = f"SELECT id FROM guard WHERE parent_id = ? AND family = ? AND key = ? AND {_TAKEN} AND id <> ?"
            ((family,),) = self._run("SELECT family FROM guard WHERE id = ?", (write.id,)).fetchall()
            if self._run(sql, (place.parent_id, family, place.key, write.id)).fetchone():
                raise PreconditionFailed("name", place.parent_id)
        elif write.state == LIVE:
            sql = """SELECT 1 FROM guard g JOIN guard o USING (parent_id, family, key)
            WHERE g.id = ? AND o.id <> g.id AND (o.state = 0 OR o.state = 3)"""
            if self._run(sql, (write.id,)).fetchone():
                raise PreconditionFailed("name", write.id)
        self._run(
            """UPDATE guard SET scope_version = scope_version + 1, parent_id = coalesce(?, parent_id),
            name = coalesce(?, name), key = coalesce(?, key), fold = coalesce(?, fold), state = coalesce(?, state),
            in_use = coalesce(?, in_use), dropped_at = CASE ? WHEN 0 THEN NULL WHEN 1 THEN ? ELSE dropped_at END
            WHERE id = ?""",
            (
                *((place.parent_id, place.name, place.key, place.fold) if place else (None,) * 4),
                write.state,
                write.in_use,
                {LIVE: 0, DROPPED: 1}.get(-1 if write.state is None else write.state),
                self._now,
                write.id,
            ),
        )

    def _put(self, write: Put) -> Result:
        known = self._owned(write)
        by, now = self._commit.principal, self._now
        if known is not None:
            row_id, version = known
            self._run(
                "UPDATE owned SET version = version + 1, doc = ?, modified_by = ?, modified_at = ? WHERE id = ?",
                (write.doc, by, now, row_id),
            )
        else:
            row_id, version = next_id(self._connection), 0
            self._run(
                "INSERT INTO owned VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, ?)",
                (write.owner_id, write.kind, write.name, row_id, write.doc, by, now, by, now),
            )
        place = (write.owner_id, write.name, None, LIVE, write.kind, write.name)
        return self._log(write, row_id, version + 1, write.owner_id, (None, None, write.doc, *place))

    def _delete(self, write: Delete) -> Result:
        known = self._owned(write)
        assert known is not None
        row_id, version = known
        ((doc,),) = self._returned(write, row_id, "DELETE FROM owned WHERE id = ? RETURNING doc", (row_id,))
        place = (write.owner_id, write.name, None, DROPPED, None, None)
        return self._log(write, row_id, version + 1, write.owner_id, (None, None, doc, *place))

    def _relate(self, write: Relate) -> Result | None:
        commit = self._commit
        written = relations.write(
            self._run, write, lambda: next_id(self._connection), commit.principal, self._now, skip=commit.skip_existing
        )
        if written is None:
            return None
        row_id, version = written
        took = (DROPPED, None, None) if write.removes else (LIVE, write.kind, str(row_id))
        place = (write.from_id, str(row_id), None, *took)
        return self._log(write, row_id, version, write.from_id, (None, None, write.doc, *place), write.to_id)

    def _owned(self, write: Put | Delete) -> tuple[int, int] | None:
        """Return (id, version) of the row to write; None if it is new, which must be expected."""
        sql = "SELECT id, version FROM owned WHERE owner_id = ? AND kind = ? AND name = ?"
        row: tuple[int, int] | None = self._run(sql, (write.owner_id, write.kind, write.name)).fetchone()
        if row is not None and write.version == 0:
            raise PreconditionFailed("name", row[0], row[1])
        if write.version > 0 and (row is None or row[1] != write.version):
            raise PreconditionFailed("self", row and row[0], row and row[1])
        if row is not None and write.id not in (0, row[0]):
            raise PreconditionFailed("self", row[0], row[1])
        return row

    def _log(
        self,
        write: Write,
        row_id: int,
        version: int,
        owner_id: int | None,
        after: tuple[Any, ...],
        other_id: int | None = None,
    ) -> Result:
        """Log a write that was done. Ordinals have no gaps: a tombstone takes the first (see ``forbid``)."""
        seq = next_seq(self._connection)
        event, commit = write.event, self._commit
        digest = commit.caller.digest if commit.caller is not None and self._logged == 0 else None
        leases = fences(commit.leases) if commit.leases else None
        held = note_of(commit) if self._logged == 0 else leases
        self._run(
            """INSERT INTO operation (operation_id, ordinal, seq, entity_id, version, owner_id, kind, action, principal,
            time, path_before, path_after, changes, scope_version, in_use, doc, parent_id, name, fold,
            state, family, key, digest, fences, other_id, other_path)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (
                *(str(commit.operation_id), self._logged, seq, row_id, version, owner_id, event.kind, event.action),
                *(
                    commit.principal,
                    self._now,
                    event.path_before,
                    event.path_after,
                    event.changes,
                    *after,
                    digest,
                    held,
                    other_id,
                    event.other_path,
                ),
            ),
        )
        self._logged += 1
        return Result(row_id, version, self._now)
