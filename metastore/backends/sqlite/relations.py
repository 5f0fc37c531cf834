"""Relations on SQLite: the writes inside a commit's transaction, the reads, and the statements of gc."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from metastore.backends.precondition import PreconditionFailed
from metastore.port.conditions import Relations
from metastore.port.writes import Relate

_KEY = "from_id = ? AND kind = ? AND slot = ? AND column_id = ? AND value = ?"


def write(
    run: Any, relate: Relate, draw: Callable[[], int], by: str | None, now: int, *, skip: bool
) -> tuple[int, int] | None:
    """Write or remove a relation; return its (id, version), or None if it exists already and is skipped."""
    key = (relate.from_id, relate.kind, relate.slot, relate.column_id, relate.value)
    stored = run(f"SELECT id, version FROM relation WHERE {_KEY}", key).fetchone()
    if relate.version == 0:
        if stored is not None:
            if skip:
                return None
            raise PreconditionFailed("name", *stored)
        row_id = draw()
        run(
            """INSERT INTO relation (from_id, kind, slot, column_id, value, id, to_id, version, created_by, created_at,
            modified_by, modified_at) VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?)""",
            (*key, row_id, relate.to_id, by, now, by, now),
        )
        return row_id, 1
    if stored is None or stored[1] != relate.version or relate.id not in (0, stored[0]):
        raise PreconditionFailed("self", *(stored or (None, None)))
    if relate.removes:
        run("DELETE FROM relation WHERE id = ?", (stored[0],))
    else:
        run(
            "UPDATE relation SET to_id = ?, version = version + 1, modified_by = ?, modified_at = ? WHERE id = ?",
            (relate.to_id, by, now, stored[0]),
        )
    return stored[0], stored[1] + 1


def members(run: Any, read: Relations) -> set[tuple[int, int]]:
    """Return the (id, version) of the relations at an entity that a transaction has listed."""
    end = "to_id" if read.incoming else "from_id"
    slot, values = ("", ()) if read.slot is None else (" AND slot = ?", (read.slot,))
    sql = f"SELECT id, version FROM relation WHERE {end} = ? AND kind = ?{slot}"
    return set(run(sql, (read.id, read.kind, *values)))


def delete_relations(connection: Any, ids: Sequence[int], limit: int) -> int:
    """Delete a batch of relations of entities that are purging."""
    sql = """DELETE FROM relation WHERE id IN (
      SELECT id FROM relation WHERE from_id IN (SELECT value FROM json_each(:ids))
      UNION SELECT id FROM relation WHERE to_id IN (SELECT value FROM json_each(:ids)) LIMIT :limit)"""
    return int(connection.execute(sql, {"ids": json.dumps(list(ids)), "limit": limit}).rowcount)


def delete_missing(connection: Any, ids: Sequence[int]) -> int:
    """Delete those of these relations that have lost an end."""
    sql = """DELETE FROM relation WHERE id IN (SELECT value FROM json_each(:ids)) AND (
      NOT EXISTS (SELECT 1 FROM guard g WHERE g.id = from_id)
      OR NOT EXISTS (SELECT 1 FROM guard g WHERE g.id = to_id))"""
    return int(connection.execute(sql, {"ids": json.dumps(list(ids))}).rowcount)


def delete_columns(connection: Any, ids: Sequence[int]) -> int:
    """Delete relations of columns that were dropped."""
    sql = "DELETE FROM relation WHERE id IN (SELECT value FROM json_each(:ids)) AND column_id <> 0"
    return int(connection.execute(sql, {"ids": json.dumps(list(ids))}).rowcount)
