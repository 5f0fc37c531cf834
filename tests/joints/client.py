"""A process of clients: ``python -m tests.joints.client CONFIG``. Its threads, or its tasks, share one store.

The main thread is a client too: signals interrupt it. It may fork; the child's client goes on with the inherited store.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import metastore as ms
from tests.joints.journal import Journal
from tests.joints.lane import Lane

__all__ = ["Crew"]


@dataclass(frozen=True)
class Crew:
    """What one process is. ``name`` is new in each run, also for one that takes the place of a killed one."""

    name: str
    folder: str
    url: str
    how: str
    """``threads`` or ``tasks``."""
    roles: tuple[str, ...]
    """One for each client; the first one's thread is the main thread."""
    cache: tuple[str, float] | None = None
    """Mode and time to live."""
    pool: int = 3
    interrupts: float = 0.0
    """The share of calls that are interrupted: of the main thread's, or of all tasks'."""
    forks: float = 0.0
    """Seconds between two forks; 0: none."""
    seed: int = 0

    @property
    def clients(self) -> list[str]:
        """The names of its clients, without forked ones."""
        return [f"{self.name}-{n}" for n in range(len(self.roles))]

    def as_json(self) -> str:
        return json.dumps(asdict(self))


class _Process:
    def __init__(self, crew: Crew) -> None:
        self._crew, self._folder = crew, Path(crew.folder)
        self._parent = os.getppid()
        self._journals = [Journal(self._folder, name, how=crew.how, process=crew.name) for name in crew.clients]
        self._over_file = self._folder / "over"
        self._looked = 0.0
        self._is_over = False

    def over(self) -> bool:
        """Whether the run is over, or was ended; looked up a few times a second."""
        now = time.monotonic()
        if now > self._looked + 0.1 and not self._is_over:
            self._looked = now
            self._is_over = self._over_file.exists() or os.getppid() != self._parent
        return self._is_over

    def _lane(self, n: int) -> Lane:
        crew = self._crew
        interrupts = crew.interrupts if n == 0 or crew.how == "tasks" else 0.0
        return Lane(self._journals[n], crew.roles[n], f"{crew.seed} {crew.clients[n]}", interrupts, self.over)

    def _options(self) -> dict[str, Any]:
        cache = None if self._crew.cache is None else ms.Cache(self._crew.cache[0], ttl=self._crew.cache[1])  # type: ignore[arg-type]
        return {"deadline": 5.0, "pool_size": self._crew.pool, "cache": cache}

    def run(self) -> None:
        if self._crew.how == "tasks":
            asyncio.run(self._tasks())
        else:
            self._threads()

    def _threads(self) -> None:
        store = self._opened()
        if store is None:
            return
        with store:
            lanes = [self._lane(n) for n in range(len(self._crew.roles))]
            threads = [threading.Thread(target=self._guarded, args=(lane, store)) for lane in lanes[1:]]
            for thread in threads:
                thread.start()
            self._guarded(lanes[0], store)
            for thread in threads:
                thread.join()

    def _opened(self) -> ms.Store | None:
        while not self.over():
            try:
                return ms.open(self._crew.url, **self._options())
            except ms.BackendUnavailable:
                time.sleep(0.05)
        for journal in self._journals:
            journal.done()
        return None

    def _guarded(self, lane: Lane, store: ms.Store) -> None:
        try:
            lane.run(store)
        except BaseException:  # noqa: BLE001  (the others go on, and the verdict is unsure)
            self._died()

    async def _tasks(self) -> None:
        while True:
            try:
                store = await ms.open_async(self._crew.url, **self._options())
                break
            except ms.BackendUnavailable:
                await asyncio.sleep(0.05)
        async with store:
            lanes = [self._lane(n) for n in range(len(self._crew.roles))]
            answers = await asyncio.gather(*[lane.run_async(store) for lane in lanes], return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                traceback.print_exception(answer)
                self._died()

    def _died(self) -> None:
        """Write down an error of the run itself: the verdict is then unsure."""
        with (self._folder / "died").open("a") as file:
            file.write(f"{self._crew.name}: {traceback.format_exc()}\n")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(config: str) -> None:
    """Run one process, until the run is over."""
    signal.signal(signal.SIGALRM, _interrupt)
    values = json.loads(config)
    values["roles"] = tuple(values["roles"])
    values["cache"] = values["cache"] and tuple(values["cache"])
    _Process(Crew(**values)).run()


if __name__ == "__main__":
    main(sys.argv[1])
