"""Real processes cache under leases while others write; they are stopped, killed and cut off: no read is ever old.

The judge (``windows.py``) takes cached reads as reads: each must show what was newest at some instant between its
beginning and its end, and no later read may show less.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import psycopg
import pytest

import metastore as ms
from tests.cache.kept import LONG, lake
from tests.cache.windows import Seen, not_linear
from tests.concurrency.raw import dsn
from tests.concurrency.workers import FORKSERVER
from tests.long import long_unless
from tests.progress.replica import Replica, primary
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.servers.process import wait_until
from tests.servers.proxy import PostgresProxy, Side

pytestmark = pytest.mark.one_in(3)

T, TTL = "lake.c.s.t", 1.5
BUSY = 10.0
"""How much longer than by design a writer may wait on a busy machine (seconds); its deadline is 30 s."""
FEWEST = 1000
"""Reads of each process: on a busy machine it reads on after the last write, to have that many."""


Mode = Literal["as it is", "broken", "clock jumps"]


def _broken() -> None:
    """Let the member acknowledge, and forget nothing."""
    from metastore.cache.entries import Entries

    Entries.evict_announced = lambda self, what: None  # type: ignore[method-assign]


def _clock_jumps() -> None:
    """Set the wall clock of this process forwards and backwards all the time, by more than the ttl."""
    wall, nanoseconds, by = time.time, time.time_ns, [0]
    time.time = lambda: wall() + by[0]
    time.time_ns = lambda: nanoseconds() + by[0] * 10**9

    def jump() -> None:
        while True:
            for by[0] in (0, 5, 0, -5):
                time.sleep(0.3)

    threading.Thread(target=jump, daemon=True).start()


_BEFORE: dict[Mode, Callable[[], None]] = {"as it is": lambda: None, "broken": _broken, "clock jumps": _clock_jumps}


def _reads(url: str, pipe: Connection, mode: Mode) -> None:
    """Read through a lease cache until told to stop; send the reads and the figures."""
    seen: list[Seen] = []
    _BEFORE[mode]()
    with ms.open(url, cache=ms.Cache("lease", ttl=TTL), deadline=20.0) as store:
        pipe.send(os.getpid())
        ends = time.monotonic() + LONG / 2
        while not pipe.poll() or (len(seen) < FEWEST and time.monotonic() < ends):
            began = time.monotonic()
            try:
                version = store.bind(deadline=2.0).tables.load(T).version
            except (ms.BackendUnavailable, ms.DeadlineExceeded):
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
def _readers(url: str, count: int, mode: Mode = "as it is") -> Iterator[list[Reader]]:
    readers: list[Reader] = []
    try:
        for _ in range(count):
            mine, other = FORKSERVER.Pipe()
            process = FORKSERVER.Process(target=_reads, args=(url, other, mode), daemon=True)
            process.start()
            assert mine.poll(LONG)
            readers.append(Reader(mine.recv(), mine, process))
        yield readers
    finally:
        for reader in readers:
            with suppress(ProcessLookupError):  # one that a test killed may not be known to be dead yet
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


def _wrong(readers: list[Reader], writes: list[Seen], hits: int = 100, fences: int = 0) -> list[Seen]:
    """Return the reads that are wrong, after a look whether each reader has used its cache, and was fenced."""
    wrong: list[Seen] = []
    for reader in readers:
        reads, stats = reader.told()
        assert len(reads) > 10
        assert stats.hits > hits
        assert stats.fences >= fences
        wrong += not_linear(writes, [read for read in reads if read.began > writes[0].ended])
    return wrong


@pytest.mark.parametrize(("count", "broken"), [(3, False), (2, True), pytest.param(8, False, marks=pytest.mark.long)])
def test_no_read_is_old_and_none_goes_back(postgres_url: str, count: int, broken: bool) -> None:
    """With ``broken``, members acknowledge and forget nothing: the judge finds it."""
    lake(postgres_url)
    writes: list[Seen] = []
    mode: Mode = "broken" if broken else "as it is"
    with ms.open(postgres_url) as store, _readers(postgres_url, count, mode) as readers:
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
        assert worst < TTL + BUSY  # ttl + 0.5 s on a machine that is not busy: make bench-cache measures it


def test_a_killed_member_is_given_up(postgres_url: str) -> None:
    lake(postgres_url)
    writes: list[Seen] = []
    with ms.open(postgres_url) as store, _readers(postgres_url, 2) as readers:
        _write(store, 0.3, writes)
        os.kill(readers[0].pid, signal.SIGKILL)
        worst = _write(store, TTL + 1.0, writes)
        assert worst < TTL + BUSY
        assert len(store.cache.members()) == 1
        assert _wrong(readers[1:], writes) == []


@pytest.mark.only_whole
def test_no_read_is_old_while_wall_clocks_jump(postgres_url: str) -> None:
    lake(postgres_url)
    writes: list[Seen] = []
    with ms.open(postgres_url) as store, _readers(postgres_url, 2, "clock jumps") as readers:
        _write(store, 2.5, writes)
        assert _wrong(readers, writes, hits=10, fences=1) == []


@pytest.mark.parametrize("side", long_unless(("client", "server"), lambda side: side == "client"))
def test_a_network_that_drops_one_direction(postgres_url: str, side: Side) -> None:
    """A member whose renewals do not arrive is given up; one whose answers do not arrive counts on none of them."""
    lake(postgres_url)
    writes: list[Seen] = []
    parts = urlsplit(postgres_url)
    with (
        PostgresProxy(parts.hostname or "", parts.port or 0) as proxy,
        ms.open(postgres_url) as store,
        _readers(proxy.url_for(postgres_url), 1) as cut_off,
        _readers(postgres_url, 1) as others,
    ):
        _write(store, 0.5, writes)
        with proxy.silent_to(side):
            worst = _write(store, TTL + 1.5, writes)
        _write(store, 1.0, writes)
        assert worst < 2 * TTL + BUSY
        assert _wrong(cut_off, writes, hits=10, fences=1) == []
        assert _wrong(others, writes, hits=10) == []


@pytest.mark.only_whole
def test_behind_a_pooler_members_look_by_themselves() -> None:
    with PostgresServer() as server, PgBouncer(server, pool_size=8) as bouncer:
        direct = server.create_database()
        ms.migrate(direct)
        lake(direct)
        pooled = bouncer.url(urlsplit(direct).path.strip("/"))
        writes: list[Seen] = []
        with ms.open(pooled) as store, _readers(pooled, 2) as readers, _readers(direct, 1) as others:
            _write(store, 2.0, writes)
            assert _wrong([*readers, *others], writes, hits=10) == []


@pytest.mark.only_whole
def test_no_read_is_old_after_a_failover() -> None:
    """The primary dies, its synchronous replica takes its place; members and writers find it by one URL."""
    with primary() as leader:
        name = urlsplit(leader.create_database()).path.strip("/")
        ms.migrate(leader.url(name))
        lake(leader.url(name))
        with Replica(leader) as replica:
            hosts = f"host=127.0.0.1,127.0.0.1&port={leader.port},{replica.port}&target_session_attrs=read-write"
            url = f"postgresql+psycopg://{leader.user}@/{name}?{hosts}"
            writes: list[Seen] = []
            with ms.open(url, deadline=25.0) as store, _readers(url, 2) as readers:
                _write(store, 0.5, writes)
                with ThreadPoolExecutor(1) as writer:
                    writing, before = writer.submit(_write, store, 2.0, writes), len(writes)
                    assert wait_until(lambda: len(writes) > before + 3, LONG)
                    leader.kill()
                    replica.promote()
                    writing.result()
                _write(store, 0.5, writes)
                assert _wrong(readers, writes, hits=10) == []
                assert store.verify() == []


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
