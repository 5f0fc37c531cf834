"""The barrier where the clients wait for the driver: files in the record folder, which all of them can access.

A client that is ready writes ``meeting/ready-<client>``. When all are ready, the driver writes ``meeting/start`` with
the wall-clock time of the start. ``meeting/stop`` ends them early.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from metastore.clock import Clock

__all__ = ["Barrier"]

_POLL: Final = 0.02
_LOOK: Final = 0.05
"""Seconds between two looks for the stop file, because a look can take longer than an operation."""


class Barrier:
    """One run's barrier, as a client or the driver uses it."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder, self._clock = folder / "meeting", clock
        self._looked, self._stopped = float("-inf"), False

    # --- the driver

    def open(self) -> None:
        """Create the folder of the barrier's files."""
        self._folder.mkdir(parents=True)

    def ready(self) -> int:
        """Return how many clients are ready."""
        return sum(1 for _ in self._folder.glob("ready-*"))

    def start(self, delay: float) -> None:
        """Make all clients begin in ``delay`` seconds."""
        path = self._folder / "start"
        path.with_name(".start").write_text(str(self._clock.micros() + int(delay * 1e6)))
        path.with_name(".start").replace(path)

    def stop(self) -> None:
        """Make each client end after its current operation."""
        (self._folder / "stop").touch()

    # --- a client

    def arrive(self, number: int) -> None:
        """Mark client ``number`` as ready."""
        (self._folder / f"ready-{number}").touch()

    def started(self, gone: Callable[[], bool]) -> float | None:
        """Wait for the start. Return its time on the monotonic clock; None if the run was stopped before the start."""
        path = self._folder / "start"
        while not path.exists():
            if self.is_over(gone):
                return None
            self._clock.sleep(_POLL)
        began = self._clock.monotonic() + int(path.read_text()) / 1e6 - self._clock.micros() / 1e6
        while (left := began - self._clock.monotonic()) > 0 and not self.is_over(gone):
            self._clock.sleep(min(left, _LOOK))
        return began

    def is_over(self, gone: Callable[[], bool]) -> bool:
        """Return whether the driver has stopped the run or is gone. Looks for the file every 50 ms at most."""
        now = self._clock.monotonic()
        if not self._stopped and now - self._looked >= _LOOK:
            self._looked = now
            self._stopped = gone() or os.path.lexists(self._folder / "stop")
        return self._stopped

    def wait(self, seconds: float, ends: float, gone: Callable[[], bool]) -> None:
        """Wait ``seconds``, at most until ``ends`` on the monotonic clock or the end of the run."""
        until = min(self._clock.monotonic() + seconds, ends)
        while (left := until - self._clock.monotonic()) > 0 and not self.is_over(gone):
            self._clock.sleep(min(left, _LOOK))
