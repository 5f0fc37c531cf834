"""Thousands of tasks that wait for one store: calls per second, what a call costs, and how late calls end.

Each task alters and loads tables in turns. A window begins when the tasks have made a call each, on average. A call is
late if it ends after its deadline. In the figures ``hurried_…`` the deadline is so short that many calls give up while
they wait.

Python's garbage collector looks at all that wait each time, so it takes more of a call when more wait. ``collector_us``
is its share. In the figures ``seldom_…`` it runs as seldom as docs/async.md recommends.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

import metastore as ms
from metastore.aio.surface import AsyncStore
from tests.bench.core.setting import CATALOG, COLUMNS, Setting, new_lake
from tests.bench.figures import Bar, Figures, reported
from tests.bench.timing import ratios

SCHEMA = f"{CATALOG}.s"
TABLES = 256
FEW, MANY = 500, (2_000, 10_000)
ARRANGEMENTS = {"tasks": 60.0, "seldom": 60.0, "hurried": 3.0}
"""The arrangements, and the deadline of each call (seconds)."""
SELDOM = (20_000, 20, 20)
"""The collector's thresholds where it runs seldom."""


FIGURES = ("per_s", "client_us", "collector_us", "gave_up")


def bars() -> dict[str, Bar]:
    """Return every figure and its bar."""
    every = (FEW, *MANY)
    return {
        **{f"{name}_{n}_vs_{FEW}": Bar(">=", 0.8) for name in ("tasks", "seldom") for n in MANY},
        **{f"{name}_{n}_late_s": Bar("<=", 1.0) for name in ARRANGEMENTS for n in every},
        **{f"{name}_{n}_{what}": reported for name in ARRANGEMENTS for n in every for what in FIGURES},
        "load_of_the_machine": reported,
    }


class Window:
    """What the tasks of one window met."""

    def __init__(self, tasks: int, deadline: float) -> None:
        self.tasks, self.deadline = tasks, deadline
        self.done = self.gave_up = 0
        self.late_s = self.per_s = self.client_us = self.collector_us = 0.0
        self.over = False

    async def measure(self, length: float) -> None:
        """Wait until the tasks have made a call each, on average; then count for so many seconds."""
        while self.done + self.gave_up < self.tasks:
            await asyncio.sleep(0.01)
        done, ended = self.done, self.done + self.gave_up
        used, begun = time.process_time(), time.monotonic()
        with _collector() as collecting:
            await asyncio.sleep(length)
        ended = max(1, self.done + self.gave_up - ended)
        self.per_s = (self.done - done) / (time.monotonic() - begun)
        self.client_us = 1e6 * (time.process_time() - used) / ended
        self.collector_us = 1e6 * sum(collecting) / ended
        self.over = True

    async def through(self, store: AsyncStore, number: int) -> None:
        """Alter and load one table in turns, until the window is over."""
        path, step = f"{SCHEMA}.t{number % TABLES}", number
        while not self.over:
            begun, step = time.monotonic(), step + 1
            try:
                if step % 2:
                    await store.tables.alter(path, ms.SetProperty("k", str(step)))
                else:
                    await store.tables.load(path)
                self.done += 1
            except (ms.DeadlineExceeded, ms.OutcomeUnknown, ms.PoolExhausted):
                # PoolExhausted: the store's thread of hints had a connection until the deadline
                self.gave_up += 1
            self.late_s = max(self.late_s, time.monotonic() - begun - self.deadline)


@contextmanager
def _collector() -> Iterator[list[float]]:
    """Give the list of how long the garbage collector worked each time, in processor seconds."""
    seconds, begun = list[float](), 0.0

    def note(phase: str, _: Any) -> None:
        nonlocal begun
        if phase == "start":
            begun = time.thread_time()
        else:
            seconds.append(time.thread_time() - begun)

    gc.callbacks.append(note)
    try:
        yield seconds
    finally:
        gc.callbacks.remove(note)


async def _measured(url: str, window: Window, length: float) -> Window:
    async with await ms.open_async(url, principal="bench") as store:
        await asyncio.gather(*[store.tables.alter(f"{SCHEMA}.t{n}", ms.SetProperty("k", "")) for n in range(TABLES)])
        bound = store.bind(deadline=window.deadline)
        await asyncio.gather(window.measure(length), *[window.through(bound, n) for n in range(window.tasks)])
    return window


def main() -> int:
    """Measure, and show the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.combining.many_tasks", description=__doc__)
    parser.add_argument("--length", type=float, default=6.0, metavar="SECONDS", help="how long a window is (6)")
    parser.add_argument("--turns", type=int, default=3, metavar="N", help="how often each window is repeated (3)")
    arguments = parser.parse_args()
    setting = Setting(Figures("many_tasks", bars()), Console(width=None if sys.stdout.isatty() else 160), quick=False)
    found, often = defaultdict[str, list[float]](list), gc.get_threshold()
    with setting.closing:
        url = new_lake(setting.nosync, "s")
        with ms.open(url) as store:
            store.tables.create_many(SCHEMA, [{"name": f"t{n}", "columns": COLUMNS} for n in range(TABLES)])
        for _ in range(arguments.turns):
            for n in (FEW, *MANY):
                for name, deadline in ARRANGEMENTS.items():
                    gc.set_threshold(*(SELDOM if name == "seldom" else often))
                    window = asyncio.run(_measured(url, Window(n, deadline), arguments.length))
                    figures = {what: getattr(window, what) for what in ("late_s", *FIGURES)}
                    for what, value in figures.items():
                        found[f"{name}_{n}_{what}"].append(value)
                    told = ", ".join(f"{what} {value:,.2f}" for what, value in figures.items())
                    setting.console.print(f"{name}, {n}: {told}", highlight=False)
    for name in ("tasks", "seldom"):
        for n in MANY:
            many, few = found[f"{name}_{n}_per_s"], found[f"{name}_{FEW}_per_s"]
            found[f"{name}_{n}_vs_{FEW}"] = ratios(many, few)
    found["load_of_the_machine"] = [os.getloadavg()[0]]
    for name, values in found.items():
        setting.figures.record(name, values)
    setting.figures.show(setting.console)
    setting.console.print(setting.figures.write(keep=False), highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
