"""Create one entity: the statement, its parameters, and the meaning of its row."""

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
    UNDER_LEASES,
    WRITER,
    LeaseParts,
    marked,
)
from metastore.backends.postgres.parameters import Row, Statement
from metastore.backends.sql.comments import without_comments
from metastore.port.commit import Commit, CommitOutcome, Committed, Conflicted
from metastore.port.writes import Insert, Result


def placed(entity_id: str, holds: str = "") -> str:
    """Return the CTEs that make an entity: its guard, its document. ``holds``: a further condition."""
    return f"""-- Takes the name. The unique index on live names makes a second create of the same name wait for this
-- one, and then do nothing: no name is taken twice, and no error aborts the transaction.
placed AS (
  INSERT INTO guard (id, parent_id, kind, family, name, key, fold, state, in_use, scope_version)
  SELECT {entity_id}, %(parent_id)s::bigint, %(kind)s::text, %(family)s::text, %(name)s::text,
    %(key)s::text, %(fold)s::boolean, 0, true, 1
  -- both counts are read here, so that all locks above are taken before the insert
  WHERE {ALL_GUARDED}{holds}
  ON CONFLICT (parent_id, family, key) WHERE state = 0 DO NOTHING
  RETURNING id),
-- The document, in a row of its own: the guard stays narrow. Locks nothing that another statement could wait for.
made AS (
  INSERT INTO entity (id, version, doc, created_by, created_at, modified_by, modified_at)
  SELECT id, 1, %(doc)s::text, %(principal)s::text, now.at, %(principal)s::text, now.at
  -- one reading of the clock, so that created_at and modified_at are equal
  FROM placed, (SELECT {NOW} AS at) AS now
  RETURNING id, created_at),"""


def _create(lease: LeaseParts) -> str:
    # the order of the CTEs is the order of the locks: guards, leases, the new name; then the position is drawn
    return without_comments(f"""WITH {GUARDED},{lease.cte}
{placed("nextval('entity_id_seq')", lease.holds)}
-- History, change event and result. Its position is drawn here, from the row that was made: after the last lock, so
-- that the feed's order is the order of commits on the same rows. The operation id is its key: a repeat fails.
logged AS (
  INSERT INTO operation ({OPERATION_COLUMNS}, family, key{lease.column})
  SELECT {WRITER}, {GENERATION},
    %(operation_id)s::uuid, 0, nextval('change_seq'), id, 1, NULL, %(kind)s::text, %(action)s::text,
    %(principal)s::text, created_at, NULL, %(path_after)s::text, %(changes)s::text, 1, true, %(doc)s::text,
    %(digest)s::text, %(parent_id)s::bigint, %(name)s::text, %(fold)s::boolean, 0, %(family)s::text,
    %(key)s::text{lease.value}
  FROM made WHERE {DURABLE})
-- one row, always: it says what was made, or which precondition did not hold
SELECT (SELECT count(*) FROM guarded) AS held, made.id, made.created_at,
  CASE WHEN made.id IS NULL THEN {marked("%(guard_ids)s::bigint[]")} END AS marked{lease.result}
FROM (SELECT 1) AS one LEFT JOIN made ON true""")


CREATE, CREATE_NOTED, CREATE_FENCED = _create(NO_LEASES), _create(NOTED), _create(UNDER_LEASES)


def statement(commit: Commit, write: Insert) -> Statement:
    """Return the statement for a commit whose only write is an insert."""
    return parameters.writing(commit, values(commit, write), CREATE, CREATE_NOTED, CREATE_FENCED)


def values(commit: Commit, write: Insert) -> dict[str, Any]:
    """Return the parameters of a create."""
    return {
        **parameters.of_one(commit, write),
        "parent_id": write.parent_id,
        "family": write.family,
        "name": write.name,
        "key": write.key,
        "fold": write.fold,
        "doc": write.doc,
    }


class Created(NamedTuple):
    """The statement's row, with the columns of its last SELECT."""

    held: int
    """How many guards held."""
    id: int | None
    """The new entity; None: a precondition did not hold."""
    created_at: int
    """The database's time (µs); None as for ``id``."""
    marked: bool | None
    """Whether another operation's mark is on a guard; None if the entity was made."""
    fenced: bool = True
    """Whether all leases still had their tokens."""


def outcome(commit: Commit, row: Row) -> CommitOutcome:
    """Return the outcome that the statement's row means."""
    created = Created(*row)
    if created.id is not None:
        return Committed((Result(created.id, 1, created.created_at),))
    if not created.fenced:
        return Conflicted("lease")
    if created.held == len(commit.guards):
        return Conflicted("name")
    return Conflicted("marked" if created.marked else "ancestor")
