"""The statements of a commit on PostgreSQL.

``postgres_hot_sql`` has the hot ones, for one entity that is made, altered or changed exclusively; :func:`batch`
composes one statement for everything else, of parts that they share. In each of them

* every guard is locked ``FOR KEY SHARE`` in a materialized CTE ordered by id, and its count is
  compared with the number expected; what follows runs only if all held. A guard that carries
  another operation's mark does not hold;
* an update finds its row by id and version, so that it finds none when somebody was faster; and
  it fails where an intent is pending that it does not resolve, or a mark is on the row's own guard;
* the position in the feed (``change_seq``) is drawn from the rows that were written, hence
  after the statement's last lock;
* ``synchronous_commit`` off or local is raised to on for this transaction.

READ COMMITTED re-evaluates WHERE on the new row version after a wait; everything here rests on
that (PostgreSQL manual, 13.2.1). Parameters are psycopg's ``%(name)s``.
"""

from __future__ import annotations

from functools import cache

from metastore.port.backend import DRIFT, LONGEST_QUIET, MOST_AHEAD, QUIET
from metastore.port.commit import DROPPED, FORMAT

__all__ = [
    "ALL_FENCED",
    "ALL_GUARDED",
    "CALLER",
    "CLAIM",
    "CLAIMED",
    "DURABLE",
    "FENCED",
    "GUARDED",
    "LAPSED",
    "LEASE",
    "LOCK_ENTITIES",
    "LOCK_GUARDS",
    "MARKED",
    "NOT_EMPTY",
    "NOW",
    "OPERATION_COLUMNS",
    "PATIENCE",
    "PATIENT",
    "PENDING",
    "READ",
    "RELEASE",
    "STALE_ID",
    "THEIR_TURN",
    "batch",
    "check_absent",
    "check_absent_owned",
    "check_children",
    "check_empty",
    "check_listing",
    "check_newest",
    "marked",
    "quiet",
]

NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


def quiet(guard: str) -> str:
    """Until when it is the others' turn after the mark of ``guard``: as long as that was held, within limits."""
    held = f"least({NOW}, {guard}.marked_until) - {guard}.marked_at"
    return f"{NOW} + least(greatest({QUIET}, {held}), {LONGEST_QUIET})"


THEIR_TURN = f"(quiet_until > {NOW} AND quiet_until <= {NOW} + {LONGEST_QUIET})"
"""Whether it is the others' turn on a guard. One that would last longer dates from before the clock was set back."""

LAPSED = f"(marked_until < {NOW} OR marked_at > {NOW} + {MOST_AHEAD})"
"""Whether a guard's mark may be cleared: its time is over, or it was set before the clock was set back."""

DURABLE = """set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
    THEN 'on' ELSE current_setting('synchronous_commit') END, true) IS NOT NULL"""

GUARDED = """guarded AS MATERIALIZED (
  SELECT id FROM guard
  WHERE id = ANY(%(guard_ids)s::bigint[])
    AND scope_version = (%(guard_scopes)s::bigint[])[array_position(%(guard_ids)s::bigint[], id)]
    AND (mark IS NULL OR mark = %(operation_id)s::uuid)
  ORDER BY id FOR KEY SHARE)"""

ALL_GUARDED = "(SELECT count(*) FROM guarded) = cardinality(%(guard_ids)s::bigint[])"

FENCED = """fenced AS MATERIALIZED (
  SELECT name FROM lease
  WHERE name = ANY(%(lease_names)s::text[])
    AND token = (%(lease_tokens)s::bigint[])[array_position(%(lease_names)s::text[], name)]
    AND incarnation = (%(lease_incarnations)s::text[])[array_position(%(lease_names)s::text[], name)]
  ORDER BY name FOR KEY SHARE)"""
"""The leases that still have their tokens. A renewal passes; whoever wants to change a token waits for the commit."""

ALL_FENCED = "(SELECT count(*) FROM fenced) = cardinality(%(lease_names)s::text[])"

OPERATION_COLUMNS = """operation_id, ordinal, seq, entity_id, version, owner_id, kind, action, principal, time,
    path_before, path_after, changes, scope_version, in_use, doc, digest"""


def marked(ids: str, also: str = "") -> str:
    """Whether a guard carries another's mark; seen by this statement's snapshot, so that it may be missed."""
    return f"""EXISTS (SELECT FROM guard WHERE id = ANY({ids}) AND (mark <> %(operation_id)s::uuid{also}))"""


LOCK_GUARDS = {
    True: "SELECT id FROM guard WHERE id = ANY(%(ids)s::bigint[]) ORDER BY id FOR UPDATE",
    False: "SELECT id FROM guard WHERE id = ANY(%(ids)s::bigint[]) ORDER BY id FOR KEY SHARE",
}
"""Locks and checks nothing; by whether they are exclusive."""

LOCK_ENTITIES = {
    True: "SELECT id FROM entity WHERE id = ANY(%(ids)s::bigint[]) ORDER BY id FOR NO KEY UPDATE",
    False: "SELECT id FROM entity WHERE id = ANY(%(ids)s::bigint[]) ORDER BY id FOR SHARE",
}
"""Likewise, by whether they will be written."""


NOT_EMPTY, READ, CLAIM, STALE_ID, MARKED, PENDING = "22012", "2201E", "2201F", "2201G", "22011", "2201B"
LEASE = "22008"
"""The SQLSTATEs that failing checks raise: division_by_zero, invalid arguments for a logarithm, a power function and
width_bucket, substring_error, an invalid regular expression, and a date that does not exist."""


def _fails_if(found: str) -> str:
    """A statement that raises READ, and so aborts all, when ``found`` is true."""
    return f"SELECT ln(CASE WHEN {found} THEN 0 ELSE 1 END)"


check_empty = """SELECT 1 / (CASE WHEN EXISTS (SELECT FROM guard g
  WHERE g.parent_id = ANY(%(ids)s::bigint[]) AND g.state = 0
    AND NOT EXISTS (SELECT FROM unnest(%(leaving)s::bigint[]) AS l(id) WHERE l.id = g.id)) THEN 0 ELSE 1 END)"""
check_absent = _fails_if(
    """EXISTS (SELECT FROM unnest(%(parents)s::bigint[], %(families)s::text[], %(keys)s::text[]) AS w(p, f, k)
    JOIN guard g ON g.parent_id = w.p AND g.family = w.f AND g.key = w.k WHERE g.state = 0)"""
)

check_absent_owned = _fails_if(
    """EXISTS (SELECT FROM unnest(%(parents)s::bigint[], %(families)s::text[], %(keys)s::text[]) AS w(p, f, k)
    JOIN owned o ON o.owner_id = w.p AND o.kind = w.f AND o.name = w.k)"""
)

check_children = _fails_if(
    """%(there)s::boolean <> EXISTS (SELECT FROM guard
    WHERE parent_id = %(parent_id)s::bigint AND state = 0 AND id <> ALL(%(besides)s::bigint[]))"""
)

check_newest = _fails_if(
    f"""%(id)s::bigint IS DISTINCT FROM (SELECT id FROM guard
    WHERE parent_id = %(parent_id)s::bigint AND family = %(family)s::text AND key = %(key)s::text
      AND state = {DROPPED} AND kind = %(kind)s::text
    ORDER BY dropped_at DESC, id DESC LIMIT 1)"""
)

_MEMBERS = {
    False: """SELECT g.id, e.version FROM guard g JOIN entity e ON e.id = g.id
    WHERE g.parent_id = %(parent_id)s::bigint AND g.kind = %(kind)s::text AND g.state = %(state)s::smallint""",
    True: "SELECT id, version FROM owned WHERE owner_id = %(parent_id)s::bigint AND kind = %(kind)s::text",
}
_SEEN = "SELECT * FROM unnest(%(ids)s::bigint[], %(versions)s::bigint[])"

check_listing = {
    owned: _fails_if(f"EXISTS (({m} EXCEPT {_SEEN}) UNION ALL ({_SEEN} EXCEPT {m}))") for owned, m in _MEMBERS.items()
}

CLAIMED = """WITH gone AS (
  DELETE FROM operation WHERE operation_id = %(operation_id)s::uuid AND ordinal = 0 AND attempt = %(claim)s::int
    AND action IN ('forbidden', 'moved', 'expired', 'cancelled') RETURNING 1)
SELECT sqrt(((SELECT count(*) FROM gone) - 1)::float8)"""
"""Takes the operation's row away, for the one that the commit writes; fails (CLAIM) if it is not ours any more."""

CALLER = f"""WITH remembered AS MATERIALIZED (
  SELECT 1 FROM info WHERE forgotten + {DRIFT} <= %(issued)s::bigint
    AND %(issued)s::bigint <= {NOW} + {DRIFT} FOR SHARE)
SELECT width_bucket(1::float8, 0::float8, (SELECT count(*) FROM remembered)::float8, 1)"""
"""Fails (STALE_ID) for an operation id that gc may have forgotten, and keeps gc from forgetting more meanwhile."""

PATIENCE = "SELECT set_config('lock_timeout', %(patience)s::text, true)"
"""For a message whose first statements lock; the others set it themselves."""

RELEASE = f"""UPDATE guard SET mark = NULL, marked_at = NULL, marked_until = NULL,
  quiet_until = {quiet("guard")}
WHERE id = %(held)s::bigint AND mark = %(operation_id)s::uuid"""
"""Takes the operation's own mark away."""

PATIENT = "set_config('lock_timeout', coalesce(%(patience)s::text, current_setting('lock_timeout')), true)"


def _as_seen(table: str, ids: str, column: str, values: str) -> str:
    """Rows ``t`` with an id among ``ids`` and the value that stands beside it; it takes as long as there are ids.

    The ids are named twice: a generic plan, which does not know how many there are, must look each of them up.
    """
    ids, values = f"%({ids})s::bigint[]", f"%({values})s::bigint[]"
    return f"""FROM {table} t JOIN unnest({ids}, {values}) AS w(id, seen) ON w.id = t.id AND w.seen = t.{column}
  WHERE t.id = ANY({ids})"""


_GUARDED = f"""guarded AS MATERIALIZED (
  SELECT t.id {_as_seen("guard", "guard_ids", "scope_version", "guard_scopes")}
    AND (t.mark IS NULL OR t.mark = %(operation_id)s::uuid)
  ORDER BY t.id FOR KEY SHARE OF t)"""

_BARRED = f"""barred AS MATERIALIZED (
  SELECT t.id {_as_seen("guard", "bar_ids", "scope_version", "bar_scopes")}
    AND (SELECT {PATIENT}) <> ''
    AND CASE WHEN t.id = %(held)s::bigint THEN t.mark = %(operation_id)s::uuid
      ELSE t.mark IS NULL AND ({THEIR_TURN} IS NOT TRUE OR t.id <> ALL(%(turn_ids)s::bigint[])) END
  ORDER BY t.id FOR UPDATE OF t)"""

_READ = f"""read AS MATERIALIZED (
  SELECT t.id {_as_seen("entity", "read_ids", "version", "read_versions")} ORDER BY t.id FOR SHARE OF t),
read_owned AS MATERIALIZED (
  SELECT t.id {_as_seen("owned", "owned_ids", "version", "owned_versions")} ORDER BY t.id FOR SHARE OF t)"""

_LOCKED = f"""locked AS MATERIALIZED (
  SELECT t.id {_as_seen("entity", "u_ids", "version", "u_versions")} ORDER BY t.id FOR NO KEY UPDATE OF t)"""

_LOCKED_OWNED = """locked_owned AS MATERIALIZED (
  SELECT o.id FROM owned o
  JOIN unnest(%(w_owners)s::bigint[], %(w_kinds)s::text[], %(w_names)s::text[], %(w_versions)s::bigint[],
      %(w_ids)s::bigint[])
    AS w(owner_id, kind, name, version, id)
    ON o.owner_id = w.owner_id AND o.kind = w.kind AND o.name = w.name AND o.version = w.version AND w.id IN (0, o.id)
  WHERE w.version > 0
  ORDER BY o.id FOR UPDATE OF o)"""

_OK = f"""ok AS MATERIALIZED (
  SELECT {ALL_GUARDED} AND (SELECT count(*) FROM barred) = cardinality(%(bar_ids)s::bigint[]) AS guards,
    (SELECT count(*) FROM read) + (SELECT count(*) FROM read_owned)
      = cardinality(%(read_ids)s::bigint[]) + cardinality(%(owned_ids)s::bigint[]){{staged}} AS reads,
    {{own}} AS own, {{free}} AS free, {{fenced}} AS fenced),
go AS MATERIALIZED (SELECT FROM ok WHERE fenced AND guards AND reads AND own AND free AND {DURABLE})"""

_STAGED = """staged_rows AS MATERIALIZED (
  SELECT id FROM staged WHERE id = ANY(%(publishes)s::uuid[]) AND state = 0 ORDER BY id FOR UPDATE)"""
_PUBLISHED = """published AS (
  UPDATE staged s SET state = 1 FROM staged_rows r, go
  WHERE s.id = r.id AND s.id = ANY(%(publishes)s::uuid[]))"""
_ALL_STAGED = "(SELECT count(*) FROM staged_rows) = cardinality(%(publishes)s::uuid[])"

_OWN_UPDATES = "(SELECT count(*) FROM locked) = cardinality(%(u_ids)s::bigint[])"
_UNMARKED = f"NOT {marked('%(u_plain)s::bigint[]')}"
_NONE_PENDING = f"""NOT EXISTS (SELECT FROM operation
      WHERE entity_id = ANY(%(u_plain)s::bigint[]) AND action = 'pending' AND format <= {FORMAT})"""
_OWN_WRITES = "(SELECT count(*) FROM locked_owned) = %(w_known)s::bigint"

_UPDATES = f"""wanted AS MATERIALIZED (
  SELECT * FROM unnest(%(u_ordinals)s::int[], %(u_ids)s::bigint[], %(u_docs)s::text[], %(u_exclusive)s::boolean[],
    %(u_parents)s::bigint[], %(u_names)s::text[], %(u_keys)s::text[], %(u_folds)s::boolean[], %(u_states)s::smallint[],
    %(u_in_use)s::boolean[])
    AS w(ordinal, id, doc, exclusive, parent_id, name, key, fold, state, in_use)),
stands AS (
  UPDATE guard g SET scope_version = g.scope_version + 1, parent_id = coalesce(w.parent_id, g.parent_id),
    name = coalesce(w.name, g.name), key = coalesce(w.key, g.key), fold = coalesce(w.fold, g.fold),
    state = coalesce(w.state, g.state), in_use = coalesce(w.in_use, g.in_use),
    dropped_at = CASE WHEN w.state = 0 THEN NULL WHEN w.state = 1 THEN {NOW} ELSE g.dropped_at END,
    mark = CASE WHEN %(keep)s::boolean THEN g.mark END, marked_at = CASE WHEN %(keep)s::boolean THEN g.marked_at END,
    marked_until = CASE WHEN %(keep)s::boolean THEN g.marked_until END,
    quiet_until = CASE WHEN g.mark IS NOT NULL THEN {quiet("g")} END
  FROM wanted w, go WHERE w.id = g.id AND g.id = ANY(%(u_ids)s::bigint[]) AND w.exclusive
  RETURNING g.id, g.scope_version, g.in_use),
withdrawn AS (
  UPDATE operation o SET action = 'moved', attempt = coalesce(o.attempt, 0) + 1
  FROM go WHERE o.entity_id = ANY(%(u_withdraw_ids)s::bigint[]) AND o.action = 'pending'
    AND (o.format <= {FORMAT} OR o.entity_id = ANY(%(turn_ids)s::bigint[]))),
altered AS (
  UPDATE entity e SET version = e.version + 1, doc = coalesce(w.doc, e.doc),
    modified_by = %(principal)s::text, modified_at = {NOW}
  FROM wanted w, go WHERE w.id = e.id AND e.id = ANY(%(u_ids)s::bigint[])
  RETURNING w.ordinal, e.id, e.version, e.doc, e.modified_at)"""

_INSERTS = f"""fresh AS MATERIALIZED (
  SELECT w.ordinal, coalesce(w.id, nextval('entity_id_seq')) AS id, w.parent_id, w.kind, w.family, w.name, w.key,
    w.fold, w.doc
  FROM go, unnest(%(i_ordinals)s::int[], %(i_ids)s::bigint[], %(i_parents)s::bigint[], %(i_kinds)s::text[],
    %(i_families)s::text[], %(i_names)s::text[], %(i_keys)s::text[], %(i_folds)s::boolean[], %(i_docs)s::text[])
    AS w(ordinal, id, parent_id, kind, family, name, key, fold, doc)
  ORDER BY w.parent_id, w.family, w.key, w.ordinal),
placed AS (
  INSERT INTO guard (id, parent_id, kind, family, name, key, fold, state, in_use, scope_version)
  SELECT id, parent_id, kind, family, name, key, fold, 0, true, 1 FROM fresh
  {{on_conflict}}
  RETURNING id),
made AS (
  INSERT INTO entity (id, version, doc, created_by, created_at, modified_by, modified_at)
  SELECT id, 1, doc, %(principal)s::text, now.at, %(principal)s::text, now.at
  FROM placed JOIN fresh USING (id), (SELECT {NOW} AS at) AS now
  RETURNING id, created_at)"""

_OWNED_WRITES = f"""owned_wanted AS MATERIALIZED (
  SELECT * FROM unnest(%(w_ordinals)s::int[], %(w_owners)s::bigint[], %(w_kinds)s::text[], %(w_names)s::text[],
    %(w_versions)s::bigint[], %(w_docs)s::text[]) AS w(ordinal, owner_id, kind, name, version, doc)),
owned_made AS (
  INSERT INTO owned (owner_id, kind, name, id, version, doc, created_by, created_at, modified_by, modified_at)
  SELECT owner_id, kind, name, nextval('entity_id_seq'), 1, doc, %(principal)s::text, now.at, %(principal)s::text,
    now.at
  FROM owned_wanted, go, (SELECT {NOW} AS at) AS now WHERE version = 0 ORDER BY owner_id, kind, name
  RETURNING owner_id, kind, name, id, version, doc, modified_at),
owned_altered AS (
  UPDATE owned o SET version = o.version + 1, doc = w.doc, modified_by = %(principal)s::text, modified_at = {NOW}
  FROM owned_wanted w, go
  WHERE o.owner_id = w.owner_id AND o.kind = w.kind AND o.name = w.name AND w.version > 0 AND w.doc IS NOT NULL
  RETURNING o.owner_id, o.kind, o.name, o.id, o.version, o.doc, o.modified_at),
owned_deleted AS (
  DELETE FROM owned o USING owned_wanted w, go
  WHERE o.owner_id = w.owner_id AND o.kind = w.kind AND o.name = w.name AND w.version > 0 AND w.doc IS NULL
  RETURNING o.owner_id, o.kind, o.name, o.id, o.version + 1 AS version, o.doc, {NOW} AS modified_at)"""

_DONE_UPDATES = """SELECT a.ordinal, a.id, a.version, NULL::bigint AS owner_id,
    coalesce(s.scope_version, g.scope_version) AS scope_version, coalesce(s.in_use, g.in_use) AS in_use, a.doc,
    a.modified_at AS time
  FROM altered a JOIN guard g ON g.id = a.id AND g.id = ANY(%(u_ids)s::bigint[]) LEFT JOIN stands s ON s.id = a.id"""
_DONE_INSERTS = """SELECT f.ordinal, m.id, 1::bigint, NULL::bigint, 1::bigint, true, f.doc, m.created_at
  FROM made m JOIN fresh f ON f.id = m.id"""
_DONE_OWNED = """SELECT w.ordinal, o.id, o.version, o.owner_id, NULL::bigint, NULL::boolean, o.doc, o.modified_at
  FROM (SELECT * FROM owned_made UNION ALL SELECT * FROM owned_altered UNION ALL SELECT * FROM owned_deleted) o
  JOIN owned_wanted w ON w.owner_id = o.owner_id AND w.kind = o.kind AND w.name = o.name"""

# sorting is a barrier: no position is drawn before the last row was written
_LOGGED = f"""done AS MATERIALIZED (
  SELECT * FROM ({{parts}}) AS d(ordinal, id, version, owner_id, scope_version, in_use, doc, time) ORDER BY ordinal),
logged AS (
  INSERT INTO operation ({OPERATION_COLUMNS}{{column}})
  SELECT %(operation_id)s::uuid, {{ordinal}}, nextval('change_seq'), d.id, d.version, d.owner_id, ev.kind, ev.action,
    %(principal)s::text, d.time, ev.path_before, ev.path_after, ev.changes, d.scope_version, d.in_use, d.doc,
    CASE {{ordinal}} WHEN 0 THEN %(digest)s::text END{{fences}}
  FROM done d JOIN unnest(%(e_kinds)s::text[], %(e_actions)s::text[], %(e_before)s::text[], %(e_after)s::text[],
      %(e_changes)s::text[], %(e_ordinals)s::int[]) AS ev(kind, action, path_before, path_after, changes, ordinal)
    ON ev.ordinal = d.ordinal
  ORDER BY d.ordinal){{kept}}
SELECT ok.fenced, ok.guards, ok.reads, ok.own, ok.free, NOT (ok.guards AND ok.free) AND {{marked}}, d.ordinal, d.id,
  d.version, d.time{{must}}
FROM ok LEFT JOIN done d ON true"""

_KEPT = f"""kept AS (
  INSERT INTO operation (operation_id, ordinal, action, time, attempt)
  SELECT %(operation_id)s::uuid, 0, 'forbidden', {NOW}, %(claim)s::int FROM go WHERE NOT EXISTS (SELECT FROM done))"""
"""Puts the claimed tombstone back where nothing is written: else a late original could still be applied."""

# without gaps: a tombstone takes the first ordinal, so that one must always be there
_ORDINAL = {False: "d.ordinal", True: "row_number() OVER (ORDER BY d.ordinal) - 1"}

_MUST = """,
  substring('', 1, CASE WHEN NOT (ok.guards AND ok.free) AND {marked} THEN -1 ELSE 1 END),
  '' ~ CASE WHEN ok.free THEN '' ELSE '(' END,
  ln(CASE WHEN ok.guards AND ok.reads AND ok.own THEN 1 ELSE 0 END)"""


def _any_marked(updates: bool) -> str:
    plain = " || %(u_plain)s::bigint[]" if updates else ""
    return marked(
        f"%(guard_ids)s::bigint[] || %(bar_ids)s::bigint[]{plain}",
        f" OR (id = ANY(%(turn_ids)s::bigint[]) AND {THEIR_TURN})",
    )


def _must_be(updates: bool, fenced: bool) -> str:
    lease = ", make_date(CASE WHEN ok.fenced THEN 2000 ELSE 0 END, 1, 1)" if fenced else ""
    return lease + _MUST.format(marked=_any_marked(updates))


@cache
def batch(
    updates: bool,
    inserts: bool,
    owned: bool,
    *,
    skip_existing: bool,
    claimed: bool,
    must: bool,
    overlook: bool,
    fenced: bool,
    noted: bool,
    publishes: bool,
) -> str:
    """Return the statement for a commit that has these kinds of writes; with none, it only checks.

    ``fenced``: leases must hold; ``noted``: they are noted with each write; ``claimed``: it replaces the operation's
    tombstone, which stays where all inserts are skipped. With ``must``, it fails
    (LEASE, MARKED, PENDING or READ) when a precondition does not hold, so that what is sent with it
    is not applied either.
    """
    skip = "ON CONFLICT (parent_id, family, key) WHERE state = 0 DO NOTHING" if skip_existing else ""
    parts = [FENCED] if fenced else []
    parts += [_GUARDED, _BARRED, _READ]
    parts += [_LOCKED] if updates else []
    parts += [_LOCKED_OWNED] if owned else []
    free = [_UNMARKED] if updates else []
    free += [_NONE_PENDING] if updates and not overlook else []
    own = [_OWN_UPDATES] if updates else []
    own += [_OWN_WRITES] if owned else []
    leases = [ALL_FENCED] if fenced else []
    parts += [_STAGED] if publishes else []
    conditions = {k: " AND ".join(v) or "true" for k, v in (("own", own), ("free", free), ("fenced", leases))}
    parts += [_OK.format(staged=f" AND {_ALL_STAGED}" if publishes else "", **conditions)]
    parts += [_PUBLISHED] if publishes else []
    must_be = _must_be(updates, fenced) if must else ""
    if not (updates or inserts or owned):
        last = f"""SELECT fenced, guards, reads, own, free, NOT guards AND {_any_marked(updates)},
  NULL::int, NULL::bigint, NULL::bigint, NULL::bigint{must_be} FROM ok"""
        return "WITH " + ",\n".join(parts) + "\n" + last
    parts += [_UPDATES] if updates else []
    parts += [_INSERTS.format(on_conflict=skip)] if inserts else []
    parts += [_OWNED_WRITES] if owned else []
    done = [s for s, here in ((_DONE_UPDATES, updates), (_DONE_INSERTS, inserts), (_DONE_OWNED, owned)) if here]
    parts.append(
        _LOGGED.format(
            parts="\n  UNION ALL ".join(done),
            ordinal=_ORDINAL[skip_existing],
            kept=f",\n{_KEPT}" if skip_existing and claimed else "",
            must=must_be,
            column=", fences" if noted else "",
            fences=", %(fences)s::text" if noted else "",
            marked=_any_marked(updates),
        )
    )
    return "WITH " + ",\n".join(parts)
