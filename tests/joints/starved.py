"""How long a process of a run waited for a processor: calls are late if others use the machine.

The system counts for each thread how long it was ready to run and did not run (Linux: ``schedstat``). A thread writes
the sum down several times a second. A thread that waits for a lock, for the network or for another thread is not ready,
so a client that blocks its own event loop has no excuse.
"""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Final

__all__ = ["Starved", "note"]

_EVERY: Final = 0.1
_TASKS: Final = Path("/proc/self/task")


def note(folder: Path, process: str) -> None:
    """Begin to write down how long this process waits for a processor; do so until it ends."""
    (folder / "starved").mkdir(exist_ok=True)
    file = folder / "starved" / f"{process}.jsonl"
    threading.Thread(target=_noted, args=(file,), name="starved", daemon=True).start()


def _noted(path: Path) -> None:
    before, total = _waited(), 0.0
    with path.open("a", buffering=1) as file:
        while True:
            time.sleep(_EVERY)
            now = _waited()
            # the longest of all threads: they share one interpreter, so the others wait for it, and not twice
            total += max([spent - before.get(thread, 0.0) for thread, spent in now.items()], default=0.0)
            before = now
            file.write(json.dumps([time.monotonic_ns(), round(total, 3)]) + "\n")


def _waited() -> dict[str, float]:
    """Return for each thread how long it waited for a processor (seconds); nothing where the system does not tell."""
    found = {}
    for file in _TASKS.glob("*/schedstat"):
        try:
            found[file.parent.name] = int(file.read_text().split()[1]) / 1e9
        except (OSError, IndexError):
            continue  # the thread has just ended
    return found


class Starved:
    """What the processes of a run have written down."""

    def __init__(self, folder: Path) -> None:
        self._times: dict[str, list[int]] = {}
        self._totals: dict[str, list[float]] = {}
        for path in (folder / "starved").glob("*.jsonl"):
            whole = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            samples = [json.loads(line) for line in whole]
            self._times[path.stem] = [at for at, _ in samples]
            self._totals[path.stem] = [total for _, total in samples]

    def between(self, process: str, began: int, ended: int) -> float:
        """Return how long a process waited between two instants of the clock of the calls (seconds)."""
        times, totals = self._times.get(process), self._totals.get(process)
        if not times or not totals:
            return 0.0
        first, last = bisect_right(times, began) - 1, min(bisect_left(times, ended), len(times) - 1)
        waited = totals[last] - (totals[first] if first >= 0 else 0.0)
        return min(max(0.0, waited), (ended - began) / 1e9)
