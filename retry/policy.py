"""How often and how long something is tried: a frozen value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Attempt", "RetryPolicy"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One failed attempt, as hooks see it. Times are seconds."""

    number: int
    cause: str
    elapsed: float
    wait: float
    """How long is waited before the next one; 0 if there is none."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When to stop, and how long to wait before attempt n + 1.

    The wait is *full jitter* (Brooker, "Exponential Backoff And Jitter", 2015): a random time
    between 0 and ``min(cap, base * 2 ** (n - 1))`` seconds. ``attempts`` None: only the deadline
    (seconds for the whole call) ends it. Each hook is called with every failed attempt.
    """

    attempts: int | None = None
    deadline: float = 30.0
    base: float = 0.002
    cap: float = 0.25
    hooks: tuple[Callable[[Attempt], None], ...] = ()

    def ceiling(self, attempt: int) -> float:
        """Return the longest wait after attempt number ``attempt``, in seconds."""
        return min(self.cap, self.base * 2.0 ** min(attempt - 1, 60))
