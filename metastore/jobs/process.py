"""Start a job's command under a guard, let it run, end it, and read its output.

The server never opens a file by a name that a job can change: a job may clean its folder, or put a FIFO or a link
there. Its output goes to a file without a name, whose descriptor the server keeps.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from metastore.clock import SYSTEM
from metastore.kinds.job.run import MAX_OUTPUT

__all__ = ["Process"]

_MOST_LOG: Final = 16 << 20
"""How large an output may be on the disk before its beginning is freed (bytes)."""
_UTF8: Final = 4
"""The most bytes of one character."""
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_GUARD: Final = Path(__file__).with_name("guard.py")
_GRACE: Final = 5.0
"""How long a command has between SIGTERM and SIGKILL when it is stopped (seconds)."""


class Process:
    """A running command. Raises OSError if its guard cannot be started."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self._log = tempfile.TemporaryFile("a+b")  # noqa: SIM115  (close() closes it)
        self._trimmed = 0
        try:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARD), "--", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=dict(environment),
                cwd=folder,
            )
        except BaseException:
            self._log.close()
            raise

    def allow(self, seconds: float) -> None:
        """Allow the command to run for this many seconds from now; the newest call counts, even if it allows less."""
        self._tell(f"until {SYSTEM.monotonic() + seconds:.6f}\n")

    def stop(self) -> None:
        """End the command: SIGTERM, and SIGKILL five seconds later."""
        self._tell(f"stop {_GRACE}\n")

    def kill(self) -> None:
        """End the command at once."""
        self._tell("stop 0\n")

    def wait(self, seconds: float) -> bool:
        """Wait until the command has ended, for at most this many seconds; return whether it has."""
        try:
            self._guard.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def code(self) -> int | None:
        """Return the exit code after the end; None if the guard itself was killed, and the command with it."""
        assert self._guard.stdout is not None
        pipe = self._guard.stdout.fileno()
        os.set_blocking(pipe, False)  # processes that the job left may hold the other end, and never close it
        try:
            last = os.read(pipe, 4096).split()
        except BlockingIOError:
            return None
        return int(last[-1]) if last[:1] == [b"exit"] else None

    def trim(self) -> None:
        """Free the disk space of a long output except its end: a job may write for days."""
        log = self._log.fileno()
        if (size := os.fstat(log).st_size) - self._trimmed > _MOST_LOG:
            self._trimmed = size - MAX_OUTPUT * _UTF8
            _give_back(log, self._trimmed)

    def output(self) -> str:
        """Return the end of the command's output."""
        log = self._log.fileno()
        begin = max(0, os.fstat(log).st_size - MAX_OUTPUT)
        return os.pread(log, MAX_OUTPUT, begin).decode(errors="replace").replace("\x00", "\ufffd")

    def close(self) -> None:
        """Close the pipes; a command that still runs is killed by its guard."""
        self._guard.send_signal(signal.SIGCONT)
        for pipe in (self._guard.stdin, self._guard.stdout, self._log):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        if not self.wait(_GRACE):  # the guard does not end: perhaps the command stops it again and again
            self._guard.kill()  # on Linux the command dies with the guard
            self._guard.wait()

    def _tell(self, line: str) -> None:
        assert self._guard.stdin is not None
        self._guard.send_signal(signal.SIGCONT)  # a guard that the command has stopped could not end the command
        with suppress(OSError):  # the guard has ended
            self._guard.stdin.write(line.encode())
            self._guard.stdin.flush()


def _give_back(file: int, size: int) -> None:
    """Free the first bytes of a file, on Linux.

    The file's size stays, so that later output is appended at the same place.
    """
    # on another system, or a file system without holes, the file keeps its disk space
    with suppress(OSError, AttributeError):
        free = ctypes.CDLL(None).fallocate
        free.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        free(file, _PUNCH_HOLE | _KEEP_SIZE, 0, size)
