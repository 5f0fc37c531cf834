"""Let transactions queue for an entity on PostgreSQL: take a ticket, read the line, leave; conditions for commits.

Safety does not depend on tickets, so these statements need not be durable: if a crash loses tickets, their owners queue
again.
"""

from __future__ import annotations

from metastore.backends.postgres.fragments import NOW
from metastore.backends.postgres.parameters import Row
from metastore.backends.sql.comments import without_comments
from metastore.port.tickets import TICKETS_STAY, Line

CHANNEL = "('metastore_turn_' || 'ticket'::regclass::oid)"
"""The channel of notices: the table's number separates two stores in one database."""

# No commit depends on a ticket, so this transaction does not wait for the disk.
SOON = "set_config('synchronous_commit', 'off', true) <> ''"

QUEUE = without_comments(f"""WITH
-- The guards, by id, before the number is drawn: two tickets on one entity get their numbers in the order in which they
-- become visible. The lock passes the shared guards of commits in flight. Without the lock, a ticket could appear that
-- is older than the ticket that has its turn.
locked AS MATERIALIZED (
  SELECT id FROM guard WHERE id = ANY(%(ids)s::bigint[]) AND {SOON} ORDER BY id FOR NO KEY UPDATE),
drawn AS MATERIALIZED (
  SELECT nextval('entity_id_seq') AS number, {NOW} AS at WHERE (SELECT count(*) FROM locked) >= 0),
-- the others' turns that have ended
over AS (
  DELETE FROM ticket WHERE entity_id = ANY(%(ids)s::bigint[]) AND number = 0 AND since <= {NOW}),
placed AS (
  INSERT INTO ticket (entity_id, number, time, patience, since)
  SELECT l.id, d.number, d.at, %(patience)s::bigint,
    greatest(d.at, (SELECT max(t.since) FROM ticket t WHERE t.entity_id = l.id))
  FROM locked l, drawn d)
SELECT number FROM drawn""")


def in_line(entity_id: str, own: str | None = None) -> str:
    """Return the condition that a ticket blocks a commit: any ticket; if ``own`` exists, only an older one.

    It reads the statement's snapshot: a statement that began before a ticket was visible passes the ticket.
    """
    there = f"SELECT FROM ticket t WHERE t.entity_id = {entity_id} AND t.number > 0 AND t.since <= {NOW}"
    if own is None:
        return f"EXISTS ({there})"
    mine = f"SELECT m.number FROM ticket m WHERE m.entity_id = t.entity_id AND m.number = {own}"
    return f"EXISTS ({there} AND t.number < coalesce(({mine}), {2**63 - 1}))"


def line_of(ids: str, own: str) -> str:
    """Return a SELECT of one row: the columns that :func:`line` reads."""
    there = f"SELECT * FROM ticket WHERE entity_id = ANY({ids}) AND number > 0"
    # there: all tickets on these entities; before: those before the caller's own or, without one, those that count now;
    # mine: the caller's own ticket, a row for each entity
    return f"""WITH there AS MATERIALIZED ({there}),
before AS MATERIALIZED (SELECT * FROM there WHERE CASE WHEN {own} IS NULL THEN since <= {NOW} ELSE number < {own} END),
mine AS MATERIALIZED (SELECT * FROM there WHERE number = {own})
SELECT {own} IS NOT NULL AND (SELECT count(*) FROM mine) = (SELECT count(*) FROM guard WHERE id = ANY({ids})),
  b.number, (SELECT count(DISTINCT number) FROM before), b.patience, e.version,
  greatest((SELECT max(since) FROM mine) - {NOW}, 0)
FROM (SELECT 1) AS one LEFT JOIN (SELECT * FROM before ORDER BY number, entity_id LIMIT 1) b ON true
  LEFT JOIN entity e ON e.id = b.entity_id"""


LINE = line_of("%(ids)s::bigint[]", "%(own)s::bigint")

LEAVE = without_comments(f"""WITH
-- the tickets that the operation gives up
gone AS (
  DELETE FROM ticket WHERE entity_id = ANY(%(ids)s::bigint[]) AND number = %(own)s::bigint AND {SOON}
  RETURNING entity_id),
-- the others' turn: the waiting tickets count only after it
rest AS (
  UPDATE ticket t SET since = greatest(t.since, {NOW} + %(gap)s::bigint)
  FROM gone WHERE t.entity_id = gone.entity_id AND t.number > 0 AND t.number <> %(own)s::bigint
    AND %(gap)s::bigint > 0),
-- later tickets wait too: a row with the number 0 notes when the others' turn ends
turn AS (
  INSERT INTO ticket (entity_id, number, time, patience, since)
  SELECT entity_id, 0, {NOW}, 0, {NOW} + %(gap)s::bigint FROM gone WHERE %(gap)s::bigint > 0
  ON CONFLICT (entity_id, number) DO UPDATE SET since = excluded.since, time = excluded.time)
SELECT 1 FROM gone""")

# Sent with the statements of a commit, so it must not change the commit's durability.
PASSED = "DELETE FROM ticket WHERE entity_id = ANY(%(ids)s::bigint[]) AND number = %(own)s::bigint"
"""Removes the ticket in the transaction of the commit that used it."""

FORGET_TICKETS = f"DELETE FROM ticket WHERE time < {NOW} - {TICKETS_STAY} RETURNING 1"


def line(row: Row) -> Line:
    """Return the line that a row describes."""
    held, head, ahead, patience, moves, gap = row
    return Line(held, head, ahead, (patience or 0) / 1e6, moves, (gap or 0) / 1e6)
