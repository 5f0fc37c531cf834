"""Processes that start together: real ones, ready before the barrier opens."""

from __future__ import annotations

import multiprocessing
import queue
import threading
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from typing import Any

__all__ = ["Meet", "Task", "together"]

PATIENCE = 120.0
"""Seconds that all are given to be ready, and to say what they found after the window."""

Meet = Callable[[], object]
Task = tuple[Callable[..., Any], tuple[Any, ...]]
"""A module-level function and its arguments after the first, which is a :data:`Meet` to call once when ready."""

_Answer = tuple[int, Any, str]


def together(tasks: Sequence[Task], seconds: float) -> list[Any]:
    """Run each task in a process of its own; return what they return. ``seconds``: how long the window is."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(sorted({function.__module__ for function, _ in tasks}))
    barrier, answers = context.Barrier(len(tasks)), context.Queue()
    workers = [
        context.Process(target=_work, args=(number, task, barrier, answers), daemon=True)
        for number, task in enumerate(tasks)
    ]
    for worker in workers:
        worker.start()
    found: dict[int, Any] = {}
    try:
        while len(found) < len(tasks):
            number, value, error = answers.get(timeout=seconds + 2 * PATIENCE)
            if error:
                raise RuntimeError(f"process {number} failed:\n{error}")
            found[number] = value
    except queue.Empty:
        raise RuntimeError(f"of {len(tasks)} processes only {len(found)} answered") from None
    finally:
        for worker in workers:
            if len(found) < len(tasks):
                worker.kill()
            worker.join()
    return [found[number] for number in range(len(tasks))]


def _work(number: int, task: Task, barrier: Barrier, answers: Queue[_Answer]) -> None:
    function, arguments = task
    try:
        answers.put((number, function(lambda: barrier.wait(PATIENCE), *arguments), ""))
    except threading.BrokenBarrierError:
        pass  # the one that broke it says why
    except BaseException:  # noqa: BLE001  (the parent raises it)
        answers.put((number, None, traceback.format_exc()))
        barrier.abort()
