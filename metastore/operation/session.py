"""What all calls of one store share."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace

from metastore.clock import Clock
from metastore.metrics import Metrics
from metastore.operation.hot import Hot
from metastore.operation.recent import Recent
from metastore.operation.request import Call
from metastore.port.backend import Backend
from metastore.retry.bucket import TokenBucket
from metastore.retry.policy import RetryPolicy

__all__ = ["Session"]


@dataclass
class Session:
    """One backend, and what the calls of one store share. In a transaction no entity in hand is trusted."""

    backend: Backend
    clock: Clock
    policy: RetryPolicy
    principal: str | None
    in_transaction: bool = False
    metrics: Metrics = field(default_factory=Metrics)
    bucket: TokenBucket = field(init=False)
    hot: Hot = field(init=False)
    recent: Recent = field(default_factory=Recent)
    _epoch: str | None = None

    def policy_of(self, call: Call) -> RetryPolicy:
        """Return the policy with the call's own deadline."""
        return self.policy if call.deadline is None else replace(self.policy, deadline=float(call.deadline))

    def bound(self, principal: str | None, deadline: float | None) -> Session:
        """Return a session with another principal or deadline that shares all else: the backend, what is remembered."""
        bound = copy(self)
        bound.principal = self.principal if principal is None else principal
        bound.policy = self.policy if deadline is None else replace(self.policy, deadline=float(deadline))
        return bound

    def epoch(self) -> str:
        """Return the epoch of the database's feed, read once: a restored copy is opened again, and has another."""
        if self._epoch is None:
            self._epoch = self.backend.feed_start()[0]
        return self._epoch

    def __post_init__(self) -> None:
        self.bucket = TokenBucket(_TOKENS, _TOKENS_PER_SECOND, self.clock)
        self.hot = Hot(self.clock)


_TOKENS, _TOKENS_PER_SECOND = 100, 20.0
"""How many retries after no other's success a process may make at once, and per second."""
