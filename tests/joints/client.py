"""A process of clients: ``python -m tests.joints.client CREW``. Its threads, or its tasks, share one store.

The main thread is a client too, which signals interrupt. It forks now and then: the child's client continues with the
inherited store, and the child ends as a worker of :mod:`multiprocessing` does.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import metastore as ms
from tests.joints.crew import Crew
from tests.joints.journal import Journal, opened
from tests.joints.lane import Lane
from tests.joints.sessions import forgotten
from tests.joints.starved import note

_FORK: Final = multiprocessing.get_context("fork")
_LIVES: Final = 1.0
"""How long a forked child makes calls (seconds)."""
_ENDS: Final = 30.0
"""Within how many seconds it ends."""

_ASKED: Final = 0.5
"""How long it has to say where it hangs."""


class _Process:
    def __init__(self, crew: Crew) -> None:
        self._crew, self._folder, self._parent = crew, Path(crew.folder), os.getppid()
        note(self._folder, crew.name)
        file = opened(self._folder, crew.name)
        self._journals = [Journal(file, name) for name in crew.clients]
        self._looked, self._is_over = 0.0, False
        self._forks, self._next_fork = 0, time.monotonic() + crew.forks

    def over(self) -> bool:
        """Whether the run is over, or was ended; looked up a few times a second."""
        now = time.monotonic()
        if now > self._looked + 0.1 and not self._is_over:
            self._looked = now
            self._is_over = (self._folder / "over").exists() or os.getppid() != self._parent
        return self._is_over

    def run(self) -> None:
        """Let all clients make their calls."""
        if self._crew.how == "tasks":
            # each line of the journal lets other threads run; by default that may cost the loop 5 ms, in each call
            sys.setswitchinterval(0.0002)
            asyncio.run(self._tasks())
        else:
            self._threads()

    def _lanes(self) -> list[Lane]:
        crew = self._crew
        return [
            Lane(journal, role, f"{crew.seed} {journal.client}", crew.interrupts if n < crew.interrupted else 0.0)
            for n, (journal, role) in enumerate(zip(self._journals, crew.roles, strict=True))
        ]

    def _options(self) -> dict[str, Any]:
        mode, ttl = self._crew.cache or ("", 0.0)
        cache = ms.Cache("lease" if mode == "lease" else "validate", ttl=ttl) if mode else None
        return {"deadline": 5.0, "pool_size": self._crew.pool, "cache": cache}

    # --- threads

    def _threads(self) -> None:
        store = self._opened()
        with store:
            lanes = self._lanes()
            threads = [threading.Thread(target=self._guarded, args=(lane, store)) for lane in lanes[1:]]
            for thread in threads:
                thread.start()
            self._guarded(lanes[0], store, self._fork if self._crew.forks else None)
            for thread in threads:
                thread.join()
            self._wrong(forgotten(store))

    def _opened(self) -> ms.Store:
        while True:
            try:
                return ms.open(self._crew.url, **self._options())
            except ms.BackendUnavailable:
                time.sleep(0.05)

    def _guarded(self, lane: Lane, store: ms.Store, between: Callable[[ms.Store], None] | None = None) -> None:
        try:
            lane.run(store, self.over, between)
        except BaseException as error:  # noqa: BLE001  (the others go on, and the verdict is unsure)
            self._died(error)

    def _fork(self, store: ms.Store) -> None:
        if time.monotonic() < self._next_fork:
            return
        self._forks += 1
        crew = self._crew.forked(self._forks)
        with (self._folder / "started.jsonl").open("a") as file:
            file.write(json.dumps({**crew.as_started(), "parent": self._crew.name}) + "\n")
        child = _FORK.Process(target=_forked, args=(crew, store))
        child.start()
        child.join(_ENDS)
        if child.exitcode != 0:
            self._wrong([f"the forked process {crew.name} ended with {child.exitcode} after at most {_ENDS:.0f} s"])
            if child.pid is not None and child.exitcode is None:
                os.kill(child.pid, signal.SIGUSR1)  # it writes where it is
                time.sleep(_ASKED)
            child.kill()
        self._next_fork = time.monotonic() + self._crew.forks

    # --- tasks

    async def _tasks(self) -> None:
        store = await self._opened_async()
        async with store:
            answers = await asyncio.gather(
                *[lane.run_async(store, self.over) for lane in self._lanes()], return_exceptions=True
            )
            self._wrong(forgotten(store))
        for answer in answers:
            if isinstance(answer, BaseException):
                self._died(answer)

    async def _opened_async(self) -> Any:
        while True:
            try:
                return await ms.open_async(self._crew.url, **self._options())
            except ms.BackendUnavailable:
                await asyncio.sleep(0.05)

    def _wrong(self, found: Iterable[str]) -> None:
        """Write down what is a contradiction by itself."""
        for line in found:
            with (self._folder / "wrong").open("a") as file:
                file.write(f"{self._crew.name}: {line}\n")

    def _died(self, error: BaseException) -> None:
        """Write down an error of the run itself: the verdict is then unsure."""
        with (self._folder / "died").open("a") as file:
            file.write(f"{self._crew.name}: {''.join(traceback.format_exception(error))}\n")


def _forked(crew: Crew, store: ms.Store) -> None:
    """Be a forked child: make calls for a moment."""
    ends = time.monotonic() + _LIVES
    journal = Journal(opened(Path(crew.folder), crew.name), crew.clients[0])
    Lane(journal, crew.roles[0], crew.name, 0.0).run(store, lambda: time.monotonic() > ends)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _warm_logging() -> None:
    """Let logging remember which levels are on: an interrupt in its first look would keep its lock for ever."""
    for name in [*logging.root.manager.loggerDict, None]:
        for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
            logging.getLogger(name).isEnabledFor(level)


if __name__ == "__main__":
    _warm_logging()
    faulthandler.register(signal.SIGUSR1)  # the run asks a process that does not end where it is
    signal.signal(signal.SIGALRM, _interrupt)
    _Process(Crew.of(sys.argv[1])).run()
