"""Alter many entities: the statement, its parameters, and the meaning of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from metastore.backends.postgres.fragments import DURABLE, GENERATION, NOW, OPERATION_COLUMNS, PENDING_HERE, WRITER
from metastore.backends.postgres.parameters import Row, Statement, plain, texts, versions
from metastore.backends.postgres.read_sql import each
from metastore.backends.postgres.tickets import in_line
from metastore.backends.postgres.together.guards import GUARDED, flag, guard_sets
from metastore.backends.sql.comments import without_comments
from metastore.port.batches import Altered, AlterTogether

_MOST_RETURNED: Final = 64 << 10
"""How many characters of documents the answer may have.

A client that stops while it reads a long answer would keep its row locks. This much fits into the buffers of its
socket, so the server can end the transaction.
"""

ALTER_TOGETHER = without_comments(f"""WITH
-- What the members want: one row for each entity, sorted by id.
wanted AS MATERIALIZED (
  SELECT * FROM unnest(%(ids)s::bigint[], %(versions)s::bigint[], %(scopes)s::bigint[], %(sets)s::int[],
      %(last_versions)s::bigint[], %(carried)s::int[], %(helps)s::boolean[])
    AS w(id, version, scope, guards, last_version, carried, helps)),
{GUARDED},
-- The entities' rows, by id, after the guards. The lock makes another writer wait. After a wait the row is read again,
-- so this returns the newest version, whatever the statement's snapshot shows.
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
-- too, and so meets the compare-and-swap. A pending intent must be resolved first, by a commit that helps: such a
-- commit takes its version from a snapshot that shows the intents, and carries all of them.
judged AS MATERIALIZED (
  SELECT w.*, r.version AS found, r.doc AS found_doc, r.modified_by, r.modified_at, own.scope_version, own.in_use,
    own.parent_id, own.name, own.fold, own.state, r.version = w.version AS fits,
    own.id IS NOT NULL AND w.guards NOT IN (SELECT number FROM broken) AS free,
    (SELECT count(*) FROM mine m WHERE m.entity_id = w.id) <> w.carried
      OR NOT w.helps AND EXISTS (SELECT FROM operation o WHERE o.entity_id = w.id AND o.{PENDING_HERE}) AS pending,
    -- a transaction is in line: the members' changes have to be announced
    {{queued}} AS queued
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
-- Each operation that makes a version draws its position.
steps AS MATERIALIZED (
  SELECT o.*, CASE WHEN o.action = 'alter' THEN nextval('change_seq') END AS seq,
    (SELECT generation FROM alone) AS generation
  FROM ordered o),
-- The compare-and-swap, on rows that are locked at the expected version. (The ids are named, so that each plan uses a
-- hash table of them, even a plan that was made while the table was small.)
altered AS (
  UPDATE entity e SET version = s.version, doc = s.doc, modified_by = s.principal, modified_at = s.at
  FROM steps s WHERE e.id = s.id AND s.last AND e.id = ANY(%(ids)s::bigint[])),
-- The rows of carried intents become history and results, as in a helping commit.
resolved AS (
  UPDATE operation o SET generation = s.generation, action = s.action, seq = s.seq, version = s.version, time = s.at,
    writer = CASE WHEN s.seq IS NOT NULL THEN {WRITER} END,
    path_before = CASE WHEN s.seq IS NULL THEN o.path_before ELSE s.path END,
    path_after = CASE WHEN s.seq IS NULL THEN NULL ELSE s.path END,
    scope_version = CASE WHEN s.seq IS NULL THEN NULL ELSE s.scope_version END,
    in_use = CASE WHEN s.seq IS NULL THEN NULL ELSE s.in_use END,
    parent_id = s.parent_id, name = s.name, fold = s.fold, state = s.state,
    doc = s.doc, result = s.result, changes = coalesce(s.changes, o.changes),
    attempt = coalesce(o.attempt, 0) + (s.action IN ('moved', 'expired'))::int
  FROM steps s
  WHERE s.carried AND o.operation_id = ANY(%(r_ids)s::uuid[]) AND o.operation_id = s.operation_id AND o.ordinal = 0),
-- History, change event and result of each other operation; its id is the row's key, so that a repeat fails.
logged AS (
  INSERT INTO operation ({OPERATION_COLUMNS})
  SELECT {WRITER}, generation, operation_id, 0, seq, id, version, NULL, kind, 'alter', principal, at, path, path,
    changes, scope_version, in_use, doc, NULL, parent_id, name, fold, state
  FROM steps WHERE NOT carried){{gone}}
-- One row for each entity that was not skipped. A member that lost by the version alone gets the newest document.
SELECT j.id, go.at, CASE WHEN j.behind THEN j.found END,
  CASE WHEN j.behind AND sum(length(j.found_doc)) FILTER (WHERE j.behind) OVER (ORDER BY j.id) <= {_MOST_RETURNED}
    THEN j.found_doc END,
  CASE WHEN j.behind THEN j.modified_by END, CASE WHEN j.behind THEN j.modified_at END, j.free AND j.pending,
  j.free AND j.queued
FROM (SELECT *, free AND NOT fits AND NOT pending AND NOT queued AS behind FROM judged) j
  LEFT JOIN go ON go.id = j.id""")
_GONE: Final = """,
gone AS (
  DELETE FROM ticket t USING go WHERE t.entity_id = go.id AND t.number = %(leaves)s::bigint)"""
"""The commit of a chain ends its turn."""
_ALTER: Final = {
    (skip, turn): ALTER_TOGETHER.format(
        skip=" SKIP LOCKED" if skip else "",
        queued=in_line("w.id", "%(ticket)s::bigint" if turn else None),
        gone=_GONE if turn else "",
    )
    for skip in (False, True)
    for turn in (False, True)
}
"""The key says whether the statement skips locked rows, and whether it has a ticket, because the part for tickets
takes time."""


def alter_statement(alters: Sequence[AlterTogether], patience: int | None) -> Statement:
    """Return the statement that alters these entities. Without patience (0) it skips locked rows."""
    rows = sorted(alters, key=attrgetter("id"))
    values, numbers = guard_sets([one.guards for one in rows], patience)
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
        "s_versions": plain([v for one in rows for v in versions(one.version, [step.action for step in one.steps])]),
        "s_principals": texts([step.principal for _, step in steps]),
        "s_kinds": texts([one.kind for one, _ in steps]),
        "s_paths": texts([one.path for one, _ in steps]),
        "s_changes": texts([step.changes for _, step in steps]),
        "s_docs": texts([step.doc for _, step in steps]),
        "s_actions": texts([step.action for _, step in steps]),
        "s_results": texts([None if step.carried is None else step.carried.result for _, step in steps]),
        "s_carried": plain([step.carried is not None for _, step in steps]),
    }
    ticket = rows[0].ticket
    if ticket is not None:  # a request with a ticket is the only member of its batch
        values |= {"ticket": ticket, "leaves": ticket if rows[0].leaves else None}
    return Statement(_ALTER[patience == 0, ticket is not None], values, writes=True)


def altered(alters: Sequence[AlterTogether], rows: Sequence[Row]) -> list[Altered]:
    """Return the outcomes that the rows mean, in the order of ``alters``. A member without a row was skipped."""
    by_id = {row[0]: row for row in rows}
    return [Altered(*by_id[one.id][1:]) if one.id in by_id else Altered(None) for one in alters]
