"""Real processes cache under leases while others write; they are stopped, killed and cut off: no read is ever old.

The judge (``windows.py``) takes cached reads as reads: each must show what was newest at some instant between its
beginning and its end, and no later read may show less.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import psycopg
import pytest

import metastore as ms
from tests.cache.kept import LONG, lake
from tests.cache.windows import Seen, not_linear
from tests.concurrency.raw import dsn
from tests.concurrency.workers import FORKSERVER
from tests.servers.postgres import PostgresServer
from tests.servers.process import wait_until

T, TTL = "lake.c.s.t", 1.5
FEWEST = 1000
"""Reads of each process: on a busy machine it reads on after the last write, to have that many."""


def _reads(url: str, pipe: Connection, broken: bool) -> None:
    """Read through a lease cache until told to stop; send the reads and the figures."""
    seen: list[Seen] = []
    if broken:
        from metastore.cache.entries import Entries

        Entries.evict_announced = lambda self, what: None  # type: ignore[method-assign]
    with ms.open(url, cache=ms.Cache("lease", ttl=TTL), deadline=20.0) as store:
        pipe.send(os.getpid())
        ends = time.monotonic() + LONG / 2
        while not pipe.poll() or (len(seen) < FEWEST and time.monotonic() < ends):
            began = time.monotonic()
            try:
                version = store.tables.load(T).version
            except ms.BackendUnavailable:
                continue
            seen.append(Seen(began, time.monotonic(), version))
            time.sleep(0.0005)
        pipe.recv()
        pipe.send((_thinned(seen), store.cache.stats()))


def _thinned(seen: list[Seen]) -> list[Seen]:
    """Leave out reads between two that show the same: those two say more."""
    return [
        one
        for n, one in enumerate(seen)
        if not 0 < n < len(seen) - 1 or not seen[n - 1].value == one.value == seen[n + 1].value or n % 50 == 0
    ]


class Reader(NamedTuple):
    pid: int
    pipe: Connection
    process: Any

    def told(self) -> tuple[list[Seen], ms.CacheStats]:
        self.pipe.send("stop")
        assert self.pipe.poll(LONG)
        told: tuple[list[Seen], ms.CacheStats] = self.pipe.recv()
        return told


@contextmanager
def _readers(url: str, count: int, broken: bool = False) -> Iterator[list[Reader]]:
    readers: list[Reader] = []
    try:
        for _ in range(count):
            mine, other = FORKSERVER.Pipe()
            process = FORKSERVER.Process(target=_reads, args=(url, other, broken), daemon=True)
            process.start()
            assert mine.poll(LONG)
            readers.append(Reader(mine.recv(), mine, process))
        yield readers
    finally:
        for reader in readers:
            if reader.process.is_alive():
                os.kill(reader.pid, signal.SIGKILL)
            reader.process.join(LONG)


def _write(store: ms.Store, seconds: float, log: list[Seen]) -> float:
    """Change the table for so long; return how long the slowest write took."""
    ends, worst = time.monotonic() + seconds, 0.0
    while time.monotonic() < ends:
        began = time.monotonic()
        version = store.tables.alter(T, ms.SetComment(f"{began}")).version
        log.append(Seen(began, time.monotonic(), version))
        worst = max(worst, time.monotonic() - began)
        time.sleep(0.02)
    return worst


def _wrong(readers: list[Reader], writes: list[Seen]) -> list[Seen]:
    wrong: list[Seen] = []
    for reader in readers:
        reads, stats = reader.told()
        assert len(reads) > 10
        assert stats.hits > 100
        wrong += not_linear(writes, [read for read in reads if read.began > writes[0].ended])
    return wrong


@pytest.mark.parametrize(("count", "broken"), [(3, False), (2, True), pytest.param(8, False, marks=pytest.mark.long)])
def test_no_read_is_old_and_none_goes_back(postgres_url: str, count: int, broken: bool) -> None:
    """With ``broken``, members acknowledge and forget nothing: the judge finds it."""
    lake(postgres_url)
    writes: list[Seen] = []
    with ms.open(postgres_url) as store, _readers(postgres_url, count, broken) as readers:
        _write(store, 2.0, writes)
        wrong = _wrong(readers, writes)
    assert bool(wrong) is broken


def test_a_stopped_member_holds_writers_up_for_its_ttl_and_serves_nothing_old(postgres_url: str) -> None:
    lake(postgres_url)
    writes: list[Seen] = []
    with ms.open(postgres_url) as store, _readers(postgres_url, 2) as readers:
        _write(store, 0.5, writes)
        os.kill(readers[0].pid, signal.SIGSTOP)
        worst = _write(store, TTL + 1.0, writes)
        os.kill(readers[0].pid, signal.SIGCONT)
        _write(store, 0.5, writes)
        assert _wrong(readers, writes) == []
        assert worst < TTL + 2.0  # ttl + 0.5 s on a machine that is not busy: make bench-cache measures it


def test_a_killed_member_is_given_up(postgres_url: str) -> None:
    lake(postgres_url)
    writes: list[Seen] = []
    with ms.open(postgres_url) as store, _readers(postgres_url, 2) as readers:
        _write(store, 0.3, writes)
        os.kill(readers[0].pid, signal.SIGKILL)
        worst = _write(store, TTL + 1.0, writes)
        assert worst < TTL + 2.0
        assert len(store.cache.members()) == 1
        assert _wrong(readers[1:], writes) == []


def _cut(server: PostgresServer, url: str) -> None:
    with psycopg.connect(dsn(url), autocommit=True) as raw:
        raw.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")


def _crash(server: PostgresServer, url: str) -> None:
    server.kill()
    server.start()


@pytest.mark.parametrize("disturb", [_cut, _crash], ids=["connections cut", "server crashes"])
def test_no_read_is_old_after_a_fault(disturb: Callable[[PostgresServer, str], None]) -> None:
    with PostgresServer() as server:
        url = server.create_database()
        ms.migrate(url)
        lake(url)
        writes: list[Seen] = []
        with ms.open(url, deadline=25.0) as store, _readers(url, 2) as readers:
            _write(store, 0.5, writes)
            with ThreadPoolExecutor(1) as writer:
                writing, before = writer.submit(_write, store, 2.0, writes), len(writes)
                assert wait_until(lambda: len(writes) > before + 3, LONG)
                disturb(server, url)  # here: a server ends with the thread that started it
                writing.result()
            _write(store, 0.5, writes)
            assert _wrong(readers, writes) == []
            assert store.verify() == []
