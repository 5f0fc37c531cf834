"""The statements by which gc finds and deletes old rows, on both SQL databases."""

from __future__ import annotations

from metastore.backends.sql.comments import without_comments
from metastore.backends.sql.dialect import from_named
from metastore.port.conditions import DROPPED, PURGING
from metastore.port.format import SCHEMA_FORMAT

# "state <> 0" beside the wanted state, because the partial index guard_gone has this condition. In the order of this
# index, a page continues where the last one ended, and no page reads live entities.
_GONE = """SELECT parent_id, family, key, id FROM guard WHERE state <> 0 AND state = {}
  AND (parent_id, family, key, id) > (:parent_id, :family, :key, :id)
  ORDER BY parent_id, family, key, id LIMIT :page_size"""
DROPPED_BEFORE = _GONE.format(f"{DROPPED} AND dropped_at < :before")
PURGING_ROOTS = _GONE.format(PURGING)
# two searches, because live and dropped children are in two partial indexes
BELOW = """SELECT id FROM guard WHERE parent_id {among} AND state = 0
  UNION ALL SELECT id FROM guard WHERE parent_id {among} AND state <> 0
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

_NEVER = 1 << 62

# Keep the newest step, so that a consumer that has read the whole feed is after everything that was deleted. Keep a
# version as long as an older version, younger than the retention: a history must have no gap.
_NEEDLESS = """batch AS MATERIALIZED (
  SELECT operation_id, ordinal, seq, through, entity_id, version, time, state, parent_id, other_id, name, family, key
  FROM operation WHERE seq > :after ORDER BY seq LIMIT :page_size),
-- Each step with the version that its row has today, and with the step that replaced it. "seen" is the position from
-- which on the past shows a step. The versions are looked up one by one: a plan for any batch does not know how few
-- steps that is, and a join would read whole indexes from their beginning to the batch.
judged AS MATERIALIZED (
  SELECT b.operation_id, b.ordinal, b.seq, b.entity_id, b.version, b.time, b.state, b.parent_id, b.other_id, b.name,
    b.family, b.key, coalesce(b.through, b.seq) AS seen,
    coalesce((SELECT e.version FROM entity e WHERE e.id = b.entity_id),
      (SELECT w.version FROM owned w WHERE w.id = b.entity_id),
      (SELECT r.version FROM relation r WHERE r.id = b.entity_id)) AS current,
    (SELECT coalesce(n.through, n.seq) FROM operation n WHERE n.entity_id = b.entity_id AND n.version > b.version
      AND n.seq IS NOT NULL ORDER BY n.version LIMIT 1) AS next
  FROM batch b),
-- The last steps of rows that were dropped together with an ancestor, and from there upwards to the step that dropped
-- or purged the ancestor. A relation is dropped with one of its ends, so there is a way up from each end.
up(seq, way, height, seen, state, parent_id) AS (
  SELECT j.seq, w.way, 0, j.seen, j.state, CASE w.way WHEN 1 THEN j.parent_id ELSE j.other_id END
  FROM judged j JOIN (SELECT 1 AS way UNION ALL SELECT 2) w ON w.way = 1 OR j.other_id IS NOT NULL
  WHERE j.current IS NULL AND j.next IS NULL AND j.state = 0
  UNION ALL
  SELECT up.seq, up.way, up.height + 1, coalesce(n.through, n.seq), n.state, n.parent_id FROM up
  {newest_above}
  WHERE up.state = 0 AND up.height < 1000),
-- The position at which each of these was gone; 0 (long ago) if no step above it is left.
ended AS (
  SELECT seq, min(at) AS at FROM (
    SELECT seq, max(CASE WHEN state <> 0 THEN seen WHEN parent_id = 0 THEN {never} ELSE 0 END) AS at
    FROM up GROUP BY seq, way) ways
  GROUP BY seq),
-- The positions at which the past shows a step, or would show it as the newest if only older steps were deleted.
spans AS MATERIALIZED (
  SELECT j.*, CASE WHEN j.state IS NULL THEN 0 WHEN j.next IS NOT NULL THEN j.next WHEN j.state <> 0 THEN j.seen
      WHEN j.current IS NOT NULL THEN {never} ELSE coalesce(d.at, 0) END AS until,
    CASE WHEN j.next IS NULL AND j.state <> 0 THEN (SELECT min(coalesce(o.through, o.seq)) FROM operation o
      WHERE o.entity_id = j.entity_id AND o.version <= j.version AND o.seq IS NOT NULL) ELSE j.seen END AS since
  FROM judged j LEFT JOIN ended d ON d.seq = j.seq),
needless AS MATERIALIZED (
  SELECT s.* FROM spans s
  WHERE s.time < :before AND s.seq <= :unread AND s.until <= :horizon
    AND (s.current IS NULL OR s.version IS NULL OR s.version <= s.current - :keep)
    AND s.seq < (SELECT max(seq) FROM operation)
    AND NOT EXISTS (SELECT 1 FROM operation o
      WHERE o.entity_id = s.entity_id AND o.version < s.version AND o.time >= :before)
    AND NOT EXISTS (SELECT 1 FROM pin p WHERE p.seq >= s.since AND p.seq < s.until))"""


def _needless(parameter: str, newest_above: str) -> str:
    sql = _NEEDLESS.format(newest_above=newest_above, never=_NEVER)
    return without_comments(from_named(sql, parameter))


_pg_needless = _needless(
    "%(name)s::bigint",
    """CROSS JOIN LATERAL (SELECT * FROM operation n WHERE n.entity_id = up.parent_id AND n.version > 0
    AND n.seq IS NOT NULL ORDER BY n.version DESC LIMIT 1) n""",
)
POSTGRES_PAST_FROM = f"""WITH RECURSIVE {_pg_needless}
SELECT (SELECT max(seq) FROM batch), max(until) FROM needless"""
"""The last step that was looked at, and the first position of a complete past after the deletion."""

POSTGRES_DELETE_STEPS = without_comments(f"""
-- The next steps in the feed's order, then those among them that nothing needs any more. All this only reads.
WITH RECURSIVE {_pg_needless},
-- Locked in the feed's order, before the first deletion: two runs of gc wait for each other. The one that waited fails
-- (REPEATABLE READ) and looks again, because what it read is outdated: the other one has deleted steps, or has handed
-- their names on. Steps that became needless only now are left to the next run: past_from does not cover them.
doomed AS MATERIALIZED (
  SELECT o.operation_id, o.ordinal, n.seq, n.entity_id, n.version, n.parent_id, n.name, n.family, n.key,
    n.current IS NOT NULL AS alive
  FROM operation o JOIN needless n USING (operation_id, ordinal)
  WHERE n.until <= (SELECT past_from FROM info) ORDER BY o.seq FOR UPDATE OF o),
-- Deletes by the primary key; versions of rows that still exist are counted separately.
gone AS (
  DELETE FROM operation o USING doomed d WHERE o.operation_id = d.operation_id AND o.ordinal = d.ordinal
  RETURNING o.seq, d.alive),
-- The first step that stays replaces the one that took the name, for reads of the past that look for the name.
named AS (
  UPDATE operation o SET family = d.family, key = d.key FROM doomed d
  WHERE d.key IS NOT NULL AND o.entity_id = d.entity_id AND o.version = (SELECT min(n.version) FROM operation n
    WHERE n.entity_id = d.entity_id AND n.version > d.version AND n.seq IS NOT NULL
      AND n.seq NOT IN (SELECT seq FROM doomed))
    AND o.key IS NULL AND o.parent_id = d.parent_id AND o.name = d.name),
-- Notes the last position that was deleted, so that a consumer which resumes before it learns that it is too late.
noted AS (
  UPDATE info SET writer = {SCHEMA_FORMAT}, collected_seq = greatest(collected_seq, g.last)
  FROM (SELECT coalesce(max(seq), 0) AS last FROM gone) g WHERE g.last > collected_seq)
SELECT (SELECT max(seq) FROM batch), (SELECT count(*) FROM gone WHERE alive),
  (SELECT count(*) FROM gone WHERE NOT alive)""")

FORGET_PINS = "DELETE FROM pin WHERE expires_at < :now"

_sqlite_needless = _needless(
    ":name",
    """JOIN operation n ON n.entity_id = up.parent_id AND n.version = (SELECT max(v.version) FROM operation v
    WHERE v.entity_id = up.parent_id AND v.seq IS NOT NULL)""",
)
SQLITE_LOOKED_AT = "SELECT max(seq) FROM (SELECT seq FROM operation WHERE seq > :after ORDER BY seq LIMIT :page_size)"
SQLITE_NEEDLESS = f"""WITH RECURSIVE {_sqlite_needless}
SELECT seq, current IS NOT NULL, until, entity_id, version, parent_id, name, family, key FROM needless"""
SQLITE_NAMED = """UPDATE operation SET family = :family, key = :key
WHERE entity_id = :entity_id AND key IS NULL AND parent_id = :parent_id AND name = :name
  AND version = (SELECT min(n.version) FROM operation n
    WHERE n.entity_id = :entity_id AND n.version > :version AND n.seq IS NOT NULL)"""
