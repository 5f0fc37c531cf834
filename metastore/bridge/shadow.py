"""Record what each lock of a call site cost, and whether a compare-and-swap would have conflicted instead.

Before a section requests its lock, it reads the versions that a compare-and-swap would compare. That takes one or two
more round trips for each section, so measuring is not free. If they have changed when the lock is acquired, a
compare-and-swap that began at the request would have conflicted and been tried again. If not, the wait was unnecessary.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass

from metastore.bridge.section import Mode

__all__ = ["Recorder", "Report", "Site", "caller"]


@dataclass(frozen=True)
class Site:
    """The work of the sections of one call site. Times are seconds."""

    where: str
    """The file and line of the call, or its ``site=``."""
    mode: Mode
    sections: int
    waited: int
    """How many sections did not get the lock within a millisecond."""
    wait: float
    longest_wait: float
    held: float
    conflicts: int
    """How many compare-and-swaps would have conflicted (for reading: how many validations would have failed)."""
    retries: int
    """How many committed changes caused these conflicts: each costs at most one more attempt."""
    wait_saved: float
    """The waits of sections that would not have conflicted."""


@dataclass(frozen=True)
class Report:
    """The call sites, the longest waits first."""

    sites: tuple[Site, ...]

    def __str__(self) -> str:
        """Return a table, a line for each call site."""
        head = ("Call site", "Mode", "Sections", "Waited", "Wait s", "Longest s", "Conflicts", "Retries", "Saved s")
        lines = [head, *map(_cells, self.sites)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(map(_padded, line, widths, range(len(line)))) for line in lines)


def _cells(one: Site) -> tuple[str, ...]:
    waits = (f"{one.sections:,}", f"{one.waited:,}", f"{one.wait:.3f}", f"{one.longest_wait:.3f}")
    return one.where, one.mode, *waits, f"{one.conflicts:,}", f"{one.retries:,}", f"{one.wait_saved:.3f}"


def _padded(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column < _TEXTS else cell.rjust(width)


_TEXTS = 2
"""How many columns of the table are text."""
_SHORT = 0.001
"""A wait so short that it does not count (seconds)."""


class Recorder:
    """Adds up sections by call site. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sites: dict[tuple[str, Mode], Site] = {}

    def add(self, where: str, mode: Mode, wait: float, held: float, lost_to: int) -> None:
        """Add one section. ``lost_to``: how many changes committed between its request and its lock."""
        with self._lock:
            before = self._sites.get((where, mode), Site(where, mode, 0, 0, 0.0, 0.0, 0.0, 0, 0, 0.0))
            self._sites[where, mode] = Site(
                where,
                mode,
                before.sections + 1,
                before.waited + (wait >= _SHORT),
                before.wait + wait,
                max(before.longest_wait, wait),
                before.held + held,
                before.conflicts + bool(lost_to),
                before.retries + lost_to,
                before.wait_saved + (0.0 if lost_to else wait),
            )

    def report(self) -> Report:
        """Return the report of all sections so far."""
        with self._lock:
            return Report(tuple(sorted(self._sites.values(), key=lambda one: -one.wait)))


def caller(package: str) -> str:
    """Return the file and line of the nearest frame outside of ``package`` and of contextlib."""
    frame = sys._getframe(1)  # noqa: SLF001  (the documented way to a caller's line that costs microseconds)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith((package, "contextlib")):
        frame = frame.f_back
    code = frame.f_code
    return f"{code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno} {code.co_name}"
