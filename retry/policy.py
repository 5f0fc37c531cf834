"""The policy of retries, a frozen value: how often and how long a call is tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt, in the form that hooks get. Times are in seconds."""

    what: str
    """The call: its verb, kind and target."""
    operation_id: UUID | None
    number: int
    cause: str | None
    """Why the attempt lost (see ``metastore.port.commit.Cause``); None: the call has succeeded."""
    elapsed: float
    """The time since the call began."""
    wait: float
    """The wait before the next attempt; 0 if there is none."""
    entity_id: int | None = None
    """The entity on which the attempt lost, if it is known."""
    expected: int | None = None
    """The version of that entity that the attempt expected."""
    helped: bool = False
    """Whether the commit of another operation applied the call."""


Hook = Callable[[Attempt], None]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When to stop, and how long to wait after attempt n.

    The wait is *full jitter* (Brooker, "Exponential Backoff And Jitter", 2015): a random time between 0 and
    ``min(cap, base * 2 ** (n - 1))`` seconds. ``attempts`` None: only the deadline (seconds for the whole call) ends
    it. Each hook is called with every attempt that committed, settled or lost; its errors are logged and change
    nothing. No hook is called for an attempt that ends in an error of the call itself: the caller gets that error.
    """

    attempts: int | None = None
    deadline: float = 30.0
    base: float = 0.002
    cap: float = 0.25
    hooks: tuple[Hook, ...] = ()

    def ceiling(self, attempt: int) -> float:
        """Return the longest wait after attempt number ``attempt``, in seconds."""
        return min(self.cap, self.base * 2.0 ** min(attempt - 1, 60))
