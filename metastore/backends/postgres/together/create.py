"""Create many entities: the statement and its parameters."""

from __future__ import annotations

from collections.abc import Sequence

from metastore.backends.postgres.fragments import DURABLE, GENERATION, NOW, OPERATION_COLUMNS, WRITER
from metastore.backends.postgres.parameters import Statement, plain, texts
from metastore.backends.postgres.together.guards import GUARDED, guard_sets
from metastore.backends.sql.comments import without_comments
from metastore.port.batches import Single
from metastore.port.writes import Insert

CREATE_TOGETHER = without_comments(f"""WITH {GUARDED.format(skip="")},
-- The new entities whose guards hold, sorted by name: two batches that take the same names wait in one order.
-- Materialized: each id is drawn once.
fresh AS MATERIALIZED (
  SELECT w.*, nextval('entity_id_seq') AS id, now.at
  FROM (SELECT * FROM unnest(%(parents)s::bigint[], %(families)s::text[], %(keys)s::text[], %(kinds)s::text[],
      %(names)s::text[], %(folds)s::boolean[], %(docs)s::text[], %(operations)s::uuid[], %(principals)s::text[],
      %(paths)s::text[], %(changes)s::text[], %(sets)s::int[])
    WITH ORDINALITY AS w(parent_id, family, key, kind, name, fold, doc, operation_id, principal, path, changes,
      guards, n)
    WHERE w.guards NOT IN (SELECT number FROM broken) ORDER BY w.parent_id, w.family, w.key) w,
    (SELECT {NOW} AS at) AS now),
-- Takes the names. A member whose name is taken is left out, and affects no other: its request looks again, alone.
placed AS (
  INSERT INTO guard (id, parent_id, kind, family, name, key, fold, state, in_use, scope_version)
  SELECT id, parent_id, kind, family, name, key, fold, 0, true, 1 FROM fresh WHERE (SELECT {DURABLE})
  ORDER BY parent_id, family, key
  ON CONFLICT (parent_id, family, key) WHERE state = 0 DO NOTHING
  RETURNING id),
-- The documents of the entities that got their names.
made AS (
  INSERT INTO entity (id, version, doc, created_by, created_at, modified_by, modified_at)
  SELECT id, 1, doc, principal, at, principal, at FROM placed JOIN fresh USING (id)
  RETURNING id),
-- What was made, in the order given. Sorting is a barrier: no position is drawn before the last name was taken.
done AS MATERIALIZED (SELECT f.* FROM made JOIN fresh f USING (id) ORDER BY f.n),
-- The generation, read once: after the last name was taken.
alone AS MATERIALIZED (SELECT {GENERATION} AS generation FROM (SELECT count(*) FROM done) AS taken),
-- History, change event and result of each.
logged AS (
  INSERT INTO operation ({OPERATION_COLUMNS}, family, key)
  SELECT {WRITER}, (SELECT generation FROM alone),
    operation_id, 0, nextval('change_seq'), id, 1, NULL, kind, 'create', principal, at, NULL, path, changes,
    1, true, doc, NULL, parent_id, name, fold, 0, family, key
  FROM done ORDER BY n)
SELECT n, id, 1, at FROM done
-- The other members whose names a live entity has. (The snapshot shows no entity that took a name during a wait.)
UNION ALL SELECT n, NULL, NULL, NULL FROM fresh f
WHERE f.id NOT IN (SELECT id FROM placed) AND EXISTS (SELECT FROM guard t
  WHERE t.parent_id = f.parent_id AND t.family = f.family AND t.key = f.key AND t.state = 0)""")


def create_statement(inserts: Sequence[Single], patience: int) -> Statement:
    """Return the statement that creates these entities."""
    values, numbers = guard_sets([one.guards for one in inserts], patience)
    rows = [one.write for one in inserts if isinstance(one.write, Insert)]
    values |= {
        "parents": plain([w.parent_id for w in rows]),
        "families": texts([w.family for w in rows]),
        "keys": texts([w.key for w in rows]),
        "kinds": texts([w.kind for w in rows]),
        "names": texts([w.name for w in rows]),
        "folds": plain([w.fold for w in rows]),
        "docs": texts([w.doc for w in rows]),
        "paths": texts([w.event.path_after for w in rows]),
        "changes": texts([w.event.changes for w in rows]),
        "operations": plain([one.operation_id for one in inserts]),
        "principals": texts([one.principal for one in inserts]),
        "sets": plain(numbers),
    }
    return Statement(CREATE_TOGETHER, values, writes=True)
