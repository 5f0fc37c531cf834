"""What a cell gave, of all its processes together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from tests.bench.contention.window import Told

__all__ = ["Outcome", "percentile"]


@dataclass(frozen=True)
class Outcome:
    """The figures of one cell; times are milliseconds from the call to the commit."""

    rate: float
    """Operations per second that were applied before the window was over."""
    attempts_mean: float
    attempts_worst: int
    p50: float
    p99: float
    worst: float
    slowest: int
    """Operations of the process that did the fewest in the window."""
    fastest: int
    errors: int
    causes: str
    """The errors by their class."""
    window: float
    """How long was measured, in seconds."""

    @property
    def fairness(self) -> float:
        """Slowest by fastest: 1 is fair."""
        return self.slowest / self.fastest if self.fastest else 0.0

    @classmethod
    def of(cls, told: Sequence[Told], length: float) -> Outcome:
        """Put together what the processes of one window told."""
        times = sorted(1000 * second for each in told for second in each.seconds)
        attempts = [number for each in told for number in each.attempts]
        shares = [each.in_time for each in told]
        causes = sum((each.errors for each in told), Counter[str]())
        return cls(
            rate=sum(shares) / length,
            attempts_mean=sum(attempts) / len(attempts),
            attempts_worst=max(attempts),
            p50=percentile(times, 0.5),
            p99=percentile(times, 0.99),
            worst=times[-1],
            slowest=min(shares),
            fastest=max(shares),
            errors=causes.total(),
            causes=", ".join(f"{count} {name}" for name, count in causes.most_common()),
            window=length,
        )


def percentile(values: Iterable[float], share: float) -> float:
    """Return the value that ``share`` of all do not exceed (the nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)]
