"""What happens to the clients, to their connections and to the server."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from pathlib import Path

from tests.servers.postgres import PostgresServer
from tests.servers.proxy import PostgresProxy
from tests.soak.client import work

__all__ = ["Chaos"]

_SPAWN = multiprocessing.get_context("spawn")
_LONGEST_STOP = 3.0


class Chaos:
    """Keeps ``clients`` processes at work, and disturbs them."""

    def __init__(
        self,
        url: str,
        folder: Path,
        clients: int,
        dice: random.Random,
        server: PostgresServer | None,
        proxy: PostgresProxy | None,
    ) -> None:
        self._url, self._folder, self._dice = url, folder, dice
        self._server, self._proxy = server, proxy
        self._started = 0
        self._stopped: list[tuple[float, SpawnProcess]] = []
        self.late: set[str] = set()
        """Clients that were stopped, or met a server that was away: they are late through no fault of theirs."""
        self.done: Counter[str] = Counter()
        self._clients = [self._start() for _ in range(clients)]

    def _start(self) -> SpawnProcess:
        self._started += 1
        name = f"p{self._started}"
        through = self._proxy is not None and self._started % 2 == 0
        url = self._proxy.url_for(self._url) if through and self._proxy is not None else self._url
        process = _SPAWN.Process(target=work, args=(url, name, str(self._folder)), name=name, daemon=True)
        process.start()
        return process

    def step(self) -> None:
        """Do one thing; let those go on whose time is over."""
        now = time.monotonic()
        for until, process in self._stopped[:]:
            if until < now:
                self._stopped.remove((until, process))
                self._signal(process, signal.SIGCONT)
        actions: list[tuple[int, Callable[[], None]]] = [(4, self.kill), (4, self.stop)]
        actions += [(8, self.cut), (1, self.cut_all)] if self._proxy is not None else []
        actions += [(1, self.restart)] if self._server is not None else []
        weights = [weight for weight, _ in actions]
        ((_, action),) = self._dice.choices(actions, weights)
        action()
        self.done[action.__name__] += 1

    def kill(self) -> None:
        """SIGKILL; another client takes its place."""
        n = self._dice.randrange(len(self._clients))
        self._clients[n].kill()
        self._clients[n].join()
        self._stopped = [one for one in self._stopped if one[1] is not self._clients[n]]
        self._clients[n] = self._start()

    def stop(self) -> None:
        """SIGSTOP, and later SIGCONT."""
        process = self._dice.choice(self._clients)
        self.late.add(process.name)
        self._signal(process, signal.SIGSTOP)
        self._stopped.append((time.monotonic() + self._dice.uniform(0.0, _LONGEST_STOP), process))

    def cut(self) -> None:
        """Lose a message, half of it, or the answer to it."""
        assert self._proxy is not None
        how = (self._proxy.cut_before_send, self._proxy.cut_while_sending, self._proxy.cut_after_send)
        self._dice.choice(how)(lambda message: message[:1] in b"BEQS", nth=self._dice.randrange(1, 50))

    def cut_all(self) -> None:
        """Cut every connection of the proxy."""
        assert self._proxy is not None
        self._proxy.cut_all()

    def restart(self) -> None:
        """Crash the server, in one of three ways, and start it again."""
        assert self._server is not None
        how = self._dice.choice((self._server.kill, self._server.halt, self._immediate))
        how()
        self._server.start()

    def _immediate(self) -> None:
        assert self._server is not None
        self._server.halt(signal.SIGQUIT)

    def end(self, within: float) -> list[str]:
        """Let all end by themselves; return the names of those that did not."""
        for _, process in self._stopped:
            self._signal(process, signal.SIGCONT)
        (self._folder / "over").touch()
        ends = time.monotonic() + within
        for process in self._clients:
            process.join(max(0.0, ends - time.monotonic()))
        stuck = [process.name for process in self._clients if process.exitcode is None]
        broken = [f"{p.name} ended with {p.exitcode}" for p in self._clients if p.exitcode not in (None, 0)]
        for process in self._clients:
            process.kill()
        return [f"{name} did not end within {within} s" for name in stuck] + broken

    def _signal(self, process: SpawnProcess, number: signal.Signals) -> None:
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, number)
