"""The hot statements of a commit on PostgreSQL: a single entity that is made, altered, or changed exclusively.

Each is what :mod:`metastore.backends.postgres.batch_sql` says of all statements, for one write.
"""

from __future__ import annotations

from metastore.backends.postgres.batch_sql import (
    ALL_FENCED,
    ALL_GUARDED,
    DURABLE,
    FENCED,
    GUARDED,
    NOW,
    OPERATION_COLUMNS,
    PATIENT,
    THEIR_TURN,
    marked,
)
from metastore.port.commit import FORMAT

__all__ = ["ALTER", "ALTER_FENCED", "CREATE", "CREATE_FENCED", "MOVE"]

_GUARDS_MARKED = marked("%(guard_ids)s::bigint[]")


def _fence(fenced: bool) -> tuple[str, str, str, str, str]:
    """What a statement has more that is made under leases: a CTE, a condition, a column and its value, a result."""
    if not fenced:
        return "", "", "", "", ""
    return f"\n{FENCED},", f" AND {ALL_FENCED}", ", fences", ", %(fences)s::text", f", {ALL_FENCED} AS fenced"


def _create(*, fenced: bool) -> str:
    first, holds, column, fences, held = _fence(fenced)
    return f"""WITH {GUARDED},{first}
placed AS (
  INSERT INTO guard (id, parent_id, kind, family, name, key, fold, state, in_use, scope_version)
  SELECT nextval('entity_id_seq'), %(parent_id)s::bigint, %(kind)s::text, %(family)s::text, %(name)s::text,
    %(key)s::text, %(fold)s::boolean, 0, true, 1
  WHERE {ALL_GUARDED}{holds}
  ON CONFLICT (parent_id, family, key) WHERE state = 0 DO NOTHING
  RETURNING id),
made AS (
  INSERT INTO entity (id, version, doc, created_by, created_at, modified_by, modified_at)
  SELECT id, 1, %(doc)s::text, %(principal)s::text, now.at, %(principal)s::text, now.at
  FROM placed, (SELECT {NOW} AS at) AS now
  RETURNING id, created_at),
logged AS (
  INSERT INTO operation ({OPERATION_COLUMNS}{column})
  SELECT %(operation_id)s::uuid, 0, nextval('change_seq'), id, 1, NULL, %(kind)s::text, %(action)s::text,
    %(principal)s::text, created_at, NULL, %(path_after)s::text, %(changes)s::text, 1, true, %(doc)s::text,
    %(digest)s::text{fences}
  FROM made WHERE {DURABLE})
SELECT (SELECT count(*) FROM guarded) AS held, made.id, made.created_at,
  CASE WHEN made.id IS NULL THEN {_GUARDS_MARKED} END AS marked{held}
FROM (SELECT 1) AS one LEFT JOIN made ON true"""


CREATE, CREATE_FENCED = _create(fenced=False), _create(fenced=True)

_PENDING_ON = f"EXISTS (SELECT FROM operation WHERE entity_id = {{}} AND action = 'pending' AND format <= {FORMAT})"


def _alter(*, fenced: bool) -> str:
    first, holds, column, fences, held = _fence(fenced)
    return f"""WITH {GUARDED},{first}
own AS MATERIALIZED (SELECT scope_version, in_use FROM guard WHERE id = %(id)s::bigint
  AND (mark IS NULL OR mark = %(operation_id)s::uuid)),
altered AS (
  UPDATE entity SET version = version + 1, doc = %(doc)s::text,
    modified_by = %(principal)s::text, modified_at = {NOW}
  WHERE id = %(id)s::bigint AND version = %(version)s::bigint AND {ALL_GUARDED}{holds} AND (SELECT true FROM own)
    AND NOT {_PENDING_ON.format("%(id)s::bigint")}
  RETURNING id, version, modified_at),
logged AS (
  INSERT INTO operation ({OPERATION_COLUMNS}{column})
  SELECT %(operation_id)s::uuid, 0, nextval('change_seq'), altered.id, altered.version, NULL, %(kind)s::text,
    %(action)s::text, %(principal)s::text, altered.modified_at, %(path_before)s::text, %(path_after)s::text,
    %(changes)s::text, own.scope_version, own.in_use, %(doc)s::text, %(digest)s::text{fences}
  FROM altered, own WHERE {DURABLE})
SELECT (SELECT count(*) FROM guarded) AS held, altered.version, altered.modified_at,
  CASE WHEN altered.id IS NULL THEN (SELECT version FROM entity WHERE id = %(id)s::bigint) END AS found,
  CASE WHEN altered.id IS NULL THEN EXISTS (SELECT FROM guard
    WHERE (id = %(id)s::bigint OR id = ANY(%(guard_ids)s::bigint[])) AND mark <> %(operation_id)s::uuid)
    END AS marked{held}
FROM (SELECT 1) AS one LEFT JOIN altered ON true"""


ALTER, ALTER_FENCED = _alter(fenced=False), _alter(fenced=True)

MOVE = f"""WITH {GUARDED},
own AS MATERIALIZED (
  SELECT id FROM guard
  WHERE {ALL_GUARDED} AND (SELECT {PATIENT}) <> '' AND id = %(id)s::bigint
    AND scope_version = %(scope_version)s::bigint AND mark IS NULL AND {THEIR_TURN} IS NOT TRUE
  FOR UPDATE),
altered AS (
  UPDATE entity SET version = version + 1, modified_by = %(principal)s::text, modified_at = {NOW}
  WHERE id = %(id)s::bigint AND version = %(version)s::bigint AND (SELECT count(*) FROM own) = 1 AND {DURABLE}
  RETURNING id, version, doc, modified_at),
stands AS (
  UPDATE guard g SET scope_version = g.scope_version + 1, parent_id = coalesce(%(parent_id)s::bigint, g.parent_id),
    name = coalesce(%(name)s::text, g.name), key = coalesce(%(key)s::text, g.key),
    fold = coalesce(%(fold)s::boolean, g.fold), state = coalesce(%(state)s::smallint, g.state),
    in_use = coalesce(%(in_use)s::boolean, g.in_use), quiet_until = NULL,
    dropped_at = CASE %(state)s::smallint WHEN 0 THEN NULL WHEN 1 THEN {NOW} ELSE g.dropped_at END
  FROM altered WHERE g.id = altered.id AND g.id = %(id)s::bigint
  RETURNING g.scope_version, g.in_use),
withdrawn AS (
  UPDATE operation o SET action = 'moved', attempt = coalesce(o.attempt, 0) + 1
  FROM altered WHERE o.entity_id = %(id)s::bigint AND o.action = 'pending'),
logged AS (
  INSERT INTO operation ({OPERATION_COLUMNS})
  SELECT %(operation_id)s::uuid, 0, nextval('change_seq'), altered.id, altered.version, NULL, %(kind)s::text,
    %(action)s::text, %(principal)s::text, altered.modified_at, %(path_before)s::text, %(path_after)s::text,
    %(changes)s::text, stands.scope_version, stands.in_use, altered.doc, %(digest)s::text
  FROM altered, stands)
SELECT (SELECT count(*) FROM guarded) + (SELECT count(*) FROM own) AS held, altered.version, altered.modified_at,
  CASE WHEN altered.id IS NULL THEN {marked("%(guard_ids)s::bigint[] || %(id)s::bigint")}
    OR EXISTS (SELECT FROM guard WHERE id = %(id)s::bigint AND {THEIR_TURN}) END AS marked
FROM (SELECT 1) AS one LEFT JOIN altered ON true"""
"""Rename, move, drop, restore, purge, enable, disable. The shared guards must have smaller ids than the entity's own:
locks are taken in the ids' order. Intents that are pending on the entity are sent away."""
