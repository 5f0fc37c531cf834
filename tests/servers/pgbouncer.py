"""Debian's pgbouncer in transaction mode, in front of a PostgreSQL server.

In transaction mode consecutive transactions of one client may run on different server
connections: session state (SET, advisory locks, LISTEN, prepared statements before 1.21) does
not survive. What works through it keeps no session state.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.servers.listening import Listening
from tests.servers.postgres import Databases
from tests.setup.pgbouncer import HINT, find_pgbouncer

__all__ = ["PgBouncer"]

CONFIGURATION = """\
[databases]
* = {server}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = {mode}
default_pool_size = {pool_size}
max_client_conn = 500
server_login_retry = 0.1
ignore_startup_parameters = extra_float_digits
"""


class PgBouncer(Listening):
    """A pgbouncer in front of ``server``; with few connections, so that clients share them.

    Where pgbouncer is not installed, making one skips the test.
    """

    name = "pgbouncer"

    def __init__(self, server: Databases, *, mode: str = "transaction", pool_size: int = 2) -> None:
        self.path = find_pgbouncer() or pytest.skip(HINT)
        super().__init__()
        self.server, self.mode, self.pool_size = server, mode, pool_size
        given = conninfo_to_dict(server.url().replace("+psycopg", ""))
        self.user = given.get("user") or "postgres"
        self._server = {name: given[name] for name in ("host", "port", "user", "password") if name in given}

    def url(self, database: str) -> str:
        """Return the ``postgresql+psycopg://`` URL of a database of the server, through pgbouncer."""
        return f"postgresql+psycopg://{self.user}@127.0.0.1:{self.port}/{database}"

    def command(self) -> list[str | Path]:
        """Write the configuration for the present port, and say how to run it (not as root)."""
        users = self.folder / "users"
        users.write_text(f'"{self.user}" ""\n')
        self.give(users)
        configuration = self.folder / "pgbouncer.ini"
        server = " ".join(f"{name}='{value}'" for name, value in self._server.items())
        text = CONFIGURATION.format(
            server=server, port=self.port, users=users, mode=self.mode, pool_size=self.pool_size
        )
        configuration.write_text(text)
        return [self.path, self.give(configuration)]
