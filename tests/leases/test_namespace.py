"""A holder on a network of its own, whose cable is pulled: no proxy, no reset, nothing answers any more."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import metastore as ms
from tests.leases.fencing import late_commits
from tests.leases.kinds_of_work import S, furnish
from tests.servers.postgres import PostgresServer, database_of

pytestmark = pytest.mark.postgres

NAME = f"metastore{os.getpid()}"
OURS, THEIRS = f"ms{os.getpid() % 10**6}a", f"ms{os.getpid() % 10**6}b"
BLOCK = os.getpid() % 250
HERE, THERE = f"10.207.{BLOCK}.1", f"10.207.{BLOCK}.2"
TTL = 1.0


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def namespace() -> Iterator[None]:
    """Make a network with one cable to us; skip where that is not allowed."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("needs root and iproute2, for a network namespace")
    try:
        ip("netns", "add", NAME)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespace can be made here: {error.stderr.decode().strip()}")
    try:
        ip("link", "add", OURS, "type", "veth", "peer", "name", THEIRS, "netns", NAME)
        ip("addr", "add", f"{HERE}/30", "dev", OURS)
        ip("link", "set", OURS, "up")
        ip("-n", NAME, "addr", "add", f"{THERE}/30", "dev", THEIRS)
        ip("-n", NAME, "link", "set", THEIRS, "up")
        yield
    finally:
        ip("netns", "del", NAME)


def _hold(pipe: Connection, network: str, url: str) -> None:
    with Path(f"/run/netns/{network}").open() as place:
        assert ctypes.CDLL(None, use_errno=True).setns(place.fileno(), 0x40000000) == 0
    now = time.monotonic
    with ms.open(url, deadline=10.0) as store:
        table = store.tables.load(f"{S}.t")
        told: list[float] = []
        lease = store.leases.acquire("work", ttl=TTL, renew_every=TTL / 5, on_lost=lambda _: told.append(now()))
        pipe.send(lease.token)
        pipe.recv()
        began = now()
        lost = lease.lost.wait(10.0)
        pipe.send((lost, now() - began))
        pipe.recv()
        try:
            store.tables.alter(table, ms.SetComment("late"), lease=lease)
            pipe.send("committed")
        except ms.MetastoreError as error:
            pipe.send((type(error).__name__, len(told), lease.release()))


def test_the_cable_is_pulled() -> None:
    """He is told by his own clock within the ttl, the next one has it soon after, and his late commit is refused."""
    with namespace(), PostgresServer(settings={"listen_addresses": "*"}) as server:
        with (server.data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {HERE}/30 trust\n")
        server.restart()
        url = server.create_database()
        ms.migrate(url)
        pipe, theirs = multiprocessing.get_context("spawn").Pipe()
        from_there = f"postgresql+psycopg://{server.user}@{HERE}:{server.port}/{database_of(url)}"
        with ms.open(url) as store:
            furnish(store)
            arguments = (theirs, NAME, from_there)
            process = multiprocessing.get_context("spawn").Process(target=_hold, args=arguments, daemon=True)
            process.start()
            try:
                assert pipe.poll(30)
                assert pipe.recv() == 1
                ip("link", "set", OURS, "down")
                pipe.send("look")
                with store.leases.acquire("work", ttl=30.0, timeout=5 * TTL) as lease:
                    assert lease.token == 2
                    assert pipe.poll(5)
                    lost, after = pipe.recv()
                    assert lost
                    assert after < TTL + 0.2
                    store.tables.alter(f"{S}.other", ms.SetComment("next"), lease=lease)
                    ip("link", "set", OURS, "up")
                    pipe.send("go on")
                    assert pipe.poll(30)
                    assert pipe.recv() == ("LeaseLost", 1, False)
            finally:
                process.kill()
                process.join()
        assert late_commits(url) == []
