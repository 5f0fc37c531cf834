"""Requests that travel together: one message for many, its statements, their parameters, and what their rows mean.

The members of a batch are independent of each other. So no gate stands before all writes, as in a commit: each row that
is written joins what its own member found. The locks are taken in the order of every other statement: guards by id,
then entities by id. All of them are taken before the first position is drawn.

A message with several kinds of writes has a statement for each: creates, then alters, then exclusive updates, which may
be of what the message alters. All rows that exist are locked first, by id, and names are taken in their order. So two
messages do not wait for each other, unless each renames something to a name that the other one gives up; then the
patience ends, and the batch is tried once more.

The statements are planned once, for arrays of unknown length: the planner takes each for 10 rows. Each condition on a
column takes that down, and for what it takes for one row, it plans a nested loop: 64 x 64 steps. So the CTEs judge all
conditions into one column (:func:`flag`), which the planner takes for half of the rows. Then it joins by a hash table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from metastore.backends.postgres.fragments import (
    DURABLE,
    GENERATION,
    NOW,
    OPERATION_COLUMNS,
    PATIENT,
    PENDING_HERE,
    THEIR_TURN,
)
from metastore.backends.postgres.parameters import Row, Statement, plain, texts
from metastore.backends.postgres.read_sql import each
from metastore.backends.postgres.tickets import in_line
from metastore.backends.sql.comments import without_comments
from metastore.backends.sql.reads import ENTITY, NODE
from metastore.port.batches import TAKEN, Altered, AlterTogether, Batch, Below, Single, Taken, Written
from metastore.port.commit import LIVE, Guard, Insert, Result, Update
from metastore.port.records import Node, Record

__all__ = [
    "ALTER_TOGETHER",
    "CREATE_TOGETHER",
    "EXCLUSIVE_TOGETHER",
    "FIND_BELOW",
    "alter_statement",
    "altered",
    "create_statement",
    "exclusive_statement",
    "find_parameters",
    "found",
    "results",
]


def flag(condition: str) -> str:
    """Return a condition as a value that the planner does not look into: it expects that half of the rows have it."""
    return f"CASE WHEN {condition} THEN true ELSE false END"


# --- find

# the condition on the state is that of the unique index: what is being dropped keeps its name, and is told from nothing
_NAMED = "g.parent_id = w.parent_id AND g.family = w.family AND g.key = w.key AND (g.state = 0 OR g.state = 3)"
_CHILD = each("guard", "g", _NAMED)
FIND_BELOW = without_comments(f"""SELECT
  -- once: which of the parents stand where they were seen, in the snapshot that shows the children too
  CASE WHEN w.n = 1 THEN (SELECT array_agg(t.id)
    FROM unnest(%(guard_ids)s::bigint[], %(guard_scopes)s::bigint[]) AS s(id, scope)
    CROSS JOIN {each("guard", "t", "t.id = s.id AND t.scope_version = s.scope")}) END,
  g.state, {NODE.format("g")}, {ENTITY}
FROM unnest(%(parents)s::bigint[], %(families)s::text[], %(keys)s::text[])
  WITH ORDINALITY AS w(parent_id, family, key, n)
LEFT JOIN {_CHILD} ON true
LEFT JOIN {each("entity", "e", "e.id = g.id")} ON true
ORDER BY w.n""")
"""One row for each child that is looked for, in the order given."""


def find_parameters(wanted: Sequence[Below]) -> dict[str, Any]:
    """Return the parameters of FIND_BELOW."""
    chains = {id(one.parents): one.parents for one in wanted}.values()  # most stand below the same few
    seen = {(node.id, node.scope_version) for chain in chains for node in chain}
    return {
        "guard_ids": plain([i for i, _ in seen]),
        "guard_scopes": plain([s for _, s in seen]),
        "parents": plain([one.parents[-1].id if one.parents else 0 for one in wanted]),
        "families": texts([one.family for one in wanted]),
        "keys": texts([one.key for one in wanted]),
    }


def found(wanted: Sequence[Below], rows: Sequence[Row]) -> list[Record | bool]:
    """Return what FIND_BELOW's rows mean: the child, False for none, True where more must be asked.

    That is so where the parents are not as they were, and where something of that name is being dropped.
    """
    held = set(rows[0][0] or ())
    chains = {id(one.parents): held.issuperset([node.id for node in one.parents]) for one in wanted}
    return [_child(one, row) if chains[id(one.parents)] else True for one, row in zip(wanted, rows, strict=True)]


def _child(one: Below, row: Row) -> Record | bool:
    if row[1] is None:
        return False
    if row[1] != LIVE:
        return True
    return Record((*one.parents, Node(*row[2:8])), *row[8:])


# --- guards and rows

_NAMES_WAIT: Final = 50
"""How long a batch that passes over locked rows waits for a name that is being taken or given up (milliseconds)."""

_LOCKS = without_comments(f"""WITH
-- The guards of what is updated exclusively, by id.
own AS MATERIALIZED (SELECT g.id FROM guard g
  WHERE g.id = ANY(%(own_ids)s::bigint[]) AND (SELECT {PATIENT}) <> '' ORDER BY g.id FOR UPDATE{{skip}}),
-- The rows of all entities that are updated, by id, after the guards.
rows AS MATERIALIZED (SELECT e.id FROM entity e
  WHERE e.id = ANY(%(ids)s::bigint[]) AND (SELECT count(*) FROM own) >= 0 ORDER BY e.id FOR NO KEY UPDATE{{skip}})
SELECT count(*) FROM rows""")
"""Locks what the statements behind it lock, in one order over all of them."""
LOCKS: Final = {skip: _LOCKS.format(skip=" SKIP LOCKED" if skip else "") for skip in (False, True)}

_GUARDED = without_comments(f"""
-- The guards of all members, shared, by id. A mark announces an exclusive operation, for which guards step aside.
guarded AS MATERIALIZED (
  SELECT id, scope_version FROM guard
  WHERE id = ANY(%(guard_ids)s::bigint[]) AND mark IS NULL AND (SELECT {PATIENT}) <> ''
  ORDER BY id FOR KEY SHARE{{skip}}),
-- The sets of guards of which one is not as its members saw it.
broken AS MATERIALIZED (
  SELECT s.number FROM unnest(%(set_numbers)s::int[], %(set_ids)s::bigint[], %(set_scopes)s::bigint[])
      AS s(number, id, scope)
    LEFT JOIN guarded g ON g.id = s.id AND g.scope_version = s.scope
  -- the count reads the locking CTE to its end
  WHERE g.id IS NULL AND (SELECT count(*) FROM guarded) >= 0)""")


def _guard_sets(sets: Sequence[tuple[Guard, ...]], patience: int | None) -> tuple[dict[str, Any], list[int]]:
    """Return the parameters of _GUARDED, and for each member the number of its set."""
    numbers: dict[tuple[Guard, ...], int] = {}
    members = [numbers.setdefault(guards, len(numbers)) for guards in sets]
    flat = [(number, guard) for guards, number in numbers.items() for guard in guards]
    values = {
        "patience": None if patience is None else f"{patience or _NAMES_WAIT}ms",
        "guard_ids": plain(sorted({guard.id for _, guard in flat})),
        "set_numbers": plain([number for number, _ in flat]),
        "set_ids": plain([guard.id for _, guard in flat]),
        "set_scopes": plain([guard.scope_version for _, guard in flat]),
    }
    return values, members


# --- alter

_MOST_RETURNED: Final = 64 << 10
"""How many characters of documents the answer has at most. A client that stops while it reads a long answer keeps its
row locks; this much fits into the buffers of its socket, so that the server ends the transaction."""

ALTER_TOGETHER = without_comments(f"""WITH
-- What the members want: one row for each entity, sorted by id.
wanted AS MATERIALIZED (
  SELECT * FROM unnest(%(ids)s::bigint[], %(versions)s::bigint[], %(scopes)s::bigint[], %(sets)s::int[],
      %(last_versions)s::bigint[], %(carried)s::int[], %(helps)s::boolean[])
    AS w(id, version, scope, guards, last_version, carried, helps)),
{_GUARDED},
-- The entities' rows, by id, after the guards. The lock makes another writer wait. After a wait the row is read again:
-- what this returns is the newest version, whatever the statement's snapshot shows.
rows AS MATERIALIZED (
  SELECT e.id, e.version, e.doc, e.modified_by, e.modified_at FROM entity e
  WHERE e.id = ANY(%(ids)s::bigint[]) AND (SELECT count(*) FROM broken) >= 0
  ORDER BY e.id FOR NO KEY UPDATE{{skip}}),
-- The intents that members carry, by operation id, after the entities. One that was cancelled meanwhile is not found.
mine AS MATERIALIZED (
  SELECT o.operation_id, o.entity_id FROM operation o
  WHERE o.operation_id = ANY(%(r_ids)s::uuid[]) AND o.ordinal = 0 AND o.action = 'pending'
    AND (SELECT count(*) FROM rows) >= 0
  ORDER BY o.operation_id FOR UPDATE{{skip}}),
-- Each member by itself. Its own guard is read without a lock: an exclusive operation on the entity raises the version
-- too, and so meets the compare-and-swap. A pending intent must be resolved first, by a commit that helps: its version
-- comes from a snapshot that shows the intents, and it carries all of them.
judged AS MATERIALIZED (
  SELECT w.*, r.version AS found, r.doc AS found_doc, r.modified_by, r.modified_at, own.scope_version, own.in_use,
    own.parent_id, own.name, own.fold, own.state, r.version = w.version AS fits,
    own.id IS NOT NULL AND w.guards NOT IN (SELECT number FROM broken) AS free,
    (SELECT count(*) FROM mine m WHERE m.entity_id = w.id) <> w.carried
      OR NOT w.helps AND EXISTS (SELECT FROM operation o WHERE o.entity_id = w.id AND o.{PENDING_HERE}) AS pending,
    -- a transaction is in line: the members have to be announced
    {in_line("w.id")} AS queued
  FROM wanted w JOIN rows r ON r.id = w.id
    LEFT JOIN {each("guard", "own", "own.id = w.id AND own.scope_version = w.scope AND own.mark IS NULL")} ON true),
-- The gate of each member, and one reading of the clock.
go AS MATERIALIZED (
  SELECT j.*, now.at FROM judged j, (SELECT {NOW} AS at) AS now
  -- the count reads, and so locks, all rows before the first is written
  WHERE {flag("j.fits AND j.free AND NOT j.pending AND NOT j.queued")}
    AND (SELECT count(*) FROM rows) > 0 AND (SELECT {DURABLE})),
-- The operations, in the order in which they apply. Sorting is a barrier: no position is drawn before the last lock.
ordered AS MATERIALIZED (
  SELECT s.*, s.version = go.last_version AS last, go.at, go.scope_version, go.in_use, go.parent_id, go.name, go.fold,
    go.state
  FROM unnest(%(s_operations)s::uuid[], %(s_ids)s::bigint[], %(s_versions)s::bigint[], %(s_principals)s::text[],
      %(s_kinds)s::text[], %(s_paths)s::text[], %(s_changes)s::text[], %(s_docs)s::text[], %(s_actions)s::text[],
      %(s_results)s::text[], %(s_carried)s::boolean[])
    WITH ORDINALITY AS s(operation_id, id, version, principal, kind, path, changes, doc, action, result, carried, n)
    JOIN go ON go.id = s.id
  ORDER BY s.n),
-- The generation, read once: after the last lock.
alone AS MATERIALIZED (SELECT {GENERATION} AS generation FROM (SELECT count(*) FROM ordered) AS locked),
-- Each that makes a version draws its position.
steps AS MATERIALIZED (
  SELECT o.*, CASE WHEN o.action = 'alter' THEN nextval('change_seq') END AS seq,
    (SELECT generation FROM alone) AS generation
  FROM ordered o),
-- The compare-and-swap, on rows that are locked at the expected version. (The ids are named: a hash table of them is
-- the plan then, also one that was made while the table was small.)
altered AS (
  UPDATE entity e SET version = s.version, doc = s.doc, modified_by = s.principal, modified_at = s.at
  FROM steps s WHERE e.id = s.id AND s.last AND e.id = ANY(%(ids)s::bigint[])),
-- The rows of carried intents become history and results, as in a helping commit.
resolved AS (
  UPDATE operation o SET generation = s.generation, action = s.action, seq = s.seq, version = s.version, time = s.at,
    path_before = CASE WHEN s.seq IS NULL THEN o.path_before ELSE s.path END,
    path_after = CASE WHEN s.seq IS NULL THEN NULL ELSE s.path END,
    scope_version = CASE WHEN s.seq IS NULL THEN NULL ELSE s.scope_version END,
    in_use = CASE WHEN s.seq IS NULL THEN NULL ELSE s.in_use END,
    doc = s.doc, result = s.result, changes = coalesce(s.changes, o.changes),
    attempt = coalesce(o.attempt, 0) + (s.action IN ('moved', 'expired'))::int
  FROM steps s
  WHERE s.carried AND o.operation_id = ANY(%(r_ids)s::uuid[]) AND o.operation_id = s.operation_id AND o.ordinal = 0),
-- History, change event and result of each other; the operation id is its key, so that a repeat fails.
logged AS (
  INSERT INTO operation ({OPERATION_COLUMNS})
  SELECT generation, operation_id, 0, seq, id, version, NULL, kind, 'alter', principal, at, path, path,
    changes, scope_version, in_use, doc, NULL, parent_id, name, fold, state
  FROM steps WHERE NOT carried)
-- One row for each entity that was not skipped. Who lost by the version alone gets the newest document.
SELECT j.id, go.at, CASE WHEN j.behind THEN j.found END,
  CASE WHEN j.behind AND sum(length(j.found_doc)) FILTER (WHERE j.behind) OVER (ORDER BY j.id) <= {_MOST_RETURNED}
    THEN j.found_doc END,
  CASE WHEN j.behind THEN j.modified_by END, CASE WHEN j.behind THEN j.modified_at END, j.free AND j.pending,
  j.free AND j.queued
FROM (SELECT *, free AND NOT fits AND NOT pending AND NOT queued AS behind FROM judged) j
  LEFT JOIN go ON go.id = j.id""")
_ALTER: Final = {skip: ALTER_TOGETHER.format(skip=" SKIP LOCKED" if skip else "") for skip in (False, True)}


def alter_statement(alters: Sequence[AlterTogether], patience: int | None) -> Statement:
    """Return the statement that alters these entities. Without patience (0) it passes over rows that are locked."""
    rows = sorted(alters, key=_id)
    values, numbers = _guard_sets([one.guards for one in rows], patience)
    steps = [(one, step) for one in rows for step in one.steps]
    carried = [step for _, step in steps if step.carried is not None]
    values |= {
        "ids": plain([one.id for one in rows]),
        "versions": plain([one.version for one in rows]),
        "scopes": plain([one.scope_version for one in rows]),
        "sets": plain(numbers),
        "last_versions": plain([one.last_version for one in rows]),
        "carried": plain([sum(step.carried is not None for step in one.steps) for one in rows]),
        "helps": plain([one.helps for one in rows]),
        "r_ids": plain([step.operation_id for step in carried]),
        "s_operations": plain([step.operation_id for _, step in steps]),
        "s_ids": plain([one.id for one, _ in steps]),
        "s_versions": plain([version for one in rows for version in _versions(one)]),
        "s_principals": texts([step.principal for _, step in steps]),
        "s_kinds": texts([one.kind for one, _ in steps]),
        "s_paths": texts([one.path for one, _ in steps]),
        "s_changes": texts([step.changes for _, step in steps]),
        "s_docs": texts([step.doc for _, step in steps]),
        "s_actions": texts([step.action for _, step in steps]),
        "s_results": texts([None if step.carried is None else step.carried.result for _, step in steps]),
        "s_carried": plain([step.carried is not None for _, step in steps]),
    }
    return Statement(_ALTER[patience == 0], values, writes=True)


def _versions(one: AlterTogether) -> list[int | None]:
    """Return the version that each step makes; None: it makes none."""
    version, versions = one.version, list[int | None]()
    for step in one.steps:
        version += step.action == "alter"
        versions.append(version if step.action == "alter" else None)
    return versions


def _id(one: AlterTogether) -> int:
    return one.id


def altered(alters: Sequence[AlterTogether], rows: Sequence[Row]) -> list[Altered]:
    """Return what the rows mean, in the order of ``alters``. A member without a row was skipped."""
    by_id = {row[0]: row for row in rows}
    return [Altered(*by_id[one.id][1:]) if one.id in by_id else Altered(None) for one in alters]


# --- create

CREATE_TOGETHER = without_comments(f"""WITH {_GUARDED.format(skip="")},
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
-- Takes the names. A name that is taken is left out, and hurts no other: its request finds out alone what is there.
placed AS (
  INSERT INTO guard (id, parent_id, kind, family, name, key, fold, state, in_use, scope_version)
  SELECT id, parent_id, kind, family, name, key, fold, 0, true, 1 FROM fresh WHERE (SELECT {DURABLE})
  ORDER BY parent_id, family, key
  ON CONFLICT (parent_id, family, key) WHERE state = 0 DO NOTHING
  RETURNING id),
-- The documents of those that got their names.
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
  SELECT (SELECT generation FROM alone),
    operation_id, 0, nextval('change_seq'), id, 1, NULL, kind, 'create', principal, at, NULL, path, changes,
    1, true, doc, NULL, parent_id, name, fold, 0, family, key
  FROM done ORDER BY n)
SELECT n, id, 1, at FROM done
-- Of the others, those whose names something live has. (What took a name while this waited is not in the snapshot.)
UNION ALL SELECT n, NULL, NULL, NULL FROM fresh f
WHERE f.id NOT IN (SELECT id FROM placed) AND EXISTS (SELECT FROM guard t
  WHERE t.parent_id = f.parent_id AND t.family = f.family AND t.key = f.key AND t.state = 0)""")


def create_statement(inserts: Sequence[Single], patience: int) -> Statement:
    """Return the statement that makes these entities."""
    values, numbers = _guard_sets([one.guards for one in inserts], patience)
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


# --- exclusive

EXCLUSIVE_TOGETHER: Final = without_comments(f"""WITH
-- What the members want: one row for each entity.
wanted AS MATERIALIZED (
  SELECT * FROM unnest(%(ids)s::bigint[], %(versions)s::bigint[], %(scopes)s::bigint[], %(sets)s::int[],
      %(states)s::smallint[], %(parents)s::bigint[], %(names)s::text[], %(keys)s::text[], %(folds)s::boolean[],
      %(operations)s::uuid[], %(principals)s::text[], %(kinds)s::text[], %(actions)s::text[], %(before)s::text[],
      %(after)s::text[], %(changes)s::text[])
    WITH ORDINALITY AS w(id, version, scope, guards, state, parent_id, name, key, fold, operation_id, principal, kind,
      action, path_before, path_after, changes, n)),
{_GUARDED},
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
-- Each member by itself: its guards, its scope version, its version; and the state of what has the name that it takes.
judged AS MATERIALIZED (
  SELECT w.*, r.doc, o.in_use, o.family,
    o.scope_version = w.scope AND r.version = w.version AND w.guards NOT IN (SELECT number FROM broken) AS fits,
    (SELECT t.state FROM guard t WHERE t.parent_id = w.parent_id AND t.family = o.family AND t.key = w.key
      AND (t.state = 0 OR t.state = 3) AND t.id <> w.id) AS taken
  FROM wanted w JOIN own o ON o.id = w.id JOIN rows r ON r.id = w.id),
-- The gate of each member, and one reading of the clock.
go AS MATERIALIZED (
  SELECT j.*, now.at FROM judged j, (SELECT {NOW} AS at) AS now
  -- the count reads, and so locks, all rows before the first is written; a name that is taken is left out, and hurts no
  -- other; one that is taken at this moment fails the batch
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
  SELECT (SELECT generation FROM alone),
    operation_id, 0, nextval('change_seq'), id, version + 1, NULL, kind, action, principal, at, path_before,
    path_after, changes, scope + 1, in_use, doc, NULL, parent_id, name, fold, state,
    CASE WHEN state = 0 THEN family END, CASE WHEN state = 0 THEN key END
  FROM done ORDER BY n)
SELECT n, id, version + 1, at FROM done
-- Of the others, those that would be applied but for a name that something live has.
UNION ALL SELECT n, NULL, NULL, NULL FROM judged WHERE fits AND taken = 0""")
_EXCLUSIVE: Final = {skip: EXCLUSIVE_TOGETHER.format(skip=" SKIP LOCKED" if skip else "") for skip in (False, True)}


def exclusive_statement(updates: Sequence[Single], patience: int) -> Statement:
    """Return the statement that applies these. Without patience (0) it passes over rows that are locked."""
    values, numbers = _guard_sets([one.guards for one in updates], patience)
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
    }
    return Statement(_EXCLUSIVE[patience == 0], values, writes=True)


def results(count: int, rows: Sequence[Row]) -> list[Result | Taken | None]:
    """Return what the rows of a batch of creates, or of exclusive updates, mean: a result for each that was applied."""
    found: list[Result | Taken | None] = [None] * count
    for n, entity_id, version, time in rows:
        found[n - 1] = TAKEN if entity_id is None else Result(entity_id, version, time)
    return found


# --- all of it


def statements(batch: Batch, patience: int) -> list[Statement]:
    """Return the statements that apply a batch. Without patience (0) they pass over rows that are locked."""
    parts = []
    if batch.inserts:
        parts.append(create_statement(batch.inserts, patience))
    if batch.alters:
        parts.append(alter_statement(batch.alters, patience))
    if batch.updates:
        parts.append(exclusive_statement(batch.updates, patience))
    if len(parts) == 1:
        return parts
    own = [one.write.id for one in batch.updates if isinstance(one.write, Update)]
    values = {
        "patience": f"{patience or _NAMES_WAIT}ms",
        "own_ids": plain(sorted(own)),
        "ids": plain(sorted({*own, *[one.id for one in batch.alters]})),
    }
    return [Statement(LOCKS[patience == 0], values), *parts]


def written(batch: Batch, rows: Sequence[Sequence[Row]]) -> Written:
    """Return what the rows of each of these statements mean."""
    left = iter(rows[-(bool(batch.inserts) + bool(batch.alters) + bool(batch.updates)) :])
    return Written(
        inserts=results(len(batch.inserts), next(left)) if batch.inserts else [],
        alters=altered(batch.alters, next(left)) if batch.alters else [],
        updates=results(len(batch.updates), next(left)) if batch.updates else [],
    )
