"""Rename or drop a child by its name below remembered parents: the statements, and the meaning of their row.

A commit with the entity's id needs a read first. This one saves the read: it finds the entity while it holds the locks
of the parents' guards. It leaves two cases to a commit that reads: a parent that was created after its child, and a
document that is too long for the answer.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from metastore.backends.postgres.exclusive import moved_to, written
from metastore.backends.postgres.fragments import ALL_GUARDED, DURABLE, GUARDED, NOTED, NOW, PATIENT, THEIR_TURN
from metastore.backends.postgres.parameters import Row, Statement
from metastore.backends.postgres.read_sql import each
from metastore.backends.sql.comments import without_comments
from metastore.backends.sql.reads import NODE
from metastore.port.commit import Commit, CommitOutcome, Committed, Conflicted
from metastore.port.note import note_of
from metastore.port.records import Node, Record
from metastore.port.writes import Result, Update

_LONGEST: Final = 64 << 10
"""How many bytes the document in the answer may have: see together/alter.py."""

# the same condition on the state as in the unique index, so that the planner can use the index
_NAMED: Final = """g.parent_id = %(below)s::bigint AND g.family = %(family)s::text AND g.key = %(named)s::text
    AND (g.state = 0 OR g.state = 3)"""

MOVE_NAMED: Final = without_comments(f"""WITH {GUARDED},
-- The entity that has the name in this snapshot. It is looked up by the whole name, in every plan that the server may
-- keep.
there AS MATERIALIZED (SELECT g.id FROM (SELECT 1) AS one CROSS JOIN {each("guard", "g", _NAMED)}),
-- Its guard, exclusively: waits for the sharers in flight, and makes new ones wait. After a wait the conditions are
-- evaluated again on the newest row: an entity that was renamed, moved or dropped meanwhile no longer fits, and one
-- that has its name now is not in the snapshot. Its id is larger than those above, as in exclusive.py: no deadlocks.
own AS MATERIALIZED (
  SELECT g.id, g.kind, g.name, g.scope_version, g.in_use, g.fold FROM guard g
  WHERE {ALL_GUARDED} AND (SELECT {PATIENT}) <> '' AND g.id = (SELECT id FROM there) AND {_NAMED}
    AND g.state = 0 AND g.kind = %(kind)s::text AND g.id > ALL(%(guard_ids)s::bigint[])
    AND g.mark IS NULL AND {THEIR_TURN} IS NOT TRUE
  FOR UPDATE),
-- The entity's row: an alter in flight meets it here. Any version will do, unless one is expected.
altered AS (
  UPDATE entity SET version = version + 1, modified_by = %(principal)s::text, modified_at = {NOW}
  WHERE id = (SELECT id FROM own) AND (SELECT count(*) FROM own) = 1 AND {DURABLE}
    AND %(version)s::bigint IN (0, version) AND (%(name)s::text IS NULL OR octet_length(doc) <= {_LONGEST})
  RETURNING id, version, doc, created_by, created_at, modified_at),
{written("(SELECT id FROM own)", NOTED)}
-- one row, always: it says what was written, and what was there; or that a precondition did not hold
SELECT altered.version, altered.modified_at, {NODE.format("own")},
  CASE WHEN %(name)s::text IS NOT NULL THEN altered.doc END AS doc, altered.created_by, altered.created_at
FROM (SELECT 1) AS one LEFT JOIN altered ON true LEFT JOIN own ON own.id = altered.id""")

# Runs after MOVE_NAMED, in the same transaction. MOVE_NAMED holds the lock for which creates of children wait, and the
# snapshot of this statement is newer (checks.py). The operation's own row names the entity; no row means that nothing
# was written. Behind a pooler, the session's planner settings do not apply. The planner does not know the parent. If
# one schema has nearly all tables, it would scan all guards for a parent without children, while locks are held. ORDER
# BY makes it look up the first child in the index.
EMPTY: Final = without_comments("""SELECT 1 / (CASE WHEN (SELECT g.id FROM guard g
    WHERE g.parent_id = (SELECT entity_id FROM operation WHERE operation_id = %(operation_id)s::uuid AND ordinal = 0)
      AND (g.state = 0 OR g.state = 3)
    ORDER BY g.family, g.key LIMIT 1) IS NULL
  THEN 1 ELSE 0 END)""")
"""Fails (NOT_EMPTY) if the entity that the operation has dropped has children."""


def statements(commit: Commit, write: Update) -> list[Statement]:
    """Return the statements for a commit whose only write is by name."""
    named = write.named
    assert named is not None
    below = {"below": named.parent_id, "family": named.family, "named": named.key}
    values = {**moved_to(commit, write), **below, "fold": None, "note": note_of(commit)}
    empty = [Statement(EMPTY, {"operation_id": commit.operation_id})] if write.empty else []
    return [Statement(MOVE_NAMED, values, writes=True), *empty]


class MovedByName(NamedTuple):
    """The statement's row, with the columns of its last SELECT."""

    version: int | None
    """The new version; None: a precondition did not hold, and all columns are None."""
    modified_at: int
    """The database's time (µs)."""
    id: int
    kind: str
    name: str
    scope_version: int
    in_use: bool
    fold: bool
    doc: str
    """None for a drop: its caller needs no document."""
    created_by: str | None
    created_at: int

    @property
    def found(self) -> Record:
        """The entity as it was found, without its last modifier, which is not needed."""
        node = Node(self.id, self.kind, self.name, self.scope_version, self.in_use, self.fold)
        return Record((node,), (self.version or 0) - 1, self.doc, self.created_by, self.created_at, None, 0)


def outcome(_: Commit, write: Update, row: Row) -> CommitOutcome:
    """Return the outcome that the statement's row means.

    A conflict has no exact cause, so the call reads and commits again.
    """
    moved = MovedByName(*row)
    if moved.version is None:
        return Conflicted("self")
    found = None if write.place is None else moved.found
    return Committed((Result(moved.id, moved.version, moved.modified_at, found=found),))
