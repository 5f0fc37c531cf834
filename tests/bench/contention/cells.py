"""What is measured: a cell is one policy under one kind of load."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Literal

__all__ = ["POLICIES", "PROCESSES", "WORKS", "Cell", "Database", "Spread", "Work", "every_cell"]

Database = Literal["postgres", "sqlite"]
Spread = Literal["hot", "warm", "cold"]
"""One entity for all; ten for all; one for each process."""

PROCESSES = (1, 2, 8, 32, 64)
POLICIES: dict[Database, tuple[str, ...]] = {
    "postgres": ("helping", "cas", "cas_jitter", "for_update", "advisory", "serializable", "blind_update"),
    "sqlite": ("helping", "cas", "cas_jitter", "for_update", "serializable", "blind_update"),
}


@dataclass(frozen=True)
class Work:
    """What the caller does between the read and the write, in seconds."""

    attempt: float = 0.0
    """For each attempt; ``helping`` does it before each commit of its own and before each batch."""
    applied: float = 0.0
    """For each operation that is applied: what a helper applies for others costs it as well."""


WORKS = {"0ms": Work(), "5ms": Work(attempt=0.005), "apply5ms": Work(applied=0.005)}


@dataclass(frozen=True)
class Cell:
    """One policy under one kind of load."""

    database: Database
    spread: Spread
    work: str
    processes: int
    policy: str

    def __str__(self) -> str:
        return f"{self.database}/{self.spread}/{self.work}/{self.processes}/{self.policy}"

    @property
    def in_hand(self) -> bool:
        """Whether writers trust what they wrote last: they do where nobody else writes it."""
        return self.spread == "cold"


def every_cell() -> list[Cell]:
    """Return all there are: one process is alone, however many entities there are.

    A process that applies only its own operations does the work of "apply5ms" once per attempt, like that of "5ms":
    only ``helping`` differs.
    """
    every = product(POLICIES, ("hot", "warm", "cold"), WORKS, PROCESSES)
    return [
        Cell(database, spread, work, processes, policy)  # type: ignore[arg-type]  # product forgets literals
        for database, spread, work, processes in every
        for policy in POLICIES[database]
        if (spread == "hot" or (processes > 1 and work != "apply5ms")) and (work != "apply5ms" or policy == "helping")
    ]
