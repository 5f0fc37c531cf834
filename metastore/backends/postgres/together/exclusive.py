"""Rename, move, drop, enable or disable many entities: the statement and its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from metastore.backends.postgres.fragments import DURABLE, GENERATION, NOW, OPERATION_COLUMNS, THEIR_TURN, WRITER
from metastore.backends.postgres.parameters import Statement, plain, texts
from metastore.backends.postgres.together.guards import GUARDED, flag, guard_sets
from metastore.backends.sql.comments import without_comments
from metastore.port.batches import Single
from metastore.port.writes import Update

EXCLUSIVE_TOGETHER: Final = without_comments(f"""WITH
-- What the members want: one row for each entity.
wanted AS MATERIALIZED (
  SELECT * FROM unnest(%(ids)s::bigint[], %(versions)s::bigint[], %(scopes)s::bigint[], %(sets)s::int[],
      %(states)s::smallint[], %(parents)s::bigint[], %(names)s::text[], %(keys)s::text[], %(folds)s::boolean[],
      %(operations)s::uuid[], %(principals)s::text[], %(kinds)s::text[], %(actions)s::text[], %(before)s::text[],
      %(after)s::text[], %(changes)s::text[], %(follows)s::uuid[])
    WITH ORDINALITY AS w(id, version, scope, guards, state, parent_id, name, key, fold, operation_id, principal, kind,
      action, path_before, path_after, changes, follows, n)),
{GUARDED},
-- The entities' own guards, exclusively, by id, after the shared ones: waits for the sharers in flight, and makes new
-- ones wait. A mark, and the others' turn, keep their members out.
own AS MATERIALIZED (
  SELECT g.id, g.scope_version, g.in_use, g.family FROM guard g
  WHERE g.id = ANY(%(ids)s::bigint[]) AND g.mark IS NULL AND {THEIR_TURN} IS NOT TRUE
    AND (SELECT count(*) FROM broken) >= 0
  ORDER BY g.id FOR UPDATE{{skip}}),
-- The entities' rows, by id, after their guards.
rows AS MATERIALIZED (
  SELECT e.id, e.version, e.doc FROM entity e
  WHERE e.id = ANY(%(ids)s::bigint[]) AND (SELECT count(*) FROM own) >= 0
  ORDER BY e.id FOR NO KEY UPDATE{{skip}}),
-- Each member by itself: its guards, its scope version, its version; and the state of the entity that has its new name.
-- One that was decided behind alters of the same batch needs their commit: another commit can make the same version.
judged AS MATERIALIZED (
  SELECT w.*, r.doc, o.in_use, o.family,
    o.scope_version = w.scope AND r.version = w.version AND w.guards NOT IN (SELECT number FROM broken)
      AND (w.follows IS NULL OR w.version = (SELECT s.version FROM operation s
        WHERE s.operation_id = w.follows AND s.ordinal = 0)) AS fits,
    (SELECT t.state FROM guard t WHERE t.parent_id = w.parent_id AND t.family = o.family AND t.key = w.key
      AND (t.state = 0 OR t.state = 3) AND t.id <> w.id) AS taken
  FROM wanted w JOIN own o ON o.id = w.id JOIN rows r ON r.id = w.id),
-- The gate of each member, and one reading of the clock.
go AS MATERIALIZED (
  SELECT j.*, now.at FROM judged j, (SELECT {NOW} AS at) AS now
  -- the count reads, and so locks, all rows before the first is written; a member whose name is taken is left out, and
  -- affects no other; a name that is taken at this moment fails the batch
  WHERE {flag("j.fits AND j.taken IS NULL")} AND (SELECT count(*) FROM rows) > 0 AND (SELECT {DURABLE})
  -- by name: two batches that take the same names wait in one order
  ORDER BY j.parent_id, j.family, j.key, j.n),
-- The compare-and-swap, on rows that are locked at the expected version: an exclusive operation is a version too.
altered AS (
  UPDATE entity e SET version = go.version + 1, modified_by = go.principal, modified_at = go.at
  FROM go WHERE e.id = go.id AND e.id = ANY(%(ids)s::bigint[])),
-- The new state or place, and the next scope version: every guard that saw the old one fails from now on. A name that
-- is taken raises a unique violation (guard_live_name), which aborts the batch.
stands AS (
  UPDATE guard g SET scope_version = go.scope + 1, state = coalesce(go.state, g.state), quiet_until = NULL,
    parent_id = coalesce(go.parent_id, g.parent_id), name = coalesce(go.name, g.name), key = coalesce(go.key, g.key),
    fold = coalesce(go.fold, g.fold),
    dropped_at = CASE go.state WHEN 0 THEN NULL WHEN 1 THEN go.at ELSE g.dropped_at END
  FROM go WHERE g.id = go.id AND g.id = ANY(%(ids)s::bigint[])
  RETURNING go.operation_id, go.id, go.version, go.kind, go.action, go.principal, go.at, go.path_before, go.path_after,
    go.changes, go.scope, go.in_use, go.doc, go.n, g.parent_id, g.name, g.fold, g.state, g.family, g.key),
-- The intents on the entities are sent away: their owners decide again. The attempt counts, so that a late claim fails.
withdrawn AS (
  UPDATE operation o SET action = 'moved', attempt = coalesce(o.attempt, 0) + 1
  FROM go WHERE o.entity_id = go.id AND o.entity_id = ANY(%(ids)s::bigint[]) AND o.action = 'pending'),
-- Sorting is a barrier: no position is drawn before the last name was taken.
done AS MATERIALIZED (SELECT * FROM stands ORDER BY n),
-- The generation, read once: after the last lock.
alone AS MATERIALIZED (SELECT {GENERATION} AS generation FROM (SELECT count(*) FROM done) AS locked),
-- History, change event and result of each.
logged AS (
  INSERT INTO operation ({OPERATION_COLUMNS}, family, key)
  SELECT {WRITER}, (SELECT generation FROM alone),
    operation_id, 0, nextval('change_seq'), id, version + 1, NULL, kind, action, principal, at, path_before,
    path_after, changes, scope + 1, in_use, doc, NULL, parent_id, name, fold, state,
    CASE WHEN state = 0 THEN family END, CASE WHEN state = 0 THEN key END
  FROM done ORDER BY n)
SELECT n, id, version + 1, at FROM done
-- The other members that would be applied if no live entity had their new name.
UNION ALL SELECT n, NULL, NULL, NULL FROM judged WHERE fits AND taken = 0""")
_EXCLUSIVE: Final = {skip: EXCLUSIVE_TOGETHER.format(skip=" SKIP LOCKED" if skip else "") for skip in (False, True)}


def exclusive_statement(updates: Sequence[Single], patience: int) -> Statement:
    """Return the statement that applies these updates. Without patience (0) it skips locked rows."""
    values, numbers = guard_sets([one.guards for one in updates], patience)
    rows = [one.write for one in updates if isinstance(one.write, Update)]
    places = [w.place for w in rows]
    values |= {
        "ids": plain([w.id for w in rows]),
        "versions": plain([w.version for w in rows]),
        "scopes": plain([w.scope_version for w in rows]),
        "sets": plain(numbers),
        "states": plain([w.state for w in rows]),
        "parents": plain([None if p is None else p.parent_id for p in places]),
        "names": texts([None if p is None else p.name for p in places]),
        "keys": texts([None if p is None else p.key for p in places]),
        "folds": plain([None if p is None else p.fold for p in places]),
        "operations": plain([one.operation_id for one in updates]),
        "principals": texts([one.principal for one in updates]),
        "kinds": texts([w.event.kind for w in rows]),
        "actions": texts([w.event.action for w in rows]),
        "before": texts([w.event.path_before for w in rows]),
        "after": texts([w.event.path_after for w in rows]),
        "changes": texts([w.event.changes for w in rows]),
        "follows": plain([one.follows for one in updates]),
    }
    return Statement(_EXCLUSIVE[patience == 0], values, writes=True)
