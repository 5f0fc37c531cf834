"""Programs in the background that never outlive the tests.

A :class:`Background` program ends with :meth:`Background.stop`, with the interpreter (atexit),
and, on Linux, when the interpreter is killed: the kernel signals it when the *thread* that
started it ends, so start servers from the main thread. Its folder in the temporary directory is
removed too; what a killed test run left is swept by the next one (a folder whose lock nobody
holds).
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import psutil

__all__ = [
    "MEMORY",
    "STOP_TIMEOUT",
    "Background",
    "free_port",
    "has_room",
    "reachable_by_others",
    "server_user",
    "wait_until",
]

LAUNCHER = Path(__file__).with_name("launch.py")
PREFIX = "metastore-test-"
MEMORY = Path("/dev/shm")
_ROOM = 8 << 30
START_TIMEOUT = 30.0
STOP_TIMEOUT = 15.0


def free_port() -> int:
    """Find a TCP port on 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def server_user() -> str | None:
    """Name the user that servers run as: "nobody" when we are root (they refuse root), else None, ourselves."""
    return "nobody" if os.geteuid() == 0 else None


def reachable_by_others(path: Path) -> bool:
    """Tell whether every folder from the root down to ``path`` lets any user through."""
    real = path.resolve()
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (real, *real.parents))


class Background:
    """One program, its folder, its log and its port; subclasses say what to run and when it is ready."""

    name = "program"
    ending = signal.SIGTERM  # sent when the parent dies: the quickest one that leaves nothing behind
    patience = START_TIMEOUT

    def __init__(self, *, in_memory: bool = False) -> None:
        self.port = free_port()
        self.folder = _new_folder(self.name, in_memory=in_memory)
        self._lock = _hold(self.folder)
        self._process: subprocess.Popen[bytes] | None = None
        self._started = False
        self._owner = os.getpid()
        atexit.register(self.stop)

    def command(self) -> Sequence[str | Path]:
        """Say what to run; the first word is a whole path. Called at each start: ``self.port`` may be new."""
        raise NotImplementedError

    def ready(self, pid: int) -> bool:
        """Tell whether the program with this pid answers."""
        raise NotImplementedError

    @property
    def pid(self) -> int:
        """The pid of the running program."""
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    @property
    def log(self) -> Path:
        """What the program wrote, over all its starts."""
        return self.folder / "log"

    def start(self) -> None:
        """Start it and wait until it is ready. RuntimeError with the end of its log when it is not.

        The first start takes another port when somebody was quicker; later ones keep it.
        """
        for attempts_left in (2, 1, 0):
            try:
                self._start_once()
                self._started = True
                return
            except RuntimeError:
                if self._started or not attempts_left:
                    raise
                self.port = free_port()

    def _start_once(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._launch(self.command()), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment()
            )
        if not wait_until(lambda: self._dead() or self.ready(self.pid), self.patience) or self._dead():
            self._end(signal.SIGKILL)
            raise RuntimeError(f"{self.name} did not start; the end of its log:\n{self.log.read_text()[-2000:]}")

    def halt(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the program and keep its folder, so that it can be started again."""
        self._end(how)

    def stop(self) -> None:
        """End the program and remove its folder. Nothing happens the second time, or in a forked child."""
        if os.getpid() != self._owner:
            return
        self.halt()
        atexit.unregister(self.stop)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.close()

    def run(self, command: Sequence[str | Path]) -> None:
        """Run a program to its end as the user of the server. RuntimeError with what it wrote when it fails."""
        done = subprocess.run(self._launch(command), capture_output=True, text=True, env=environment(), check=False)
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")

    def _launch(self, command: Sequence[str | Path]) -> list[str]:
        launcher = [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), str(int(self.ending))]
        return [*launcher, server_user() or "-", *map(str, command)]

    def _dead(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def own(self, path: Path) -> Path:
        """Make a folder that only the user of the server may enter."""
        path.mkdir()
        path.chmod(0o700)
        return self.give(path)

    def give(self, path: Path) -> Path:
        """Let a file or folder belong to the user of the server."""
        if user := server_user():
            entry = pwd.getpwnam(user)
            os.chown(path, entry.pw_uid, entry.pw_gid)
        return path


def environment() -> Mapping[str, str]:
    """Give servers no variable of ours: PGDATA, PGHOST and their like would change what they do."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def wait_until(condition: Callable[[], bool], timeout: float) -> bool:
    """Look every few milliseconds, later less often, for at most ``timeout`` seconds; False if it did not come true."""
    end, pause = time.monotonic() + timeout, 0.005
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
        pause = min(1.2 * pause, 0.025)
    return True


def _new_folder(name: str, *, in_memory: bool) -> Path:
    place = Path(tempfile.gettempdir())
    if in_memory and has_room(MEMORY):
        place = MEMORY
    elif server_user() and not reachable_by_others(place):
        place = Path("/tmp")  # the one folder that every user can reach
    _sweep(place)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{name}-", dir=place))
    folder.chmod(0o755)
    return folder


def has_room(place: Path) -> bool:
    """Whether a file system in memory is there, large enough, and lets programs run."""
    if not place.is_dir() or psutil.virtual_memory().available < _ROOM:
        return False
    about = os.statvfs(place)
    return about.f_bavail * about.f_frsize > _ROOM and not about.f_flag & os.ST_NOEXEC


def _hold(folder: Path) -> BinaryIO:
    """Lock the folder for as long as this process, or a fork of it, lives."""
    lock = (folder / ".lock").open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / ".lock").rename(folder / "lock")  # a folder without "lock" is one that is just being made
    return lock


def _sweep(place: Path) -> None:
    """Remove the folders of test runs that were killed."""
    for lock in place.glob(f"{PREFIX}*/lock"):
        with contextlib.suppress(OSError), lock.open("r+b") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
