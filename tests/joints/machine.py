"""How much of the machine others used during a run: late calls are judged by the share that was left."""

from __future__ import annotations

import os
from typing import Final

import psutil

__all__ = ["Machine"]

_LEAST: Final = 0.1
"""The least share that counts as left."""


class Machine:
    """Measures from when it is made."""

    def __init__(self) -> None:
        self._busy, self._all = _busy()
        self._ours = _ours()

    def left(self) -> float:
        """Return the share of the machine's processors that others have left to this run so far, at most 1.0."""
        busy, whole = _busy()
        others = (busy - self._busy) - (_ours() - self._ours)
        return min(1.0, max(_LEAST, 1.0 - others / max(0.01, whole - self._all)))


def _busy() -> tuple[float, float]:
    """Return how long all processors have worked, and how long they could have (seconds)."""
    times = psutil.cpu_times()
    whole = sum(times[:8])  # guest times are in the user's
    return whole - times.idle - getattr(times, "iowait", 0.0), whole


def _ours() -> float:
    """Return how long this process and all that it started have worked, also what has ended."""
    total = 0.0
    for process in (me := psutil.Process(os.getpid()), *me.children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:
            continue  # it has just ended: its parent counts it
    return total
