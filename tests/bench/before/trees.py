"""Trees of two commits, each with a database of one server and clients of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import psycopg

from tests.servers.postgres import PostgresServer

__all__ = ["COUNTS", "ROOT", "Side", "tree_of"]

ROOT = Path(__file__).resolve().parents[3]
CLIENT = Path(__file__).with_name("client.py")
HOT_CLIENTS = 8
COUNTS = {"alter": 150, "create": 150, "drop": 100, "load": 400, "hot": 25}
"""How many operations a turn has; of "hot", for each client."""


class Side:
    """One tree: its database and its clients."""

    def __init__(
        self, root: Path, server: PostgresServer, closing: contextlib.ExitStack, clients: int = HOT_CLIENTS
    ) -> None:
        self.rates: dict[str, list[float]] = {verb: [] for verb in COUNTS}
        self.cpu: dict[str, list[float]] = {verb: [] for verb in COUNTS}
        """The clients' processor time for each operation (seconds)."""
        self.server_cpu: dict[str, list[float]] = {verb: [] for verb in COUNTS}
        """The same of the server's processes that serve them, with what the turn prepares."""
        self._server = server
        url = server.create_database()
        self._database = url.rpartition("/")[2]
        environment = os.environ | {"PYTHONPATH": str(root), "PYTHONSAFEPATH": "1"}
        prepare = (
            "import sys, metastore as ms; ms.migrate(sys.argv[1]); s = ms.open(sys.argv[1]);"
            "s.metalakes.create('lake');"
            "s.catalogs.create('lake.sales', type='relational'); s.schemas.create('lake.sales.s');"
            "s.tables.create('lake.sales.hot.counter', parents=True)"
        )
        subprocess.run([sys.executable, "-c", prepare, url], env=environment, check=True, cwd="/")
        self._clients = []
        for _ in range(clients):
            command = [sys.executable, str(CLIENT), url]
            pipe = subprocess.PIPE
            client = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True, cwd="/")
            closing.callback(client.wait)
            closing.callback(client.stdin.close)  # type: ignore[union-attr]
            self._clients.append(client)
            used = Path(self._read(client)["library"]).resolve().parent
            if used != root.resolve():
                raise SystemExit(f"the client of {root} took the library of {used}")

    @staticmethod
    def _read(client: subprocess.Popen[str]) -> dict[str, Any]:
        assert client.stdout is not None
        found: dict[str, Any] = json.loads(client.stdout.readline())
        return found

    def turn(self, verb: str, count: int, *, keep: bool) -> None:
        """Let one client work, or all of them on the hot entity."""
        served = self._served()
        clients = self._clients if verb == "hot" else self._clients[:1]
        for client in clients:
            assert client.stdin is not None
            client.stdin.write(json.dumps({"verb": verb, "count": count}) + "\n")
            client.stdin.flush()
        answers = [self._read(client) for client in clients]
        if keep:
            self.rates[verb].append(len(clients) * count / max(a["seconds"] for a in answers))
            self.cpu[verb].append(sum(a["cpu"] for a in answers) / (len(clients) * count))
            self.server_cpu[verb].append((self._served() - served) / (len(clients) * count))

    def _served(self) -> float:
        """Return the processor time of the server's processes for this database (seconds). Linux has it in ns."""
        query = "SELECT pid FROM pg_stat_activity WHERE datname = %s"
        with psycopg.connect(self._server.dsn()) as connection:
            pids = [pid for (pid,) in connection.execute(query, [self._database]).fetchall()]
        return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids) / 1e9


def tree_of(revision: str) -> Path:
    """Return a folder with the files of a commit."""
    name = subprocess.check_output(["git", "rev-parse", "--short=12", f"{revision}^{{commit}}"], cwd=ROOT, text=True)
    folder = ROOT / "build" / "before" / name.strip()
    if not folder.exists():
        packed = subprocess.check_output(["git", "archive", name.strip(), "metastore", "retry", "migrations"], cwd=ROOT)
        folder.mkdir(parents=True)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="tar")
    return folder
