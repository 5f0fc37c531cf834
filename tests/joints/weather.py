"""The faults that hit the clients of a run, their connections and the server; the record has each with its time."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

import psutil
import psycopg

from tests.joints.crews import Crews
from tests.joints.sessions import STRANGER, Sessions
from tests.load.disturbing import cut
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import PostgresProxy

__all__ = ["POSTGRES_ONLY", "Weather"]

POSTGRES_ONLY: Final = frozenset({"busy", "cut", "restart", "silence"})
"""What SQLite does not know."""
_STOPS: Final = (0.05, 1.5)
"""How long a process is stopped (seconds)."""
_DRAG: Final = 8.0
"""How long a member runs in slow motion: it stands still, and moves, and so on."""
_STILL, _MOVES = 1.2, 0.03
_LOOKS: Final = 0.1
"""How often the sessions of the server are looked at (seconds)."""
_BUSY: Final = 0.3
"""How long a row is kept locked by somebody else."""
_LOCKS: Final = (
    "SELECT 1 FROM entity WHERE id IN (SELECT id FROM guard WHERE kind = 'table') ORDER BY random() LIMIT 1 FOR UPDATE",
    "SELECT 1 FROM guard WHERE kind = 'schema' ORDER BY random() LIMIT 1 FOR UPDATE",
)


class Weather:
    """Disturbs a run; :attr:`done` counts how."""

    def __init__(
        self, folder: Path, dice: Random, crews: Crews, server: PostgresServer | None, proxy: PostgresProxy | None
    ) -> None:
        self._path = folder / "weather.jsonl"
        self._path.touch()
        self._dice, self._crews, self._server, self._proxy = dice, crews, server, proxy
        self._stopped: dict[str, tuple[float, int]] = {}
        self._deck: list[str] = []
        self._helpers: list[threading.Thread] = []
        self.sessions = None if server is None else Sessions(server.dsn())
        self.done: Counter[str] = Counter()
        self.largest = 0
        """The most memory that one process of the server had for itself (bytes)."""

    def note(self, what: str, **about: Any) -> None:
        """Write down what is done, and when."""
        with self._path.open("a") as file:
            file.write(json.dumps({"what": what, "at": time.monotonic_ns(), **about}) + "\n")
        self.done[what] += 1

    def step(self, faults: Mapping[str, int]) -> None:
        """Do the next of the faults, each as often as it says; let stopped processes go on whose time is over."""
        self.resume(time.monotonic())
        if faults:
            self._deck = [one for one in self._deck if one in faults] or self._shuffled(faults)
            act: Callable[[], None] = getattr(self, f"_{self._deck.pop()}")
            act()

    def _shuffled(self, faults: Mapping[str, int]) -> list[str]:
        """Return a deck of cards with each fault at the top once: a short run has all of them."""
        rest = [what for what, often in faults.items() for _ in range(often - 1)]
        first = list(faults)
        self._dice.shuffle(rest)
        self._dice.shuffle(first)
        return [*rest, *first]

    def resume(self, now: float) -> None:
        """Let the processes go on whose time is over."""
        for name, (until, began) in list(self._stopped.items()):
            if until <= now:
                del self._stopped[name]
                self._crews.resume(name)
                self.note("stop", process=name, since=began)

    def clear(self) -> None:
        """End all of it: the run has a calm end."""
        self.resume(float("inf"))
        for helper in self._helpers:
            helper.join()
        if self._proxy is not None:
            self._proxy.reset()
        self.measure()
        if self.sessions is not None:
            self.sessions.close()

    def pass_by(self, until: float) -> None:
        """Let time pass until an instant, and look at the sessions of the server meanwhile."""
        while (left := until - time.monotonic()) > 0:
            if self.sessions is not None:
                self.sessions.look()
            time.sleep(min(_LOOKS, left))

    def measure(self) -> None:
        """Note how much memory the largest process of the server has for itself."""
        if self._server is not None and self._proxy is not None:
            for process in psutil.Process(self._server.pid).children():
                try:
                    self.largest = max(self.largest, process.memory_full_info().uss)
                except psutil.Error:
                    continue  # it has ended

    # --- processes

    def _kill(self) -> None:
        name = self._dice.choice(self._crews.names)
        self._stopped.pop(name, None)
        self.note("kill", process=name)
        self._crews.replace(name)

    def _stop(self) -> None:
        self._stop_for(self._dice.choice(self._crews.names), self._dice.uniform(*_STOPS))

    def _drag(self) -> None:
        """Let a member of the lease cache run in slow motion for a while: it is slow, and lives."""
        if not any(helper.is_alive() for helper in self._helpers):
            self._help(self._slow_motion, self._crews.named("lease")[0])

    def _slow_motion(self, name: str) -> None:
        began, ends = time.monotonic_ns(), time.monotonic() + _DRAG
        while time.monotonic() < ends:
            self._crews.stop(name)
            time.sleep(_STILL)
            self._crews.resume(name)
            time.sleep(_MOVES)
        self.note("drag", process=name, since=began)

    def _help(self, work: Callable[[str], None], about: str) -> None:
        helper = threading.Thread(target=work, args=(about,))
        helper.start()
        self._helpers.append(helper)

    def _stop_for(self, name: str, seconds: float) -> None:
        if name not in self._stopped:
            began = time.monotonic_ns()
            self._crews.stop(name)
            self._stopped[name] = time.monotonic() + seconds, began

    # --- the network and the server

    def _cut(self) -> None:
        assert self._proxy is not None
        self.note("cut", how=cut(self._proxy, self._dice))

    def _silence(self) -> None:
        """Let a connection fall silent after the server got a part of what a client sends."""
        assert self._proxy is not None
        self._proxy.silence_between_sends()
        self.note("silence")

    def _restart(self) -> None:
        assert self._server is not None
        began = time.monotonic_ns()
        self._dice.choice((self._server.kill, self._server.halt))()
        self._server.start()
        self.note("restart", since=began)

    def _busy(self) -> None:
        """Lock a row for a moment, as a program that is not of this library would."""
        assert self._server is not None
        self.note("busy")
        self._help(self._hold, self._crews.url)

    def _hold(self, url: str) -> None:
        try:
            with psycopg.connect(url.replace("+psycopg", ""), application_name=STRANGER) as connection:
                connection.execute(self._dice.choice(_LOCKS))
                time.sleep(_BUSY)
        except psycopg.Error:
            pass  # the server was restarted
