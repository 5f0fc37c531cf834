"""Create one entity together with its owner: the statement, its parameters, and the meaning of its row.

A user's create is this commit, because the user becomes the owner. It is one statement, like a plain create
(create.py), with one more row in each of two tables.
"""

from __future__ import annotations

from typing import NamedTuple

from metastore.backends.postgres import create
from metastore.backends.postgres.fragments import DURABLE, GENERATION, GUARDED, OPERATION_COLUMNS, WRITER, marked
from metastore.backends.postgres.parameters import Row, Statement
from metastore.backends.sql.comments import without_comments
from metastore.port.commit import Commit, CommitOutcome, Committed
from metastore.port.note import note_of
from metastore.port.relations import NO_COLUMN, NO_VALUE, ONLY
from metastore.port.writes import Insert, Relate, Result

CREATE_OWNED = without_comments(f"""WITH {GUARDED},
-- The id was reserved before: the commit names it in the relation too.
{create.placed("%(id)s::bigint")}
-- The owner. The key begins with the new id, so that no other statement has it, and nothing waits for the row.
owned AS (
  INSERT INTO relation (from_id, kind, slot, column_id, value, id, to_id, version, created_by, created_at, modified_by,
    modified_at)
  SELECT id, %(r_kind)s::text, {ONLY}, {NO_COLUMN}, '{NO_VALUE}', nextval('entity_id_seq'), %(r_to)s::bigint, 1,
    %(principal)s::text, created_at, %(principal)s::text, created_at
  FROM made
  RETURNING from_id, id, modified_at),
-- The entity's position, drawn from the rows that were made: after the last lock. Materialized: it is drawn once.
first AS MATERIALIZED (
  SELECT from_id AS id, id AS relation_id, modified_at AS time, nextval('change_seq') AS seq FROM owned),
-- The owner's position comes after it, and is the last of the commit, which both rows note.
done AS MATERIALIZED (SELECT first.*, nextval('change_seq') AS last FROM first),
-- History, change event and result of both. The operation id is in the key: a repeat fails. The first row has the
-- commit's note. In the past the relation is below the entity, and its id is its name.
logged AS (
  INSERT INTO operation ({OPERATION_COLUMNS}, family, key, through, fences, other_id, other_path)
  SELECT {WRITER}, {GENERATION}, %(operation_id)s::uuid, row.*
  FROM done d CROSS JOIN LATERAL (VALUES
    (0, d.seq, d.id, 1::bigint, NULL::bigint, %(kind)s::text, %(action)s::text, %(principal)s::text, d.time, NULL::text,
      %(path_after)s::text, %(changes)s::text, 1::bigint, true, %(doc)s::text, %(digest)s::text, %(parent_id)s::bigint,
      %(name)s::text, %(fold)s::boolean, 0::smallint, %(family)s::text, %(key)s::text, d.last, %(note)s::text,
      NULL::bigint, NULL::text),
    (1, d.last, d.relation_id, 1, d.id, %(r_kind)s::text, 'create', %(principal)s::text, d.time, NULL,
      %(path_after)s::text, %(changes)s::text, NULL, NULL, %(r_doc)s::text, NULL, d.id,
      d.relation_id::text, NULL, 0, %(r_kind)s::text, d.relation_id::text, d.last, NULL,
      %(r_to)s::bigint, %(r_path)s::text)) AS row
  WHERE {DURABLE})
-- one row, always: it says what was made, or which precondition did not hold
SELECT (SELECT count(*) FROM guarded) AS held, d.id, d.time AS created_at,
  CASE WHEN d.id IS NULL THEN {marked("%(guard_ids)s::bigint[]")} END AS marked, d.relation_id
FROM (SELECT 1) AS one LEFT JOIN done d ON true""")


class CreatedOwned(NamedTuple):
    """The statement's row: the columns of its last SELECT."""

    held: int
    """How many guards held."""
    id: int | None
    """The new entity; None: a precondition did not hold."""
    created_at: int
    """The database's time (µs); None as for ``id``."""
    marked: bool | None
    """Whether another operation's mark is on a guard; None if the entity was made."""
    relation_id: int
    """The relation to the owner; None as for ``id``."""


def fits(commit: Commit) -> bool:
    """Whether a commit without rare parts creates an entity with a reserved id, and its owner relation."""
    if len(commit.writes) != 2 or commit.leases or commit.ticket is not None or commit.carries or commit.reason:
        return False
    made, owner = commit.writes
    if not isinstance(made, Insert) or not isinstance(owner, Relate) or owner.version or owner.from_id != made.id:
        return False
    told = (owner.event.action, owner.event.path_after, owner.event.changes)
    only = owner.slot == ONLY and owner.column_id == NO_COLUMN and owner.value == NO_VALUE
    return only and told == ("create", made.event.path_after, made.event.changes)


def statement(commit: Commit) -> Statement:
    """Return the statement for a commit that fits."""
    made, owner = commit.writes
    assert isinstance(made, Insert)
    assert isinstance(owner, Relate)
    values = {
        **create.values(commit, made),
        "id": made.id,
        "note": note_of(commit),
        "r_kind": owner.kind,
        "r_to": owner.to_id,
        "r_doc": owner.doc,
        "r_path": owner.event.other_path,
    }
    return Statement(CREATE_OWNED, values, writes=True)


def outcome(commit: Commit, row: Row) -> CommitOutcome:
    """Return the outcome that the statement's row means."""
    created = CreatedOwned(*row)
    found = create.outcome(commit, row[:4])
    if not isinstance(found, Committed):
        return found
    return Committed((*found.results, Result(created.relation_id, 1, created.created_at)))
