"""What a fence costs: an alter under a lease against one without, by all processes at once, each on its own table.

All of them commit under *one* lease, which the parent has acquired and they have joined: its row is what every fenced
commit looks at. Fenced and unfenced blocks alternate in the same processes, and every block begins with all of them
together, so that what else the machine does is the same for both.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from itertools import chain
from statistics import median

import metastore as ms
from tests.bench.contention.crew import Meet, together
from tests.bench.contention.outcome import percentile
from tests.bench.core.setting import Setting
from tests.bench.leases.cells import PROCESSES
from tests.bench.leases.locker import Table
from tests.bench.timing import ratios

__all__ = ["measure"]

NAME = "shared by all"
TTL = 3600.0
WARM = 6
BLOCK = 0.2
"""Seconds."""
PAIRS = 4
"""Of blocks, for one value: half of them begin with the fenced one."""

Times = list["array[float]"]
"""How long each alter took, for each block."""


def measure(setting: Setting, url: str, values: int, processes: Sequence[int] = PROCESSES) -> None:
    """Record so many values of the cost for each number of processes; the largest has the bar."""
    record, pairs = setting.figures.record, values * PAIRS
    with ms.open(url, principal="bench") as store:
        lease = store.leases.acquire(NAME, ttl=TTL)
        try:
            for count in processes:
                tasks = [(alters, (url, number, lease.token, pairs)) for number in range(count)]
                fenced, unfenced = _sorted_out(together(tasks, 2 * pairs * (BLOCK + 1)))
                cost = ratios(_medians(fenced), _medians(unfenced))
                record("fenced_commit_cost" + ("" if count == max(processes) else f"_{count}"), cost)
                for kind, blocks in (("fenced", fenced), ("unfenced", unfenced)):
                    name, every = f"{kind}_commit_{count}", list(chain.from_iterable(blocks))
                    record(f"{name}_p50_ms", [1000 * median(every)])
                    record(f"{name}_p99_ms", [1000 * percentile(every, 0.99)])
                    record(f"{name}_per_s", [len(block) / BLOCK for block in blocks])
        finally:
            store.leases.release(lease)


def alters(meet: Meet, url: str, number: int, token: int, pairs: int) -> Times:
    """Alter the client's own table in pairs of blocks; return the times of each pair, the fenced block first."""
    found: Times = []
    with ms.open(url, principal=f"process {number}") as store:
        table, lease = Table(store, f"t{number}"), store.leases.join(NAME, token)
        for one in (lease, None) * WARM:
            table.alter(one)
        for pair in range(pairs):
            kinds = (lease, None) if pair % 2 else (None, lease)
            blocks = []
            for one in kinds:
                times = array("d")
                meet()
                ends = time.perf_counter() + BLOCK
                while (begun := time.perf_counter()) < ends:
                    table.alter(one)
                    times.append(time.perf_counter() - begun)
                blocks.append(times)
            found += blocks if pair % 2 else blocks[::-1]
    return found


def _sorted_out(found: Sequence[Times]) -> tuple[list[list[float]], list[list[float]]]:
    """Put the processes' blocks together: fenced, unfenced."""
    every = [list(chain.from_iterable(blocks)) for blocks in zip(*found, strict=True)]
    return every[::2], every[1::2]


def _medians(blocks: Sequence[Sequence[float]]) -> list[float]:
    """Return one median of each few blocks."""
    return [median(chain.from_iterable(blocks[n : n + PAIRS])) for n in range(0, len(blocks), PAIRS)]
