"""The plans of runs: which processes there are, and what is done to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tests.joints.client import Crew

__all__ = ["PLANS", "Plan"]

_MIXED: Final = ("mixed",)
_POSTGRES: Final = ("cut", "restart")
CALLS: Final = (
    "load", "exists", "load_many", "page", "names_page", "alter", "create", "drop", "rename", "move", "restore",
    "transaction", "freeze", "leased", "begin_drop", "finish", "roll_back", "drop_cascade", "rename of an ancestor",
    "as user",
)  # fmt: skip
"""What each run must contain, on each database."""


@dataclass(frozen=True)
class Plan:
    """One kind of run. A run begins fair: only what the crews do themselves. Then come the faults."""

    crews: tuple[Crew, ...]
    faults: dict[str, int] = field(default_factory=dict)
    """What is done to it, and how often beside the others."""
    every: float = 0.3
    """Seconds between two faults, on average."""

    def needed(self, database: str) -> tuple[str, ...]:
        """Return what a run of this plan must contain: each call of its roles, each fault that the database knows."""
        faults = [fault for fault in self.faults if database == "postgres" or fault not in _POSTGRES]
        return (*CALLS, *faults)


def _threads(n: int, **options: object) -> Crew:
    return Crew("", "", "", "threads", _MIXED * n, **options)  # type: ignore[arg-type]


def _tasks(n: int, **options: object) -> Crew:
    return Crew("", "", "", "tasks", _MIXED * n, **options)  # type: ignore[arg-type]


_MOVER: Final = Crew("", "", "", "threads", ("mover",))
_ALL: Final = {"kill": 2, "stop": 4, "cut": 6}

PLANS: Final = {
    "swaps": Plan((_threads(6), _tasks(8), _MOVER)),
    "all": Plan(
        (
            _threads(6, interrupts=0.1),
            _threads(4, cache=("validate", 10.0), interrupts=0.2),
            _tasks(8, interrupts=0.05),
            _MOVER,
        ),
        _ALL,
    ),
}
