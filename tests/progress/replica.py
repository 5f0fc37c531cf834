"""A second PostgreSQL that follows the first one, synchronously, and can take its place."""

from __future__ import annotations

import psycopg

from tests.servers.postgres import PostgresServer
from tests.servers.process import wait_until

__all__ = ["Replica", "primary"]

NAME = "replica"
SETTINGS = {"wal_level": "replica", "max_wal_senders": "4", "hot_standby": "on", "wal_keep_size": "512MB"}
"""The last one: a replica that is slow finds what it has not read yet, also after a checkpoint."""


def primary() -> PostgresServer:
    """Return a server, not started yet, that a replica can follow."""
    return PostgresServer(settings=SETTINGS)


class Replica(PostgresServer):
    """Follow ``leader``, which waits for each commit to arrive here."""

    name = "replica"

    def __init__(self, leader: PostgresServer) -> None:
        super().__init__(settings=leader.settings)
        self._leader = leader
        self.promoted = False

    def start(self) -> None:
        super().start()
        with psycopg.connect(self._leader.dsn(), autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{NAME}'")
            connection.execute("SELECT pg_reload_conf()")
            sql = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
            assert wait_until(lambda: connection.execute(sql).fetchone() is not None, 30)

    def promote(self) -> None:
        """Take the leader's place: from now on nobody is waited for."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            assert connection.execute("SELECT pg_promote(true, 30)").fetchone() == (True,)
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
            connection.execute("SELECT pg_reload_conf()")
        self.promoted = True

    def _initialize(self) -> None:
        leader = f"{self._leader.dsn()}?application_name={NAME}"
        program = self.programs / "pg_basebackup"
        self.run([program, "-D", self.data, "-d", leader, "-R", "-X", "stream", "-c", "fast", "--no-sync"])
