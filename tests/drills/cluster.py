"""Three nodes of PostgreSQL under Patroni, one etcd; and what can be done to them."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx
import psutil
import psycopg
import yaml

from tests.drills.way import Way
from tests.servers.etcd_server import EtcdServer
from tests.servers.listening import Missing
from tests.servers.postgres import PostgresServer
from tests.servers.process import Background, free_port, reachable_by_others, server_user, wait_until

__all__ = ["Cluster", "Node"]

_FETCHED: Final = Path(__file__).parents[2] / "build" / "patroni"
"""What ``make drills`` fetches: Patroni, and etcd where the machine has none."""
_LONG: Final = 120.0
"""How long a cluster may take to become whole again (seconds)."""
_TTL: Final = 20
"""How long Patroni lets a leader live that does not renew; it allows no less (seconds)."""


class Node(Background):
    """One Patroni with its PostgreSQL."""

    name = "patroni"
    patience = _LONG

    def __init__(self, number: int, etcd: int, programs: PostgresServer, *, synchronous: bool) -> None:
        super().__init__()
        self.title, self.rest = f"n{number}", free_port()
        self._programs, self._way, self._synchronous = programs, Way(etcd), synchronous
        self.to_replicas, self.to_clients = Way(self.port), Way(self.port)
        self._data, self._socket = self.folder / "data", self.own(self.folder / "socket")
        self.own(self._data)
        self._library = self._copied(_FETCHED / "lib")
        self.give(self.folder)

    def _copied(self, library: Path) -> Path:
        if not library.is_dir():
            raise Missing("Patroni is missing (make build/patroni/lib)")
        if server_user() is None or reachable_by_others(library):
            return library
        copy = self.folder / "lib"
        shutil.copytree(library, copy)
        return copy

    def command(self) -> Sequence[str | Path]:
        """Run it with a Python that the servers' user can reach, and of the version that it was fetched for."""
        self.to_replicas.to = self.to_clients.to = self.port  # the first start may take another port
        python = Path(sys.executable).resolve()
        if server_user() is not None and not reachable_by_others(python):
            python = Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")
            if not python.exists():
                raise Missing(f"{python} is missing: as root, servers run as another user, who needs a Python")
        settings = self.folder / "patroni.yml"
        settings.write_text(yaml.safe_dump(self._settings()))
        self.give(settings)
        return ["/usr/bin/env", f"PYTHONPATH={self._library}", python, "-m", "patroni", settings]

    def _settings(self) -> Mapping[str, Any]:
        trusted = {"username": "postgres"}
        return {
            "scope": "drills",
            "name": self.title,
            "restapi": {"listen": f"127.0.0.1:{self.rest}", "connect_address": f"127.0.0.1:{self.rest}"},
            "etcd3": {"host": f"127.0.0.1:{self._way.port}", "use_proxies": True},
            "bootstrap": {
                "dcs": {
                    "ttl": _TTL,
                    "loop_wait": 2,
                    "retry_timeout": 4,
                    "maximum_lag_on_failover": 1 << 30,
                    "synchronous_mode": self._synchronous,
                    "synchronous_mode_strict": self._synchronous,
                    "postgresql": {
                        "use_pg_rewind": True,
                        "parameters": {
                            "fsync": "off",
                            "wal_log_hints": "on",
                            "synchronous_commit": "remote_apply" if self._synchronous else "local",
                            "max_connections": 100,
                            "shared_buffers": "32MB",
                        },
                    },
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{self.to_replicas.port}",
                "data_dir": str(self._data),
                "bin_dir": str(self._programs.programs),
                "pgpass": str(self.folder / "pgpass"),
                "authentication": {"superuser": trusted, "replication": trusted, "rewind": trusted},
                "parameters": {"unix_socket_directories": str(self._socket)},
                "pg_hba": [
                    "local all all trust",
                    "host all all 127.0.0.1/32 trust",
                    "host replication all 127.0.0.1/32 trust",
                ],
            },
        }

    def ready(self, pid: int) -> bool:
        return self.role() != ""

    def role(self) -> str:
        """Return what Patroni says of its PostgreSQL: primary, replica, or nothing."""
        with suppress(httpx.HTTPError, ValueError):
            said = httpx.get(f"http://127.0.0.1:{self.rest}/patroni", timeout=2.0).json()
            if said.get("state") == "running":
                return str(said.get("role", "")).replace("master", "primary")
        return ""

    def server(self) -> psutil.Process:
        """Return the postmaster."""
        return psutil.Process(int((self._data / "postmaster.pid").read_text().split()[0]))

    def kill_server(self) -> None:
        """Kill PostgreSQL, with all of its processes."""
        with suppress(OSError, psutil.NoSuchProcess, ValueError):
            postmaster = self.server()
            postmaster.suspend()
            for process in (*postmaster.children(recursive=True), postmaster):
                with suppress(psutil.NoSuchProcess):
                    process.kill()

    def kill(self) -> None:
        """Kill the whole node."""
        self.freeze()
        self.kill_server()
        self.halt(signal.SIGKILL)

    @contextmanager
    def cut_from_etcd(self) -> Iterator[None]:
        """Cut its way to etcd, and let it have another one at the end."""
        with self._way.cut():
            yield

    def freeze(self) -> None:
        """Stop Patroni; its PostgreSQL goes on."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def halt(self, how: signal.Signals = signal.SIGTERM) -> None:
        with suppress(AssertionError, ProcessLookupError):
            self.thaw() if how is not signal.SIGKILL else None
        super().halt(how)
        self.kill_server()


class Cluster:
    """The nodes, and etcd."""

    def __init__(self, nodes: int = 3, *, synchronous: bool) -> None:
        self.synchronous = synchronous
        fetched = _FETCHED / "etcd" / "usr" / "bin"
        os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), str(fetched)])
        self.etcd = EtcdServer()
        programs = PostgresServer()
        self.nodes = [Node(n, self.etcd.port, programs, synchronous=synchronous) for n in range(1, nodes + 1)]
        self._programs = programs

    def __enter__(self) -> Self:
        self.etcd.start()
        for node in self.nodes:
            node.start()
        self.wait_whole()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes:
            node.stop()
        self.etcd.stop()
        self._programs.stop()

    def create_database(self, name: str, *, by_ways: bool) -> str:
        """Make a database; return the URL that leads to it on whichever node is the primary."""
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as raw:
            raw.execute(f"CREATE DATABASE {name}")
        return self.dsn(name, by_ways=by_ways).replace("postgresql:", "postgresql+psycopg:", 1)

    def dsn(self, database: str, *, by_ways: bool = False) -> str:
        """Return the URL of a database for psycopg; ``by_ways``: by ways that can be cut."""
        hosts = ",".join("127.0.0.1" for _ in self.nodes)
        ports = ",".join(str(node.to_clients.port if by_ways else node.port) for node in self.nodes)
        return f"postgresql://postgres@/{database}?host={hosts}&port={ports}&target_session_attrs=read-write&connect_timeout=3"

    def wait_for_none(self) -> None:
        """Wait until no node is the primary. Raises TimeoutError."""
        if not wait_until(lambda: all(node.role() != "primary" for node in self.nodes), _LONG):
            raise TimeoutError(f"there is still a primary after {_LONG:.0f} s")

    def leader(self) -> Node:
        """Return the node whose PostgreSQL is the primary. Raises TimeoutError."""
        return self._primary(self.nodes)

    def wait_for_another(self, leader: Node) -> None:
        """Wait until another node than ``leader`` is the primary. Raises TimeoutError."""
        self._primary([node for node in self.nodes if node is not leader])

    def _primary(self, nodes: Sequence[Node]) -> Node:
        ends = time.monotonic() + _LONG
        while time.monotonic() < ends:
            for node in nodes:
                if node.role() == "primary":
                    return node
            time.sleep(0.2)
        raise TimeoutError(f"no primary within {_LONG:.0f} s")

    def wait_whole(self) -> None:
        """Wait until one node is the primary and all others stream from it. Raises TimeoutError."""
        if not wait_until(self._is_whole, _LONG):
            raise TimeoutError(f"the cluster is not whole after {_LONG} s: {[node.role() for node in self.nodes]}")

    def _is_whole(self) -> bool:
        if sorted(node.role() for node in self.nodes) != ["primary", *["replica"] * (len(self.nodes) - 1)]:
            return False
        try:
            members = httpx.get(f"http://127.0.0.1:{self.nodes[0].rest}/cluster", timeout=2.0).json()["members"]
        except (httpx.HTTPError, ValueError, KeyError):
            return False
        # a replica that PostgreSQL waits for may take over only once etcd says so too, which is a moment later
        told = Counter((member["role"], member["state"]) for member in members)
        others = Counter({("replica", "streaming"): len(self.nodes) - 1 - self.synchronous})
        return told == others + Counter(
            {("leader", "running"): 1, ("sync_standby", "streaming"): int(self.synchronous)}
        )

    def switch_over(self) -> None:
        """Ask for another leader."""
        leader = self.leader()
        others = [node.title for node in self.nodes if node is not leader]
        candidate = {"candidate": self._synchronous_one() or others[0]}
        answer = httpx.post(
            f"http://127.0.0.1:{leader.rest}/switchover", json={"leader": leader.title, **candidate}, timeout=60.0
        )
        answer.raise_for_status()

    def _synchronous_one(self) -> str | None:
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as raw:
            row = raw.execute("SELECT application_name FROM pg_stat_replication WHERE sync_state = 'sync'").fetchone()
        return None if row is None else str(row[0])
