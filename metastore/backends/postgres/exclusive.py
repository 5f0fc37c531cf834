"""Rename, move, drop, restore, purge, enable or disable one entity: statement, parameters, meaning of its row.

These operations are exclusive: they raise the scope version, so they conflict with every guard on the entity.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from metastore.backends.postgres import parameters
from metastore.backends.postgres.fragments import (
    ALL_GUARDED,
    DURABLE,
    GENERATION,
    GUARDED,
    NO_LEASES,
    NOTED,
    NOW,
    OPERATION_COLUMNS,
    PATIENT,
    THEIR_TURN,
    WRITER,
    LeaseParts,
    marked,
)
from metastore.backends.postgres.parameters import Row, Statement
from metastore.backends.sql.comments import without_comments
from metastore.port.commit import Commit, CommitOutcome, Committed, Conflicted
from metastore.port.writes import Result, Update


def written(entity_id: str, lease: LeaseParts) -> str:
    """Return the CTEs after the compare-and-swap ``altered`` of an exclusive update of one entity.

    ``entity_id`` is an expression for the id that reads no rows, so that the planner looks up rows by it.
    """
    return f"""-- The new place, and the next scope version: every guard that saw the old one fails from now on.
-- Raises a unique violation (guard_live_name) where the new name is taken, which aborts all of it.
stands AS (
  UPDATE guard g SET scope_version = g.scope_version + 1, parent_id = coalesce(%(parent_id)s::bigint, g.parent_id),
    name = coalesce(%(name)s::text, g.name), key = coalesce(%(key)s::text, g.key),
    fold = coalesce(%(fold)s::boolean, g.fold), state = coalesce(%(state)s::smallint, g.state),
    in_use = coalesce(%(in_use)s::boolean, g.in_use), quiet_until = NULL,
    dropped_at = CASE %(state)s::smallint WHEN 0 THEN NULL WHEN 1 THEN {NOW} ELSE g.dropped_at END
  FROM altered WHERE g.id = altered.id AND g.id = {entity_id}
  RETURNING g.*),
-- The intents on the entity are sent away: their owners decide again, by the new path. The attempt counts, so that a
-- late claim of such a row fails.
withdrawn AS (
  UPDATE operation o SET action = 'moved', attempt = coalesce(o.attempt, 0) + 1
  FROM altered WHERE o.entity_id = {entity_id} AND o.action = 'pending'),
-- History, change event and result; the position is drawn from the rows that were written, after the last lock.
logged AS (
  INSERT INTO operation ({OPERATION_COLUMNS}, family, key{lease.column})
  SELECT {WRITER}, {GENERATION},
    %(operation_id)s::uuid, 0, nextval('change_seq'), altered.id, altered.version, NULL, %(kind)s::text,
    %(action)s::text, %(principal)s::text, altered.modified_at, %(path_before)s::text, %(path_after)s::text,
    %(changes)s::text, stands.scope_version, stands.in_use, altered.doc, %(digest)s::text,
    stands.parent_id, stands.name, stands.fold, stands.state,
    -- the name helps reads of the past to find who had it; noted only if the entity has it after this step
    CASE WHEN stands.state = 0 THEN stands.family END, CASE WHEN stands.state = 0 THEN stands.key END{lease.value}
  FROM altered, stands)"""


def _move(lease: LeaseParts) -> str:
    return without_comments(f"""WITH {GUARDED},
-- The entity's own guard, exclusively: waits for the sharers in flight, and makes new ones wait. Its id is larger than
-- those above (see ``fits`` below), so that all locks are taken in the ids' order and two moves do not
-- deadlock. It steps aside for a mark, and while it is the others' turn.
own AS MATERIALIZED (
  SELECT id FROM guard
  WHERE {ALL_GUARDED} AND (SELECT {PATIENT}) <> '' AND id = %(id)s::bigint
    AND scope_version = %(scope_version)s::bigint AND mark IS NULL AND {THEIR_TURN} IS NOT TRUE
  FOR UPDATE),
-- The compare-and-swap of the entity's row: an exclusive operation is a version too, so that an alter in flight,
-- which does not lock its own guard, meets it here.
altered AS (
  UPDATE entity SET version = version + 1, modified_by = %(principal)s::text, modified_at = {NOW}
  WHERE id = %(id)s::bigint AND version = %(version)s::bigint AND (SELECT count(*) FROM own) = 1 AND {DURABLE}
  RETURNING id, version, doc, modified_at),
{written("%(id)s::bigint", lease)}
-- one row, always: it says what was written, or which precondition did not hold
SELECT (SELECT count(*) FROM guarded) + (SELECT count(*) FROM own) AS held, altered.version, altered.modified_at,
  CASE WHEN altered.id IS NULL THEN {marked("%(guard_ids)s::bigint[] || %(id)s::bigint")}
    OR EXISTS (SELECT FROM guard WHERE id = %(id)s::bigint AND {THEIR_TURN}) END AS marked
FROM (SELECT 1) AS one LEFT JOIN altered ON true""")


MOVE, MOVE_NOTED = _move(NO_LEASES), _move(NOTED)


def fits(commit: Commit, write: Update) -> bool:
    """Whether an update is exclusive, keeps its document, needs no more checks, and has its guards in order.

    The statement locks the shared guards before the entity's own guard. Locks must be taken in the order of ids, so the
    shared guards must have smaller ids.
    """
    plain = write.scope_version is not None and write.doc is None and not write.empty and not commit.leases
    return plain and all(guard.id < write.id for guard in commit.guards)


def statements(commit: Commit, write: Update) -> list[Statement]:
    """Return the statement for a commit whose only write is exclusive and ``fits``."""
    values = {**moved_to(commit, write), "id": write.id, "scope_version": write.scope_version}
    return [parameters.writing(commit, values, MOVE, MOVE_NOTED)]


def moved_to(commit: Commit, write: Update) -> dict[str, Any]:
    """Return the parameters of an exclusive write, by id or by name."""
    place = write.place
    return {
        **parameters.of_one(commit, write),
        "version": write.version,
        "patience": parameters.patience(commit),
        "parent_id": place and place.parent_id,
        "name": place and place.name,
        "key": place and place.key,
        "fold": place and place.fold,
        "state": write.state,
        "in_use": write.in_use,
    }


class Moved(NamedTuple):
    """The statement's row: the columns of its last SELECT."""

    held: int
    """How many guards held, including the entity's own."""
    version: int | None
    """The new version; None: a precondition did not hold."""
    modified_at: int
    """The database's time (µs); None as for ``version``."""
    marked: bool | None
    """Whether a mark, or the others' turn, prevented it; None if the entity was changed."""


def outcome(commit: Commit, write: Update, row: Row) -> CommitOutcome:
    """Return the outcome that the statement's row means."""
    moved = Moved(*row)
    if moved.version is not None:
        return Committed((Result(write.id, moved.version, moved.modified_at),))
    if moved.held <= len(commit.guards):  # ``held`` counts the entity's own guard, too
        return Conflicted("marked" if moved.marked else "ancestor")
    return Conflicted("self")
