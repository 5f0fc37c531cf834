"""One process through all windows of a crew: in each its threads are clients of one contender, until the time is over.

The threads of ours share one store; the threads of a peer have a connection each, as their authors write it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import metastore as ms
from tests.bench.combining.tasks import window_of_tasks
from tests.bench.contention.crew import Meet
from tests.bench.peers.contender import WAITS, Contender, count_waits
from tests.bench.peers.contenders import opened
from tests.bench.peers.mix import Lake, Step, steps
from tests.bench.peers.ours import Ours
from tests.bench.peers.process_tree import Forest
from tests.bench.peers.told import Told
from tests.bench.peers.window import ROUNDS, WARM, _tried, warm

__all__ = ["ASYNC", "BEFORE", "OURS", "Arrangement", "Cell", "windows"]

OURS, BEFORE, ASYNC = "ours", "before", "async"
"""Ours, ours without its combiner, and ours with a task instead of each thread."""


@dataclass(frozen=True)
class Arrangement:
    """So many processes with so many threads each, and what they do."""

    name: str
    processes: int
    threads: int
    hot: bool = False
    """All of them load and alter one table."""

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return self.processes * self.threads


@dataclass(frozen=True)
class Cell:
    """One window: whose it is, in which arrangement, on which database."""

    contender: str
    arrangement: Arrangement
    url: str
    number: int
    turn: int
    length: float
    """In seconds."""
    port: int | None = None
    """Of the contender's lock service."""


class _Shared(Ours):
    """A client that shares its process's store."""

    def __init__(self, store: ms.Store, principal: str) -> None:
        self.principal = principal
        self.lost = []
        self._store = store
        self._tables = store.tables

    def close(self) -> None:
        """Do nothing: the process closes the store."""


def windows(meet: Meet, cells: Sequence[Cell], lake: Lake, process: int) -> list[list[Told]]:
    """Measure the cells one after the other, each from when all have met; return what each client was told."""
    count_waits()
    told = []
    for cell in cells:
        mine = range(process, cell.arrangement.clients, cell.arrangement.processes)
        if cell.contender == ASYNC:
            plans = [_plan(cell, lake, number) for number in mine]
            told.append(window_of_tasks(cell.url, plans, cell.length, meet))
            meet()
            continue
        shared = _store(cell) if cell.contender in (OURS, BEFORE) else None
        forest = Forest()
        ready = threading.Barrier(len(mine) + 1)
        with ThreadPoolExecutor(len(mine)) as pool:
            running = [pool.submit(_client, cell, lake, number, shared, forest, ready) for number in mine]
            ready.wait()
            meet()
            ready.wait()
            told.append([each.result() for each in running])
        if shared is not None:
            shared.close()
        meet()
    return told


def _store(cell: Cell) -> ms.Store:
    store = ms.open(cell.url)
    if cell.contender == BEFORE:
        store._session.combiner = None
    return store


def _client(
    cell: Cell, lake: Lake, number: int, shared: ms.Store | None, forest: Forest, ready: threading.Barrier
) -> Told:
    label = f"c{number}w{cell.number}"
    try:
        contender: Contender
        if shared is not None:
            contender = _Shared(shared, label)
        else:
            contender = opened(cell.contender, cell.url, label, cell.port, forest)
        warm(contender, f"{WARM}.{label}", ROUNDS["ours"] if shared is not None else 1)
        plan = _plan(cell, lake, number)
        ready.wait()
    except BaseException:
        ready.abort()
        raise
    try:
        ready.wait()
        return _through(contender, plan, cell.length, f"c{number}")
    finally:
        contender.close()


def _plan(cell: Cell, lake: Lake, number: int) -> Iterator[Step]:
    return _hot(lake) if cell.arrangement.hot else steps(lake, f"c{number}w{cell.number}", 1000 * cell.turn + number)


def _hot(lake: Lake) -> Iterator[Step]:
    """Yield loads and alters of one table, in turns."""
    while True:
        yield Step("alter", lake.path(0))
        yield Step("load", lake.path(0))


def _through(contender: Contender, plan: Iterator[Step], length: float, key: str) -> Told:
    """Go on until the window is over."""
    told, me = Told(), threading.get_ident()
    now: Callable[[], float] = time.monotonic
    ends = now() + length
    while now() < ends:
        step = next(plan)
        before, used, begun = WAITS[me], time.thread_time(), now()
        did, error = _tried(contender, step, key, str(told.in_time))
        over = now()
        spent = told.by_action[step.action]
        spent.seconds.append(over - begun)
        spent.cpu += time.thread_time() - used
        spent.waits += WAITS[me] - before
        told.in_time += over <= ends
        told.outcomes[did.outcome] += 1
        if error is not None:
            told.errors[type(error).__name__] += 1
    return told
