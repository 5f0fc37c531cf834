"""What a policy is, and the loop of those that try again."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from tests.bench.contention.cells import Work
from tests.bench.contention.change import COUNTER, Add

__all__ = ["DEADLINE", "GaveUp", "Pause", "Policy", "Retrying", "Row", "at_once", "full_jitter"]

DEADLINE = 30.0
"""How long one operation may take, in seconds; the library's own."""
BASE, CAP = 0.002, 0.25
"""The first ceiling of a random wait, and the last, in seconds."""


@dataclass(frozen=True)
class Row:
    """One entity, as a writer knows it before it starts."""

    id: int
    names: tuple[str, ...]
    guards: tuple[tuple[int, int], ...]
    """(id, scope version) of each ancestor."""

    @property
    def path(self) -> str:
        """The names with dots between."""
        return ".".join(self.names)


class GaveUp(Exception):
    """An operation was not applied before its deadline."""


class Policy(Protocol):
    """One writer: it has a connection of its own."""

    attempts: int
    """How many attempts the last call took."""

    def add(self, row: Row) -> None:
        """Add one to the row's counter, exactly once; GaveUp or MetastoreError: not applied."""

    def close(self) -> None:
        """Close the connection."""


class Pause(Protocol):
    """What is done before another attempt."""

    def __call__(self, attempt: int) -> None: ...


def at_once(attempt: int) -> None:
    """Do not wait."""


def full_jitter(attempt: int) -> None:
    """Wait a random time below a ceiling that doubles (Brooker, "Exponential Backoff And Jitter", 2015)."""
    time.sleep(random.uniform(0.0, min(CAP, BASE * 2 ** min(attempt - 1, 30))))


class Retrying:
    """A policy that tries until it succeeds."""

    def __init__(self, work: Work, pause: Pause = at_once) -> None:
        self.attempts = 0
        self.change = Add(COUNTER, "1", seconds=work.applied)
        self._seconds = work.attempt
        self._pause = pause

    def add(self, row: Row) -> None:
        ends = time.monotonic() + DEADLINE
        for attempt in count(1):
            self.attempts = attempt
            if self.attempt(row):
                return
            if time.monotonic() > ends:
                raise GaveUp
            self._pause(attempt)

    def attempt(self, row: Row) -> bool:
        """Try once; False: somebody was faster."""
        raise NotImplementedError

    def work(self) -> None:
        """Do what the caller does between the read and the write."""
        if self._seconds:
            time.sleep(self._seconds)
