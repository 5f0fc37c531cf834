"""A primary with a streaming replica that nobody waits for, and what can be done to the two."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import psycopg

import metastore as ms
from tests.cache.kept import LONG, lake
from tests.concurrency.raw import dsn
from tests.progress.replica import primary
from tests.servers.postgres import PostgresServer

__all__ = ["Pair", "Streaming", "pair"]


class Streaming(PostgresServer):
    """A replica of ``leader``. The leader waits for nothing that arrives here."""

    name = "replica"

    def __init__(self, leader: PostgresServer) -> None:
        super().__init__(settings=leader.settings)
        self._leader = leader

    def _initialize(self) -> None:
        program = self.programs / "pg_basebackup"
        leader = self._leader.dsn()
        self.run([program, "-D", self.data, "-d", leader, "-R", "-X", "stream", "-c", "fast", "--no-sync"])


class Pair(NamedTuple):
    """The two servers, and the URL of one database on each."""

    leader: PostgresServer
    replica: Streaming
    url: str
    replica_url: str

    @contextmanager
    def another(self) -> Iterator[Pair]:
        """Start one more replica."""
        with Streaming(self.leader) as replica:
            yield self._replace(replica=replica, replica_url=replica.url(self.url.rpartition("/")[2]))

    def admin(self, statement: str) -> list[tuple[object, ...]]:
        """Run a statement on the replica."""
        with psycopg.connect(dsn(self.replica_url), autocommit=True) as raw:
            cursor = raw.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def pause(self) -> None:
        """Let the replica show nothing new."""
        self.admin("SELECT pg_wal_replay_pause()")
        ends = time.monotonic() + LONG
        while self.admin("SELECT pg_get_wal_replay_pause_state()") != [("paused",)]:
            assert time.monotonic() < ends

    def resume(self) -> None:
        """Let it go on."""
        self.admin("SELECT pg_wal_replay_resume()")

    def promote(self) -> None:
        """Let the replica be a primary of its own."""
        assert self.admin("SELECT pg_promote(true, 30)") == [(True,)]

    def caught_up(self, store: ms.Store) -> str:
        """Wait until the replica shows all that there is; return the position."""
        position, ends = store.position(), time.monotonic() + LONG
        while store.replica(at_least=position, wait=LONG).from_primary:  # the replica may rest after a late answer
            assert time.monotonic() < ends, self.said()
            time.sleep(0.05)
        return position

    def said(self) -> str:
        """Return how far the replica is, for a failed assertion, and what it said last."""
        asked = "pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn(), pg_current_snapshot()"
        return "\n".join([str(self.admin(f"SELECT {asked}")), *self.replica.log.read_text().splitlines()[-20:]])


@contextmanager
def pair() -> Iterator[Pair]:
    """Start both, with a small lake."""
    with primary() as leader:
        url = leader.create_database()
        ms.migrate(url)
        lake(url)
        with Streaming(leader) as replica:
            try:
                yield Pair(leader, replica, url, replica.url(url.rpartition("/")[2]))
            finally:
                for server in (replica, leader):
                    server.halt(signal.SIGQUIT)  # at once: nobody needs what is in their memory
