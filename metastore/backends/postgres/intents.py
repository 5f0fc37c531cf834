"""Operations that are written down, and marks, on PostgreSQL: the statements, and their parameters.

An intent becomes applied, failed, moved or expired by an update of its row that finds it pending,
in the statement that changes the entity: a cancellation that came first leaves that update without
its row, and then nothing is changed. Locks are taken on the entity before its intents.

Each statement that writes is durable (``sql.DURABLE``): a tombstone, a cancellation or a new scope version that a
crash takes back after its answer would let a late original, or a stale guard, pass.
"""

from __future__ import annotations

from typing import Any

from metastore.backends.postgres import batch_sql as sql
from metastore.backends.postgres.parameters import Statement, caller, guards, plain, texts
from metastore.backends.postgres.read_sql import READ, each
from metastore.backends.sql.reads import from_named
from metastore.port.commit import CLAIMABLE, FORMAT, PENDING, Entry, Help, Mark

__all__ = [
    "CANCEL",
    "CLEAR",
    "FORBID",
    "FORBID_AGAIN",
    "MARKED",
    "PENDING_OF",
    "TURN",
    "UNMARK",
    "help_statement",
    "mark_statements",
    "write_down_statements",
]

_CLAIMABLE = ", ".join(f"'{action}'" for action in CLAIMABLE)
_CLEARED = f"""mark = NULL, marked_at = NULL, marked_until = NULL,
  quiet_until = {sql.quiet("guard")}"""

_ENTRY = f"""entity_id, kind, action, principal, time, path_before, changes, attempt, deadline, digest, result, format)
SELECT %(operation_id)s::uuid, 0, %(entity_id)s::bigint, %(kind)s::text, %(action)s::text, %(principal)s::text,
  {sql.NOW}, %(path)s::text, %(changes)s::text, %(claim)s::int, {sql.NOW} + %(micros)s::bigint, %(digest)s::text,
  %(result)s::text, %(format)s::int
WHERE {sql.DURABLE}
RETURNING (SELECT count(*) FROM operation p WHERE p.entity_id = %(entity_id)s::bigint AND p.action = 'pending'), time"""
_WRITE_DOWN = f"INSERT INTO operation (operation_id, ordinal, {_ENTRY}"

FORBID = f"""WITH remembered AS MATERIALIZED (
  SELECT 1 FROM info WHERE forgotten <= {sql.NOW} - %(life)s::bigint FOR SHARE)
INSERT INTO operation (operation_id, ordinal, action, time, attempt)
SELECT %(operation_id)s::uuid, 0, 'forbidden', {sql.NOW}, 1 FROM remembered WHERE {sql.DURABLE} RETURNING attempt"""
"""Inserts nothing where gc may have deleted the operation's row in its life; else it keeps gc from forgetting more."""
FORBID_AGAIN = f"""UPDATE operation SET attempt = coalesce(attempt, 0) + 1, time = {sql.NOW}
WHERE operation_id = %(operation_id)s::uuid AND ordinal = 0 AND action IN ({_CLAIMABLE}) AND {sql.DURABLE}
RETURNING attempt"""
CANCEL = f"""UPDATE operation SET action = 'cancelled', attempt = coalesce(attempt, 0) + 1, time = {sql.NOW}
WHERE operation_id = %(operation_id)s::uuid AND ordinal = 0 AND action = '{PENDING}' AND {sql.DURABLE}
RETURNING 1"""

UNMARK = f"""UPDATE guard SET {_CLEARED}
WHERE id = %(id)s::bigint AND mark = %(operation_id)s::uuid AND {sql.DURABLE} RETURNING 1"""
CLEAR = f"""UPDATE guard SET scope_version = scope_version + 1, {_CLEARED}
WHERE id = %(id)s::bigint AND mark = %(operation_id)s::uuid AND {sql.LAPSED} AND {sql.DURABLE}
RETURNING 1"""
MARKED = f"""SELECT id, mark, CASE WHEN mark IS NOT NULL AND {sql.LAPSED} THEN -1
  ELSE (coalesce(CASE WHEN mark IS NULL THEN quiet_until ELSE marked_until END, 0) - {sql.NOW}) / 1e6 END
FROM guard WHERE id = ANY(%(ids)s::bigint[]) AND (mark IS NOT NULL OR {sql.THEIR_TURN})"""

_FREE = f"mark IS NULL AND {sql.THEIR_TURN} IS NOT TRUE"
_MARK = f"""UPDATE guard SET mark = %(operation_id)s::uuid, marked_at = {sql.NOW},
  marked_until = {sql.NOW} + %(micros)s::bigint
WHERE id = %(id)s::bigint AND (mark = %(operation_id)s::uuid OR {_FREE}) AND {sql.DURABLE}
RETURNING scope_version, marked_at"""
_FREEZE = f"""WITH {sql.GUARDED},
ready AS MATERIALIZED (
  SELECT id FROM guard WHERE id = %(id)s::bigint AND scope_version = %(scope_version)s::bigint
    AND (mark = %(operation_id)s::uuid OR {_FREE}) AND {sql.ALL_GUARDED} FOR UPDATE)
UPDATE guard SET scope_version = scope_version + 1, mark = %(operation_id)s::uuid, marked_at = {sql.NOW},
  marked_until = {sql.NOW} + %(micros)s::bigint
WHERE id = %(id)s::bigint AND EXISTS (SELECT FROM ready) AND {sql.DURABLE} RETURNING scope_version, marked_at"""

_HELP = f"""WITH {sql.GUARDED},
cas AS MATERIALIZED (
  SELECT id FROM entity WHERE id = %(id)s::bigint AND version = %(version)s::bigint AND {sql.ALL_GUARDED}
    AND EXISTS (SELECT FROM guard WHERE id = %(id)s::bigint AND mark IS NULL)
  FOR NO KEY UPDATE),
mine AS MATERIALIZED (
  SELECT operation_id FROM operation
  WHERE operation_id = ANY(%(r_ids)s::uuid[]) AND ordinal = 0 AND action = '{PENDING}' AND EXISTS (SELECT FROM cas)
  ORDER BY operation_id FOR UPDATE),
go AS MATERIALIZED (
  SELECT {sql.NOW} AS at FROM cas
  WHERE (SELECT count(*) FROM mine) = cardinality(%(r_ids)s::uuid[]) AND {sql.DURABLE}),
wanted AS MATERIALIZED (
  SELECT w.*, go.at, CASE WHEN w.action = 'alter' THEN nextval('change_seq') END AS seq
  FROM go, unnest(%(r_ids)s::uuid[], %(r_actions)s::text[], %(r_versions)s::bigint[], %(r_docs)s::text[],
    %(r_results)s::text[], %(r_changes)s::text[]) WITH ORDINALITY
    AS w(operation_id, action, version, doc, result, changes, n) ORDER BY w.n),
altered AS (
  UPDATE entity SET version = %(new_version)s::bigint, doc = coalesce(%(doc)s::text, doc),
    modified_by = %(principal)s::text, modified_at = go.at
  FROM go WHERE id = %(id)s::bigint AND %(new_version)s::bigint > %(version)s::bigint),
resolved AS (
  UPDATE operation o SET action = w.action, seq = w.seq, version = w.version, time = w.at,
    path_before = CASE WHEN w.seq IS NULL THEN o.path_before ELSE %(path)s::text END,
    path_after = CASE WHEN w.seq IS NULL THEN NULL ELSE %(path)s::text END,
    scope_version = CASE WHEN w.seq IS NULL THEN NULL ELSE g.scope_version END,
    in_use = CASE WHEN w.seq IS NULL THEN NULL ELSE g.in_use END,
    doc = w.doc, result = w.result, changes = coalesce(w.changes, o.changes),
    attempt = coalesce(o.attempt, 0) + (w.action IN ('moved', 'expired'))::int
  FROM wanted w, {each("guard", "g", "g.id = %(id)s::bigint")}
  WHERE o.operation_id = ANY(%(r_ids)s::uuid[]) AND o.operation_id = w.operation_id AND o.ordinal = 0)
SELECT (SELECT count(*) FROM guarded) AS held, (SELECT count(*) FROM cas) AS cas, go.at,
  CASE WHEN go.at IS NULL THEN (SELECT version FROM entity WHERE id = %(id)s::bigint) END AS found,
  CASE WHEN go.at IS NULL THEN EXISTS (SELECT FROM guard
    WHERE (id = %(id)s::bigint OR id = ANY(%(guard_ids)s::bigint[])) AND mark IS NOT NULL) END AS marked
FROM (SELECT 1) AS one LEFT JOIN go ON true"""

_NUMBERED = f"""SELECT o.operation_id FROM operation o WHERE o.entity_id = :id AND o.action = '{PENDING}'
    AND (o.format <= {FORMAT} OR o.deadline < {sql.NOW})
  ORDER BY o.time, o.operation_id LIMIT :limit"""
_ROW = "coalesce(json_agg(to_json(s.*) ORDER BY s.time, s.operation_id), '[]')::text"
PENDING_OF = from_named(
    f"""WITH seen AS MATERIALIZED ({READ.by_id}),
intents AS MATERIALIZED ({_NUMBERED})
SELECT (SELECT {_ROW} FROM ({READ.named_steps}
  WHERE o.ordinal = 0 AND o.operation_id = ANY(ARRAY(SELECT operation_id FROM intents) || :own::uuid)) s),
  {sql.NOW}, seen.* FROM (SELECT 1) AS one LEFT JOIN seen ON true""",
    "%(name)s",
)
"""The intents and the asking operation's row as JSON, the database's time, and the entity from the root down."""


TURN = from_named(
    f"""SELECT (SELECT count(*) FROM operation p WHERE p.entity_id = :id::bigint AND p.action = '{PENDING}'
    AND (p.time, p.operation_id) < (t.time, t.operation_id)),
  CASE WHEN t.action <> '{PENDING}' THEN (SELECT {_ROW} FROM ({READ.named_steps}
    WHERE o.ordinal = 0 AND o.operation_id = :own::uuid) s) END
FROM operation t WHERE t.operation_id = :own::uuid AND t.ordinal = 0""",
    "%(name)s",
)
"""How many intents are before one, and its row as JSON if it is decided."""


def help_statement(help_: Help) -> Statement:
    """One compare-and-swap that resolves intents."""
    rows, version, versions = help_.resolutions, help_.version, list[int | None]()
    for one in rows:
        version += one.action == "alter"
        versions.append(version if one.action == "alter" else None)
    applied = [one for one in rows if one.action == "alter"]
    parameters = {
        **guards(help_.guards),
        "operation_id": None,
        "id": help_.id,
        "version": help_.version,
        "new_version": version,
        "path": help_.path,
        "doc": applied[-1].doc if applied else None,
        "principal": applied[-1].principal if applied else None,
        "r_ids": plain([str(one.operation_id) for one in rows]),
        "r_actions": plain([one.action for one in rows]),
        "r_versions": plain(versions),
        "r_docs": texts([one.doc for one in rows]),
        "r_results": texts([one.result for one in rows]),
        "r_changes": texts([one.changes for one in rows]),
    }
    return Statement(_HELP, parameters, writes=True)


def write_down_statements(entry: Entry) -> list[Statement]:
    """The insert of an operation's row, after what a caller's id or a claim needs."""
    parameters: dict[str, Any] = {
        "operation_id": entry.operation_id,
        "entity_id": entry.entity_id,
        "kind": entry.kind,
        "action": entry.action,
        "principal": entry.principal,
        "path": entry.path,
        "changes": entry.changes,
        "claim": entry.claim,
        "micros": round(entry.seconds * 1_000_000) if entry.action == PENDING else None,
        "digest": entry.caller.digest if entry.caller else None,
        "result": entry.result,
        "format": entry.format,
    }
    return [*caller(entry.caller, entry.operation_id, entry.claim), Statement(_WRITE_DOWN, parameters, writes=True)]


def mark_statements(mark: Mark) -> list[Statement]:
    """The update that sets a mark; a freeze waits for the writers in flight, but not for other marks."""
    parameters = {"id": mark.id, "operation_id": mark.operation_id, "micros": round(mark.seconds * 1_000_000)}
    if mark.scope_version is None:
        return [Statement(_MARK, parameters, writes=True)]
    parameters["scope_version"] = mark.scope_version
    return [Statement(_FREEZE, {**parameters, **guards(mark.guards)}, writes=True)]
