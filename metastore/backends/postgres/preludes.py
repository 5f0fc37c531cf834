"""Statements that check a commit's operation id and its claim, before the other statements of its transaction."""

from __future__ import annotations

from uuid import UUID

from metastore.backends.postgres.fragments import NOW
from metastore.backends.postgres.parameters import Statement
from metastore.backends.sql.comments import without_comments
from metastore.port.backend import DRIFT
from metastore.port.commit import Commit
from metastore.port.conditions import Caller

CALLER = without_comments(f"""WITH remembered AS MATERIALIZED (
  -- FOR SHARE: gc waits for this commit before it forgets more, so that the id stays known until its row is written.
  -- The clocks of clients and database may differ by DRIFT.
  SELECT 1 FROM info WHERE forgotten + {DRIFT} <= %(issued)s::bigint
    AND %(issued)s::bigint <= {NOW} + {DRIFT} FOR SHARE)
-- count 0 makes width_bucket fail: the row was not found
SELECT width_bucket(1::float8, 0::float8, (SELECT count(*) FROM remembered)::float8, 1)""")
"""Fails (STALE_ID) if gc may have forgotten the operation id; keeps gc from forgetting more meanwhile."""

CLAIMED = without_comments("""WITH gone AS (
  -- the row that holds the operation's place is taken away, and locked against another claim until the commit is over
  DELETE FROM operation WHERE operation_id = %(operation_id)s::uuid AND ordinal = 0 AND attempt = %(claim)s::int
    AND action IN ('forbidden', 'moved', 'expired', 'cancelled') RETURNING 1)
-- the root of -1 fails: another process has claimed the row since, or the operation was applied
SELECT sqrt(((SELECT count(*) FROM gone) - 1)::float8)""")
"""Removes the operation's row, which the commit replaces. It fails (CLAIM) if another process has claimed it."""


def caller(given: Caller | None, operation_id: UUID, claim: int) -> list[Statement]:
    """Return the checks of an operation id that a caller gave, and of a claimed one."""
    statements: list[Statement] = []
    if given is not None:
        statements.append(Statement(CALLER, {"issued": given.issued}))
    if claim:
        statements.append(Statement(CLAIMED, {"operation_id": operation_id, "claim": claim}))
    return statements


def preludes(commit: Commit) -> list[Statement]:
    """Return the statements that precede those of a commit in its transaction.

    A commit that only checks writes no row, so it leaves the claimed row in its place.
    """
    if commit.caller is None and not commit.claim:
        return []
    return caller(commit.caller, commit.operation_id, commit.claim if commit.leaves_row else 0)
