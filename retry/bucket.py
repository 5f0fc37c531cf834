"""stub"""

from __future__ import annotations

from metastore.clock import Clock

__all__ = ["TokenBucket"]


class TokenBucket:
    """stub"""

    def __init__(self, capacity: float, per_second: float, clock: Clock) -> None:
        self._c = capacity

    def take(self) -> float:
        """Stub"""
        return 0.0
