"""A holder on a network of its own, whose cable is pulled: no proxy, no reset, nothing answers any more."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection

import pytest

import metastore as ms
from tests.leases.fencing import late_commits
from tests.leases.kinds_of_work import S, furnish
from tests.servers.network import Network, NoNetwork, enter
from tests.servers.postgres import PostgresServer, database_of

pytestmark = pytest.mark.postgres

TTL, LATE = 1.0, 4.0
"""The second: for a busy machine. The call that hangs would end after ten seconds."""


@contextmanager
def namespace() -> Iterator[Network]:
    """Give a network with one cable to us; skip where that is not allowed."""
    with ExitStack() as stack:
        try:
            network = stack.enter_context(Network())
        except NoNetwork as error:
            pytest.skip(f"no network namespace can be made here: {error}")
        yield network


def _hold(pipe: Connection, network: str, url: str) -> None:
    enter(network)
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
    """The holder's clock tells it within the ttl, the next one has it soon after, and its late commit is refused."""
    with namespace() as network, PostgresServer(settings={"listen_addresses": "*"}) as server:
        with (server.data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {network.here}/30 trust\n")
        server.restart()
        url = server.create_database()
        ms.migrate(url)
        pipe, theirs = multiprocessing.get_context("spawn").Pipe()
        from_there = f"postgresql+psycopg://{server.user}@{network.here}:{server.port}/{database_of(url)}"
        with ms.open(url) as store:
            furnish(store)
            arguments = (theirs, network.name, from_there)
            process = multiprocessing.get_context("spawn").Process(target=_hold, args=arguments, daemon=True)
            process.start()
            try:
                assert pipe.poll(30)
                assert pipe.recv() == 1
                network.unplug()
                pipe.send("look")
                with store.leases.acquire("work", ttl=30.0, timeout=20 * TTL) as lease:
                    assert lease.token == 2
                    assert pipe.poll(20)
                    lost, after = pipe.recv()
                    assert lost
                    assert after < TTL + LATE
                    store.tables.alter(f"{S}.other", ms.SetComment("next"), lease=lease)
                    network.plug()
                    pipe.send("go on")
                    assert pipe.poll(30)
                    assert pipe.recv() == ("LeaseLost", 1, False)
            finally:
                process.kill()
                process.join()
        assert late_commits(url) == []
