"""The history of each name and version by position, as far back as a running operation may have read it.

Each key is a register. It has a *required* position: an operation that is called now must see the value at that
position, or a later one. Older values are forgotten two epochs later. An epoch ends when all operations that were
called before it have returned.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Timelines"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_LONG = 8
"""How many changes a key keeps before the oldest are forgotten, if no running operation needs them."""


class _Line(Generic[V]):
    """One register."""

    __slots__ = ("before", "epoch", "long_before", "required", "seqs", "values")

    def __init__(self, seq: int, value: V | None) -> None:
        self.seqs = [seq]
        self.values = [value]
        self.required = self.before = self.long_before = 0
        self.epoch = 0

    def put(self, seq: int, value: V | None) -> None:
        at = bisect_left(self.seqs, seq)
        self.seqs.insert(at, seq)
        self.values.insert(at, value)

    def require(self, seq: int, epoch: int) -> None:
        if seq > self.required:
            self.enter(epoch)
            self.required = seq

    def enter(self, epoch: int) -> None:
        if epoch > self.epoch:
            self.long_before = self.before if epoch == self.epoch + 1 else self.required
            self.before = self.required
            self.epoch = epoch

    def shorten(self) -> None:
        at = bisect_right(self.seqs, self.long_before) - 1
        if at > 0:
            del self.seqs[:at], self.values[:at]


class Timelines(Generic[K, V]):
    """The values of each key by position; None if the key has no value. Values may be put in any order of positions."""

    def __init__(self) -> None:
        self._lines: dict[K, _Line[V]] = {}
        self._gone: deque[tuple[int, K]] = deque()
        self._epoch = 0

    def put(self, key: K, seq: int, value: V | None) -> None:
        """Set the value from ``seq`` on, until the next change."""
        line = self._lines.get(key)
        if line is None:
            self._lines[key] = _Line(seq, value)
        else:
            line.put(seq, value)
            if len(line.seqs) > _LONG:
                line.enter(self._epoch)
                line.shorten()
        if value is None:
            self._gone.append((self._epoch, key))

    def at(self, key: K, seq: int) -> tuple[V | None, int | None]:
        """Return the value at a position, and the next position where it changes."""
        line = self._lines.get(key)
        if line is None:
            return None, None
        seqs = line.seqs
        at = bisect_right(seqs, seq)
        return line.values[at - 1] if at else None, seqs[at] if at < len(seqs) else None

    def required(self, key: K) -> int:
        """Return the required position: a new operation must see the value at it, or a later one."""
        line = self._lines.get(key)
        return 0 if line is None else line.required

    def require(self, key: K, seq: int) -> None:
        """Require that operations called from now on see the value at ``seq`` or a later one."""
        line = self._lines.get(key)
        if line is not None:
            at = bisect_right(line.seqs, seq)
            if at:
                line.require(line.seqs[at - 1], self._epoch)

    def newest(self, key: K) -> V | None:
        """Return the last value."""
        line = self._lines.get(key)
        return None if line is None else line.values[-1]

    def next_epoch(self) -> None:
        """Begin an epoch. Call it when all operations that were called before the current epoch have returned."""
        self._epoch += 1
        while self._gone and self._gone[0][0] < self._epoch - 2:
            _, key = self._gone.popleft()
            line = self._lines.get(key)
            if line is not None:
                line.enter(self._epoch)
                line.shorten()
                if line.values == [None] and line.seqs[0] <= line.long_before:
                    del self._lines[key]

    def __len__(self) -> int:
        return len(self._lines)
