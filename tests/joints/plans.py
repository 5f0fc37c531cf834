"""The plans of runs: the processes, and the faults that hit them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.joints.crew import Crew
from tests.joints.weather import POSTGRES_ONLY

__all__ = ["PLANS", "Plan"]

CALLS: Final = (
    "load", "exists", "load_many", "page", "names_page", "alter", "create", "drop", "rename", "move", "restore",
    "transaction", "freeze", "leased", "begin_drop", "finish", "roll_back", "drop_cascade", "rename of an ancestor",
    "as user", "changes", "grant", "revoke",
)  # fmt: skip
"""What each run with mixed clients and movers must contain."""


@dataclass(frozen=True)
class Plan:
    """One kind of run. First it is fair: only ``gentle`` faults, for which others need not wait."""

    crews: tuple[Crew, ...]
    gentle: Mapping[str, int] = field(default_factory=dict)
    rough: Mapping[str, int] = field(default_factory=dict)
    """What is done to it, and how often beside the others."""
    every: float = 0.3
    """Seconds between two faults, on average."""
    needs: tuple[str, ...] = CALLS
    """What a run must contain, besides its faults."""
    databases: tuple[str, ...] = ("postgres", "sqlite")
    ends: str = ""
    """``fail_over``: at the end the primary dies, and its synchronous replica takes its place."""

    def faults(self, *, postgres: bool, rough: bool) -> dict[str, int]:
        """Return what is done to it now."""
        both = {**self.gentle, **(self.rough if rough else {})}
        return {what: often for what, often in both.items() if postgres or what not in POSTGRES_ONLY}

    def needed(self, database: str) -> tuple[str, ...]:
        """Return what a run of this plan must contain."""
        last = (self.ends,) if self.ends else ()
        return (*self.needs, *last, *self.faults(postgres=database == "postgres", rough=True))


def _crew(how: str, role: str, clients: int, **options: object) -> Crew:
    return Crew(how, (role,) * clients, **options)  # type: ignore[arg-type]


_MOVER: Final = Crew("threads", ("mover",))

PLANS: Final = {
    "swaps": Plan((_crew("threads", "mixed", 6), _crew("tasks", "mixed", 8), _MOVER)),
    "interrupts": Plan(
        (
            *[Crew("threads", ("reader", "mixed", "reader"), ("validate", 10.0), interrupts=0.8)] * 2,
            _crew("threads", "mixed", 3, interrupts=0.8),
            _crew("tasks", "mixed", 5, interrupts=0.3, cache=("validate", 10.0)),
            _MOVER,
        ),
        needs=(*CALLS, "interrupt", "cancelled"),
    ),
    "notebooks": Plan(
        (*[Crew("threads", ("notebook",), ("validate", 10.0), interrupts=0.8)] * 2, _crew("threads", "unhurried", 3)),
        needs=("load", "transaction", "interrupt"),
    ),
    "runs": Plan(
        (_crew("threads", "slow", 1), _crew("threads", "hot", 3), _crew("tasks", "hot", 3)),
        needs=("transaction", "alter"),
    ),
    "bulk": Plan(
        (Crew("threads", ("bulk", *("brief",) * 6, *("light",) * 2)), _crew("threads", "hot", 2)),
        needs=("bulk", "alter", "load"),
    ),
    "crowd": Plan((_crew("tasks", "light", 1000, pool=8), _MOVER), needs=("alter", "load", "rename of an ancestor")),
    "members": Plan(
        (
            _crew("threads", "notebook", 2, cache=("lease", 10.0)),
            _crew("threads", "mixed", 2, cache=("lease", 0.2)),
            _crew("tasks", "mixed", 3),
            _MOVER,
        ),
        gentle={"drag": 1},
        databases=("postgres",),
        needs=("alter", "load", "rename of an ancestor"),
    ),
    "forks": Plan(
        (
            _crew("threads", "mixed", 3, cache=("lease", 10.0), forks=2.0),
            _crew("threads", "mixed", 3, forks=1.0),
            _crew("tasks", "mixed", 4),
            _MOVER,
        ),
        databases=("postgres",),
        needs=(*CALLS, "fork"),
    ),
    "leases": Plan(
        (
            _crew("threads", "mixed", 3, cache=("lease", 1.0)),
            _crew("tasks", "mixed", 4, cache=("lease", 2.0)),
            _crew("threads", "mixed", 3),
            _MOVER,
        ),
        rough={"kill": 1, "stop": 3, "cut": 3, "restart": 1},
        databases=("postgres",),
    ),
    "failing": Plan(
        (_crew("threads", "failing", 8), _crew("tasks", "failing", 8), _MOVER),
        gentle={"busy": 1},
        every=0.1,
        needs=("alter", "create", "rename of an ancestor", "refused"),
        databases=("postgres",),
    ),
    "replica": Plan(
        (_crew("threads", "writer", 4), _crew("tasks", "writer", 4)),
        needs=("alter", "leased"),
        databases=("postgres",),
        ends="fail_over",
    ),
    "silence": Plan(
        (_crew("threads", "wide", 4), _crew("threads", "wide", 10, pool=2)),
        rough={"silence": 1},
        every=8.0,
        needs=("alter",),
        databases=("postgres",),
    ),
    "all": Plan(
        (
            _crew("threads", "mixed", 5, interrupts=0.1, forks=1.5),
            _crew("tasks", "mixed", 6, interrupts=0.05),
            _crew("threads", "mixed", 3, interrupts=0.2, cache=("validate", 10.0)),
            _crew("tasks", "mixed", 3, cache=("lease", 1.0)),
            _MOVER,
        ),
        rough={"kill": 2, "stop": 3, "cut": 4, "silence": 1, "restart": 1, "busy": 3},
        needs=(*CALLS, "interrupt", "cancelled", "fork"),
    ),
}
