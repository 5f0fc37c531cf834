"""Relations on PostgreSQL: the parts of a general commit that write them, their reads, and gc's statements.

A commit takes shared guards on both ends and all their ancestors, as for a child. So no end can be dropped at the
moment when a relation is made. The rows themselves are locked last, by id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metastore.backends.postgres.fragments import DURABLE, NOW, fails_unless_seen
from metastore.backends.postgres.parameters import Statement, plain, texts
from metastore.backends.postgres.read_sql import each
from metastore.backends.sql.comments import without_comments
from metastore.port.conditions import Relations
from metastore.port.writes import Relate

# --- the parts of a commit

LOCKED_RELATIONS = without_comments("""
-- The relations to change or remove, by key at their expected version. The id tells a relation from one with the same
-- key that was made after it was removed (0: the commit makes it). The key is looked up for each: see read_sql.
locked_relations AS MATERIALIZED (
  SELECT r.id FROM unnest(%(r_from)s::bigint[], %(r_kinds)s::text[], %(r_slots)s::bigint[], %(r_columns)s::bigint[],
      %(r_values)s::text[], %(r_versions)s::bigint[], %(r_ids)s::bigint[])
    AS w(from_id, kind, slot, column_id, value, version, id)
  JOIN relation r ON r.from_id = w.from_id AND r.kind = w.kind AND r.slot = w.slot AND r.column_id = w.column_id
    AND r.value = w.value AND r.version = w.version AND w.id IN (0, r.id)
  -- version 0 is a new relation: nothing to lock, the primary key refuses a second one
  WHERE w.version > 0
  ORDER BY r.id FOR UPDATE OF r)""")

OWN_RELATIONS = "(SELECT count(*) FROM locked_relations) = %(r_known)s::bigint"

RELATION_WRITES = without_comments(f"""
-- What to write: version 0 is a new relation.
relation_wanted AS MATERIALIZED (
  SELECT * FROM unnest(%(r_ordinals)s::int[], %(r_from)s::bigint[], %(r_kinds)s::text[], %(r_slots)s::bigint[],
    %(r_columns)s::bigint[], %(r_values)s::text[], %(r_to)s::bigint[], %(r_versions)s::bigint[],
    %(r_removes)s::boolean[], %(r_docs)s::text[])
    AS w(ordinal, from_id, kind, slot, column_id, value, to_id, version, removes, doc)),
-- New relations, sorted by key: two commits wait for each other in one order. The primary key refuses a second one,
-- or skips it, as the commit says.
relation_made AS (
  INSERT INTO relation (from_id, kind, slot, column_id, value, id, to_id, version, created_by, created_at, modified_by,
    modified_at)
  SELECT from_id, kind, slot, column_id, value, nextval('entity_id_seq'), to_id, 1, %(principal)s::text, now.at,
    %(principal)s::text, now.at
  FROM relation_wanted, go, (SELECT {NOW} AS at) AS now WHERE version = 0
  ORDER BY from_id, kind, slot, column_id, value
  {{on_conflict}}
  RETURNING from_id, kind, slot, column_id, value, id, version, modified_at),
-- Another end for an exclusive relation, on rows that ``locked_relations`` holds.
relation_altered AS (
  UPDATE relation r SET to_id = w.to_id, version = r.version + 1, modified_by = %(principal)s::text,
    modified_at = {NOW}
  FROM relation_wanted w, go
  WHERE r.from_id = w.from_id AND r.kind = w.kind AND r.slot = w.slot AND r.column_id = w.column_id
    AND r.value = w.value AND w.version > 0 AND NOT w.removes
  RETURNING r.from_id, r.kind, r.slot, r.column_id, r.value, r.id, r.version, r.modified_at),
-- Removals, on rows that ``locked_relations`` holds: a removal is a version too, so that the history has no gap.
relation_removed AS (
  DELETE FROM relation r USING relation_wanted w, go
  WHERE r.from_id = w.from_id AND r.kind = w.kind AND r.slot = w.slot AND r.column_id = w.column_id
    AND r.value = w.value AND w.version > 0 AND w.removes
  RETURNING r.from_id, r.kind, r.slot, r.column_id, r.value, r.id, r.version + 1 AS version, {NOW} AS modified_at)""")

DONE_RELATIONS = without_comments("""SELECT w.ordinal, r.id, r.version, w.from_id, NULL::bigint, NULL::boolean, w.doc,
    r.modified_at,
    -- in the past, a relation is below the end that it goes from, and its id is its name
    w.from_id, r.id::text, NULL::boolean, (CASE WHEN w.removes THEN 1 ELSE 0 END)::smallint,
    CASE WHEN NOT w.removes THEN w.kind END, CASE WHEN NOT w.removes THEN r.id::text END
  FROM (SELECT * FROM relation_made UNION ALL SELECT * FROM relation_altered UNION ALL SELECT * FROM relation_removed) r
  JOIN relation_wanted w ON w.from_id = r.from_id AND w.kind = r.kind AND w.slot = r.slot
    AND w.column_id = r.column_id AND w.value = r.value""")


def parameters(relations: Mapping[int, Relate]) -> dict[str, Any]:
    """Return the parameters of the relations to write, by their ordinals."""
    rows = list(relations.values())
    return {
        "r_ordinals": plain(relations),
        "r_from": plain([w.from_id for w in rows]),
        "r_kinds": texts([w.kind for w in rows]),
        "r_slots": plain([w.slot for w in rows]),
        "r_columns": plain([w.column_id for w in rows]),
        "r_values": texts([w.value for w in rows]),
        "r_to": plain([w.to_id for w in rows]),
        "r_versions": plain([w.version for w in rows]),
        "r_ids": plain([w.id for w in rows]),
        "r_removes": plain([w.removes for w in rows]),
        "r_docs": texts([w.doc for w in rows]),
        "r_known": sum(w.version > 0 for w in rows),
    }


# --- the reads of a transaction

_THERE = {
    "all": "r.from_id = w.id AND r.kind = %(kind)s::text",
    "slot": "r.from_id = w.id AND r.kind = %(kind)s::text AND r.slot = w.slot",
    "incoming": "r.to_id = w.id AND r.kind = %(kind)s::text",
}
# The ends come from a row of their own. PostgreSQL treats the frequencies of two columns as independent: for the end
# with the most relations it would expect thousands in each slot, and read the whole table in the order of another
# index.
_CHECKS = {
    which: fails_unless_seen(
        "SELECT r.id, r.version FROM unnest(ARRAY[%(id)s::bigint], ARRAY[%(slot)s::bigint]) AS w(id, slot) "
        f"CROSS JOIN {each('relation', 'r', condition)}"
    )
    for which, condition in _THERE.items()
}
"""Two differences, one in each direction: no relation came, went or changed since the transaction listed them."""


def check(read: Relations) -> Statement:
    """Return the statement that fails if the relations at an entity differ from those that a transaction saw."""
    members = sorted(read.members)
    values = {
        "id": read.id,
        "kind": read.kind,
        "slot": read.slot,
        "ids": plain([m[0] for m in members]),
        "versions": plain([m[1] for m in members]),
    }
    return Statement(_CHECKS["incoming" if read.incoming else "all" if read.slot is None else "slot"], values)


# --- gc

DELETE_RELATIONS = without_comments(f"""WITH doomed AS MATERIALIZED (
  -- relations of purging ends, from both indexes; SKIP LOCKED: gc never waits for a commit
  SELECT id FROM ((SELECT id FROM relation WHERE from_id = ANY(%(ids)s::bigint[]) LIMIT %(limit)s)
    UNION (SELECT id FROM relation WHERE to_id = ANY(%(ids)s::bigint[]) LIMIT %(limit)s)) AS d),
locked AS MATERIALIZED (
  SELECT r.id FROM relation r WHERE r.id IN (SELECT id FROM doomed) ORDER BY r.id FOR UPDATE SKIP LOCKED),
gone AS (
  -- the ends again: an exclusive relation may have got another end since the first look
  DELETE FROM relation r USING locked l WHERE r.id = l.id AND {DURABLE}
    AND (r.from_id = ANY(%(ids)s::bigint[]) OR r.to_id = ANY(%(ids)s::bigint[]))
  RETURNING r.id)
SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM doomed)""")
"""Deletes a batch of relations of entities that are purging; returns how many it deleted, and how many it found."""

DELETE_MISSING = """DELETE FROM relation r WHERE r.id = ANY(%(ids)s::bigint[])
  AND (NOT EXISTS (SELECT FROM guard g WHERE g.id = r.from_id) OR NOT EXISTS (SELECT FROM guard g WHERE g.id = r.to_id))
  RETURNING 1"""

DELETE_COLUMNS = "DELETE FROM relation WHERE id = ANY(%(ids)s::bigint[]) AND column_id <> 0 RETURNING 1"
