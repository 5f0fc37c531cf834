"""One reader of the feed, how late followers see a change, and what followers cost those who write."""

from __future__ import annotations

import multiprocessing
import time
from itertools import islice
from typing import Any

import metastore as ms
from tests.bench.core.setting import CATALOG, Setting
from tests.bench.time.lakes import Lakes
from tests.bench.timing import seconds

__all__ = ["measure"]

_CONSUMERS, _WRITES = 4, 200
_SPAWN = multiprocessing.get_context("spawn")


def measure(setting: Setting, lakes: Lakes) -> None:
    """Measure the feed."""
    lakes = Lakes(lakes.server, kept=False)  # it is written to
    url = lakes.lake(s=(1000, 100))
    with ms.open(url, principal="bench") as store:
        count = setting.count(100_000)

        def read() -> None:
            for _ in islice(store.changes(), count):
                pass

        setting.figures.record("feed_rows_per_s", [count / seconds(read) for _ in range(setting.runs)])
    _latency(setting, url)
    lakes.leave(url)


def _follow(url: str, after: str, count: int, results: Any) -> None:
    """Follow the feed in a process of its own; tell when each change arrived."""
    with ms.open(url) as store:
        results.put(None)
        seen = {c.path_after: time.monotonic() for c in islice(store.changes(after=after, follow=True), count)}
    results.put(seen)


def _latency(setting: Setting, url: str) -> None:
    """Write now and then while consumers wait; a change is late from when its call returned."""
    results: Any = _SPAWN.Queue()
    with ms.open(url, principal="bench") as store:
        start = store.position()
        readers = [_SPAWN.Process(target=_follow, args=(url, start, _WRITES, results)) for _ in range(_CONSUMERS)]
        for reader in readers:
            reader.start()
        for _ in readers:
            results.get()
        time.sleep(1.5)  # they have begun to wait
        done = dict[str, float]()
        for n in range(_WRITES):
            path = f"{CATALOG}.s.new_{n}"
            store.tables.create(path)
            done[path] = time.monotonic()
            time.sleep(0.3 if n % 10 == 0 else 0.02)
    late = [1000 * max(0.0, at - done[path]) for _ in readers for path, at in results.get().items()]
    for reader in readers:
        reader.join()
    late.sort()
    setting.figures.record("follow_latency_p99_ms", [late[int(0.99 * len(late))]])
    setting.figures.record("follow_latency_p50_ms", [late[len(late) // 2]])
