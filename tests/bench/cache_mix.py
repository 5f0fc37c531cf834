"""A mix of 95 % reads and 5 % writes by two processes of 16 threads: under a lease, plain, and under row locks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection

import metastore as ms
from tests.bench.core.setting import Setting
from tests.bench.figures import Bar, reported
from tests.bench.peers.in_database import ForUpdate
from tests.bench.timing import interleaved, ratios
from tests.concurrency.workers import FORKSERVER

__all__ = ["BARS", "PATHS", "TABLES", "THREADS", "measure"]

BARS = {
    "mix_95_vs_no_cache": Bar(">=", 2.5),
    "mix_95_vs_for_update": Bar(">=", 5.0),
    "mix_95_per_s": reported,
}
TABLES, THREADS, PROCESSES = 50, 16, 2
PATHS = [f"lake.sales.wide.t{n}" for n in range(TABLES)]
Operations = tuple[Callable[[str], object], Callable[[str, str, str], object]]
"""A load of a path; a change of one property."""


@contextmanager
def _store(url: str, cache: ms.Cache | None) -> Iterator[list[Operations]]:
    with ms.open(url, pool_size=THREADS, cache=cache) as store:

        def alter(path: str, key: str, value: str) -> object:
            return store.tables.alter(path, ms.SetProperty(key, value))

        yield [(store.tables.load, alter)] * THREADS


@contextmanager
def _locked(url: str) -> Iterator[list[Operations]]:
    clients = [ForUpdate(url, f"thread {n}") for n in range(THREADS)]
    yield [(client.load, client.alter) for client in clients]
    for client in clients:
        client.close()


_OPENED = {
    "leased": lambda url: _store(url, ms.Cache("lease")),
    "plain": lambda url: _store(url, None),
    "for_update": _locked,
}


def _mixes(url: str, pipe: Connection, mode: str, count: int) -> None:
    me = os.getpid()
    with _OPENED[mode](url) as each:

        def work(thread: int) -> None:
            load, alter = each[thread]
            for n in range(count):
                path = PATHS[(n * 7 + thread * 13) % TABLES]
                if n % 20 == 19:
                    alter(path, f"k{thread % 3}", f"{me} {n}")  # no other process has set it: each one is a write
                else:
                    load(path)

        pipe.send("ready")
        pipe.recv()
        with ThreadPoolExecutor(THREADS) as pool:
            for one in [pool.submit(work, thread) for thread in range(THREADS)]:
                one.result()
        pipe.send("done")


def _rate(url: str, mode: str, count: int) -> float:
    """Return the operations per second."""
    pipes = []
    for _ in range(PROCESSES):
        mine, other = FORKSERVER.Pipe()
        FORKSERVER.Process(target=_mixes, args=(url, other, mode, count), daemon=True).start()
        pipes.append(mine)
    for pipe in pipes:
        pipe.recv()
    began = time.perf_counter()
    for pipe in pipes:
        pipe.send("go")
    for pipe in pipes:
        pipe.recv()
    return PROCESSES * THREADS * count / (time.perf_counter() - began)


def measure(setting: Setting, url: str) -> None:
    """Measure all three in turns, on a lake with the schema ``wide``."""
    count = setting.count(400)
    found = interleaved({mode: lambda mode=mode: _rate(url, mode, count) for mode in _OPENED}, 3)  # type: ignore[misc]
    setting.figures.record("mix_95_per_s", found["leased"])
    setting.figures.record("mix_95_vs_no_cache", ratios(found["leased"], found["plain"]))
    setting.figures.record("mix_95_vs_for_update", ratios(found["leased"], found["for_update"]))
