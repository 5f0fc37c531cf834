"""Notify calls that wait for a turn, or for the result of an announced change; and hear such notices.

A notice is a hint: it may get lost, and every role that may connect can send one. Only the read of the database
decides, and waiting calls look at intervals anyway. A notice has the numbers of tickets and operations, and nothing
else.

A commit that left a line, or carried announced changes, sends its notice after itself: in the same message, but in a
separate transaction that does not wait for the disk. Inside the commit, a NOTIFY would make all such commits of the
cluster wait for each other, each for the disk.

A process that waits repeatedly listens in one session, for all its waiting calls, until no call has waited for
``_LINGERS``. Behind a pooler no such session exists, and commits through a pooler send no notices.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from uuid import UUID

import psycopg

from metastore.backends.postgres.connect import Pool
from metastore.backends.postgres.listening import Listening
from metastore.backends.postgres.parameters import Statement, plain
from metastore.backends.postgres.tickets import CHANNEL, SOON
from metastore.backends.sql.comments import without_comments
from metastore.clock import SYSTEM, Clock, Waker, begins_again
from metastore.errors import MetastoreError
from metastore.port.batches import Batch
from metastore.port.commit import Commit
from metastore.port.intents import PENDING

_AGAIN: Final = 1.0
"""If a process waits again within this time, it begins to listen (seconds)."""
_LINGERS: Final = 5.0
"""The process stops listening when no call has waited for this time (seconds)."""
_RESTS: Final = 10.0
"""After a failure, the process does not try to listen for this time (seconds)."""
_LOOKS: Final = 1.0
"""How often the listening thread checks whether a call waits (seconds)."""
_MOST: Final = 1024
"""How many notices to remember for calls that have not begun to wait."""
_LONGEST: Final = 40
"""How many characters the name of a ticket or an operation may have."""

LISTEN: Final = (
    f"UNLISTEN *; DO $$ BEGIN EXECUTE 'LISTEN ' || {CHANNEL}; END $$; SET application_name = 'metastore waiter'"
)

TELL: Final = without_comments(f"""WITH
-- the lines that the commit left: their first ticket now
lines AS MATERIALIZED (
  SELECT w.id, (SELECT min(t.number) FROM ticket t WHERE t.entity_id = w.id AND t.number > 0) AS head
  FROM unnest(%(ids)s::bigint[]) AS w(id) WHERE {SOON}),
-- the owners of the changes that the commit carried; a lost commit has resolved none
owners AS MATERIALIZED (
  SELECT o.operation_id FROM operation o
  WHERE o.operation_id = ANY(%(owners)s::uuid[]) AND o.ordinal = 0 AND o.action <> '{PENDING}'),
named AS (
  SELECT operation_id::text AS name FROM owners
  -- a lost commit still has its ticket
  UNION ALL SELECT head::text FROM lines WHERE head <> coalesce(%(ticket)s::bigint, 0)
  -- if nobody is in line, the owner of the oldest announced change applies them
  UNION ALL SELECT (SELECT o.operation_id::text FROM operation o
      WHERE o.entity_id = lines.id AND o.action = '{PENDING}' ORDER BY o.time, o.operation_id LIMIT 1)
    FROM lines WHERE head IS NULL AND (%(ticket)s::bigint IS NOT NULL OR EXISTS (SELECT FROM owners)))
SELECT pg_notify({CHANNEL}, string_agg(name, ' ')) FROM named WHERE name IS NOT NULL HAVING count(*) > 0""")
"""Notifies the calls that should look now, in one notification; if none waits, it sends nothing."""


def told_by(commit: Commit) -> Statement | None:
    """Return the notice to send after a commit; None: no call waits for it."""
    owners = [one.operation_id for carried in commit.carries for one in carried.resolutions]
    return _tell(commit.leaves, owners, commit.ticket) if commit.leaves or owners else None


def told_by_batch(batch: Batch) -> Statement | None:
    """Return the notice to send after a batch; None: it carries no intents and leaves no line."""
    owners = {one.id: [s.operation_id for s in one.steps if s.carried is not None] for one in batch.alters}
    left = {one.id: one.ticket for one in batch.alters if one.leaves}  # a chain is the only member of its batch
    ids = [i for i, carried in owners.items() if carried or i in left]
    every = [owner for carried in owners.values() for owner in carried]
    return _tell(ids, every, next(iter(left.values()), None)) if ids else None


def told_by_leaving(ids: Sequence[int], ticket: int) -> Statement:
    """Return the notice to send after the removal of a ticket."""
    return _tell(ids, (), ticket)


def _tell(ids: Sequence[int], owners: Sequence[UUID], ticket: int | None = None) -> Statement:
    return Statement(TELL, {"ids": plain(ids), "owners": plain(owners), "ticket": ticket})


class Waking:
    """The implementation of :class:`metastore.port.tickets.Notices`, for all waiting calls of one process's store.

    It has no lock that a waiting call takes, because a signal handler may interrupt a call and wait too. A race between
    two threads only makes a call wait until its next regular look.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._waiters: dict[str, Waker] = {}
        self._heard: dict[str, None] = {}
        self._waited = -_LINGERS
        """The time at which a call last waited."""
        self._noted = -_AGAIN
        """The time of the last notice."""
        self._rests = 0.0
        """The time until which the process does not try to listen."""
        self._closed = False
        self._begin_again()
        begins_again(self, Waking.fork)

    def _begin_again(self) -> None:
        # no thread ever waits for this lock; a forked child gets a new one, because nothing would release the old one
        self._beginning = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ear: Listening | None = None

    def fork(self) -> None:
        """Begin again in a forked child, which has neither the thread nor the session."""
        self._of_parent = self._ear  # kept, because dropping it would warn of an unclosed connection
        self._waiters, self._heard = {}, {}
        self._begin_again()

    def wait(self, name: int | UUID, seconds: float, longest: float, clock: Clock) -> None:
        """Wait until a notice names a ticket or an operation, but only this long."""
        now, before = SYSTEM.monotonic(), self._waited
        self._waited = now
        if self._ear is None:
            if now - before < _AGAIN:
                self._begin(now)
            clock.sleep(seconds)
            return
        key, waker = str(name), clock.waker()
        self._waiters[key] = waker
        try:
            # a notice may have come between the last look and now
            if key not in self._heard:
                waker.wait(longest if now - self._noted < _AGAIN else seconds)
        finally:
            self._heard.pop(key, None)
            if self._waiters.get(key) is waker:  # another call with the same id may wait too
                self._waiters.pop(key, None)

    def _begin(self, now: float) -> None:
        """Start the thread that listens."""
        if self._closed or self._thread is not None or now < self._rests or not self._beginning.acquire(blocking=False):
            return
        try:
            if self._thread is None:
                thread = threading.Thread(target=self._listen, name="metastore turns", daemon=True)
                with suppress(RuntimeError):  # the system cannot start a thread now
                    thread.start()
                    self._thread = thread
        finally:
            self._beginning.release()

    def _listen(self) -> None:
        ear: Listening | None = None
        try:
            connection = self._pool.own_connection(LISTEN)
            if connection is None:  # behind a pooler, which passes on no notices: calls look at intervals
                self._rests = SYSTEM.monotonic() + _RESTS
                return
            self._ear = ear = Listening(connection)
            while not self._closed and SYSTEM.monotonic() - self._waited < _LINGERS:
                for payload in ear.heard(_LOOKS):
                    self._note(payload)
        except (MetastoreError, psycopg.Error):  # the server is away, or has no connection left: calls now look
            self._rests = SYSTEM.monotonic() + _RESTS
        finally:
            self._ear, self._thread = None, None
            self._heard, waiters, self._waiters = {}, self._waiters, {}
            for waker in list(waiters.values()):  # without the session, these calls look at intervals
                waker.wake()
            if ear is not None:
                ear.close()

    def _note(self, payload: str) -> None:
        self._noted = SYSTEM.monotonic()
        for name in payload.split():
            if len(name) <= _LONGEST:
                self._heard[name] = None
                waker = self._waiters.get(name)
                if waker is not None:
                    waker.wake()
        while len(self._heard) > _MOST:
            with suppress(RuntimeError, StopIteration):  # a call has removed a notice at the same time
                self._heard.pop(next(iter(self._heard)), None)

    def close(self) -> None:
        """Stop listening."""
        self._closed = True
        ear, thread = self._ear, self._thread
        if ear is not None and thread is not None:
            ear.wake()
            thread.join(_LOOKS)
