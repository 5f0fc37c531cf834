"""``commit-burst``: each client commits once a second, stalls for ten seconds, then makes all queued commits.

This follows lakeFS (pull request 3091), where such a queue took quadratic time. A short run does the same in less time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from metastore.columns.column import Column
from metastore.kinds.change import SetProperty
from metastore.loadtest.calls import Calls
from metastore.loadtest.scenarios.scenario import Me, Scenario
from metastore.store import Store

__all__ = ["CommitBurst", "ticks"]

_BEFORE: Final = 10
_STALL: Final = 10
_AFTER: Final = 20
_CYCLE: Final = _BEFORE + _STALL + _AFTER


def ticks(seconds: float) -> float:
    """Return how long a tick is (seconds): one second, or less so that a whole cycle fits into the run."""
    return min(1.0, seconds / _CYCLE)


@dataclass(frozen=True)
class CommitBurst(Scenario):
    """A cycle: ten ticks with a commit each, ten without, ten commits at once, and again one with each tick."""

    name = "commit-burst"
    about: ClassVar[str] = "each client commits once a second, stalls for ten seconds, then sends all that has queued"
    seconds: ClassVar[float | None] = 40.0

    def prepare(self, store: Store, ground: str) -> None:
        store.tables.create(f"{ground}.s.main", parents=True, columns=[Column("id", "long")])

    def work(self, calls: Calls, me: Me) -> Iterator[float]:
        path, number, tick = f"{me.ground}.s.main", 0, ticks(me.seconds or _CYCLE)
        at = me.dice.random() * 0.2  # spread the starts inside the burst
        while True:
            place = int(at) % _CYCLE
            queued = _STALL if place == _BEFORE + _STALL else 0
            yield max(0.0, (at if not queued else int(at)) * tick - me.elapsed())
            calls.values = {"queued": float(queued > 0)}
            if not _BEFORE <= place < _BEFORE + _STALL:
                for _ in range(queued or 1):
                    number += 1
                    calls.alter(path, SetProperty(f"client-{me.tag}", str(number)))
                    yield 0.0
            at += 1
