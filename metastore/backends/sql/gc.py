"""The statements with which gc finds and deletes old rows, on both SQL databases."""

from __future__ import annotations

from metastore.backends.sql.comments import without_comments
from metastore.port.commit import DROPPED, PURGING

__all__ = [
    "BELOW",
    "DROPPED_BEFORE",
    "POSTGRES_DELETE_ENTITIES",
    "POSTGRES_DELETE_STEPS",
    "PURGING_ROOTS",
    "SQLITE_DOOMED",
    "SQLITE_LOOKED_AT",
    "SQLITE_NEEDLESS",
]

# "state <> 0" beside the state that is meant: the partial index guard_gone needs it
DROPPED_BEFORE = f"""SELECT id FROM guard WHERE state <> 0 AND state = {DROPPED} AND dropped_at < :before
  ORDER BY id LIMIT :page_size"""
PURGING_ROOTS = f"SELECT id FROM guard WHERE state <> 0 AND state = {PURGING} ORDER BY id LIMIT :page_size"
# two searches, because live and dropped children are in two partial indexes
BELOW = """SELECT id, kind FROM guard WHERE parent_id = :entity_id AND state = 0
  UNION ALL SELECT id, kind FROM guard WHERE parent_id = :entity_id AND state <> 0
  LIMIT :page_size"""

_CHILDLESS = """NOT EXISTS (SELECT 1 FROM guard c WHERE c.parent_id = guard.id AND c.state = 0)
    AND NOT EXISTS (SELECT 1 FROM guard c WHERE c.parent_id = guard.id AND c.state <> 0)"""

POSTGRES_DELETE_ENTITIES = without_comments(f"""WITH doomed AS MATERIALIZED (
  -- Entities below a purged root, without children of their own. FOR UPDATE: no create passes its guard meanwhile. SKIP
  -- LOCKED: gc never waits for a commit, and never deadlocks with one; the next batch finds what is left.
  SELECT id FROM guard WHERE id = ANY(%(ids)s::bigint[]) AND {_CHILDLESS} ORDER BY id FOR UPDATE SKIP LOCKED),
-- The rows of each table. The ids are named twice: the array makes the plan look each of them up by the index.
gone_owned AS (DELETE FROM owned WHERE owner_id = ANY(%(ids)s::bigint[]) AND owner_id IN (SELECT id FROM doomed)),
gone_entity AS (DELETE FROM entity WHERE id = ANY(%(ids)s::bigint[]) AND id IN (SELECT id FROM doomed)),
gone AS (DELETE FROM guard WHERE id = ANY(%(ids)s::bigint[]) AND id IN (SELECT id FROM doomed) RETURNING id)
SELECT count(*) FROM gone""")

SQLITE_DOOMED = f"SELECT id FROM guard WHERE id IN (SELECT value FROM json_each(:ids)) AND {_CHILDLESS}"

_LOOKED_AT = """SELECT seq, operation_id, ordinal, entity_id, version, time FROM operation
  WHERE seq > {after} ORDER BY seq LIMIT {limit}"""
# the newest step stays, so that a consumer that reads all of the feed ends after what was collected
# (a version stays needed while one that is older, and younger than the retention, is kept: no gap in a history)
_NEEDLESS = """SELECT b.seq, b.operation_id, b.ordinal, coalesce(e.version, w.version, r.version) IS NOT NULL AS alive
  FROM batch b LEFT JOIN entity e ON e.id = b.entity_id LEFT JOIN owned w ON w.id = b.entity_id
    LEFT JOIN relation r ON r.id = b.entity_id
  WHERE b.time < {before} AND coalesce(b.version <= coalesce(e.version, w.version, r.version) - {keep}, true)
    AND b.seq < (SELECT max(seq) FROM operation)
    AND NOT EXISTS (SELECT 1 FROM operation o
      WHERE o.entity_id = b.entity_id AND o.version < b.version AND o.time >= {before})"""


def _parts(parameter: str) -> tuple[str, str]:
    names = {n: parameter.replace("name", n) for n in ("after", "limit", "before", "keep")}
    return _LOOKED_AT.format(**names), _NEEDLESS.format(**names)


_pg_batch, _pg_needless = _parts("%(name)s::bigint")
POSTGRES_DELETE_STEPS = without_comments(f"""
-- The next steps in the feed's order, then those among them that nothing needs any more. Both only read.
WITH batch AS MATERIALIZED ({_pg_batch}),
needless AS MATERIALIZED ({_pg_needless}),
-- Locked in the feed's order, before the first deletion: two runs of gc wait for each other and do not deadlock.
doomed AS MATERIALIZED (
  SELECT o.operation_id, o.ordinal, n.alive FROM operation o JOIN needless n USING (operation_id, ordinal)
  ORDER BY o.seq FOR UPDATE OF o),
-- Deletes by the primary key; it counts versions of what still lives apart from the rest.
gone AS (
  DELETE FROM operation o USING doomed d WHERE o.operation_id = d.operation_id AND o.ordinal = d.ordinal
  RETURNING o.seq, d.alive),
-- Notes the last position that was deleted, so that a consumer which resumes before it learns that it is too late.
noted AS (
  UPDATE info SET collected_seq = greatest(collected_seq, g.last)
  FROM (SELECT coalesce(max(seq), 0) AS last FROM gone) g WHERE g.last > collected_seq)
SELECT (SELECT max(seq) FROM batch), (SELECT count(*) FROM gone WHERE alive),
  (SELECT count(*) FROM gone WHERE NOT alive)""")

_sqlite_batch, _sqlite_needless = _parts(":name")
SQLITE_LOOKED_AT = f"SELECT max(seq) FROM ({_sqlite_batch})"
SQLITE_NEEDLESS = f"WITH batch AS ({_sqlite_batch}) {_sqlite_needless}"
