"""What is done to a load test while it runs: to its clients, to their connections, and to the server."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.progress.replica import Replica
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import PostgresProxy

__all__ = ["Disturbance", "clients", "cut", "failed_over", "killed", "restarted", "stopped"]

_LONGEST_STOP = 2.0


def clients(folder: Path) -> list[psutil.Process]:
    """Return the processes that are clients of the run in ``folder``: they hold their logs open."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            held = [Path(file.path) for file in process.open_files()]
        except psutil.Error:
            continue
        if any(path.suffix == ".jsonl" and folder in path.parents for path in held):
            found.append(process)
    return found


class Disturbance:
    """Does something again and again in a thread of its own, from when the clients work until the time is over."""

    def __init__(self, folder: Path, action: Callable[[], object], every: float, seconds: float) -> None:
        self._folder, self._action, self._every, self._seconds = folder, action, every, seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="disturbance", daemon=True)
        self.done: Counter[str] = Counter()
        self.error: BaseException | None = None

    def _run(self) -> None:
        try:
            while not (self._folder / "meeting" / "start").exists():
                if self._over.wait(0.05):
                    return
            ends = time.monotonic() + self._seconds
            while time.monotonic() < ends and not self._over.wait(self._every):
                self.done[str(self._action())] += 1
            self._over.wait()  # a server that this thread has started ends with it
        except BaseException as error:
            self.error = error
            raise

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Disturb while the block runs."""
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join(60)
        assert self.error is None, self.error


def killed(folder: Path, dice: random.Random) -> str:
    """SIGKILL a client; Spark runs its task again."""
    there = clients(folder)
    if not there:
        return "nobody there"
    dice.choice(there).kill()
    return "killed"


def stopped(folder: Path, dice: random.Random) -> str:
    """SIGSTOP a client for a while: it may hold locks, and all its deadlines pass."""
    there = clients(folder)
    if not there:
        return "nobody there"
    process = dice.choice(there)
    process.suspend()
    threading.Event().wait(dice.uniform(0.1, _LONGEST_STOP))
    try:
        os.kill(process.pid, signal.SIGCONT)
    except ProcessLookupError:
        return "gone"
    return "stopped"


def cut(proxy: PostgresProxy, dice: random.Random) -> str:
    """Lose a message, half of one, or the answer to it; or all connections."""
    how = [proxy.cut_before_send, proxy.cut_while_sending, proxy.cut_after_send]
    if dice.random() < 0.1:
        proxy.cut_all()
        return "cut all"
    chosen = dice.choice(how)
    chosen(lambda message: message[:1] in b"BEQS", nth=dice.randrange(1, 30))
    return chosen.__name__


def restarted(server: PostgresServer, dice: random.Random) -> str:
    """Crash the server, and start it again."""
    how: Callable[[], None] = dice.choice([server.kill, server.halt])
    how()
    server.start()
    return f"restarted after {how.__name__}"


def failed_over(leader: PostgresServer, replica: Replica) -> str:
    """The primary dies, once; the replica takes its place."""
    if replica.promoted:
        return "promoted before"
    leader.kill()
    replica.promote()
    return "failed over"
