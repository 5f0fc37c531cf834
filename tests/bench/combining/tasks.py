"""The clients of one process as tasks: one event loop, one async store, the same mix as the threads have."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence

import psycopg

import metastore as ms
from metastore.aio.surface import AsyncStore
from tests.bench.contention.crew import Meet
from tests.bench.core.setting import COLUMNS
from tests.bench.peers.contender import WAITS
from tests.bench.peers.mix import Step
from tests.bench.peers.told import Told

__all__ = ["window_of_tasks"]


def window_of_tasks(url: str, plans: Sequence[Iterator[Step]], length: float, meet: Meet) -> list[Told]:
    """Let a task go through each plan for ``length`` seconds, from when all processes have met.

    The processor time is the whole process's, the round trips are those of its threads: both stand with the first task.
    """
    return asyncio.run(_all(url, plans, length, meet))


async def _all(url: str, plans: Sequence[Iterator[Step]], length: float, meet: Meet) -> list[Told]:
    store = await ms.open_async(url)
    try:
        for plan in plans[:4]:  # the statements are prepared, and the schemas known
            await _through(store, plan, 0.05, "warm")
        meet()
        used, waited = time.process_time(), WAITS.total()
        told = await asyncio.gather(*[_through(store, plan, length, f"c{n}") for n, plan in enumerate(plans)])
        first = next(iter(told[0].by_action.values()))
        first.cpu, first.waits = time.process_time() - used, WAITS.total() - waited
        return told
    finally:
        await store.close()


async def _through(store: AsyncStore, plan: Iterator[Step], length: float, key: str) -> Told:
    told, ends = Told(), time.monotonic() + length
    while (begun := time.monotonic()) < ends:
        step = next(plan)
        try:
            outcome = await _done(store, step, key, str(told.in_time))
        except (psycopg.IntegrityError, ms.MetastoreError) as error:
            outcome = "failed"
            told.errors[type(error).__name__] += not isinstance(error, ms.EntityNotFound | ms.EntityAlreadyExists)
        over = time.monotonic()
        told.by_action[step.action].seconds.append(over - begun)
        told.in_time += over <= ends
        told.outcomes[outcome] += 1
    return told


async def _done(store: AsyncStore, step: Step, key: str, value: str) -> str:
    tables = store.tables
    match step.action:
        case "load":
            await tables.load(step.path)
        case "alter":
            await tables.alter(step.path, ms.SetProperty(key, value), principal=key)
        case "create":
            await tables.create(step.path, columns=COLUMNS, principal=key)
        case "drop":
            return "applied" if await tables.drop(step.path, principal=key) else "nothing"
        case "rename":
            await tables.rename(step.path, step.to, principal=key)
    return "applied"
