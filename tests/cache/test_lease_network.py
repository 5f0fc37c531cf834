"""Three members in networks of their own, whose cables drop one direction: the history checker finds no old read.

The kernel drops the packets (``tests/servers/network.py``) and tells nobody: sockets stay open, and what was sent
is sent again. Each member reads through its cache, and writes now and then. Another process writes all the time.
"""

from __future__ import annotations

import multiprocessing
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Self

import pytest

import metastore as ms
from metastore.checker.recorder import Recorder
from metastore.loadtest.calls import Calls
from tests.cache.kept import LONG
from tests.checker.judged import judged
from tests.servers.network import Network, NoNetwork, enter
from tests.servers.postgres import PostgresServer, database_of
from tests.servers.process import wait_until
from tests.servers.proxy import Side

pytestmark = [pytest.mark.long, pytest.mark.postgres]

TTL, MEMBERS, THREADS = 1.5, 3, 2
SCHEMA, RENAMED, COMES, TABLES = "lake.c.s", "lake.c.r", "lake.c.s.comes", 4
WORST = 2 * TTL + 2.0
"""A renewal may have been on its way when the member was cut off; the rest is for a busy machine."""
_SPAWN = multiprocessing.get_context("spawn")


def _forgets_nothing() -> None:
    from metastore.cache.entries import Entries

    Entries.evict_announced = lambda self, what: None  # type: ignore[method-assign]


def _member(pipe: Connection, network: str, url: str, folder: Path, name: str, broken: bool) -> None:
    enter(network)
    if broken:
        _forgets_nothing()
    over = threading.Event()
    with ms.open(url, cache=ms.Cache("lease", ttl=TTL), deadline=2.0, pool_size=THREADS) as store:
        threads = [threading.Thread(target=_read, args=(store, folder, f"{name}t{n}", over)) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        pipe.send("ready")
        while pipe.recv() != "stop":
            pipe.send(store.cache.stats())
        over.set()
        for thread in threads:
            thread.join()
        pipe.send("stopped")


def _read(store: ms.Store, folder: Path, name: str, over: threading.Event) -> None:
    calls, dice = Calls(store, Recorder(folder, name)), random.Random(name)
    while not over.wait(0.001):
        what = dice.randrange(200)
        if what < 160:
            calls.load(_table(dice))
        elif what < 199:
            calls.exists(COMES)
        else:
            calls.alter(_table(dice), ms.SetProperty(name, str(what)))


def _table(dice: random.Random) -> str:
    return f"{SCHEMA}.t{dice.randrange(TABLES)}"


class _Writer:
    """Alters, creates, drops and renames until it is told to stop; ``worst`` is how long the slowest call took."""

    def __init__(self, store: ms.Store, folder: Path) -> None:
        self._calls = Calls(store, Recorder(folder, "writer"))
        self._over = threading.Event()
        self.done, self.worst = 0, 0.0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        calls, dice = self._calls, random.Random(7)
        while not self._over.wait(0.005):
            began, what = time.monotonic(), dice.randrange(20)
            if what < 16:
                calls.alter(_table(dice), ms.SetComment(str(self.done)))
            elif what < 19:
                _ = calls.drop(COMES) or calls.create(COMES)
            else:
                calls.rename(SCHEMA, RENAMED, kind="schema")
                calls.rename(RENAMED, SCHEMA, kind="schema")
            assert not calls.away
            self.done += 1
            self.worst = max(self.worst, time.monotonic() - began)

    def goes_on(self, calls: int = 10) -> bool:
        """Wait until it has made more calls; return whether it has."""
        wanted = self.done + calls
        return wait_until(lambda: self.done >= wanted, LONG)


@contextmanager
def _networks(count: int) -> Iterator[list[Network]]:
    with ExitStack() as stack:
        try:
            yield [stack.enter_context(Network(number)) for number in range(count)]
        except NoNetwork as error:
            pytest.skip(f"no network namespace can be made here: {error}")


@contextmanager
def _server(networks: Sequence[Network]) -> Iterator[PostgresServer]:
    """Give a server that all of these networks reach."""
    with PostgresServer(settings={"listen_addresses": "*"}) as server:
        with (server.data / "pg_hba.conf").open("a") as rules:
            rules.writelines(f"host all all {network.here}/30 trust\n" for network in networks)
        server.restart()
        yield server


@contextmanager
def _members(
    networks: Sequence[Network], server: PostgresServer, url: str, folder: Path, broken: bool
) -> Iterator[list[Connection]]:
    pipes: list[Connection] = []
    processes: list[SpawnProcess] = []
    try:
        for n, network in enumerate(networks):
            mine, theirs = _SPAWN.Pipe()
            from_there = f"postgresql+psycopg://{server.user}@{network.here}:{server.port}/{database_of(url)}"
            arguments = (theirs, network.name, from_there, folder, f"m{n}", broken)
            processes.append(_SPAWN.Process(target=_member, args=arguments, daemon=True))
            processes[-1].start()
            pipes.append(mine)
        for pipe in pipes:
            assert _told(pipe) == "ready"
        yield pipes
        for pipe in pipes:
            pipe.send("stop")
            assert _told(pipe) == "stopped"
    finally:
        for process in processes:
            process.kill()
            process.join()


def _told(pipe: Connection) -> object:
    assert pipe.poll(LONG)
    return pipe.recv()


def _stats(pipe: Connection) -> ms.CacheStats:
    pipe.send("stats")
    stats = _told(pipe)
    assert isinstance(stats, ms.CacheStats)
    return stats


def _serves(pipe: Connection) -> bool:
    """Wait until a member answers from memory."""
    before = _stats(pipe).hits
    return wait_until(lambda: _stats(pipe).hits > before + 20, LONG)


def _drop(cut: dict[Network, Side], pipes: dict[Network, Connection], writer: _Writer) -> None:
    """Drop one direction of these networks until their members are fenced and given up; then wait until they serve."""
    fenced = {network: _stats(pipes[network]).fences for network in cut}
    with ExitStack() as stack:
        for network, side in cut.items():
            stack.enter_context(network.silent_to(side))
        for network in cut:
            assert wait_until(lambda network=network: _stats(pipes[network]).fences > fenced[network], LONG)  # type: ignore[misc]
        assert writer.goes_on()
    for network in cut:
        assert _serves(pipes[network])
    assert writer.goes_on()


def _lake(url: str) -> None:
    ms.migrate(url)
    with ms.open(url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        store.schemas.create(SCHEMA)
        store.tables.create_many(SCHEMA, [{"name": f"t{n}"} for n in range(TABLES)])


@pytest.mark.parametrize("broken", [False, True], ids=["as it is", "forgets nothing"])
def test_networks_that_drop_one_direction(tmp_path: Path, broken: bool) -> None:
    """Each direction of each cable, and two at once. Members that acknowledge and forget nothing are found."""
    with _networks(MEMBERS) as networks, _server(networks) as server:
        url = server.create_database()
        _lake(url)
        with ms.open(url, deadline=20.0) as store:
            with _members(networks, server, url, tmp_path, broken) as pipes, _Writer(store, tmp_path) as writer:
                assert all(map(_serves, pipes))
                if broken:
                    assert writer.goes_on(50)
                else:
                    one, two, three = networks
                    of = dict(zip(networks, pipes, strict=True))
                    for cut in ({one: "server"}, {two: "client"}, {two: "server", three: "client"}):
                        _drop(cut, of, writer)  # type: ignore[arg-type]
                assert wait_until(lambda: len(store.cache.members()) == MEMBERS, LONG)
            assert writer.worst < WORST
            found = judged(store, tmp_path)
            assert bool(found) is broken, found[:5]
            assert store.verify() == []
