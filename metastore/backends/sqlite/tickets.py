"""Let transactions queue for an entity on SQLite: take a ticket, read the line, leave it.

As in :mod:`metastore.backends.sqlite.commit`, no other process writes meanwhile, so tickets are drawn in order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from metastore.backends.precondition import PreconditionFailed
from metastore.port.tickets import LONGEST_GAP, Line

# A caller without a valid ticket must wait for every ticket.
_HINDERS = """SELECT 1 FROM ticket WHERE entity_id = :id AND number > 0 AND since <= :now
  AND number < coalesce((SELECT number FROM ticket WHERE entity_id = :id AND number = :own), 9223372036854775807)
  LIMIT 1"""
_QUEUE = """INSERT INTO ticket (entity_id, number, time, patience, since)
  SELECT g.id, :number, :now, :patience,
    max(:now, coalesce((SELECT max(t.since) FROM ticket t WHERE t.entity_id = g.id), 0))
  FROM guard g WHERE g.id IN (SELECT value FROM json_each(:ids))"""
# before: the tickets before the caller's own or, without one, those that count now; mine: the caller's own
_LINE = """WITH before AS (SELECT * FROM ticket
    WHERE entity_id IN (SELECT value FROM json_each(:ids)) AND number > 0
      AND CASE WHEN :own IS NULL THEN since <= :now ELSE number < :own END),
  mine AS (SELECT * FROM ticket WHERE entity_id IN (SELECT value FROM json_each(:ids)) AND number = :own)
  SELECT (SELECT count(*) FROM mine) = (SELECT count(*) FROM guard WHERE id IN (SELECT value FROM json_each(:ids))),
    b.number, (SELECT count(DISTINCT number) FROM before), b.patience, e.version, (SELECT max(since) FROM mine)
  FROM (SELECT 1) LEFT JOIN (SELECT * FROM before ORDER BY number, entity_id LIMIT 1) b ON true
    LEFT JOIN entity e ON e.id = b.entity_id"""


def stands(connection: Any, entity_id: int, now: int) -> bool:
    """Return whether an entity has a ticket that counts now: then a commit without a ticket is refused."""
    return connection.execute(_HINDERS, {"id": entity_id, "own": None, "now": now}).fetchone() is not None


def check_line(connection: Any, entity_id: int, ticket: int | None, now: int) -> None:
    """Refuse to write an entity that has an older ticket than the caller's."""
    if connection.execute(_HINDERS, {"id": entity_id, "own": ticket, "now": now}).fetchone():
        raise PreconditionFailed("ticket", entity_id)


def queue(connection: Any, ids: Sequence[int], patience: float, now: int) -> int:
    """Take a ticket behind all existing tickets."""
    ((number,),) = connection.execute("UPDATE info SET last_id = last_id + 1 RETURNING last_id").fetchall()
    wanted = {"ids": json.dumps(list(ids)), "number": number, "now": now, "patience": round(patience * 1_000_000)}
    connection.execute(_QUEUE, wanted)
    over = "DELETE FROM ticket WHERE number = 0 AND since <= ? AND entity_id IN (SELECT value FROM json_each(?))"
    connection.execute(over, (now, wanted["ids"]))
    return int(number)


def line(rows: Callable[[str, Any], list[Any]], ids: Sequence[int], ticket: int | None, now: int) -> Line:
    """Return the line before a ticket; without a ticket, the line of all tickets that count now."""
    standing = rows(_LINE, {"ids": json.dumps(list(ids)), "own": ticket, "now": now})
    held, head, ahead, patience, moves, since = standing[0]
    gap = max(0, (since or 0) - now) / 1e6
    return Line(ticket is not None and bool(held), head, ahead, (patience or 0) / 1e6, moves, gap)


def leave(connection: Any, ids: Sequence[int], ticket: int, gap: float, now: int) -> bool:
    """Remove a ticket, after which the others' turn begins."""
    sql = """DELETE FROM ticket WHERE number = ? AND entity_id IN (SELECT value FROM json_each(?))
      RETURNING entity_id"""
    gone = connection.execute(sql, (ticket, json.dumps(list(ids)))).fetchall()
    until = now + min(round(gap * 1_000_000), LONGEST_GAP)
    if gap > 0:
        for (entity_id,) in gone:
            connection.execute(
                """INSERT INTO ticket (entity_id, number, time, patience, since) VALUES (?, 0, ?, 0, ?)
                ON CONFLICT (entity_id, number) DO UPDATE SET since = excluded.since, time = excluded.time""",
                (entity_id, now, until),
            )
            connection.execute("UPDATE ticket SET since = max(since, ?) WHERE entity_id = ?", (until, entity_id))
    return bool(gone)
