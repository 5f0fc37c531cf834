"""Start a job's command under a guard, let it run, end it, and read its output."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from metastore.clock import SYSTEM
from metastore.kinds.job.run import MAX_OUTPUT

__all__ = ["Process"]

_GUARD: Final = Path(__file__).with_name("guard.py")
_GRACE: Final = 5.0
"""How long a command that is ended may take between SIGTERM and SIGKILL (seconds)."""


class Process:
    """A running command. Raises OSError if its guard cannot be started."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self._log = folder / "output.log"
        with self._log.open("wb") as log:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARD), "--", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=dict(environment),
                cwd=folder,
            )

    def allow(self, seconds: float) -> None:
        """Let the command run for so many seconds from now; the newest call counts, even if it allows less."""
        self._tell(f"until {SYSTEM.monotonic() + seconds:.6f}\n")

    def stop(self) -> None:
        """End the command: SIGTERM, and SIGKILL five seconds later."""
        self._tell(f"stop {_GRACE}\n")

    def kill(self) -> None:
        """End the command at once."""
        self._tell("stop 0\n")

    def wait(self, seconds: float) -> bool:
        """Wait until the command has ended, at most so many seconds; return whether it has."""
        try:
            self._guard.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def code(self) -> int | None:
        """Return the exit code after the end; None: the guard itself was killed, and the command with it."""
        assert self._guard.stdout is not None
        last = self._guard.stdout.read().decode().split()
        return int(last[-1]) if last[:1] == ["exit"] else None

    def output(self) -> str:
        """Return the end of what the command wrote."""
        with self._log.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(0, size - MAX_OUTPUT))
            return log.read().decode(errors="replace").replace("\x00", "\ufffd")

    def close(self) -> None:
        """Close the pipes; a command that still runs is killed by its guard."""
        for pipe in (self._guard.stdin, self._guard.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._guard.wait()

    def _tell(self, line: str) -> None:
        assert self._guard.stdin is not None
        with suppress(OSError):  # the guard has ended
            self._guard.stdin.write(line.encode())
            self._guard.stdin.flush()
