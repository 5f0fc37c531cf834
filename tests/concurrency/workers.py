"""Processes that do jobs at the same time, each with a store of its own.

A job is a module-level function; its first argument is a :class:`Turn`, which has the open store.
The processes are started once and do one job after another. They are forked by a server that has imported the library
and nothing else: to import it in each takes half a second of processor time::

    results = team.run(url, [Job(add_properties, n) for n in range(8)])

``turn.meet()`` is a barrier of all jobs that are not over. A job with ``background=True`` goes on
while ``turn.go_on()`` is true: until all other jobs are over.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from typing import Any

import metastore as ms

__all__ = ["FORKSERVER", "Job", "Team", "Turn", "outcome"]

TIMEOUT = 90.0
FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(
    ["metastore", "metastore.backends.postgres.backend", "metastore.backends.sqlite.backend"]
)


class Turn:
    """What a job has: its store, and the others to meet."""

    def __init__(self, store: ms.Store, pipe: Connection, url: str) -> None:
        self.store, self.url = store, url
        self._pipe = pipe
        self._stopped = False

    def meet(self) -> None:
        """Wait until all jobs that are not over have come here."""
        self._pipe.send(("meet", None))
        while (word := self._pipe.recv()) != "go":
            self._stopped = self._stopped or word == "stop"

    def go_on(self) -> bool:
        """Tell whether others are still at work."""
        while not self._stopped and self._pipe.poll():
            self._stopped = self._pipe.recv() == "stop"
        return not self._stopped


def outcome(function: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """Call a function; return "ok", or the name of the error of ours that it raised."""
    try:
        function(*arguments, **options)
    except ms.MetastoreError as error:
        return type(error).__name__
    return "ok"


class Job:
    """A function, its arguments after the turn, and whether it only goes on while others do."""

    def __init__(self, function: Callable[..., Any], *arguments: Any, background: bool = False) -> None:
        self.function, self.arguments, self.background = function, arguments, background


@dataclass
class _Worker:
    process: ForkServerProcess
    pipe: Connection


class Team:
    """As many processes as the largest number of jobs so far."""

    def __init__(self) -> None:
        self._workers: list[_Worker] = []

    def run(self, url: str, jobs: Sequence[Job]) -> list[Any]:
        """Do all ``jobs`` at once; return their results in order. AssertionError if one of them failed."""
        while len(self._workers) < len(jobs):
            self._workers.append(_start())
        working = {worker.pipe: n for n, worker in enumerate(self._workers[: len(jobs)])}
        for pipe, n in working.items():
            pipe.send((url, jobs[n].function, jobs[n].arguments))
        try:
            return self._collect(working, jobs)
        except BaseException:
            self.close()
            raise

    def _collect(self, working: dict[Connection, int], jobs: Sequence[Job]) -> list[Any]:
        results: list[Any] = [None] * len(jobs)
        failures: list[str] = []
        waiting: set[Connection] = set()
        stopped = False
        ends = time.monotonic() + TIMEOUT
        while working:
            ready = wait(list(working), max(0.0, ends - time.monotonic()))
            assert ready, f"jobs that did not end within {TIMEOUT} s: {sorted(working.values())}"
            for pipe in ready:
                assert isinstance(pipe, Connection)
                word, value = pipe.recv()
                if word == "meet":
                    waiting.add(pipe)
                    continue
                n = working.pop(pipe)
                results[n] = value
                if word == "failed":
                    failures.append(f"job {n}, {jobs[n].function.__name__}:\n{value}")
            if not stopped and all(jobs[n].background for n in working.values()):
                stopped = True
                _tell(working, "stop")
            if waiting and waiting >= set(working):
                _tell(waiting, "go")
                waiting = set()
        assert not failures, "\n".join(failures)
        return results

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.process.kill()
            worker.process.join()
            worker.pipe.close()
        self._workers.clear()


def _tell(pipes: Any, word: str) -> None:
    for pipe in pipes:
        pipe.send(word)


def _start() -> _Worker:
    ours, theirs = FORKSERVER.Pipe()
    process = FORKSERVER.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _serve(pipe: Connection) -> None:
    """Do jobs until the parent is gone; words that came too late for a job are passed over."""
    parent = os.getppid()
    while os.getppid() == parent:
        try:
            order = pipe.recv()
        except EOFError:
            return
        if not isinstance(order, tuple):
            continue
        url, function, arguments = order
        try:
            with ms.open(url, principal=f"process-{os.getpid()}") as store:
                answer = ("done", function(Turn(store, pipe, url), *arguments))
        except BaseException:  # noqa: BLE001  (the parent raises it)
            answer = ("failed", traceback.format_exc())
        pipe.send(answer)
