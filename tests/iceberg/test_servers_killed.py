"""Two servers on one PostgreSQL are killed while many clients append to one table: each append is there once.

A client that gets no answer sends the same request to the other server, under the same Idempotency-Key.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import httpx
import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitStateUnknownException, ServerError, ServiceUnavailableError
from pyiceberg.table import CommitTableResponse, Table

import metastore as ms
from tests.servers.process import free_port, wait_until

T = TypeVar("T")
NO_ANSWER = (
    requests.ConnectionError,
    requests.exceptions.ChunkedEncodingError,  # killed between the header of an answer and the end of its body
    *(CommitStateUnknownException, ServiceUnavailableError, ServerError),
)
SCHEMA = pa.schema([("n", pa.int64())])
STARTS = 300.0
"""How long a server may take to start on a machine with other work (seconds)."""


class Server:
    """``metastore serve`` in a process of its own."""

    def __init__(self, url: str, warehouse: Path) -> None:
        self._port = free_port()
        self.address = f"http://127.0.0.1:{self._port}/iceberg"
        place = f"lake.ice=file://{warehouse}"
        self._command = [sys.executable, "-m", "metastore", "--url", url, "serve", "--warehouse", place]
        self.start()

    def start(self) -> None:
        """Start the process; it answers later."""
        self._process = subprocess.Popen([*self._command, "--port", str(self._port)], stdout=subprocess.DEVNULL)

    def answers(self) -> bool:
        """Whether it answers."""
        try:
            return httpx.get(self.address.replace("/iceberg", "/healthz")).status_code == 200
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """Kill it with all that it is doing."""
        self._process.kill()
        self._process.wait()


class Client(RestCatalog):
    """PyIceberg's client, with a second server to turn to."""

    def commit_table(
        self, table: Table, requirements: tuple[Any, ...], updates: tuple[Any, ...]
    ) -> CommitTableResponse:
        """Send a commit to one server after the other, until one answers."""
        key = str(uuid4())

        def send() -> CommitTableResponse:
            self._session.headers["Idempotency-Key"] = key
            return super(Client, self).commit_table(table, requirements, updates)

        try:
            return self.until_answered(send)
        finally:
            del self._session.headers["Idempotency-Key"]

    def until_answered(self, send: Callable[[], T]) -> T:
        """Return what a call returns, at whichever server answers it."""
        for _ in range(20_000):
            try:
                return send()
            except NO_ANSWER:
                self.uri, self.other = self.other, self.uri
                threading.Event().wait(0.02)
        raise AssertionError("no server answers any more")

    other = ""


@pytest.fixture
def servers(postgres_url: str, tmp_path: Path) -> Iterator[list[Server]]:
    warehouse = tmp_path / "warehouse"
    with ms.open(postgres_url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.ice", type="relational")
    servers = [Server(postgres_url, warehouse) for _ in range(2)]
    try:
        assert wait_until(lambda: all(server.answers() for server in servers), STARTS)
        yield servers
    finally:
        for server in servers:
            server.kill()


@pytest.mark.long  # each run repeats requests at another server, one by one: test_idempotency, test_unknown_outcomes
@pytest.mark.parametrize(("writers", "appends", "kills"), [(6, 3, 2), (8, 25, 8)], ids=["some", "many"])
@pytest.mark.timeout(1800)  # 80 s on a quiet machine, over 600 s at a load of 18
def test_every_append_is_there_once(
    servers: list[Server], postgres_url: str, writers: int, appends: int, kills: int
) -> None:
    done = count(1)
    killed: list[int] = []
    turn = threading.Lock()

    def client(n: int) -> Client:
        first, second = servers[n % 2], servers[1 - n % 2]
        made = Client("x", uri=first.address, warehouse="lake.ice")
        made.other = second.address
        return made

    def kill_if_it_is_time() -> None:
        """Kill a server whenever so many appends are done: others are on their way through it."""
        with turn:
            due = next(done) % max(1, writers * appends // (kills + 1)) == 0 and len(killed) < kills
            if due:
                victim = servers[len(killed) % 2]
                assert wait_until(servers[1 - len(killed) % 2].answers, STARTS)  # one of them is always there
                killed.append(1)
                victim.kill()
                victim.start()

    def write(n: int) -> None:
        own = client(n)
        for value in range(n * appends, (n + 1) * appends):
            table = own.until_answered(lambda: own.load_table("a.t"))
            table.append(pa.table({"n": pa.array([value], pa.int64())}))
            kill_if_it_is_time()

    main = client(0)
    main.create_namespace("a")
    main.create_table("a.t", SCHEMA, properties={"commit.retry.num-retries": "0", "metastore.commit.merge": "true"})
    clients = range(writers)
    with ThreadPoolExecutor(writers) as pool:
        for future in [pool.submit(write, n) for n in clients]:
            future.result()
    assert len(killed) == kills
    now = main.until_answered(lambda: main.load_table("a.t"))
    assert sorted(now.scan().to_arrow()["n"].to_pylist()) == list(range(writers * appends))
    assert len(now.metadata.snapshots) == writers * appends
    with ms.open(postgres_url) as store:
        assert store.verify() == []
