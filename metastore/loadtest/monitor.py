"""The progress of a run: how many operations the clients have logged so far."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["Monitor", "Progress"]

_END: Final = b'{"end":{'
"""JSON escapes each quote inside a string, so this text appears only at the beginning of a line. ``_CAUSE`` is safe for
the same reason.
"""
_CAUSE: Final = re.compile(rb'\{"cause":"([^"]*)"')
_MOST: Final = 8 << 20
"""How many bytes of one log are read at a time."""


class Progress(NamedTuple):
    """The progress of a run."""

    what: str
    seconds: float = 0.0
    of: float | None = None
    """The length of the run in seconds, if it is known."""
    operations: int = 0
    conflicts: int = 0


class Monitor:
    """Counts the operations in the logs. Each look reads only the lines that were added since the last one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "log"
        self._read: dict[str, int] = {}
        self.operations = 0
        self.causes: Counter[str] = Counter()
        """How many attempts lost, by cause."""

    def look(self) -> None:
        """Count the operations that were logged since the last look."""
        for path in self._folder.iterdir() if self._folder.is_dir() else ():
            with path.open("rb") as file:
                file.seek(self._read.get(path.name, 0))
                while self._count(path.name, file.read(_MOST)):
                    file.seek(self._read[path.name])

    def _count(self, name: str, data: bytes) -> bool:
        """Count complete lines; return whether there were any."""
        size = data.rfind(b"\n") + 1
        self._read[name] = self._read.get(name, 0) + size
        for line in data[:size].splitlines():
            if line.startswith(_END):
                self.operations += 1
                self.causes.update(cause.decode() for cause in _CAUSE.findall(line))
        return size > 0
