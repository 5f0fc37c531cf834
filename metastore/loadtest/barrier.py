"""How clients and driver meet: files in the record folder, which all of them reach.

A client that is ready leaves ``meeting/ready-<client>``; when all are there, the driver writes ``meeting/start`` with
the wall-clock time at which they begin, and ``meeting/stop`` ends them early.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from metastore.clock import Clock

__all__ = ["Meeting"]

_POLL: Final = 0.02
_LOOK: Final = 0.05
"""Seconds between two looks for the stop file: an operation may take less than a look."""


class Meeting:
    """One run's meeting place, as a client or as the driver."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder, self._clock = folder / "meeting", clock
        self._looked, self._stopped = float("-inf"), False

    # --- the driver

    def open(self) -> None:
        """Make the place."""
        self._folder.mkdir(parents=True)

    def ready(self) -> int:
        """How many clients are there."""
        return sum(1 for _ in self._folder.glob("ready-*"))

    def start(self, delay: float) -> None:
        """Let all begin in ``delay`` seconds."""
        path = self._folder / "start"
        path.with_name(".start").write_text(str(self._clock.micros() + int(delay * 1e6)))
        path.with_name(".start").replace(path)

    def stop(self) -> None:
        """Let all end after the operation that they are at."""
        (self._folder / "stop").touch()

    # --- a client

    def arrive(self, number: int) -> None:
        """Say that client ``number`` is ready."""
        (self._folder / f"ready-{number}").touch()

    def started(self, gone: Callable[[], bool]) -> float | None:
        """Wait for the start; return when it is, or was, on the monotonic clock. None: it is over before."""
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
        """Whether the driver has called it off, or nobody is there to call; looked up every few milliseconds."""
        now = self._clock.monotonic()
        if not self._stopped and now - self._looked >= _LOOK:
            self._looked = now
            self._stopped = gone() or os.path.lexists(self._folder / "stop")
        return self._stopped

    def wait(self, seconds: float, ends: float, gone: Callable[[], bool]) -> None:
        """Wait, but not beyond ``ends`` on the monotonic clock, nor when it is over."""
        until = min(self._clock.monotonic() + seconds, ends)
        while (left := until - self._clock.monotonic()) > 0 and not self.is_over(gone):
            self._clock.sleep(min(left, _LOOK))
