"""Write one entity's next document: the statement, its parameters, and the meaning of its row."""

from __future__ import annotations

from typing import NamedTuple

from metastore.backends.postgres import parameters
from metastore.backends.postgres.fragments import (
    ALL_GUARDED,
    DURABLE,
    GENERATION,
    GUARDED,
    NO_LEASES,
    NOTED,
    NOW,
    OPERATION_COLUMNS,
    UNDER_LEASES,
    WRITER,
    LeaseParts,
    pending_on,
)
from metastore.backends.postgres.parameters import Row, Statement
from metastore.backends.postgres.tickets import in_line
from metastore.backends.sql.comments import without_comments
from metastore.port.commit import Commit, CommitOutcome, Committed, Conflicted
from metastore.port.writes import Result, Update


def _alter(lease: LeaseParts) -> str:
    # the order of the CTEs is the order of the locks: guards, leases, the entity's row; then the position is drawn
    return without_comments(f"""WITH {GUARDED},{lease.cte}
-- The entity's own guard, read without a lock: an exclusive operation on it updates the entity's row too, and so meets
-- the compare-and-swap below. The history needs where it stands; another operation's mark lets the statement stop.
own AS MATERIALIZED (SELECT scope_version, in_use, parent_id, name, fold, state FROM guard WHERE id = %(id)s::bigint
  AND (mark IS NULL OR mark = %(operation_id)s::uuid)),
-- The compare-and-swap. The row's lock makes another writer wait; after the wait its WHERE is evaluated again, finds
-- another version, and so no row: no update is lost. A pending intent must be resolved first, by a commit that helps;
-- if this snapshot is too old to show the intent, the version differs, because a helper raises it. A ticket says that
-- a transaction is in line: this change has to be announced.
altered AS (
  UPDATE entity SET version = version + 1, doc = %(doc)s::text,
    modified_by = %(principal)s::text, modified_at = {NOW}
  WHERE id = %(id)s::bigint AND version = %(version)s::bigint AND {ALL_GUARDED}{lease.holds} AND (SELECT true FROM own)
    AND NOT {pending_on("%(id)s::bigint")} AND NOT {in_line("%(id)s::bigint")}
  RETURNING id, version, modified_at),
-- History, change event and result; the position is drawn from the row that was altered, after the last lock.
logged AS (
  INSERT INTO operation ({OPERATION_COLUMNS}{lease.column})
  SELECT {WRITER}, {GENERATION},
    %(operation_id)s::uuid, 0, nextval('change_seq'), altered.id, altered.version, NULL, %(kind)s::text,
    %(action)s::text, %(principal)s::text, altered.modified_at, %(path_before)s::text, %(path_after)s::text,
    %(changes)s::text, own.scope_version, own.in_use, %(doc)s::text, %(digest)s::text,
    own.parent_id, own.name, own.fold, own.state{lease.value}
  FROM altered, own WHERE {DURABLE})
-- One row, always. It returns no document: a client that stops while it reads a large answer keeps its row locks.
SELECT (SELECT count(*) FROM guarded) AS held, altered.version, altered.modified_at,
  (SELECT scope_version FROM own) AS scope_version,
  CASE WHEN altered.id IS NULL THEN (SELECT version FROM entity WHERE id = %(id)s::bigint) END AS found,
  CASE WHEN altered.id IS NULL THEN EXISTS (SELECT FROM guard
    WHERE (id = %(id)s::bigint OR id = ANY(%(guard_ids)s::bigint[])) AND mark <> %(operation_id)s::uuid)
    END AS marked,
  CASE WHEN altered.id IS NULL THEN {in_line("%(id)s::bigint")} END AS queued{lease.result}
FROM (SELECT 1) AS one LEFT JOIN altered ON true""")


ALTER, ALTER_NOTED, ALTER_FENCED = _alter(NO_LEASES), _alter(NOTED), _alter(UNDER_LEASES)


def statement(commit: Commit, write: Update) -> Statement:
    """Return the statement for a commit whose only write is a new document."""
    values = {
        **parameters.of_one(commit, write),
        "id": write.id,
        "version": write.version,
        "doc": write.doc,
    }
    return parameters.writing(commit, values, ALTER, ALTER_NOTED, ALTER_FENCED)


class Altered(NamedTuple):
    """The statement's row, with the columns of its last SELECT."""

    held: int
    """How many guards held."""
    version: int | None
    """The new version; None: a precondition did not hold."""
    modified_at: int
    """The database's time (µs); None as for ``version``."""
    scope_version: int
    """The scope version of the entity itself."""
    found: int | None
    """The version in the statement's snapshot, if nothing was written."""
    marked: bool | None
    """Whether another operation's mark is on a guard or on the entity; None if the entity was altered."""
    queued: bool | None
    """Whether a ticket waits for the entity; None if the entity was altered."""
    fenced: bool = True
    """Whether all leases still had their tokens."""


def outcome(commit: Commit, write: Update, row: Row) -> CommitOutcome:
    """Return the outcome that the statement's row means."""
    altered = Altered(*row)
    if altered.version is not None:
        return Committed((Result(write.id, altered.version, altered.modified_at, altered.scope_version),))
    if not altered.fenced:
        return Conflicted("lease")
    if altered.marked:
        return Conflicted("marked")
    if altered.held < len(commit.guards):
        return Conflicted("ancestor")
    if altered.queued:
        return Conflicted("ticket", write.id)
    # `found` comes from the snapshot before the wait: it may equal the expected version although a newer one exists
    return Conflicted("self" if altered.found != write.version else "pending", write.id, altered.found)
