"""Debian's pgbouncer in transaction mode, in front of a PostgreSQL server.

In transaction mode consecutive transactions of one client may run on different server
connections: session state (SET, advisory locks, LISTEN, prepared statements before 1.21) does
not survive. What works through it keeps no session state.
"""

from __future__ import annotations

from pathlib import Path

from tests.servers.listening import Listening
from tests.servers.postgres import PostgresServer
from tests.setup.pgbouncer import find_pgbouncer

__all__ = ["PgBouncer"]

CONFIGURATION = """\
[databases]
* = host=127.0.0.1 port={server.port} user={server.user}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = {mode}
default_pool_size = {pool_size}
max_client_conn = 500
ignore_startup_parameters = extra_float_digits
"""


class PgBouncer(Listening):
    """A pgbouncer in front of ``server``, which has no password; with few connections, so that clients share them."""

    name = "pgbouncer"

    def __init__(self, server: PostgresServer, *, mode: str = "transaction", pool_size: int = 2) -> None:
        path = find_pgbouncer()
        if path is None:
            raise RuntimeError("pgbouncer is missing: apt-get install pgbouncer")
        super().__init__()
        self.path, self.server, self.mode, self.pool_size = path, server, mode, pool_size

    def url(self, database: str) -> str:
        """Return the ``postgresql+psycopg://`` URL of a database of the server, through pgbouncer."""
        return f"postgresql+psycopg://{self.server.user}@127.0.0.1:{self.port}/{database}"

    def command(self) -> list[str | Path]:
        """Write the configuration for the present port, and say how to run it (as the server's user, not as root)."""
        users = self.folder / "users"
        users.write_text(f'"{self.server.user}" ""\n')
        self.give(users)
        configuration = self.folder / "pgbouncer.ini"
        text = CONFIGURATION.format(
            server=self.server, port=self.port, users=users, mode=self.mode, pool_size=self.pool_size
        )
        configuration.write_text(text)
        return [self.path, self.give(configuration)]
