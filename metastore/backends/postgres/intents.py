"""Write operations down, help, forbid and cancel them, and set marks: statements, parameters, meaning of rows.

An intent becomes applied, failed, moved or expired by an update of its row, which must find it pending. The statement
that changes the entity contains this update. If a cancellation came first, the update finds no row, and the statement
changes nothing. Every statement locks the entity before its intents.

Each statement that writes is durable (``fragments.DURABLE``). If a crash could undo an acknowledged tombstone,
cancellation or new scope version, a late original or a stale guard could pass.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from metastore.backends.postgres.fragments import (
    ALL_GUARDED,
    CONFIRMS,
    DURABLE,
    GENERATION,
    GUARDED,
    LAPSED,
    NOW,
    THEIR_TURN,
    WRITER,
    quiet,
)
from metastore.backends.postgres.parameters import Row, Statement, guards, plain, texts, versions
from metastore.backends.postgres.preludes import caller
from metastore.backends.postgres.read_sql import READ, each
from metastore.backends.postgres.tickets import in_line, line_of
from metastore.backends.sql.comments import without_comments
from metastore.backends.sql.dialect import from_named
from metastore.port.commit import CommitOutcome, Committed, Conflicted
from metastore.port.intents import CLAIMABLE, FORMAT, PENDING, Entry, Help, Mark
from metastore.port.note import note_of_intent
from metastore.port.unreadable import DEEPEST
from metastore.port.writes import Result

_CLAIMABLE = ", ".join(f"'{action}'" for action in CLAIMABLE)

# --- write down

# It locks nothing: the row is new, and its key refuses a second one. It returns the number of earlier intents, from its
# own snapshot, as a hint for how long the owner waits before it helps. The logarithm of 0 raises READ if the catalog
# above the entity is not the one that the caller names, or has another scope version.
_ENTRY = f"""entity_id, kind, action, principal, time, path_before, changes, attempt, deadline, digest, result, format,
  fences)
SELECT %(operation_id)s::uuid, 0, %(entity_id)s::bigint, %(kind)s::text, %(action)s::text, %(principal)s::text,
  {NOW}, %(path)s::text, %(changes)s::text, %(claim)s::int, {NOW} + %(micros)s::bigint, %(digest)s::text,
  %(result)s::text, %(format)s::int, %(note)s::text
WHERE {DURABLE} AND 0 = ln(CASE WHEN %(settled)s::bigint IS NULL OR EXISTS (
  WITH RECURSIVE up AS (
    SELECT g.id, g.parent_id, g.scope_version, 0 AS height FROM guard g WHERE g.id = %(entity_id)s::bigint
    UNION ALL
    SELECT g.id, g.parent_id, g.scope_version, up.height + 1
    FROM up CROSS JOIN {each("guard", "g", "g.id = up.parent_id")}
    WHERE up.parent_id <> 0 AND up.height < {DEEPEST})
  SELECT FROM up WHERE id = %(settled)s::bigint AND scope_version = %(settled_scope)s::bigint) THEN 1 ELSE 0 END)
RETURNING (SELECT count(*) FROM operation p WHERE p.entity_id = %(entity_id)s::bigint AND p.action = 'pending'), time"""
_WRITE_DOWN = f"INSERT INTO operation (operation_id, ordinal, {_ENTRY}"


def write_down_statements(entry: Entry) -> list[Statement]:
    """Return the insert of an operation's row, after the checks that a caller's id or a claim needs."""
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
        "note": note_of_intent(entry),
        "settled": entry.settled and entry.settled[0],
        "settled_scope": entry.settled and entry.settled[1],
    }
    return [*caller(entry.caller, entry.operation_id, entry.claim), Statement(_WRITE_DOWN, parameters, writes=True)]


def written_down(entry: Entry, row: Row) -> CommitOutcome:
    """Return the outcome that the insert's row means. The result's version is the number of earlier intents."""
    before, time = row
    return Committed((Result(entry.entity_id or 0, before, time),))


# --- forbid and cancel

FORBID = without_comments(f"""WITH remembered AS MATERIALIZED (
  -- FOR SHARE: gc waits for this tombstone before it forgets more. It prevents that a row which gc has just deleted is
  -- taken for one that never existed.
  SELECT 1 FROM info WHERE forgotten <= {NOW} - %(life)s::bigint FOR SHARE)
-- waits for an original in flight, by the primary key, and raises a unique violation if that commits
INSERT INTO operation (operation_id, ordinal, action, time, attempt)
SELECT %(operation_id)s::uuid, 0, 'forbidden', {NOW}, 1 FROM remembered WHERE {DURABLE} RETURNING attempt""")
"""Inserts nothing if gc may have deleted the operation's row meanwhile; keeps gc from forgetting more until then."""

# The raised attempt is the claim: a commit sent under an older number finds no row (preludes.CLAIMED).
FORBID_AGAIN = f"""UPDATE operation SET attempt = coalesce(attempt, 0) + 1, time = {NOW}
WHERE operation_id = %(operation_id)s::uuid AND ordinal = 0 AND action IN ({_CLAIMABLE}) AND {DURABLE}
RETURNING attempt"""
"""Claims the row of an operation that was not applied."""

# The row's lock decides between a cancellation and a helper: the second one finds that the intent is not pending.
CANCEL = f"""UPDATE operation SET action = 'cancelled', attempt = coalesce(attempt, 0) + 1, time = {NOW}
WHERE operation_id = %(operation_id)s::uuid AND ordinal = 0 AND action = '{PENDING}' AND {DURABLE}
RETURNING 1"""

# --- marks

_CLEARED = f"""mark = NULL, marked_at = NULL, marked_until = NULL,
  quiet_until = {quiet("guard")}"""

UNMARK = f"""UPDATE guard SET {_CLEARED}
WHERE id = %(id)s::bigint AND mark = %(operation_id)s::uuid AND {DURABLE} RETURNING 1"""
"""Removes a mark that its owner no longer needs."""

# The scope version is raised because the mark's owner may only sleep: it must not continue as if it held the scope.
CLEAR = f"""UPDATE guard SET scope_version = scope_version + 1, {_CLEARED}
WHERE id = %(id)s::bigint AND mark = %(operation_id)s::uuid AND {LAPSED} AND {DURABLE}
RETURNING 1"""
"""Removes another operation's expired mark."""

MARKED = f"""SELECT id, mark, CASE WHEN mark IS NOT NULL AND {LAPSED} THEN -1
  ELSE (coalesce(CASE WHEN mark IS NULL THEN quiet_until ELSE marked_until END, 0) - {NOW}) / 1e6 END
FROM guard WHERE id = ANY(%(ids)s::bigint[]) AND (mark IS NOT NULL OR {THEIR_TURN})"""
"""Shows the marks and the others' turns on guards, and for how many seconds each lasts (-1: it has ended)."""

_FREE = f"mark IS NULL AND {THEIR_TURN} IS NOT TRUE"

# It changes no column of a full unique index, so it does not wait for the shared guards of commits in flight.
_MARK = f"""UPDATE guard SET mark = %(operation_id)s::uuid, marked_at = {NOW},
  marked_until = {NOW} + %(micros)s::bigint
WHERE id = %(id)s::bigint AND (mark = %(operation_id)s::uuid OR {_FREE}) AND {DURABLE}
RETURNING scope_version, marked_at"""

_FREEZE = without_comments(f"""WITH {GUARDED},
-- FOR UPDATE: waits for the writers in flight below this scope, after the shared guards on the scopes above it.
ready AS MATERIALIZED (
  SELECT id FROM guard WHERE id = %(id)s::bigint AND scope_version = %(scope_version)s::bigint
    AND (mark = %(operation_id)s::uuid OR {_FREE}) AND {ALL_GUARDED} FOR UPDATE)
-- the next scope version: a writer that saw the old one, and has not been sent yet, finds its guard broken
UPDATE guard SET scope_version = scope_version + 1, mark = %(operation_id)s::uuid, marked_at = {NOW},
  marked_until = {NOW} + %(micros)s::bigint
WHERE id = %(id)s::bigint AND EXISTS (SELECT FROM ready) AND {DURABLE} RETURNING scope_version, marked_at""")


def mark_statements(mark: Mark) -> list[Statement]:
    """Return the update that sets a mark. A freeze waits for the writers in flight, but not for other marks."""
    parameters = {"id": mark.id, "operation_id": mark.operation_id, "micros": round(mark.seconds * 1_000_000)}
    if mark.scope_version is None:
        return [Statement(_MARK, parameters, writes=True)]
    parameters["scope_version"] = mark.scope_version
    return [Statement(_FREEZE, {**parameters, **guards(mark.guards)}, writes=True)]


class MarkSet(NamedTuple):
    """The update's row."""

    scope_version: int
    marked_at: int


def marked(mark: Mark, rows: list[Row]) -> CommitOutcome:
    """Return the outcome that the update's row, or no row, means. The result's version is the scope version."""
    if not rows:
        return Conflicted("marked" if mark.scope_version is None else "ancestor", mark.id)
    row = MarkSet(*rows[0])
    return Committed((Result(mark.id, row.scope_version, row.marked_at),))


# --- help

RESOLVING = without_comments(f"""WITH {GUARDED},
-- The compare-and-swap, as a lock on the entity's row: a second helper waits here, then finds another version.
cas AS MATERIALIZED (
  SELECT id, modified_at FROM entity
  WHERE id = %(id)s::bigint AND version = %(version)s::bigint AND {ALL_GUARDED}{{free}}
  FOR NO KEY UPDATE),
-- The intents, by operation id, after the entity. An intent that was cancelled meanwhile is not found, and then the
-- count below is wrong: a cancelled intent is never applied.
mine AS MATERIALIZED (
  SELECT operation_id FROM operation
  WHERE operation_id = ANY(%(r_ids)s::uuid[]) AND ordinal = 0 AND action = '{PENDING}' AND EXISTS (SELECT FROM cas)
  ORDER BY operation_id FOR UPDATE),
-- The gate: one row if everything holds. All writes join it. One reading of the clock for all of them.
go AS MATERIALIZED (
  SELECT {NOW} AS at, modified_at FROM cas
  WHERE (SELECT count(*) FROM mine) = cardinality(%(r_ids)s::uuid[]) AND {DURABLE}),{{first}}
-- The outcome of each intent, in the order in which they apply. The positions are drawn here, after the last lock, and
-- only for intents that change something: each is one step of the entity's history.
wanted AS MATERIALIZED (
  SELECT w.*, {{at}} AS at, CASE WHEN w.action = 'alter' THEN nextval('change_seq') END AS seq,
    {GENERATION} AS generation
  FROM go{{after_first}}, unnest(%(r_ids)s::uuid[], %(r_actions)s::text[], %(r_versions)s::bigint[], %(r_docs)s::text[],
    %(r_results)s::text[], %(r_changes)s::text[]) WITH ORDINALITY
    AS w(operation_id, action, version, doc, result, changes, n) ORDER BY w.n),
-- The entity goes from its version to the last one at once; if no intent changes anything, it is not written.
altered AS (
  UPDATE entity SET version = %(new_version)s::bigint, doc = coalesce(%(doc)s::text, doc),
    modified_by = %(principal)s::text, modified_at = go.at
  FROM go WHERE id = %(id)s::bigint AND %(new_version)s::bigint > %(version)s::bigint),
-- The intents' rows become history and results. The guard is read for the scope version, which the lock on the entity
-- keeps: an exclusive operation updates the entity too. The attempt grows if the owner will claim the row.
resolved AS (
  UPDATE operation o SET generation = w.generation, action = w.action, seq = w.seq, version = w.version, time = w.at,
    writer = CASE WHEN w.seq IS NOT NULL THEN {WRITER} END,
    path_before = CASE WHEN w.seq IS NULL THEN o.path_before ELSE %(path)s::text END,
    path_after = CASE WHEN w.seq IS NULL THEN NULL ELSE %(path)s::text END,
    scope_version = CASE WHEN w.seq IS NULL THEN NULL ELSE g.scope_version END,
    in_use = CASE WHEN w.seq IS NULL THEN NULL ELSE g.in_use END,
    parent_id = g.parent_id, name = g.name, fold = g.fold, state = g.state,
    doc = w.doc, result = w.result, changes = coalesce(w.changes, o.changes),
    attempt = coalesce(o.attempt, 0) + (w.action IN ('moved', 'expired'))::int
  FROM wanted w, {each("guard", "g", "g.id = %(id)s::bigint")}
  WHERE o.operation_id = ANY(%(r_ids)s::uuid[]) AND o.operation_id = w.operation_id AND o.ordinal = 0){{more}}
""")
"""Resolves intents, without its last SELECT. ``free``: further conditions. A carry makes a version before them."""

_HELP = without_comments(
    RESOLVING.format(
        # the helper steps aside for a mark on the entity's own guard, and for a ticket
        free=f""" AND EXISTS (SELECT FROM guard WHERE id = %(id)s::bigint AND mark IS NULL)
    AND NOT {in_line("%(id)s::bigint")}""",
        first="",
        after_first="",
        at="go.at",
        more="",
    )
    + f"""-- one row, always: it says when, or which precondition did not hold
SELECT (SELECT count(*) FROM guarded) AS held, (SELECT count(*) FROM cas) AS cas, go.at,
  CASE WHEN go.at IS NULL THEN (SELECT version FROM entity WHERE id = %(id)s::bigint) END AS found,
  CASE WHEN go.at IS NULL THEN EXISTS (SELECT FROM guard
    WHERE (id = %(id)s::bigint OR id = ANY(%(guard_ids)s::bigint[])) AND mark IS NOT NULL) END AS marked,
  CASE WHEN go.at IS NULL THEN {in_line("%(id)s::bigint")} END AS queued
FROM (SELECT 1) AS one LEFT JOIN go ON true"""
)


def help_statement(help_: Help) -> Statement:
    """Return the statement that resolves intents by one compare-and-swap."""
    return Statement(_HELP, help_parameters(help_), writes=True)


def help_parameters(help_: Help) -> dict[str, Any]:
    """Return the parameters of a statement that resolves intents."""
    rows = help_.resolutions
    applied = [one for one in rows if one.action == "alter"]
    return {
        **guards(help_.guards),
        "operation_id": None,
        "id": help_.id,
        "version": help_.version,
        "new_version": help_.version + len(applied),
        "path": help_.path,
        "doc": applied[-1].doc if applied else None,
        "principal": applied[-1].principal if applied else None,
        "r_ids": plain([str(one.operation_id) for one in rows]),
        "r_actions": plain([one.action for one in rows]),
        "r_versions": plain(versions(help_.version, [one.action for one in rows])),
        "r_docs": texts([one.doc for one in rows]),
        "r_results": texts([one.result for one in rows]),
        "r_changes": texts([one.changes for one in rows]),
    }


class Helped(NamedTuple):
    """The statement's row, with the columns of its last SELECT."""

    held: int
    """How many guards held."""
    cas: int
    """1 if the entity had the expected version, and neither a mark nor a ticket blocked it."""
    at: int | None
    """The time of the write; None: a precondition did not hold."""
    found: int | None
    """The version in the statement's snapshot, if nothing was written."""
    marked: bool | None
    queued: bool | None
    """Whether a ticket waits for the entity."""

    def conflict(self, entity_id: int, guards: int) -> Conflicted:
        """Return the precondition that did not hold; ``guards``: the number of guards."""
        if self.marked:
            return Conflicted("marked")
        if self.held < guards:
            return Conflicted("ancestor")
        if self.queued:
            return Conflicted("ticket", entity_id)
        return Conflicted("pending" if self.cas else "self", entity_id, self.found)


def helped(help_: Help, row: Row) -> CommitOutcome:
    """Return the outcome that the row of the resolving statement means."""
    one = Helped(*row)
    return one.conflict(help_.id, len(help_.guards)) if one.at is None else Committed(help_.results(one.at))


# --- look

# intents that this program understands, and those past their deadline, which any program may expire
_NUMBERED = f"""SELECT o.operation_id FROM operation o WHERE o.entity_id = :id AND o.action = '{PENDING}'
    AND (o.format <= {FORMAT} OR o.deadline < {NOW})
  ORDER BY o.time, o.operation_id LIMIT :limit"""
_ROW = "coalesce(json_agg(to_json(s.*) ORDER BY s.time, s.operation_id), '[]')::text"
# One statement, and so one snapshot. seen: the entity from the root down; intents: the ids of its oldest intents.
# MATERIALIZED keeps this limited, sorted choice apart from the join that reads their rows.
_PENDING = f"""WITH seen AS MATERIALIZED ({READ.by_id}),
intents AS MATERIALIZED ({_NUMBERED})
SELECT (SELECT {_ROW} FROM ({READ.named_steps}
  WHERE o.ordinal = 0 AND o.operation_id = ANY(ARRAY(SELECT operation_id FROM intents) || :own::uuid)) s),
  {NOW}, {in_line(":id::bigint")}, {CONFIRMS}, seen.*"""
PENDING_OF = from_named(_PENDING + " FROM (SELECT 1) AS one LEFT JOIN seen ON true", "%(name)s")
"""The intents and the calling operation's row as JSON, the time, whether a ticket waits for the entity, whether commits
wait for a replica, and the entity from the root down.
"""

PENDING_IN_LINE = from_named(
    f"{_PENDING}, l.* FROM ({line_of('ARRAY[:id::bigint]', ':ticket::bigint')}) l LEFT JOIN seen ON true", "%(name)s"
)
"""The same, and the line before a ticket."""

TURN = from_named(
    f"""SELECT (SELECT count(*) FROM operation p WHERE p.entity_id = :id::bigint AND p.action = '{PENDING}'
    AND (p.time, p.operation_id) < (t.time, t.operation_id)),
  CASE WHEN t.action <> '{PENDING}' THEN (SELECT {_ROW} FROM ({READ.named_steps}
    WHERE o.ordinal = 0 AND o.operation_id = :own::uuid) s) END, {CONFIRMS}, l.*
FROM operation t LEFT JOIN LATERAL ({line_of("ARRAY[:id::bigint]", "NULL::bigint")}) l ON true
WHERE t.operation_id = :own::uuid AND t.ordinal = 0""",
    "%(name)s",
)
"""The number of intents before one, its row as JSON if it is decided, whether commits wait for a replica, and the line
for the entity.
"""
