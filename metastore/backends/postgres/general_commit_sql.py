"""The statement of a general commit on PostgreSQL, composed of the parts that its shape needs.

A CTE that locks does so when ``ok`` counts its rows, in this order: shared guards, exclusive guards, validated reads,
staged values, written entities, written owned rows, relations, leases. Within a part, locks are taken by id or name.
``ok`` judges all preconditions together; ``go`` has one row if they hold, and none otherwise. Every write joins ``go``,
and the positions in the feed are drawn last. :mod:`metastore.backends.postgres.fragments` has the rules for all
statements.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from metastore.backends.postgres.fragments import (
    ALL_FENCED,
    ALL_GUARDED,
    DURABLE,
    FENCED,
    GENERATION,
    NOW,
    OPERATION_COLUMNS,
    PATIENT,
    PENDING_HERE,
    THEIR_TURN,
    WRITER,
    marked,
    quiet,
)
from metastore.backends.postgres.relations import DONE_RELATIONS, LOCKED_RELATIONS, OWN_RELATIONS, RELATION_WRITES
from metastore.backends.postgres.tickets import in_line
from metastore.backends.sql.comments import without_comments

# --- locks and preconditions


def _as_seen(table: str, ids: str, column: str, values: str) -> str:
    """Return FROM and WHERE for rows ``t`` whose id is among ``ids``, and whose ``column`` has the value for that id.

    The join takes time in proportion to the ids. WHERE names them again: a generic plan, which does not know their
    number, must then look each of them up in the index.
    """
    ids, values = f"%({ids})s::bigint[]", f"%({values})s::bigint[]"
    return f"""FROM {table} t JOIN unnest({ids}, {values}) AS w(id, seen) ON w.id = t.id AND w.seen = t.{column}
  WHERE t.id = ANY({ids})"""


# Shared guards, as in fragments.GUARDED, but for many ids; they prevent orphans.
_GUARDED = f"""guarded AS MATERIALIZED (
  SELECT t.id {_as_seen("guard", "guard_ids", "scope_version", "guard_scopes")}
    AND (t.mark IS NULL OR t.mark = %(operation_id)s::uuid)
  ORDER BY t.id FOR KEY SHARE OF t)"""

_BARRED = without_comments(f"""
-- Exclusive guards: waits for all sharers in flight and makes new ones wait. So no child appears below an entity that
-- is dropped or moved, or in a listing that a transaction has read.
barred AS MATERIALIZED (
  SELECT t.id {_as_seen("guard", "bar_ids", "scope_version", "bar_scopes")}
    -- evaluated before the first lock: the wait for it ends when the call's patience does
    AND (SELECT {PATIENT}) <> ''
    -- The guard that should carry the operation's own mark must do so. No other guard may carry a mark. The entities
    -- that this commit changes exclusively (turn_ids) must not have the others' turn.
    AND CASE WHEN t.id = %(held)s::bigint THEN t.mark = %(operation_id)s::uuid
      ELSE t.mark IS NULL AND ({THEIR_TURN} IS NOT TRUE OR t.id <> ALL(%(turn_ids)s::bigint[])) END
  ORDER BY t.id FOR UPDATE OF t)""")

_READ = without_comments(f"""
-- Validated reads: FOR SHARE waits for every writer of the row, and makes it wait.
-- It prevents write skew; a weaker lock, or none, lets two transactions commit that read what the other one writes.
read AS MATERIALIZED (
  SELECT t.id {_as_seen("entity", "read_ids", "version", "read_versions")} ORDER BY t.id FOR SHARE OF t),
-- likewise for owned rows, which are locked after the entities in every statement
read_owned AS MATERIALIZED (
  SELECT t.id {_as_seen("owned", "owned_ids", "version", "owned_versions")} ORDER BY t.id FOR SHARE OF t)""")

# The entities to write, at their expected versions; this prevents lost updates. They are locked by id before the first
# write: an UPDATE alone would lock in the order of its plan, and two commits could deadlock. FOR NO KEY UPDATE is the
# lock that the UPDATE takes anyway.
_LOCKED = f"""locked AS MATERIALIZED (
  SELECT t.id {_as_seen("entity", "u_ids", "version", "u_versions")} ORDER BY t.id FOR NO KEY UPDATE OF t)"""

_LOCKED_OWNED = without_comments("""
-- The owned rows to write, found by owner, kind and name at their expected version.
-- The id tells a row from one of the same name and version that was made after it was deleted (0: the commit makes it).
locked_owned AS MATERIALIZED (
  SELECT o.id FROM owned o
  JOIN unnest(%(w_owners)s::bigint[], %(w_kinds)s::text[], %(w_names)s::text[], %(w_versions)s::bigint[],
      %(w_ids)s::bigint[])
    AS w(owner_id, kind, name, version, id)
    ON o.owner_id = w.owner_id AND o.kind = w.kind AND o.name = w.name AND o.version = w.version AND w.id IN (0, o.id)
  -- version 0 is a new row: nothing to lock, the primary key refuses a second one
  WHERE w.version > 0
  ORDER BY o.id FOR UPDATE OF o)""")

# Each value that the commit publishes must still be staged (state 0). Because of FOR UPDATE, a clean-up that dooms a
# value waits, or this finds one row fewer; so no value becomes visible after it was deleted from its storage.
_STAGED = """staged_rows AS MATERIALIZED (
  SELECT id FROM staged WHERE id = ANY(%(publishes)s::uuid[]) AND state = 0 ORDER BY id FOR UPDATE)"""
_ALL_STAGED = "(SELECT count(*) FROM staged_rows) = cardinality(%(publishes)s::uuid[])"

_OWN_UPDATES = "(SELECT count(*) FROM locked) = cardinality(%(u_ids)s::bigint[])"
_UNMARKED = f"NOT {marked('%(u_plain)s::bigint[]')}"
_NONE_PENDING = f"""NOT EXISTS (SELECT FROM operation
      WHERE entity_id = ANY(%(u_plain)s::bigint[]) AND {PENDING_HERE})"""
_NOT_QUEUED = f"""NOT EXISTS (SELECT FROM unnest(%(u_plain)s::bigint[]) AS u(id)
      WHERE {in_line("u.id", "%(ticket)s::bigint")})"""
_OWN_WRITES = "(SELECT count(*) FROM locked_owned) = %(w_known)s::bigint"

_OK = without_comments(f"""
-- One row that says which preconditions hold. Counting reads each locking CTE to its end:
-- one that is not read does not lock. Locks nothing itself.
ok AS MATERIALIZED (
  SELECT {ALL_GUARDED} AND (SELECT count(*) FROM barred) = cardinality(%(bar_ids)s::bigint[]) AS guards,
    (SELECT count(*) FROM read) + (SELECT count(*) FROM read_owned)
      = cardinality(%(read_ids)s::bigint[]) + cardinality(%(owned_ids)s::bigint[]){{staged}} AS reads,
    {{own}} AS own, {{free}} AS free, {{turn}} AS turn, {{fenced}} AS fenced),
-- The gate: one row if everything holds. All writes join it, so that all are made or none.
go AS MATERIALIZED (SELECT FROM ok WHERE fenced AND guards AND reads AND own AND free AND turn AND {DURABLE})""")

# --- writes

# Staged values become visible (1) with the commit that names them.
_PUBLISHED = """published AS (
  UPDATE staged s SET state = 1 FROM staged_rows r, go
  WHERE s.id = r.id AND s.id = ANY(%(publishes)s::uuid[]))"""

_UPDATES = without_comments(f"""
-- What to write, one row for each entity. Materialized: it is read by two updates.
wanted AS MATERIALIZED (
  SELECT * FROM unnest(%(u_ordinals)s::int[], %(u_ids)s::bigint[], %(u_docs)s::text[], %(u_exclusive)s::boolean[],
    %(u_parents)s::bigint[], %(u_names)s::text[], %(u_keys)s::text[], %(u_folds)s::boolean[], %(u_states)s::smallint[],
    %(u_in_use)s::boolean[])
    AS w(ordinal, id, doc, exclusive, parent_id, name, key, fold, state, in_use)),
-- Exclusive updates: the new place and the next scope version, on rows that ``barred`` holds. A mark goes with it,
-- unless later stages of the commit need it (keep). A name that is taken raises a unique violation.
stands AS (
  UPDATE guard g SET scope_version = g.scope_version + 1, parent_id = coalesce(w.parent_id, g.parent_id),
    name = coalesce(w.name, g.name), key = coalesce(w.key, g.key), fold = coalesce(w.fold, g.fold),
    state = coalesce(w.state, g.state), in_use = coalesce(w.in_use, g.in_use),
    dropped_at = CASE WHEN w.state = 0 THEN NULL WHEN w.state = 1 THEN {NOW} ELSE g.dropped_at END,
    mark = CASE WHEN %(keep)s::boolean THEN g.mark END, marked_at = CASE WHEN %(keep)s::boolean THEN g.marked_at END,
    marked_until = CASE WHEN %(keep)s::boolean THEN g.marked_until END,
    quiet_until = CASE WHEN g.mark IS NOT NULL THEN {quiet("g")} END
  FROM wanted w, go WHERE w.id = g.id AND g.id = ANY(%(u_ids)s::bigint[]) AND w.exclusive
  RETURNING g.*),
-- Exclusive updates send the intents on their entities away: their owners decide again. The attempt counts, so that a
-- late claim fails.
withdrawn AS (
  UPDATE operation o SET action = 'moved', attempt = coalesce(o.attempt, 0) + 1
  FROM go WHERE o.entity_id = ANY(%(turn_ids)s::bigint[]) AND o.action = 'pending'),
-- The new versions, on rows that ``locked`` holds at the expected ones.
altered AS (
  UPDATE entity e SET version = e.version + 1, doc = coalesce(w.doc, e.doc),
    modified_by = %(principal)s::text, modified_at = {NOW}
  FROM wanted w, go WHERE w.id = e.id AND e.id = ANY(%(u_ids)s::bigint[])
  RETURNING w.ordinal, e.id, e.version, e.doc, e.modified_at)""")

_INSERTS = without_comments(f"""
-- New entities, sorted by name: two commits that take the same names wait for each other in one order. Materialized:
-- each id is drawn once.
fresh AS MATERIALIZED (
  SELECT w.ordinal, coalesce(w.id, nextval('entity_id_seq')) AS id, w.parent_id, w.kind, w.family, w.name, w.key,
    w.fold, w.doc
  FROM go, unnest(%(i_ordinals)s::int[], %(i_ids)s::bigint[], %(i_parents)s::bigint[], %(i_kinds)s::text[],
    %(i_families)s::text[], %(i_names)s::text[], %(i_keys)s::text[], %(i_folds)s::boolean[], %(i_docs)s::text[])
    AS w(ordinal, id, parent_id, kind, family, name, key, fold, doc)
  ORDER BY w.parent_id, w.family, w.key, w.ordinal),
-- Takes the names. A live entity of the same name raises a unique violation, or is skipped, as the commit says.
placed AS (
  INSERT INTO guard (id, parent_id, kind, family, name, key, fold, state, in_use, scope_version)
  SELECT id, parent_id, kind, family, name, key, fold, 0, true, 1 FROM fresh
  {{on_conflict}}
  RETURNING id),
-- The documents of those that got their names.
made AS (
  INSERT INTO entity (id, version, doc, created_by, created_at, modified_by, modified_at)
  SELECT id, 1, doc, %(principal)s::text, now.at, %(principal)s::text, now.at
  FROM placed JOIN fresh USING (id), (SELECT {NOW} AS at) AS now
  RETURNING id, created_at)""")

_OWNED_WRITES = without_comments(f"""
-- What to write: version 0 is a new row, no document is a deletion.
owned_wanted AS MATERIALIZED (
  SELECT * FROM unnest(%(w_ordinals)s::int[], %(w_owners)s::bigint[], %(w_kinds)s::text[], %(w_names)s::text[],
    %(w_versions)s::bigint[], %(w_docs)s::text[]) AS w(ordinal, owner_id, kind, name, version, doc)),
-- New rows, sorted by key: two commits wait for each other in one order. The primary key refuses a second row.
owned_made AS (
  INSERT INTO owned (owner_id, kind, name, id, version, doc, created_by, created_at, modified_by, modified_at)
  SELECT owner_id, kind, name, nextval('entity_id_seq'), 1, doc, %(principal)s::text, now.at, %(principal)s::text,
    now.at
  FROM owned_wanted, go, (SELECT {NOW} AS at) AS now WHERE version = 0 ORDER BY owner_id, kind, name
  RETURNING owner_id, kind, name, id, version, doc, modified_at),
-- New versions, on rows that ``locked_owned`` holds.
owned_altered AS (
  UPDATE owned o SET version = o.version + 1, doc = w.doc, modified_by = %(principal)s::text, modified_at = {NOW}
  FROM owned_wanted w, go
  WHERE o.owner_id = w.owner_id AND o.kind = w.kind AND o.name = w.name AND w.version > 0 AND w.doc IS NOT NULL
  RETURNING o.owner_id, o.kind, o.name, o.id, o.version, o.doc, o.modified_at),
-- Deletions, on rows that ``locked_owned`` holds: a deletion is a version too, so that the history has no gap.
owned_deleted AS (
  DELETE FROM owned o USING owned_wanted w, go
  WHERE o.owner_id = w.owner_id AND o.kind = w.kind AND o.name = w.name AND w.version > 0 AND w.doc IS NULL
  RETURNING o.owner_id, o.kind, o.name, o.id, o.version + 1 AS version, o.doc, {NOW} AS modified_at)""")

# --- history, change events, and the statement's rows

# The guard is read in the statement's snapshot. Yet that is its current row: ``locked`` holds the entity's version,
# which every exclusive operation raises too. BUMP raises scope versions only after this statement.
_DONE_UPDATES = """SELECT a.ordinal, a.id, a.version, NULL::bigint AS owner_id,
    coalesce(s.scope_version, g.scope_version + (a.id = ANY(%(u_raised)s::bigint[]))::int) AS scope_version,
    coalesce(s.in_use, g.in_use) AS in_use, a.doc, a.modified_at AS time,
    coalesce(s.parent_id, g.parent_id) AS parent_id, coalesce(s.name, g.name) AS name,
    coalesce(s.fold, g.fold) AS fold, coalesce(s.state, g.state) AS state,
    CASE WHEN s.state = 0 THEN s.family END AS family, CASE WHEN s.state = 0 THEN s.key END AS key
  FROM altered a JOIN guard g ON g.id = a.id AND g.id = ANY(%(u_ids)s::bigint[]) LEFT JOIN stands s ON s.id = a.id"""
_DONE_INSERTS = """SELECT f.ordinal, m.id, 1::bigint, NULL::bigint, 1::bigint, true, f.doc, m.created_at,
    f.parent_id, f.name, f.fold, 0::smallint, f.family, f.key
  FROM made m JOIN fresh f ON f.id = m.id"""
_DONE_OWNED = """SELECT w.ordinal, o.id, o.version, o.owner_id, NULL::bigint, NULL::boolean, o.doc, o.modified_at,
    o.owner_id, o.name, NULL::boolean, CASE WHEN w.doc IS NULL THEN 1 ELSE 0 END::smallint,
    CASE WHEN w.doc IS NOT NULL THEN o.kind END, CASE WHEN w.doc IS NOT NULL THEN o.name END
  FROM (SELECT * FROM owned_made UNION ALL SELECT * FROM owned_altered UNION ALL SELECT * FROM owned_deleted) o
  JOIN owned_wanted w ON w.owner_id = o.owner_id AND w.kind = o.kind AND w.name = o.name"""

_LOGGED = without_comments(f"""
-- What was written, in the order of the commit's writes. Sorting is a barrier: it reads all
-- writes before it gives the first row, so that no position is drawn before the last row was locked and written.
done AS MATERIALIZED (
  SELECT * FROM ({{parts}}) AS d(ordinal, id, version, owner_id, scope_version, in_use, doc, time,
    parent_id, name, fold, state, family, key) ORDER BY ordinal),
-- The positions, drawn in this order. Materialized: each is drawn once, and the last one is known to all rows.
numbered AS MATERIALIZED (SELECT nextval('change_seq') AS seq, d.* FROM done d),
-- One row for each write: history, change event and result. The operation id is in its key, so that a repeat fails.
logged AS (
  INSERT INTO operation ({OPERATION_COLUMNS}, family, key, through{{column}})
  SELECT {WRITER}, {GENERATION},
    %(operation_id)s::uuid, {{ordinal}}, d.seq, d.id, d.version, d.owner_id, ev.kind, ev.action,
    %(principal)s::text, d.time, ev.path_before, ev.path_after, ev.changes, d.scope_version, d.in_use, d.doc,
    CASE {{ordinal}} WHEN 0 THEN %(digest)s::text END, d.parent_id, d.name, d.fold, d.state, d.family, d.key,
    -- the past shows the rows of a commit together, from its last position on
    CASE WHEN count(*) OVER () > 1 THEN max(d.seq) OVER () END{{fences}}
  FROM numbered d JOIN unnest(%(e_kinds)s::text[], %(e_actions)s::text[], %(e_before)s::text[], %(e_after)s::text[],
      %(e_changes)s::text[], %(e_ordinals)s::int[]{{others}})
      AS ev(kind, action, path_before, path_after, changes, ordinal{{other_columns}})
    ON ev.ordinal = d.ordinal
  ORDER BY d.ordinal){{kept}}
-- the columns that general_commit.Done names
SELECT ok.fenced, ok.guards, ok.turn, ok.reads, ok.own, ok.free, NOT (ok.guards AND ok.free) AND {{marked}}, d.ordinal,
  d.id, d.version, d.time{{must}}
FROM ok LEFT JOIN done d ON true""")

_KEPT = f"""kept AS (
  INSERT INTO operation (operation_id, ordinal, action, time, attempt)
  SELECT %(operation_id)s::uuid, 0, 'forbidden', {NOW}, %(claim)s::int FROM go WHERE NOT EXISTS (SELECT FROM done))"""
"""Puts the claimed tombstone back if the commit writes nothing; without it, a late original could be applied."""

# Without gaps, because a tombstone takes the ordinal 0, so the row with this ordinal must always exist.
_ORDINAL = {False: "d.ordinal", True: "row_number() OVER (ORDER BY d.ordinal) - 1"}

# The first row keeps the whole note, each other row only the leases and the reason.
_NOTE = ", CASE {ordinal} WHEN 0 THEN %(note)s::text ELSE %(fences)s::text END"

# Each column raises the SQLSTATE of its cause: MARKED, TICKET, PENDING, READ.
_MUST = """,
  substring('', 1, CASE WHEN NOT (ok.guards AND ok.free) AND {marked} THEN -1 ELSE 1 END),
  '' LIKE '' ESCAPE CASE WHEN ok.turn THEN '' ELSE 'ab' END,
  '' ~ CASE WHEN ok.free THEN '' ELSE '(' END,
  ln(CASE WHEN ok.guards AND ok.reads AND ok.own THEN 1 ELSE 0 END)"""
_MUST_BE_FENCED = ", make_date(CASE WHEN ok.fenced THEN 2000 ELSE 0 END, 1, 1)"

_ONLY_CHECKED = """SELECT fenced, guards, turn, reads, own, free, NOT guards AND {marked},
  NULL::int, NULL::bigint, NULL::bigint, NULL::bigint{must} FROM ok"""


@dataclass(frozen=True, slots=True)
class Shape:
    """The parts of a general commit's statement. Each shape has one text and one prepared plan."""

    updates: bool = False
    """It writes entities."""
    inserts: bool = False
    """It creates entities."""
    owned: bool = False
    """It writes or deletes owned rows."""
    relations: bool = False
    """It writes or removes relations."""
    skip_existing: bool = False
    """It skips inserts whose name is taken, and relations that exist already."""
    claimed: bool = False
    """It replaces the operation's tombstone, which stays if all inserts are skipped."""
    must: bool = False
    """It fails (LEASE, MARKED, PENDING or READ) if a precondition does not hold, so that the other statements of its
    message are not applied either.
    """
    overlook: bool = False
    """Pending intents do not block it."""
    queues: bool = False
    """Tickets older than its own block it."""
    fenced: bool = False
    """Leases must hold."""
    noted: bool = False
    """The leases, the evidence of rights, or the reason are noted."""
    publishes: bool = False
    """It makes staged values visible."""

    @property
    def writes(self) -> bool:
        """Whether it writes at all; otherwise it only checks."""
        return self.updates or self.inserts or self.owned or self.relations


@cache
def statement_of(shape: Shape) -> str:
    """Return the statement for a commit of this shape."""
    parts = [*_locks(shape), _ok(shape)]
    parts += [_PUBLISHED] if shape.publishes else []
    if not shape.writes:
        last = _ONLY_CHECKED.format(marked=_any_marked(shape), must=_must(shape))
        return "WITH " + ",\n".join(parts) + "\n" + last
    skip = "ON CONFLICT (parent_id, family, key) WHERE state = 0 DO NOTHING" if shape.skip_existing else ""
    parts += [_UPDATES] if shape.updates else []
    parts += [_INSERTS.format(on_conflict=skip)] if shape.inserts else []
    parts += [_OWNED_WRITES] if shape.owned else []
    skip_relations = "ON CONFLICT (from_id, kind, slot, column_id, value) DO NOTHING" if shape.skip_existing else ""
    parts += [RELATION_WRITES.format(on_conflict=skip_relations)] if shape.relations else []
    return "WITH " + ",\n".join([*parts, _logged(shape)])


def _locks(shape: Shape) -> list[str]:
    locks = [FENCED] if shape.fenced else []
    locks += [_GUARDED, _BARRED, _READ]
    locks += [_LOCKED] if shape.updates else []
    locks += [_LOCKED_OWNED] if shape.owned else []
    locks += [LOCKED_RELATIONS] if shape.relations else []
    locks += [_STAGED] if shape.publishes else []
    return locks


def _ok(shape: Shape) -> str:
    """Return the CTEs that check the preconditions."""
    own = [_OWN_UPDATES] if shape.updates else []
    own += [_OWN_WRITES] if shape.owned else []
    own += [OWN_RELATIONS] if shape.relations else []
    free = [_UNMARKED] if shape.updates else []
    free += [_NONE_PENDING] if shape.updates and not shape.overlook else []
    return _OK.format(
        staged=f" AND {_ALL_STAGED}" if shape.publishes else "",
        own=" AND ".join(own) or "true",
        free=" AND ".join(free) or "true",
        turn=_NOT_QUEUED if shape.updates and shape.queues else "true",
        fenced=ALL_FENCED if shape.fenced else "true",
    )


def _logged(shape: Shape) -> str:
    """Return the CTEs that log the writes, and the last SELECT."""
    done = [_DONE_UPDATES] if shape.updates else []
    done += [_DONE_INSERTS] if shape.inserts else []
    done += [_DONE_OWNED] if shape.owned else []
    done += [DONE_RELATIONS] if shape.relations else []
    others = ", other_id, other_path" if shape.relations else ""
    note = _NOTE.format(ordinal=_ORDINAL[shape.skip_existing]) if shape.noted else ""
    return _LOGGED.format(
        parts="\n  UNION ALL ".join(done),
        ordinal=_ORDINAL[shape.skip_existing],
        kept=f",\n{_KEPT}" if shape.skip_existing and shape.claimed else "",
        must=_must(shape),
        column=(", fences" if shape.noted else "") + others,
        fences=note + (", ev.other_id, ev.other_path" if others else ""),
        others=", %(e_other_ids)s::bigint[], %(e_other_paths)s::text[]" if others else "",
        other_columns=others,
        marked=_any_marked(shape),
    )


def _any_marked(shape: Shape) -> str:
    """Return the condition that a mark, or the others' turn, prevents the commit."""
    plain = " || %(u_plain)s::bigint[]" if shape.updates else ""
    return marked(
        f"%(guard_ids)s::bigint[] || %(bar_ids)s::bigint[]{plain}",
        f" OR (id = ANY(%(turn_ids)s::bigint[]) AND {THEIR_TURN})",
    )


def _must(shape: Shape) -> str:
    """Return the columns that raise if a precondition does not hold."""
    if not shape.must:
        return ""
    return (_MUST_BE_FENCED if shape.fenced else "") + _MUST.format(marked=_any_marked(shape))
