"""No lock across a round trip: what PostgreSQL says of our sessions while 8 processes are at work, or stopped."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import socket
import struct
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

import psycopg

import metastore as ms
from metastore.urls import parse_url
from tests.concurrency.checks import seed, violations
from tests.concurrency.raw import connect, dsn
from tests.concurrency.workers import Job, Team, Turn, outcome

SECONDS, STOPS, FEWEST = 2.0, 60, 10
_SPAWN = multiprocessing.get_context("spawn")

# not those that are aborted: PostgreSQL released their locks at the error, and a busy client sends its ROLLBACK later
SAMPLE = """
SELECT 'idle in transaction', pid, query FROM pg_stat_activity
  WHERE datname = current_database() AND state = 'idle in transaction'
UNION ALL
SELECT 'advisory lock', pid, objid::text FROM pg_locks WHERE locktype = 'advisory'
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
UNION ALL
SELECT 'lock of an idle session', a.pid, l.locktype || ' ' || l.mode FROM pg_locks l JOIN pg_stat_activity a USING (pid)
  WHERE a.datname = current_database() AND a.state = 'idle' AND a.xact_start IS NOT NULL
UNION ALL
SELECT 'table lock', a.pid, l.relation::regclass || ' ' || l.mode FROM pg_locks l JOIN pg_stat_activity a USING (pid)
  WHERE l.locktype = 'relation' AND a.datname = current_database() AND a.backend_type = 'client backend'
    AND l.mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')"""


def work(turn: Turn, number: int) -> int:
    """Do a bit of everything for as long as others sample, and until some of it was committed."""
    store, dice = turn.store, random.Random(number)
    turn.meet()
    ends = time.monotonic() + SECONDS
    while time.monotonic() < ends or not store.counters["commits"]:
        mix(store, f"lake.cat.s{dice.randrange(3)}", number, dice)
    return store.counters["commits"]


def mix(store: ms.Store, schema: str, number: int, dice: random.Random) -> None:
    """Everything that sends more than one statement, and the rest."""
    table = f"{schema}.t{dice.randrange(4)}"
    outcome(store.schemas.create, schema, if_exists="return")
    outcome(store.tables.create, table, if_exists="replace", comment=str(dice.random()))
    outcome(store.partitions.create, table, f"p{number}", values={"p": "1"})
    outcome(store.tables.create_many, schema, [{"name": f"m{n}"} for n in range(5)], if_exists="return")
    outcome(store.tables.rename, table, f"t{dice.randrange(4)}")
    outcome(store.schemas.drop, schema)  # not empty: a pipeline that fails
    outcome(store.schemas.rename, schema, f"s{dice.randrange(3)}")
    outcome(store.run, lambda tx: tx.tables.alter(table, ms.SetComment(str(len(list(tx.tables.list(schema)))))))
    outcome(list, store.tables.list(schema, page_size=2))
    outcome(store.tables.drop, table)


def test_no_session_is_idle_in_transaction(postgres_url: str, team: Team) -> None:
    """Under load: no session idle in a transaction, no advisory lock, no table lock, no lock of an idle session."""
    seed(postgres_url)
    samples, over = list[Any](), threading.Event()

    def sample() -> int:
        with connect(postgres_url) as connection:
            count = 0
            while not over.is_set() or count <= FEWEST:
                samples.extend(connection.execute(SAMPLE).fetchall())
                count += 1
            return count

    counts: list[int] = []
    sampler = threading.Thread(target=lambda: counts.append(sample()))
    sampler.start()
    try:
        commits = team.run(postgres_url, [Job(work, n) for n in range(8)])
    finally:
        over.set()
        sampler.join()
    assert samples == []
    assert counts[0] > FEWEST
    assert min(commits) > 0
    assert violations(postgres_url) == []


def be_stopped(url: str, pipe: Connection) -> None:
    """Send what locks, looks and then writes, again and again, until killed."""
    with ms.open(url) as store:
        schema = store.schemas.load("lake.cat.s")
        pipe.send("ready")
        while True:
            outcome(store.schemas.drop, schema)  # it is not empty: nothing is ever dropped


def test_a_stopped_client_holds_no_lock(postgres_url: str) -> None:
    """SIGSTOP at random moments: the server never waits, inside a transaction, for a client that does not go on."""
    seed(postgres_url, "lake.cat.s.t")
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=be_stopped, args=(postgres_url, theirs), daemon=True)
    process.start()
    assert ours.recv() == "ready"
    assert process.pid is not None
    dice, held = random.Random(3), list[Any]()
    try:
        with psycopg.connect(dsn(postgres_url), autocommit=True) as connection:
            for _ in range(STOPS):
                time.sleep(dice.random() * 0.01)  # when it is stopped is to be random
                os.kill(process.pid, signal.SIGSTOP)
                held += _transactions_that_wait_for_a_client(connection)
                os.kill(process.pid, signal.SIGCONT)
            assert process.is_alive()
    finally:
        process.kill()
        process.join()
    assert held == []


def _transactions_that_wait_for_a_client(connection: psycopg.Connection) -> list[Any]:
    """Let the server finish what it has; return the transactions that are open then."""
    sql = """SELECT state, wait_event, query FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
          AND xact_start IS NOT NULL"""
    for _ in range(200):
        found = connection.execute(sql).fetchall()
        if not found:
            return []
        time.sleep(0.001)
    return found


class _Relay:
    """Carry bytes between one client and the server; keep the pieces as the client sent them."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.pieces: list[bytes] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with self._listener:
            client, _ = self._listener.accept()
        with client, socket.create_connection(("127.0.0.1", self._port)) as server:
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=_carry, args=(server, client, []), daemon=True)
            back.start()
            _carry(client, server, self.pieces)
            back.join()

    def join(self) -> None:
        """Wait until the client has left."""
        self._thread.join(10)


def _carry(source: socket.socket, target: socket.socket, pieces: list[bytes]) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(1 << 20):
            pieces.append(piece)
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


def _last_message(piece: bytes) -> bytes:
    """Return the type of the last message in ``piece``."""
    at, kind = 0, b""
    while at < len(piece):
        kind = piece[at : at + 1]
        at += 1 + int(struct.unpack_from("!i", piece, at + 1)[0])
    return kind


def test_a_pipeline_is_sent_in_one_piece(postgres_url: str) -> None:
    """Locks, checks and writes of a commit leave the client together, with the Sync that ends their transaction.

    If they left one by one, the server would hold the locks while Python makes up the next one.
    """
    seed(postgres_url, "lake.cat.s.t")
    parts = parse_url(postgres_url)
    relay = _Relay(parts.port or 5432)
    through = parts.set(host="127.0.0.1", port=relay.port, query={"sslmode": "disable", "gssencmode": "disable"})
    with ms.open(through.render_as_string(hide_password=False)) as store:
        schema = store.schemas.load("lake.cat.s")
        relay.pieces.clear()
        for n in range(10):
            assert outcome(store.schemas.drop, schema) == "NotEmpty"
            with store.transaction() as tx:
                count = len(list(tx.tables.list(schema)))
                tx.tables.create(f"lake.cat.s.u{n}", comment=f"after {count} others")
        pieces = list(relay.pieces)
    relay.join()
    assert len(pieces) > 20
    torn = [piece for piece in pieces if _last_message(piece) not in (b"S", b"Q", b"X")]
    assert torn == [], f"{len(torn)} of {len(pieces)} pieces end inside a transaction"
