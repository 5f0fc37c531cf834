"""What one client saw in a window, and what all of them give together."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.bench.contention.outcome import percentile

__all__ = ["Figure", "Spent", "Told"]


@dataclass
class Spent:
    """The operations of one kind."""

    seconds: array[float] = field(default_factory=lambda: array("d"))
    waits: int = 0
    """How often a server was waited for."""
    cpu: float = 0.0
    """Processor time of the client's own thread, in seconds."""


def _spent() -> defaultdict[str, Spent]:
    return defaultdict(Spent)


@dataclass
class Told:
    """What one client saw. An operation that was begun in the window is waited for."""

    by_action: defaultdict[str, Spent] = field(default_factory=_spent)
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    """Attempts that lost."""
    in_time: int = 0
    """Operations that returned before the window was over."""


@dataclass(frozen=True)
class Figure:
    """What a window gave; times are milliseconds."""

    rate: float
    p50: float
    p99: float
    cpu_us: float
    """Processor time of the client for one operation, in microseconds, without what other threads of its do."""
    trips: float
    """How often a server was waited for, for one operation."""
    lost: float
    """Lost attempts for one operation."""
    failed: float
    """The share of the operations that met a table that was away, or a name that was taken."""
    errors: int
    trips_by_action: dict[str, float]
    p50_by_action: dict[str, float]

    @classmethod
    def of(cls, told: Iterable[Told], length: float) -> Figure:
        """Put together what all clients of one window told."""
        all_told = list(told)
        spent: defaultdict[str, list[Spent]] = defaultdict(list)
        for each in all_told:
            for action, one in each.by_action.items():
                spent[action].append(one)
        times = {action: [1000 * s for one in found for s in one.seconds] for action, found in spent.items()}
        waits = {action: sum(one.waits for one in found) for action, found in spent.items()}
        every = [time for found in times.values() for time in found]
        outcomes = sum((each.outcomes for each in all_told), Counter[str]())
        return cls(
            rate=sum(each.in_time for each in all_told) / length,
            p50=percentile(every, 0.5),
            p99=percentile(every, 0.99),
            cpu_us=1e6 * sum(one.cpu for found in spent.values() for one in found) / len(every),
            trips=sum(waits.values()) / len(every),
            lost=sum(each.lost for each in all_told) / len(every),
            failed=(outcomes["failed"] + outcomes["nothing"]) / len(every),
            errors=sum(each.errors.total() for each in all_told),
            trips_by_action={action: waits[action] / len(found) for action, found in times.items()},
            p50_by_action={action: percentile(found, 0.5) for action, found in times.items()},
        )
