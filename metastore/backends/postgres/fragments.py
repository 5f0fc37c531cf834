"""Fragments that several statements on PostgreSQL share: the clock, durability, guards, leases, marks, SQLSTATEs.

Every statement that writes follows the same rules:

* It locks each guard ``FOR KEY SHARE``, in a materialized CTE that is ordered by id. Then it compares the number of
  rows with the expected number. The CTEs that follow run only if all guards held.
* An update finds its row by id and version, so it finds none if another commit was faster.
* It draws the position in the feed (``change_seq``) for the rows that it wrote, after its last lock.
* It raises ``synchronous_commit`` to on for its own transaction.

After a wait for a lock, READ COMMITTED evaluates WHERE again on the new row version; every statement relies on that
(PostgreSQL manual, 13.2.1). Parameters are psycopg's ``%(name)s``.
"""

from __future__ import annotations

from typing import NamedTuple

from metastore.backends.sql.comments import without_comments
from metastore.port.backend import LONGEST_QUIET, MOST_AHEAD, QUIET
from metastore.port.format import SCHEMA_FORMAT
from metastore.port.intents import FORMAT

# --- time and durability

# clock_timestamp(), not now(): a statement that waited for a lock must note the time of its write, not of its begin
NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
"""The database's time in µs since 1970."""

# A server may run with synchronous_commit off or local. A crash then loses acknowledged commits, and the operation id
# would show "not applied" although a client was told of the commit. `true`: the setting ends with the transaction.
DURABLE = """set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
    THEN 'on' ELSE current_setting('synchronous_commit') END, true) IS NOT NULL"""
"""A condition that is always true, and makes COMMIT wait until the transaction is durable."""

CONFIRM = f"SELECT pg_logical_emit_message(true, 'metastore', '') WHERE {DURABLE}"
"""Writes a message into the log, but no row. Otherwise a commit without writes would not wait for a replica."""

CONFIRMS = "current_setting('synchronous_standby_names') <> ''"
"""Whether commits wait for a replica.

If so, a readable row may be unconfirmed: its commit's wait may have been stopped.
"""

# The call's patience becomes this transaction's lock_timeout. NULL keeps the session's.
PATIENT = "set_config('lock_timeout', coalesce(%(patience)s::text, current_setting('lock_timeout')), true)"
"""An expression that limits how long the transaction waits for a lock."""

# --- guards and leases

# FOR KEY SHARE conflicts only with an update of a column in a full unique index, such as (id, scope_version). So
# siblings do not block each other, but a rename, move or drop of an ancestor waits, or makes this statement find one
# row fewer. MATERIALIZED and the count (ALL_GUARDED), because a locking CTE runs only as far as it is read. ORDER BY
# id, because two statements that lock in the same order do not deadlock.
GUARDED = without_comments("""guarded AS MATERIALIZED (
  SELECT id FROM guard
  WHERE id = ANY(%(guard_ids)s::bigint[])
    -- the value beside the id: the scope version that the caller saw
    AND scope_version = (%(guard_scopes)s::bigint[])[array_position(%(guard_ids)s::bigint[], id)]
    -- a mark announces an exclusive operation, for which guards step aside; the operation's own mark does not count
    AND (mark IS NULL OR mark = %(operation_id)s::uuid)
  ORDER BY id FOR KEY SHARE)""")
"""The guards that hold, locked in shared mode. This prevents orphans: children below a dropped ancestor."""

ALL_GUARDED = "(SELECT count(*) FROM guarded) = cardinality(%(guard_ids)s::bigint[])"

# The token is in a full unique index (lease_token): a renewal passes this lock, but a takeover, release or break waits
# for the end of the commit. With a plain EXISTS, without the lock, an old token could commit after the takeover.
FENCED = without_comments("""fenced AS MATERIALIZED (
  SELECT name FROM lease
  WHERE name = ANY(%(lease_names)s::text[])
    AND token = (%(lease_tokens)s::bigint[])[array_position(%(lease_names)s::text[], name)]
    -- the incarnation tells this holder from another one with the same token
    AND incarnation = (%(lease_incarnations)s::text[])[array_position(%(lease_names)s::text[], name)]
  ORDER BY name FOR KEY SHARE)""")
"""The leases that still have their tokens. A renewal does not wait for the commit; a change of a token does."""

ALL_FENCED = "(SELECT count(*) FROM fenced) = cardinality(%(lease_names)s::text[])"


class LeaseParts(NamedTuple):
    """The additions to the statement of one write that is made under leases."""

    cte: str
    holds: str
    """A condition: all leases still have their tokens."""
    column: str
    """The column of the operation's row that notes the leases and the evidence, and its value."""
    value: str
    result: str
    """A column of the statement's row."""


NO_LEASES = LeaseParts("", "", "", "", "")
UNDER_LEASES = LeaseParts(
    f"\n{FENCED},", f" AND {ALL_FENCED}", ", fences", ", %(note)s::text", f", {ALL_FENCED} AS fenced"
)
NOTED = LeaseParts("", "", ", fences", ", %(note)s::text", "")
"""For a commit without leases, but with evidence of a user's right to note."""

OPERATION_COLUMNS = """writer, generation, operation_id, ordinal, seq, entity_id, version, owner_id, kind, action,
    principal, time, path_before, path_after, changes, scope_version, in_use, doc, digest, parent_id, name, fold,
    state"""
"""The columns of a row that is history, change event and result. The last four say where the entity was."""

WRITER = f"{SCHEMA_FORMAT}::smallint"
"""This program's format, in each row that has a position. A trigger refuses programs that are too old."""

# The sequence is read at this moment, not from the snapshot. A member joins by changing the sequence, and keeps no
# answer before all older transactions have ended. The commit reads the sequence for the row that it logs after its last
# lock; if it finds the old value, it ends before the member keeps any answer. A commit without a generation must have
# been announced, which the trigger checks. get_byte with an offset out of range raises GENERATION_CHANGED.
GENERATION = """%(generation)s::bigint + get_byte(decode('00', 'hex'),
    (pg_sequence_last_value('cache_generation'::regclass) <> %(generation)s::bigint)::int)"""
"""The generation in which the cache has no members. It fails if another generation has begun."""

# --- marks and intents


def quiet(guard: str) -> str:
    """Return the end of the others' turn after the mark of ``guard``: it lasts as long as the mark, within limits."""
    held = f"least({NOW}, {guard}.marked_until) - {guard}.marked_at"
    return f"{NOW} + least(greatest({QUIET}, {held}), {LONGEST_QUIET})"


THEIR_TURN = f"(quiet_until > {NOW} AND quiet_until <= {NOW} + {LONGEST_QUIET})"
"""Whether the others have their turn on a guard.

A turn that would last too long was set before the clock was set back, so it does not count.
"""

LAPSED = f"(marked_until < {NOW} OR marked_at > {NOW} + {MOST_AHEAD})"
"""Whether a guard's mark may be cleared: it has expired, or was set before the clock was set back."""


def marked(ids: str, also: str = "") -> str:
    """Return the condition that a guard carries another operation's mark.

    It reads this statement's snapshot, which may be too old to show the mark. So it only decides whether a conflict is
    "marked" or "ancestor"; it never lets a commit pass.
    """
    return f"""EXISTS (SELECT FROM guard WHERE id = ANY({ids}) AND (mark <> %(operation_id)s::uuid{also}))"""


# Ignore intents of a newer format: the programs that understand them resolve them.
PENDING_HERE = f"action = 'pending' AND format <= {FORMAT}"
"""Whether an operation is an intent that this program understands, and so must resolve first."""


def pending_on(entity_id: str) -> str:
    """Return the condition that an intent which this program understands is pending on one entity."""
    return f"EXISTS (SELECT FROM operation WHERE entity_id = {entity_id} AND {PENDING_HERE})"


# --- checks that fail

NOT_EMPTY, READ, CLAIM, STALE_ID, MARKED, PENDING = "22012", "2201E", "2201F", "2201G", "22011", "2201B"
LEASE, TICKET, ANOTHER_RUN = "22008", "22025", "2201W"
GENERATION_CHANGED, UNANNOUNCED = "2202E", "53M01"
"""The SQLSTATEs that failing checks raise. The last two are of GENERATION, and of the trigger for announcements.

The others, in their order: division_by_zero; invalid arguments for a logarithm, a power function and width_bucket;
substring_error; an invalid regular expression; an impossible date; an escape of two letters; a limit below zero.
"""


def fails_if(condition: str) -> str:
    """Return a statement that raises READ, and so aborts the transaction, if ``condition`` is true.

    Do not write `CASE WHEN … THEN ln(0) END`: PostgreSQL computes the constant `ln(0)` when it makes the plan, so the
    statement would always fail.
    """
    return f"SELECT ln(CASE WHEN {condition} THEN 0 ELSE 1 END)"


def fails_unless_seen(there: str) -> str:
    """Return a statement that raises READ unless the pairs of id and version in ``there`` are those that were seen.

    The pairs are read once, although both differences use them.
    """
    return fails_if(f"""EXISTS (WITH there AS MATERIALIZED ({there}),
    seen AS MATERIALIZED (SELECT * FROM unnest(%(ids)s::bigint[], %(versions)s::bigint[]))
    (TABLE there EXCEPT TABLE seen) UNION ALL (TABLE seen EXCEPT TABLE there))""")
