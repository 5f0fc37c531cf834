"""Read and write the rows of a cache's members and of announcements: statements, parameters, meaning of rows.

Registrations and renewals are durable, and replicated if replication is synchronous: if a crash undid a renewal, a
writer could give up a member that still serves reads. Announcements and acknowledgements need not be durable: if a
crash undoes one, its owner announces again, or waits for the member's next renewal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import psycopg

from metastore.backends.postgres.connect import Pool
from metastore.backends.postgres.fragments import DURABLE, NOW
from metastore.backends.postgres.listening import Listening, Translated
from metastore.backends.postgres.parameters import Row, plain
from metastore.backends.postgres.silence import Silence
from metastore.backends.sql.comments import without_comments
from metastore.backends.sql.dialect import Fetch
from metastore.clock import SYSTEM
from metastore.port.members import Announcement, Covered, MemberRow, Membership, Wake

CHANNEL: Final = "metastore_cache"
_ASYNCHRONOUS = "set_config('synchronous_commit', 'off', true) IS NOT NULL"

_RANDOM = (1 << 62) - 1
"""A mask for the random part at the end of an operation id."""

# --- the statements of writers

GENERATION_NOW = "SELECT pg_sequence_last_value('cache_generation'::regclass)"
# Read in a later snapshot than the generation: a member registers before it begins a new generation.
ANY_MEMBERS = "SELECT EXISTS (SELECT FROM cache_member)"

ANNOUNCE = without_comments(f"""INSERT INTO cache_announcement (id, xid, ids, scopes, parents, at)
SELECT %(id)s::bigint, pg_current_xact_id()::text::bigint, %(ids)s::bigint[], %(scopes)s::bigint[],
  -- and the parents below which the entities are now, from which they are moved or dropped
  %(parents)s::bigint[] || ARRAY(SELECT parent_id FROM guard WHERE id = ANY(%(scopes)s::bigint[])), {NOW}
WHERE {_ASYNCHRONOUS}
-- the message is sent again after a lost connection: the first one may exist, and members may have acknowledged it
ON CONFLICT (id) DO UPDATE SET xid = excluded.xid, at = excluded.at
RETURNING xid, pg_notify('{CHANNEL}', '')::text""")
"""Announces in its own transaction, because a transaction id used twice would count as acknowledged already.

The client chooses its number, so that it can withdraw it even if the answer was lost.
"""

ANNOUNCED = """WITH held AS (
  SELECT id FROM cache_announcement WHERE id = %(announcement)s::bigint FOR KEY SHARE)
SELECT set_config('metastore.announcement', %(announcement)s::text, true), (SELECT count(*) FROM held)"""
"""Sent before a commit's statements: the trigger checks that this announcement covers their writes.

It is locked now, because a member removes old announcements, and a slow commit would then never succeed.
"""
WITHDRAW = """DELETE FROM cache_announcement WHERE id = ANY(%(left)s::bigint[]) OR id = %(announcement)s::bigint
  AND (%(again)s::uuid IS NULL
  OR EXISTS (SELECT FROM operation WHERE operation_id = %(again)s::uuid AND seq IS NOT NULL))"""
"""Removes the announcement after a commit's statements; with ``again``, only if that operation has committed.

It always removes leftover announcements.
"""


def announce_parameters(what: Covered) -> dict[str, Any]:
    """Return the parameters of ANNOUNCE, with a number that no other announcement has."""
    return {
        "id": SYSTEM.operation_id().int & _RANDOM,
        "ids": plain(sorted(what.ids)),
        "scopes": plain(sorted(what.scopes)),
        "parents": plain(sorted(what.parents)),
    }


# --- the statements of members

_JOIN = without_comments(f"""WITH gone AS (
  -- the member's own earlier registration, whose lease has ended
  DELETE FROM cache_member WHERE id = %(before)s::bigint AND incarnation = %(before_incarnation)s::text)
INSERT INTO cache_member (id, incarnation, renewals, seen, ttl, host, pid, joined_at, renewed_at)
SELECT nextval('entity_id_seq'), %(incarnation)s::text, 0, pg_current_snapshot()::text, %(ttl)s::bigint,
  %(host)s::text, %(pid)s::bigint, {NOW}, {NOW}
WHERE {DURABLE} RETURNING id""")
# a value that the sequence never had: after a crash, the server could count to the same value again
_BEGIN = f"SELECT setval('cache_generation', %(generation)s::bigint) WHERE {DURABLE}"
_MINE = "SELECT pg_current_xact_id()::text::bigint"
_OLDEST = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
_LOOK = """SELECT pg_current_snapshot()::text, a.id, a.xid, a.ids, a.scopes, a.parents
FROM (SELECT 1) AS one LEFT JOIN cache_announcement a ON true"""
_WHO = "WHERE id = %(id)s::bigint AND incarnation = %(incarnation)s::text"
# Renewals are durable: a row with fewer renewals comes from a restore, which undid everything that this process has
# read since.
_STILL = f"{_WHO} AND renewals >= %(renewals)s::bigint"
_ACKNOWLEDGE = f"UPDATE cache_member SET seen = %(seen)s::text {_STILL} AND {_ASYNCHRONOUS} RETURNING renewals"
_RENEW = f"""UPDATE cache_member SET seen = %(seen)s::text, renewals = renewals + 1, renewed_at = {NOW}
{_STILL} AND {DURABLE} RETURNING renewals"""
_LEAVE = f"DELETE FROM cache_member {_WHO} AND {DURABLE} RETURNING 1"
_MEMBERS = f"""SELECT m.id, m.incarnation, m.renewals, m.ttl, m.host, m.pid, m.joined_at, m.renewed_at, {NOW},
  count(a.id), min(a.at)
FROM cache_member m LEFT JOIN cache_announcement a
  ON NOT pg_visible_in_snapshot(a.xid::text::xid8, m.seen::pg_snapshot)
GROUP BY m.id ORDER BY m.joined_at, m.id"""
# compared with the database's clock; the margin is for a member with a slower clock
_REMOVE = f"""DELETE FROM cache_member WHERE id = %(id)s::bigint AND {DURABLE}
  AND (%(force)s::boolean OR renewed_at < {NOW} - ttl * 102 / 100) RETURNING 1"""
_ABANDONED: Final = 60_000_000
"""A younger announcement (microseconds) may belong to a call that still waits: most calls take less time."""
# a writer waits for a member at most twice the longest ttl and margin, and then gives it up. SKIP LOCKED: a locked
# announcement belongs to a commit in flight.
FORGET = f"""DELETE FROM cache_announcement WHERE id IN (SELECT id FROM cache_announcement
  WHERE at < {NOW} - greatest({_ABANDONED}, (SELECT 3 * max(ttl) FROM cache_member))
  FOR UPDATE SKIP LOCKED) RETURNING 1"""


class PostgresMembers:
    """The implementation of :class:`metastore.port.members.MemberRows`."""

    def __init__(self, pool: Pool, ask: Fetch, silence: Silence) -> None:
        self._pool, self._ask, self._silence = pool, ask, silence

    def wake(self) -> Wake:
        with Translated():
            connection = self._pool.own_connection(f"LISTEN {CHANNEL}")
        if connection is not None:
            # simple queries run only when they have arrived completely: if a member fell silent within a message, it
            # would keep its row locked until a time-out, and no writer could give it up
            connection.cursor_factory = psycopg.ClientCursor
        return _Blind() if connection is None else Listening(connection)

    def join(self, wake: Wake, before: Membership | None, ttl: int, host: str, pid: int) -> Membership:
        incarnation = str(SYSTEM.operation_id())
        gone = before or Membership(0, "")
        parameters = {"before": gone.id, "before_incarnation": gone.incarnation, "incarnation": incarnation,
                      "ttl": ttl, "host": host, "pid": pid}  # fmt: skip
        ((member_id,),) = self._once(wake, _JOIN, parameters)
        return Membership(member_id, incarnation)

    def begin(self, wake: Wake) -> int:
        self._once(wake, _BEGIN, {"generation": SYSTEM.operation_id().int & _RANDOM})
        return int(self._once(wake, _MINE, {})[0][0])

    def oldest(self, wake: Wake) -> int:
        return int(self._once(wake, _OLDEST, {})[0][0])

    def look(
        self, wake: Wake, member: Membership, apply: Callable[[Sequence[Announcement]], bool], *, renew: bool
    ) -> Membership | None:
        with self._connection(wake) as connection:
            return _looked(connection, member, apply, renew, lasts=wake.listens)

    def leave(self, wake: Wake | None, member: Membership) -> None:
        self._once(wake, _LEAVE, member._asdict())

    def members(self) -> list[MemberRow]:
        return [MemberRow(*row) for row in self._ask(_MEMBERS, {})]

    def evict(self, member_id: int, *, force: bool) -> bool:
        return bool(self._ask(_REMOVE, {"id": member_id, "force": force}))

    def tidy(self, wake: Wake) -> None:
        self._silence.give_up_silent(partial(self._once, wake))
        self._once(wake, FORGET, {})

    def _once(self, wake: Wake | None, text: str, parameters: dict[str, Any]) -> list[Row]:
        """Send a statement that must not be sent again."""
        with self._connection(wake) as connection:
            return connection.execute(text, parameters).fetchall()

    @contextmanager
    def _connection(self, wake: Wake | None) -> Iterator[psycopg.Connection[Any]]:
        """Lend a member's own connection; behind a pooler, where it has none, one from the pool."""
        with Translated(), self._pool.in_time():
            if isinstance(wake, Listening):
                yield wake.connection
            else:
                with self._pool.connection() as connection:
                    yield connection


def _looked(
    connection: psycopg.Connection[Any],
    member: Membership,
    apply: Callable[[Sequence[Announcement]], bool],
    renew: bool,
    *,
    lasts: bool,
) -> Membership | None:
    """Look, apply, acknowledge. ``lasts``: the connection keeps its session; otherwise one transaction does all."""
    if not lasts:
        connection.execute(b"BEGIN")
    rows = connection.execute(_LOOK).fetchall()
    news = apply([Announcement(row[1], row[2], _covered(row)) for row in rows if row[1] is not None])
    if not (news or renew):
        if not lasts:
            connection.execute(b"COMMIT")
        return member
    text, parameters = _RENEW if renew else _ACKNOWLEDGE, {**member._asdict(), "seen": rows[0][0]}
    if lasts:
        row = connection.execute(text, parameters).fetchone()
    else:
        # one message, because a member that was stopped or cut off before its commit would keep its row locked, and
        # writers could not give it up
        message = f"{psycopg.ClientCursor(connection).mogrify(text, parameters)}; COMMIT"
        row = connection.execute(message.encode(), prepare=False).fetchone()
    return None if row is None else member._replace(renewals=row[0])


def _covered(row: Row) -> Covered:
    return Covered(frozenset(row[3]), frozenset(row[4]), frozenset(row[5]))


class _Blind:
    """A wait for the time to pass, because behind a pooler no session can listen."""

    listens = False

    def wait(self, seconds: float) -> None:
        SYSTEM.sleep(seconds)

    def wake(self) -> None:
        pass

    def close(self) -> None:
        pass
