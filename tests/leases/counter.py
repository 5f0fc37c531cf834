"""A counter outside of the store that nothing protects but the tokens it is shown: a file.

Each line is one change: who made it, the token, and the value after it. A reader shows its token first, so that
from then on nobody with an older one can write.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

__all__ = ["Counter", "Line", "TooOld"]


class TooOld(Exception):
    """A newer token was seen."""


class Line(NamedTuple):
    """One change. ``what``: get, put, or refused (a put that came too late)."""

    what: str
    token: int
    value: int


class Counter:
    """The resource. What it does for one request is one step: that is all that the lock is for."""

    def __init__(self, path: Path, *, checks: bool = True) -> None:
        self._path, self._checks = path, checks
        path.touch()

    def get(self, token: int) -> int:
        """Return the value. Raises TooOld."""
        with self._step() as (file, last):
            self._check(file, last, token)
            _write(file, Line("get", max(token, last.token), last.value))
            return last.value

    def put(self, token: int, value: int) -> None:
        """Set the value. Raises TooOld."""
        with self._step() as (file, last):
            self._check(file, last, token)
            _write(file, Line("put", token, value))

    def _check(self, file: BinaryIO, last: Line, token: int) -> None:
        if self._checks and token < last.token:
            _write(file, Line("refused", last.token, last.value))
            raise TooOld(f"{token} is older than {last.token}")

    def lines(self) -> list[Line]:
        """Return all changes."""
        found = [line.split() for line in self._path.read_text().splitlines()]
        return [Line(what, int(token), int(value)) for what, token, value in found]

    def wrong(self) -> list[str]:
        """Return where the count is not exact, or an older token followed a newer one."""
        wrong: list[str] = []
        last = Line("get", 0, 0)
        for line in self.lines():
            if line.token < last.token:
                wrong.append(f"{line} after {last}")
            if line.value != last.value + (line.what == "put"):
                wrong.append(f"{line} after {last}")
            last = line
        return wrong

    @contextmanager
    def _step(self) -> Iterator[tuple[BinaryIO, Line]]:
        with self._path.open("r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 100))
            lines = file.read().splitlines()
            what, token, value = lines[-1].decode().split() if lines else ("get", "0", "0")
            yield file, Line(what, int(token), int(value))


def _write(file: BinaryIO, line: Line) -> None:
    file.seek(0, os.SEEK_END)
    file.write(f"{line.what} {line.token} {line.value}\n".encode())
