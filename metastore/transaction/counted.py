"""Count a transaction in the metrics: a block's commit, or all runs of one function."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from metastore.metrics import Decided
from metastore.operation.session import Session


class Counted:
    """The block in which one transaction begins, makes its attempts, and ends."""

    def __init__(self, session: Session) -> None:
        self._metrics, self._clock = session.metrics, session.clock
        self._began = self._clock.monotonic()
        self._attempts = 0
        self.decided: Decided = "error"
        """What decided the transaction; an error, until a commit succeeds."""

    def __enter__(self) -> Self:
        self._metrics.begun()
        return self

    def attempt(self) -> None:
        """Note that an attempt begins."""
        self._attempts += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            seconds = self._clock.monotonic() - self._began
            self._metrics.operation("transaction", self._attempts, seconds, self.decided)
        finally:
            self._metrics.ended()
