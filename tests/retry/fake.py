"""A clock that goes only when somebody sleeps, and random numbers that are chosen."""

from __future__ import annotations

from dataclasses import dataclass, field

from metastore.clock import Clock

__all__ = ["FakeClock"]


@dataclass(frozen=True)
class FakeClock(Clock):
    """Each wait is ``share`` of the longest that is allowed; each attempt takes ``work`` seconds."""

    share: float = 1.0
    slept: list[float] = field(default_factory=list)
    asked: list[tuple[float, float]] = field(default_factory=list)
    _now: list[float] = field(default_factory=lambda: [1000.0])

    def monotonic(self) -> float:
        return self._now[0]

    def go(self, seconds: float) -> None:
        """Let time pass."""
        self._now[0] += seconds

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.slept.append(seconds)
        self.go(seconds)

    def uniform(self, low: float, high: float) -> float:
        self.asked.append((low, high))
        return low + (high - low) * self.share
