"""What is done to the clients of a run, to their connections and to the server; each with its time, in the record."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.joints.crews import Crews
from tests.load.disturbing import cut
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import PostgresProxy

__all__ = ["Weather"]

_LONGEST_STOP = 1.5


class Weather:
    """Disturbs a run; :attr:`done` counts how."""

    def __init__(
        self, folder: Path, dice: Random, crews: Crews, server: PostgresServer | None, proxy: PostgresProxy | None
    ) -> None:
        self._file = (folder / "weather.jsonl").open("a", buffering=1)
        self._dice, self._crews, self._server, self._proxy = dice, crews, server, proxy
        self._stopped: list[tuple[float, str, int]] = []
        self.done: Counter[str] = Counter()

    def note(self, what: str, **about: Any) -> None:
        """Write down what is done, and when."""
        self._file.write(json.dumps({"what": what, "at": time.monotonic_ns(), **about}) + "\n")
        self.done[what] += 1

    def step(self, faults: dict[str, int]) -> None:
        """Do one of the faults; let the stopped processes go on whose time is over."""
        self.resume(time.monotonic())
        what = self._dice.choices(list(faults), list(faults.values()))[0]
        act: Callable[[], None] = getattr(self, f"_{what}")
        act()

    def resume(self, now: float) -> None:
        """Let the processes go on whose time is over."""
        for until, name, began in self._stopped[:]:
            if until <= now:
                self._stopped.remove((until, name, began))
                self._crews.resume(name)
                self.note("stopped", process=name, since=began)

    def clear(self) -> None:
        """End all of it: the run has a calm end."""
        self.resume(float("inf"))
        if self._proxy is not None:
            self._proxy.reset()
        self.note("calm")

    def _kill(self) -> None:
        name = self._dice.choice(self._crews.names)
        self.note("kill", process=name)
        self._stopped = [one for one in self._stopped if one[1] != name]
        self._crews.replace(name)

    def _stop(self) -> None:
        name = self._dice.choice(self._crews.names)
        if name not in [one for _, one, _ in self._stopped]:
            began, now = time.monotonic_ns(), time.monotonic()
            self._crews.stop(name)
            self._stopped.append((now + self._dice.uniform(0.05, _LONGEST_STOP), name, began))

    def _cut(self) -> None:
        if self._proxy is not None:
            self.note("cut", how=cut(self._proxy, self._dice))

    def _restart(self) -> None:
        if self._server is not None:
            began = time.monotonic_ns()
            self._dice.choice((self._server.kill, self._server.halt))()
            self._server.start()
            self.note("restart", since=began)
