"""Write operations down, help, forbid and cancel them, and set marks, on SQLite.

As in :mod:`metastore.backends.sqlite.commit`, no other process writes meanwhile.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from metastore.backends.precondition import PreconditionFailed
from metastore.backends.sql.reads import ReadSql
from metastore.backends.sqlite.checks import CLEARED, STAND, THEIR_TURN, check_caller, check_guards, take_row
from metastore.backends.sqlite.text import all_rows
from metastore.backends.sqlite.tickets import check_line
from metastore.errors import outcome_forgotten
from metastore.port.backend import MOST_AHEAD
from metastore.port.commit import Commit
from metastore.port.format import SCHEMA_FORMAT
from metastore.port.intents import CLAIMABLE, FORMAT, PENDING, Entry, Help, Mark, Resolution
from metastore.port.note import note_of_intent
from metastore.port.records import Marked
from metastore.port.unreadable import DEEPEST
from metastore.port.writes import Result

_CLAIMABLE = ", ".join(f"'{action}'" for action in CLAIMABLE)
CANCEL = f"""UPDATE operation SET action = 'cancelled', attempt = coalesce(attempt, 0) + 1, time = :now
WHERE operation_id = :operation_id AND ordinal = 0 AND action = '{PENDING}' RETURNING 1"""
LAPSED = f"(marked_until < :now OR marked_at > :now + {MOST_AHEAD})"
"""Whether a guard's mark may be cleared: it has expired, or was set before the clock was set back."""
CLEAR = f"""UPDATE guard SET scope_version = scope_version + 1, {CLEARED}
WHERE id = :id AND mark = :operation_id AND {LAPSED} RETURNING 1"""

_SETTLED = f"""WITH RECURSIVE up AS (
  SELECT id, parent_id, scope_version, 0 AS height FROM guard WHERE id = ?
  UNION ALL
  SELECT g.id, g.parent_id, g.scope_version, up.height + 1 FROM up JOIN guard g ON g.id = up.parent_id
  WHERE up.parent_id <> 0 AND up.height < {DEEPEST})
SELECT 1 FROM up WHERE id = ? AND scope_version = ?"""
"""One row if the catalog is the entity or an ancestor, and has this scope version."""


def write_down(connection: Any, entry: Entry, now: int) -> Result:
    """Note an operation that is not applied; return the number of intents that were pending before."""
    check_caller(connection, entry.caller, now)
    take_row(connection, entry.operation_id, entry.claim)
    settled = entry.settled
    if settled is not None and connection.execute(_SETTLED, (entry.entity_id, *settled)).fetchone() is None:
        raise PreconditionFailed("read")
    deadline = now + round(entry.seconds * 1_000_000) if entry.action == PENDING else None
    connection.execute(
        """INSERT INTO operation (operation_id, ordinal, entity_id, kind, action, principal, time, path_before, changes,
        attempt, deadline, digest, result, format, fences) VALUES (?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            *(str(entry.operation_id), entry.entity_id, entry.kind, entry.action, entry.principal, now, entry.path),
            *(entry.changes, entry.claim, deadline, entry.caller and entry.caller.digest, entry.result, entry.format),
            note_of_intent(entry),
        ),
    )
    count = "SELECT count(*) FROM operation WHERE entity_id = ? AND action = 'pending' AND operation_id <> ?"
    ((before,),) = connection.execute(count, (entry.entity_id, str(entry.operation_id))).fetchall()
    return Result(entry.entity_id or 0, before, now)


def forbid(connection: Any, operation_id: UUID, life: float, now: int) -> int | None:
    """Insert a tombstone, or claim a claimable row."""
    key = str(operation_id)
    if connection.execute("SELECT 1 FROM operation WHERE operation_id = ?", (key,)).fetchone() is None:
        ((until,),) = connection.execute("SELECT forgotten FROM info").fetchall()
        if until > now - round(life * 1_000_000):
            raise outcome_forgotten(operation_id)
        sql = "INSERT INTO operation (operation_id, ordinal, action, time, attempt) VALUES (?, 0, 'forbidden', ?, 1)"
        connection.execute(sql, (key, now))
        return 1
    sql = f"""UPDATE operation SET attempt = coalesce(attempt, 0) + 1, time = ?
      WHERE operation_id = ? AND ordinal = 0 AND action IN ({_CLAIMABLE}) RETURNING attempt"""
    rows = connection.execute(sql, (now, key)).fetchall()
    return rows[0][0] if rows else None


def pending_rows(
    connection: Any, read: ReadSql, entity_id: int, operation_id: UUID | None, limit: int, now: int
) -> list[tuple[Any, ...]]:
    """Return the rows of an entity's oldest intents, and the row of the calling operation."""
    chosen = f"""SELECT operation_id FROM (SELECT operation_id FROM operation
      WHERE entity_id = :id AND action = '{PENDING}' AND (format <= {FORMAT} OR deadline < :now)
      ORDER BY time, operation_id LIMIT :limit)"""
    sql = f"{read.named_steps} WHERE o.ordinal = 0 AND (o.operation_id IN ({chosen}) OR o.operation_id = :own)"
    own = None if operation_id is None else str(operation_id)
    parameters = {"id": entity_id, "limit": limit, "own": own, "now": now}
    return all_rows(connection, sql + " ORDER BY o.time, o.operation_id", parameters)


def help_intents(connection: Any, help_: Help, now: int) -> tuple[Result, ...]:
    """Resolve intents of one entity, in order."""
    check_guards(connection, help_.guards, None)
    stand = connection.execute("SELECT mark FROM guard WHERE id = ?", (help_.id,)).fetchone()
    if stand is not None and stand[0] is not None:
        raise PreconditionFailed("marked", help_.id)
    check_line(connection, help_.id, None, now)
    return _resolve_all(connection, help_, now)


def carry(connection: Any, commit: Commit, now: int) -> None:
    """Resolve intents after a commit's own writes, and remove its ticket."""
    for help_ in commit.carries:
        check_guards(connection, help_.guards, commit.operation_id)
        if help_.resolutions:
            _resolve_all(connection, help_, now)
    for entity_id in commit.leaves:
        connection.execute("DELETE FROM ticket WHERE entity_id = ? AND number = ?", (entity_id, commit.ticket))


def _resolve_all(connection: Any, help_: Help, now: int) -> tuple[Result, ...]:
    row = connection.execute("SELECT version FROM entity WHERE id = ?", (help_.id,)).fetchone()
    if row is None or row[0] != help_.version:
        raise PreconditionFailed("self", help_.id, row and row[0])
    sql = "SELECT scope_version, in_use, parent_id, name, fold, state FROM guard WHERE id = ?"
    stands = connection.execute(sql, (help_.id,)).fetchone()
    version = help_.version
    for one in help_.resolutions:
        version += one.action == "alter"
        _resolve(connection, help_, one, (version, *stands), now)
    applied = [one for one in help_.resolutions if one.action == "alter"]
    if applied:
        sql = "UPDATE entity SET version = ?, doc = coalesce(?, doc), modified_by = ?, modified_at = ? WHERE id = ?"
        connection.execute(sql, (version, applied[-1].doc, applied[-1].principal, now, help_.id))
    return help_.results(now)


def _resolve(connection: Any, help_: Help, one: Resolution, after: tuple[Any, ...], now: int) -> None:
    key = str(one.operation_id)
    if one.action == "alter":
        ((seq,),) = connection.execute("UPDATE info SET last_seq = last_seq + 1 RETURNING last_seq").fetchall()
        rows = connection.execute(
            f"""UPDATE operation SET writer = {SCHEMA_FORMAT}, action = 'alter', seq = ?, version = ?, time = ?,
            path_before = ?, path_after = ?, scope_version = ?, in_use = ?, parent_id = ?, name = ?, fold = ?,
            state = ?, doc = ?, changes = coalesce(?, changes)
            WHERE operation_id = ? AND ordinal = 0 AND action = '{PENDING}' RETURNING 1""",
            (seq, after[0], now, help_.path, help_.path, *after[1:], one.doc, one.changes, key),
        ).fetchall()
    else:
        rows = connection.execute(
            f"""UPDATE operation SET action = ?, time = ?, result = ?, attempt = coalesce(attempt, 0) + ?
            WHERE operation_id = ? AND ordinal = 0 AND action = '{PENDING}' RETURNING 1""",
            (one.action, now, one.result, one.action in ("moved", "expired"), key),
        ).fetchall()
    if not rows:
        raise PreconditionFailed("pending", help_.id)


def set_mark(connection: Any, mark: Mark, now: int) -> Result:
    """Mark a guard; a freeze bumps its scope version."""
    check_guards(connection, mark.guards, None)
    row = connection.execute(STAND, {"id": mark.id, "now": now}).fetchone()
    if row is None or mark.scope_version not in (None, row[0]):
        raise PreconditionFailed("ancestor", mark.id, row and row[0])
    scope, other, others_turn = row
    own = str(mark.operation_id)
    if other not in (None, own) or (other is None and others_turn):
        raise PreconditionFailed("marked", mark.id)
    scope += mark.scope_version is not None
    sql = "UPDATE guard SET mark = ?, marked_at = ?, marked_until = ?, scope_version = ? WHERE id = ?"
    connection.execute(sql, (own, now, now + round(mark.seconds * 1_000_000), scope, mark.id))
    return Result(mark.id, scope, now)


def marked(row: tuple[Any, ...], now: int) -> Marked:
    """Return the obstacle described by (id, mark, until)."""
    return Marked(row[0], None if row[1] is None else UUID(row[1]), (row[2] - now) / 1e6)


AHEAD = f"""SELECT (SELECT count(*) FROM operation p WHERE p.entity_id = :id AND p.action = '{PENDING}'
    AND (p.time, p.operation_id) < (o.time, o.operation_id))
FROM operation o WHERE o.operation_id = :own AND o.ordinal = 0 AND o.action = '{PENDING}'"""
MARKED = f"""SELECT id, mark, CASE WHEN mark IS NULL THEN quiet_until WHEN {LAPSED} THEN 0 ELSE marked_until END
FROM guard WHERE id IN (SELECT value FROM json_each(:ids)) AND (mark IS NOT NULL OR {THEIR_TURN})"""
