"""Cancel a task at its n-th wait: before what it waits for was answered, or after that and before it hears of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from metastore.aio import core as coring
from metastore.aio import threads as threading_of
from metastore.aio.core import Core
from metastore.aio.threads import Job

__all__ = ["Cut", "cutting"]


class Cut:
    """Where one task is cancelled."""

    def __init__(self, at: int, *, late: bool) -> None:
        self.at, self.late = at, late
        self.task: asyncio.Task[Any] | None = None
        self.waits = 0
        self.done = False

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        self.task = asyncio.get_running_loop().create_task(coroutine)
        return self.task

    def reached(self, core: Core, waits_for: object) -> None:
        if core.task is not self.task or self.task is None:
            return
        self.waits += 1
        if self.waits != self.at:
            return
        job = _jobs.get(id(waits_for))
        if self.late and job is not None:
            assert job[1].wait(20)  # the loop stands still: the answer is there, and is not heard
        self.done = self.task.cancel()


_jobs: dict[int, tuple[Job, threading.Event]] = {}


@contextmanager
def cutting(cut: Cut) -> Iterator[None]:
    """Let ``cut`` see each wait of its task."""
    wait, init, tell = Core.wait, Job.__init__, Job._tell

    def noted(job: Job, call: Any) -> None:
        init(job, call)
        _jobs[id(job.done)] = (job, threading.Event())
        job._told = _jobs[id(job.done)][1]  # type: ignore[attr-defined]

    def told(job: Job) -> None:
        job._told.set()  # type: ignore[attr-defined]
        tell(job)

    def counted(core: Core, awaitable: Any) -> Any:
        cut.reached(core, awaitable)
        return wait(core, awaitable)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coring.Core, "wait", counted)
        patch.setattr(threading_of.Job, "__init__", noted)
        patch.setattr(threading_of.Job, "_tell", told)
        yield
    _jobs.clear()
