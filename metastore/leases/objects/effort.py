"""The deadline of a call that sends several requests, and the waits between them."""

from __future__ import annotations

from metastore.clock import Clock
from metastore.errors import BackendUnavailable, DeadlineExceeded
from metastore.leases.objects.client import Unsettled

__all__ = ["Effort"]

_BASE, _CAP = 0.01, 1.0
"""Full jitter: each wait is a random time up to ``min(_CAP, _BASE * 2 ** n)`` seconds."""
_DOUBTED = 5
"""How many answers that have a final error a call gets before it raises that error."""


class Effort:
    """The deadline of a call, and the waits between its requests."""

    def __init__(self, clock: Clock, place: str, ends: float) -> None:
        self._clock, self._place, self._ends = clock, place, ends
        self._waits = self._finals = 0
        self._trouble: Unsettled | None = None

    def check(self) -> None:
        """Raise BackendUnavailable or DeadlineExceeded if the deadline has passed."""
        if self._clock.monotonic() >= self._ends:
            raise self._over()

    def pause(self, trouble: Unsettled | None = None) -> None:
        """Wait before the next request; ``trouble`` is the last one's error.

        Raises the errors of :meth:`check`, and the final error of an answer that comes again and again.
        """
        self._trouble = trouble
        if trouble is not None and trouble.final is not None:
            self._finals += 1
            if self._finals == _DOUBTED:
                raise trouble.final
        wait = self._clock.uniform(0.0, min(_CAP, _BASE * 2.0 ** min(self._waits, 60)))
        self._waits += 1
        if self._clock.monotonic() + wait >= self._ends:
            raise self._over()
        self._clock.sleep(wait)

    def _over(self) -> BackendUnavailable | DeadlineExceeded:
        if self._trouble is None:
            return DeadlineExceeded(f"{self._place}: other processes wrote first until the deadline; call again")
        unavailable = BackendUnavailable(
            f"{self._place} gave no usable answer until the deadline ({self._trouble}); call again when it does"
        )
        unavailable.transient = True
        return unavailable
