"""Fragments that several statements on PostgreSQL share: the clock, durability, guards, leases, marks, SQLSTATEs.

Every statement that writes follows the same rules:

* It locks each guard ``FOR KEY SHARE``, in a materialized CTE that is ordered by id. Then it compares the number of
  rows with the number expected. The CTEs that follow run only if all guards held.
* An update finds its row by id and version. So it finds none if another commit was faster.
* It draws the position in the feed (``change_seq``) from the rows that were written, after its last lock.
* It raises ``synchronous_commit`` to on for its own transaction.

READ COMMITTED evaluates WHERE again on the new row version after a wait for a lock; every statement rests on that
(PostgreSQL manual, 13.2.1). Parameters are psycopg's ``%(name)s``.
"""

from __future__ import annotations

from typing import NamedTuple

from metastore.backends.sql.comments import without_comments
from metastore.port.backend import LONGEST_QUIET, MOST_AHEAD, QUIET
from metastore.port.format import SCHEMA_FORMAT
from metastore.port.intents import FORMAT

# --- time and durability

# clock_timestamp(), not now(): a statement that waited for a lock must note when it wrote, not when it began
NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
"""The database's time in µs since 1970."""

# A server may run with synchronous_commit off or local. A crash then forgets acknowledged commits, and the operation id
# would say "not applied" although a client saw the commit applied. `true`: the setting ends with the transaction.
DURABLE = """set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
    THEN 'on' ELSE current_setting('synchronous_commit') END, true) IS NOT NULL"""
"""A condition that is always true, and makes the transaction's COMMIT wait for the disk."""

CONFIRM = f"SELECT pg_logical_emit_message(true, 'metastore', '') WHERE {DURABLE}"
"""Writes a message into the log, and nothing into a table. A commit that wrote nothing waits for no replica."""

CONFIRMS = "current_setting('synchronous_standby_names') <> ''"
"""Whether commits wait for a replica.

If they do, a readable row may be unconfirmed, because its commit's wait was stopped.
"""

# The call's patience becomes this transaction's lock_timeout. NULL keeps the session's.
PATIENT = "set_config('lock_timeout', coalesce(%(patience)s::text, current_setting('lock_timeout')), true)"
"""An expression that limits how long the transaction waits for a lock."""

# --- guards and leases

# FOR KEY SHARE conflicts only with an update of a column in a full unique index. (id, scope_version) is such an index:
# siblings do not block each other, and a rename, move or drop of an ancestor waits, or makes this statement find one
# row fewer. MATERIALIZED and the count (ALL_GUARDED): a CTE that locks runs only as far as it is read. ORDER BY id:
# every statement takes its locks in this order, so that two of them do not deadlock.
GUARDED = without_comments("""guarded AS MATERIALIZED (
  SELECT id FROM guard
  WHERE id = ANY(%(guard_ids)s::bigint[])
    -- the value beside the id: the scope version that the caller saw
    AND scope_version = (%(guard_scopes)s::bigint[])[array_position(%(guard_ids)s::bigint[], id)]
    -- a mark announces an exclusive operation, for which guards step aside; the operation's own mark does not count
    AND (mark IS NULL OR mark = %(operation_id)s::uuid)
  ORDER BY id FOR KEY SHARE)""")
"""The guards that hold, locked in shared mode. It prevents orphans: a child below an ancestor that was dropped."""

ALL_GUARDED = "(SELECT count(*) FROM guarded) = cardinality(%(guard_ids)s::bigint[])"

# The token is in a full unique index (lease_token): a renewal passes this lock, and a takeover, release or break waits
# until the commit is over. A plain EXISTS without the lock let an old token commit after the takeover.
FENCED = without_comments("""fenced AS MATERIALIZED (
  SELECT name FROM lease
  WHERE name = ANY(%(lease_names)s::text[])
    AND token = (%(lease_tokens)s::bigint[])[array_position(%(lease_names)s::text[], name)]
    -- the incarnation tells this holder from another one with the same token
    AND incarnation = (%(lease_incarnations)s::text[])[array_position(%(lease_names)s::text[], name)]
  ORDER BY name FOR KEY SHARE)""")
"""The leases that still have their tokens. A renewal does not wait; a change of a token waits for the commit."""

ALL_FENCED = "(SELECT count(*) FROM fenced) = cardinality(%(lease_names)s::text[])"


class LeaseParts(NamedTuple):
    """The additions to the statement for one write that is made under leases."""

    cte: str
    holds: str
    """A condition: all leases have their tokens."""
    column: str
    """The column of the operation's row that notes the leases, and evidence, and its value."""
    value: str
    result: str
    """A column of the statement's row."""


NO_LEASES = LeaseParts("", "", "", "", "")
UNDER_LEASES = LeaseParts(
    f"\n{FENCED},", f" AND {ALL_FENCED}", ", fences", ", %(note)s::text", f", {ALL_FENCED} AS fenced"
)
NOTED = LeaseParts("", "", ", fences", ", %(note)s::text", "")
"""Without leases, but with a note of the evidence on which a user's right rests."""

OPERATION_COLUMNS = """writer, generation, operation_id, ordinal, seq, entity_id, version, owner_id, kind, action,
    principal, time, path_before, path_after, changes, scope_version, in_use, doc, digest, parent_id, name, fold,
    state"""
"""The columns of a row that is history, change event and result at once. The last four say where the entity was."""

WRITER = f"{SCHEMA_FORMAT}::smallint"
"""The format of this program, in each row that has a position: a trigger refuses those of programs that are too old."""

# The sequence is read at this moment, not from the snapshot. A member joins by changing the sequence, and keeps no
# answer before all older transactions have ended. So a commit that reads the old value, in the row that it logs after
# its last lock, ends before the member keeps any answer. Without a generation the commit must have been announced: the
# trigger checks that. get_byte with an offset that is out of range raises GENERATION_CHANGED.
GENERATION = """%(generation)s::bigint + get_byte(decode('00', 'hex'),
    (pg_sequence_last_value('cache_generation'::regclass) <> %(generation)s::bigint)::int)"""
"""The generation in which the cache has no members; fails if another generation has begun."""

# --- marks and intents


def quiet(guard: str) -> str:
    """Return the end of the others' turn after the mark of ``guard``: it lasts as long as the mark, within limits."""
    held = f"least({NOW}, {guard}.marked_until) - {guard}.marked_at"
    return f"{NOW} + least(greatest({QUIET}, {held}), {LONGEST_QUIET})"


THEIR_TURN = f"(quiet_until > {NOW} AND quiet_until <= {NOW} + {LONGEST_QUIET})"
"""Whether others have their turn on a guard.

A turn that would last too long dates from before the clock was set back.
"""

LAPSED = f"(marked_until < {NOW} OR marked_at > {NOW} + {MOST_AHEAD})"
"""Whether a guard's mark may be cleared: its time is over, or it was set before the clock was set back."""


def marked(ids: str, also: str = "") -> str:
    """Return the condition that a guard carries another operation's mark.

    It reads this statement's snapshot, which may be too old to show the mark. So it only chooses between the causes
    "marked" and "ancestor" of a conflict; it never lets a commit pass.
    """
    return f"""EXISTS (SELECT FROM guard WHERE id = ANY({ids}) AND (mark <> %(operation_id)s::uuid{also}))"""


# An intent of a newer format is left to the programs that understand it: it must not block this program.
PENDING_HERE = f"action = 'pending' AND format <= {FORMAT}"
"""Whether an operation is an intent that this program understands, and must therefore resolve first."""


def pending_on(entity_id: str) -> str:
    """Return the condition that an intent which this program understands is pending on one entity."""
    return f"EXISTS (SELECT FROM operation WHERE entity_id = {entity_id} AND {PENDING_HERE})"


# --- checks that fail

NOT_EMPTY, READ, CLAIM, STALE_ID, MARKED, PENDING = "22012", "2201E", "2201F", "2201G", "22011", "2201B"
LEASE, TICKET, ANOTHER_RUN = "22008", "22025", "2201W"
GENERATION_CHANGED, UNANNOUNCED = "2202E", "53M01"
"""The SQLSTATEs of GENERATION (array_subscript_error), and of the trigger for a change that is not announced."""
"""The SQLSTATEs that failing checks raise: division_by_zero, invalid arguments for a logarithm, a power function and
width_bucket, substring_error, an invalid regular expression, a date that does not exist, an escape of two letters, a
limit below zero.
"""


def fails_if(condition: str) -> str:
    """Return a statement that raises READ, and so aborts the transaction, when ``condition`` is true.

    The logarithm takes its argument from the CASE. `CASE … ELSE ln(0) END` would be folded when the plan is made, and
    would always raise.
    """
    return f"SELECT ln(CASE WHEN {condition} THEN 0 ELSE 1 END)"


def fails_unless_seen(there: str) -> str:
    """Return a statement that raises READ unless ``there``, pairs of id and version, are the ones that were seen.

    They are read once, though both differences ask for them.
    """
    return fails_if(f"""EXISTS (WITH there AS MATERIALIZED ({there}),
    seen AS MATERIALIZED (SELECT * FROM unnest(%(ids)s::bigint[], %(versions)s::bigint[]))
    (TABLE there EXCEPT TABLE seen) UNION ALL (TABLE seen EXCEPT TABLE there))""")
