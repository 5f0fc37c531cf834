"""Write one entity's next document, then resolve its intents: the commit of a transaction that has its turn."""

from __future__ import annotations

from metastore.backends.postgres import parameters
from metastore.backends.postgres.fragments import GENERATION, OPERATION_COLUMNS, WRITER
from metastore.backends.postgres.intents import RESOLVING, Helped, help_parameters
from metastore.backends.postgres.parameters import Row, Statement, plain
from metastore.backends.postgres.tickets import in_line
from metastore.backends.sql.comments import without_comments
from metastore.port.commit import Commit, CommitOutcome, Committed
from metastore.port.conditions import Guard
from metastore.port.intents import Help
from metastore.port.writes import Result, Update

CARRY = without_comments(
    RESOLVING.format(
        # as in alter.py, another operation's mark stops the statement; so does an older ticket
        free=f"""
    AND EXISTS (SELECT FROM guard WHERE id = %(id)s::bigint AND (mark IS NULL OR mark = %(operation_id)s::uuid))
    AND NOT {in_line("%(id)s::bigint", "%(ticket)s::bigint")}""",
        # the transaction's own position is drawn before those of the intents
        first="\nfirst AS MATERIALIZED (SELECT nextval('change_seq') AS seq FROM go),",
        after_first=", first",
        at="go.at",
        more=f""",
-- the transaction's own history, change event and result
logged AS (
  INSERT INTO operation ({OPERATION_COLUMNS})
  SELECT {WRITER}, {GENERATION},
    %(operation_id)s::uuid, 0, first.seq, %(id)s::bigint, %(version)s::bigint + 1, NULL, %(kind)s::text,
    %(action)s::text, %(by)s::text, go.at, %(path_before)s::text, %(path_after)s::text,
    %(changes)s::text, g.scope_version, g.in_use, %(own_doc)s::text, %(digest)s::text,
    g.parent_id, g.name, g.fold, g.state
  FROM go, first, (SELECT * FROM guard WHERE id = %(id)s::bigint) g),
-- its turn ends
gone AS (
  DELETE FROM ticket t USING go
  WHERE t.entity_id = ANY(%(leaves)s::bigint[]) AND t.number = %(ticket)s::bigint)""",
    )
    + f"""-- one row, always: it says when, or which precondition did not hold
SELECT (SELECT count(*) FROM guarded) AS held, (SELECT count(*) FROM cas) AS cas, go.at,
  CASE WHEN go.at IS NULL THEN (SELECT version FROM entity WHERE id = %(id)s::bigint) END AS found,
  CASE WHEN go.at IS NULL THEN EXISTS (SELECT FROM guard
    WHERE (id = %(id)s::bigint OR id = ANY(%(guard_ids)s::bigint[])) AND mark <> %(operation_id)s::uuid) END AS marked,
  CASE WHEN go.at IS NULL THEN {in_line("%(id)s::bigint", "%(ticket)s::bigint")} END AS queued
FROM (SELECT 1) AS one LEFT JOIN go ON true"""
)

# The logarithm of 0 raises READ, which aborts the whole commit.
HELP_MUST = without_comments(
    RESOLVING.format(
        free="",
        first="",
        after_first="",
        # an earlier statement made the version that an intent before the first change found: its time is older
        at="CASE WHEN bool_or(w.action = 'alter') OVER (ORDER BY w.n) THEN go.at ELSE go.modified_at END",
        more="",
    )
    + "SELECT ln(CASE WHEN EXISTS (SELECT FROM go) THEN 1 ELSE 0 END)"
)
"""Resolves intents after the statements of a general commit, whose new version it expects; otherwise fails."""


def help_must(commit: Commit, help_: Help) -> Statement:
    """Return the statement that resolves intents in the transaction of a general commit."""
    return Statement(HELP_MUST, {**help_parameters(help_), "operation_id": commit.operation_id})


def fits(commit: Commit, write: Update) -> bool:
    """Whether the commit's only write is a new document, and the statement supports all other parts."""
    event, plain_ = write.event, write.scope_version is None and write.doc is not None
    rare = commit.leases or commit.evidence or commit.caller is not None or commit.reason is not None
    return plain_ and not rare and event.path_before == event.path_after


def statement(commit: Commit, write: Update) -> Statement:
    """Return the statement for a commit whose only write ``fits``."""
    (carried,) = commit.carries or (Help((), write.id, write.version + 1, write.event.path_after or "", ()),)
    applied = [one for one in carried.resolutions if one.action == "alter"]
    values = {
        **help_parameters(carried),
        **parameters.of_one(commit, write),
        # the guards of the transaction and of its intents; with two scope versions of one guard, the commit fails
        **parameters.guards(_guards(commit, carried)),
        "version": write.version,
        "by": commit.principal,
        "own_doc": write.doc,
        "ticket": commit.ticket,
        "leaves": plain(commit.leaves),
        # the entity's document after the transaction and all intents
        "doc": applied[-1].doc if applied else write.doc,
        "principal": applied[-1].principal if applied else commit.principal,
    }
    return Statement(CARRY, values, writes=True)


def _guards(commit: Commit, carried: Help) -> tuple[Guard, ...]:
    own = {(guard.id, guard.scope_version): guard for guard in (*carried.guards, *commit.guards)}
    return tuple(own.values())


def outcome(commit: Commit, write: Update, row: Row) -> CommitOutcome:
    """Return the outcome that the statement's row means."""
    one = Helped(*row)
    if one.at is not None:
        return Committed((Result(write.id, write.version + 1, one.at),))
    return one.conflict(write.id, len(_guards(commit, commit.carries[0]) if commit.carries else commit.guards))
