"""The statements of leases on PostgreSQL: each is one transaction.

``token`` is in a full unique index. So a statement that changes it waits for the commits that hold the row ``FOR KEY
SHARE`` (see ``fragments.FENCED``). A renewal changes only the time, so it does not wait. Several rows are locked in the
order of their names. An event's position is drawn after the statement's last lock.
"""

from __future__ import annotations

from metastore.backends.postgres.fragments import CONFIRM, DURABLE, NOW, WRITER
from metastore.backends.postgres.home import TIMELINE
from metastore.backends.sql.comments import without_comments
from metastore.port.leases import ALIVE, DOOMED, PER_TIMELINE, PUBLISHED, STAGED

CHANNEL = "metastore_lease_"
"""The channel that wakes a waiter when it is next, with the waiter's ticket as suffix.

This is only a hint: a waiter also looks at intervals.
"""

_FIRST = f"({TIMELINE} - 1) * {PER_TIMELINE} + 1"
"""The first token of this timeline. It exceeds all tokens of earlier timelines, even those that a fail-over lost."""
_NEXT = f"greatest(l.token + 1, {_FIRST})"

# One row for each name: history and change event of the lease. The positions are drawn from the written rows (done),
# after the statement's last lock.
_LOGGED = f"""logged AS (
  INSERT INTO operation (writer, operation_id, ordinal, seq, entity_id, version, kind, action, principal, time,
    path_after, changes)
  SELECT {WRITER}, %(operation_id)s::uuid, row_number() OVER (ORDER BY d.name) - 1, nextval('change_seq'), d.id,
    d.token, 'lease', {{action}}, %(principal)s::text, {{time}}, w.path, {{changes}}
  FROM done d JOIN wanted w ON w.name = d.name WHERE {DURABLE})"""


def _alive(of: str = "") -> str:
    """Return the condition that a waiter is alive: its last look is recent, and not ahead of a set-back clock."""
    return f"{of}alive_until > {NOW} AND {of}alive_until <= {NOW} + {ALIVE}"


_PATHS = "unnest(%(names)s::text[], %(paths)s::text[])"

TAKE = without_comments(f"""WITH ahead AS MATERIALIZED (
  -- the first waiter that is alive and has a lower ticket: leases are given in the order of arrival; locks nothing
  SELECT name FROM lease_waiter
  WHERE name = ANY(%(names)s::text[]) AND ticket < %(ticket)s::bigint AND {_alive()}
  ORDER BY ticket LIMIT 1),
-- The leases as this statement's snapshot shows them, and the first that is still held. Reads, locks nothing: asking
-- for a lease that another process holds costs the holder nothing.
seen AS MATERIALIZED (
  SELECT name, id, token, owner, incarnation, acquired_at, expires_at FROM lease WHERE name = ANY(%(names)s::text[])),
held AS MATERIALIZED (SELECT * FROM seen WHERE owner IS NOT NULL AND expires_at > {NOW} ORDER BY name LIMIT 1),
-- What to take: all of them or, if one is held or a waiter is ahead, none. A name that is new gets an id.
wanted AS MATERIALIZED (
  SELECT w.name, w.path, coalesce(s.id, nextval('entity_id_seq')) AS id
  FROM {_PATHS} AS w(name, path) LEFT JOIN seen s ON s.name = w.name
  WHERE NOT EXISTS (SELECT FROM held) AND NOT EXISTS (SELECT FROM ahead)),
-- Takes the rows, locked by name. The new token waits for the commits that hold the old one FOR KEY SHARE. DO UPDATE
-- evaluates its WHERE on the newest row version after a wait, so that of two takers one finds the lease held.
taken AS (
  INSERT INTO lease AS l (name, id, token, owner, incarnation, took_over, acquired_at, expires_at)
  SELECT name, id, {_FIRST}, %(owner)s::text, %(incarnation)s::text, false, {NOW}, {NOW} + %(ttl)s::bigint
  FROM wanted ORDER BY name COLLATE "C"
  ON CONFLICT (name) DO UPDATE SET token = {_NEXT}, owner = excluded.owner, incarnation = excluded.incarnation,
    took_over = l.owner IS NOT NULL, acquired_at = {NOW}, expires_at = {NOW} + %(ttl)s::bigint
  WHERE l.owner IS NULL OR l.expires_at <= {NOW}
  RETURNING name, id, token, took_over, acquired_at, expires_at),
-- Sorting reads all of them: no position is drawn before the last row is locked.
done AS MATERIALIZED (SELECT * FROM taken ORDER BY name),
{
    _LOGGED.format(
        action="CASE WHEN d.took_over THEN 'takeover' ELSE 'acquire' END",
        time="d.acquired_at",
        changes="%(changes)s::text",
    )
},
-- A waiter that must go on waiting says that it is alive; one that was served leaves the queue.
waits AS (
  UPDATE lease_waiter SET alive_until = {NOW} + {ALIVE}
  WHERE name = ANY(%(names)s::text[]) AND ticket = %(ticket)s::bigint AND NOT EXISTS (SELECT FROM done)),
served AS (
  DELETE FROM lease_waiter
  WHERE name = ANY(%(names)s::text[]) AND ticket = %(ticket)s::bigint AND EXISTS (SELECT FROM done))
-- The columns that leases.TakeRow names. The logarithm of 0 aborts everything (READ) if only some were free.
SELECT {NOW}, d.name, d.id, d.token, d.acquired_at, d.expires_at,
  h.name, h.id, h.token, h.owner, h.incarnation, h.acquired_at, h.expires_at, a.name,
  ln(CASE WHEN (SELECT count(*) FROM done) IN (0, cardinality(%(names)s::text[])) THEN 1 ELSE 0 END)
FROM (SELECT 1) AS one LEFT JOIN done d ON true LEFT JOIN held h ON true LEFT JOIN ahead a ON true ORDER BY d.name""")
"""It first looks, and locks nothing if a lease is held. If only some of the leases are free, it fails (READ)."""

_WITH_TOKENS = """token = (%(tokens)s::bigint[])[array_position(%(names)s::text[], name)]
    AND incarnation = (%(incarnations)s::text[])[array_position(%(names)s::text[], name)]"""

RENEW = without_comments(f"""WITH ours AS MATERIALIZED (
  -- FOR NO KEY UPDATE, by name: passes the commits that hold the tokens FOR KEY SHARE, and meets a takeover
  SELECT name FROM lease
  WHERE name = ANY(%(names)s::text[]) AND {_WITH_TOKENS} ORDER BY name FOR NO KEY UPDATE),
renewed AS (
  UPDATE lease l SET expires_at = {NOW} + %(ttl)s::bigint FROM ours o
  WHERE l.name = o.name AND l.name = ANY(%(names)s::text[]) AND {DURABLE} RETURNING l.expires_at)
SELECT count(*), min(expires_at) FROM renewed""")


_SENT_BEFORE = "FROM operation WHERE operation_id = %(operation_id)s::uuid"
"""The rows that the same statement wrote in an earlier sending, whose answer was lost."""

# CONFIRM is inside the count: PostgreSQL runs it only for rows of an earlier sending, so a first one logs no message
_CONFIRMED_BEFORE = f"(SELECT count(*) FILTER (WHERE ({CONFIRM}) IS NOT NULL) {_SENT_BEFORE})"
"""The number of such rows.

The transaction then waits for the replicas, because perhaps none has confirmed the first sending.
"""


def _free(whose: str, action: str) -> str:
    logged = _LOGGED.format(
        action=f"'{action}'",
        time=NOW,
        changes="""json_build_array(json_build_object('change', 'LeaseHolder', 'owner', d.owner,
      'incarnation', d.incarnation))::text""",
    )
    return without_comments(f"""WITH wanted AS MATERIALIZED (SELECT * FROM {_PATHS} AS w(name, path)),
-- FOR UPDATE, by name, before the update: waits for the commits in flight that hold the tokens.
ours AS MATERIALIZED (
  SELECT name, owner, incarnation FROM lease
  WHERE name = ANY(%(names)s::text[]) AND {whose} ORDER BY name FOR UPDATE),
-- The next token: a commit that is sent later under the old one finds its lease gone, even if its holder only slept.
freed AS (
  UPDATE lease l SET token = {_NEXT}, owner = NULL, incarnation = NULL, took_over = false, acquired_at = NULL,
    expires_at = NULL
  FROM ours o WHERE l.name = o.name AND l.name = ANY(%(names)s::text[])
  RETURNING l.name, l.id, l.token, o.owner, o.incarnation),
-- By name, so that the events of one call have one order.
done AS MATERIALIZED (SELECT * FROM freed ORDER BY name),
{logged},
{_woken("(SELECT name FROM done)")}
-- A repetition after a lost answer counts what the first one wrote, and confirms it. Reading woken makes it run.
SELECT (SELECT count(*) FROM done) + {_CONFIRMED_BEFORE}, (SELECT count(*) FROM woken)""")


def _woken(names: str, besides: str = "") -> str:
    """Return a CTE that notifies the first waiter for each name that its turn may have come.

    The server sends the notices at COMMIT.
    """
    return f"""woken AS MATERIALIZED (
  SELECT pg_notify('{CHANNEL}' || min(w.ticket), '') FROM lease_waiter w
  WHERE w.name IN {names} AND {_alive("w.")}{besides} GROUP BY w.name)"""


RELEASE = _free(_WITH_TOKENS, "release")
BREAK = _free(f"owner IS NOT NULL AND NOT EXISTS (SELECT {_SENT_BEFORE})", "break")

MIRROR = without_comments(f"""WITH
-- The row as it was, for the answer.
seen AS MATERIALIZED (
  SELECT id, token, incarnation FROM lease WHERE name = %(name)s::text),
-- The row to write: a lease that is mirrored for the first time gets an id.
wanted AS MATERIALIZED (
  SELECT %(name)s::text AS name, %(path)s::text AS path,
    coalesce((SELECT id FROM seen), nextval('entity_id_seq')) AS id),
-- Only forwards: a mirror that comes late, with an older token, changes nothing. Waits for the commits in flight that
-- hold the old token.
taken AS (
  INSERT INTO lease AS l (name, id, token, incarnation, took_over)
  SELECT name, id, coalesce(%(token)s::bigint, {_FIRST}), %(incarnation)s::text, false FROM wanted
  ON CONFLICT (name) DO UPDATE SET token = coalesce(%(token)s::bigint, {_NEXT}),
    incarnation = excluded.incarnation, owner = NULL, acquired_at = NULL, expires_at = NULL
  WHERE l.token < coalesce(%(token)s::bigint, l.token + 1)
  RETURNING name, id, token),
-- Under this name, the logging part reads the rows.
done AS MATERIALIZED (SELECT * FROM taken),
{_LOGGED.format(action="'mirror'", time=NOW, changes="%(changes)s::text")}
-- A repetition after a lost answer finds its token noted, and confirms that.
SELECT d.id, d.token, s.id, s.token, s.incarnation, CASE WHEN d.id IS NULL THEN ({CONFIRM}) END
FROM (SELECT 1) AS one LEFT JOIN done d ON true LEFT JOIN seen s ON true""")
"""Copies the token of a lease in object storage, so that commits here can be fenced by it."""

_WAITING = f"(SELECT count(*) FROM lease_waiter w WHERE w.name = l.name AND {_alive('w.')})"
_ROWS = f"""SELECT {NOW}, l.name, l.id, l.token, l.owner, l.incarnation, l.acquired_at, l.expires_at, {_WAITING}
FROM lease l WHERE {{which}} ORDER BY l.name"""
ROWS = {
    True: _ROWS.format(which="l.name = ANY(%(names)s::text[])"),
    False: _ROWS.format(which='l.name > %(after)s::text COLLATE "C" AND l.owner IS NOT NULL') + " LIMIT %(limit)s",
}
"""Shows leases; the key says whether names are given."""

# drawn: one ticket for all names; a later caller gets a higher number. entered: a row for each name, without locks,
# because the rows are new.
ENTER = f"""WITH drawn AS MATERIALIZED (SELECT nextval('entity_id_seq') AS ticket),
entered AS (
  INSERT INTO lease_waiter (name, ticket, owner, alive_until)
  SELECT name, ticket, %(owner)s::text, {NOW} + {ALIVE} FROM unnest(%(names)s::text[]) AS w(name), drawn)
SELECT ticket FROM drawn"""

LEAVE = without_comments(f"""WITH gone AS (
  DELETE FROM lease_waiter WHERE name = ANY(%(names)s::text[]) AND ticket = %(ticket)s::bigint),
-- for each free name, the next waiter gets a notice: it may have waited behind this one
free AS MATERIALIZED (
  SELECT name FROM unnest(%(names)s::text[]) AS n(name) WHERE NOT EXISTS (
    SELECT FROM lease l WHERE l.name = n.name AND l.owner IS NOT NULL AND l.expires_at > {NOW})),
{_woken("(SELECT name FROM free)", " AND w.ticket <> %(ticket)s::bigint")}
SELECT count(*) FROM woken""")

STAGE = without_comments(f"""WITH fenced AS MATERIALIZED (
  -- FOR KEY SHARE: the token stays until the value is noted, so that a clean-up after a takeover sees it
  SELECT id, token, name FROM lease WHERE name = ANY(%(names)s::text[]) AND {_WITH_TOKENS} FOR KEY SHARE),
-- A value that is being cleaned up (doomed) cannot be staged again: its files may be gone. A repetition finds its row.
made AS (
  INSERT INTO staged (id, lease_id, token, lease, entity_id, key, value, principal, time, number, state)
  SELECT %(id)s::uuid, id, token, name, %(entity_id)s::bigint, %(key)s::text, %(value)s::text, %(principal)s::text,
    {NOW}, nextval('entity_id_seq'), {STAGED}
  FROM fenced WHERE {DURABLE} AND NOT EXISTS (SELECT FROM staged WHERE value = %(value)s::text AND state = {DOOMED})
  ON CONFLICT (id) DO UPDATE SET time = staged.time RETURNING 1)
SELECT EXISTS (SELECT FROM made), EXISTS (SELECT FROM fenced)""")

CALM = {True: "SELECT 1 FROM info FOR UPDATE", False: "SELECT 1 FROM info FOR KEY SHARE"}
"""Sent before a staging (False) and a dooming (True): after the wait, the next statement sees the other's writes."""

_COLUMNS = "id, lease_id, token, lease, entity_id, key, value, principal, time, number, state"
UNDER = f"""SELECT {_COLUMNS} FROM staged
WHERE lease_id = %(lease_id)s::bigint AND token = %(token)s::bigint AND state = {STAGED} ORDER BY number"""
_GONE = """NOT EXISTS (SELECT FROM lease l WHERE l.name = s.lease AND l.token = s.token AND l.id = s.lease_id)"""
_TWIN = "SELECT FROM staged o WHERE o.value = s.value AND o.id <> s.id AND"
LEFT_BEHIND = f"""SELECT {_COLUMNS}, EXISTS ({_TWIN} o.state = {PUBLISHED}) FROM staged s
WHERE id > %(after)s::uuid AND state <> {PUBLISHED} AND {_GONE} ORDER BY id LIMIT %(limit)s"""
DOOM = f"""UPDATE staged s SET state = {DOOMED} WHERE id = %(id)s::uuid AND state <> {PUBLISHED} AND {_GONE}
  AND {DURABLE}
  AND NOT EXISTS ({_TWIN} (o.state = {PUBLISHED} OR EXISTS (SELECT FROM lease l
    WHERE l.name = o.lease AND l.token = o.token AND l.id = o.lease_id))) RETURNING 1"""
FORGET_PUBLISHED = f"""DELETE FROM staged s WHERE state = {PUBLISHED} AND {_GONE}
  AND NOT EXISTS ({_TWIN} o.state <> {PUBLISHED}) RETURNING 1"""
UNSTAGE = f"DELETE FROM staged WHERE id = ANY(%(ids)s::uuid[]) AND {DURABLE} RETURNING 1"

FENCED_BY = """SELECT seq, operation_id, principal, time, coalesce(path_after, path_before), fences FROM operation
WHERE fences IS NOT NULL AND seq > %(after)s::bigint AND fences LIKE %(pattern)s::text ORDER BY seq LIMIT %(limit)s"""

FORGET_WAITERS = "DELETE FROM lease_waiter WHERE alive_until < %(before)s::bigint RETURNING 1"
