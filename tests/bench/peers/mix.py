"""The frozen mix: 60 % load, 20 % alter, 15 % create and drop, 5 % rename of 10,000 tables in a tree, zipf 0.99.

A client that drops a table creates it again with its next operation, and a renamed one gets its name back with the
next. So the tree stays as it is, and others meet the gap. Table ``t<r>`` is the one of rank r; neighbours in rank are
in different schemas.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, count
from typing import Final, Literal

from tests.bench.core.setting import CATALOG

__all__ = ["SHARES", "SKEW", "Action", "Lake", "Step", "steps"]

Action = Literal["load", "alter", "create", "drop", "rename"]
SKEW: Final = 0.99
SHARES: Final[dict[Action, float]] = {"load": 0.6, "alter": 0.2, "drop": 0.075, "create": 0.075, "rename": 0.05}
_PICKS: Final[tuple[tuple[Action, float], ...]] = (("load", 60), ("alter", 80), ("drop", 87.5), ("rename", 90))
"""What is begun, up to this number of 90: a drop and a rename bring their second half along."""


@dataclass(frozen=True)
class Lake:
    """How many tables there are, in how many schemas."""

    schemas: int = 10
    tables: int = 10_000

    def path(self, rank: int) -> str:
        """Return the path of the table of this rank."""
        return f"{CATALOG}.s{rank % self.schemas}.t{rank}"

    def names(self) -> dict[str, list[str]]:
        """Return the names of the tables of each schema."""
        ranks = range(self.tables)
        return {f"s{n}": [f"t{rank}" for rank in ranks[n :: self.schemas]] for n in range(self.schemas)}


@dataclass(frozen=True)
class Step:
    """One operation. ``to``: the new name of a renamed table, in the same schema."""

    action: Action
    path: str
    to: str = ""

    @property
    def path_to(self) -> str | None:
        """Where a rename leads."""
        return f"{self.path.rpartition('.')[0]}.{self.to}" if self.to else None


@cache
def _cumulated(tables: int) -> list[float]:
    return list(accumulate((rank + 1) ** -SKEW for rank in range(tables)))


def steps(lake: Lake, client: str, seed: int) -> Iterator[Step]:
    """Yield the steps of one client, without end; the same ones for the same seed."""
    chance, weights, numbers = random.Random(seed), _cumulated(lake.tables), count()
    while True:
        drawn = chance.random() * 90
        action = next(action for action, up_to in _PICKS if drawn < up_to)
        path = lake.path(bisect_left(weights, chance.random() * weights[-1]))
        if action == "rename":
            away = f"{path.rpartition('.')[2]}_{client}_{next(numbers)}"
            there = Step("rename", path, away)
            yield there
            yield Step("rename", there.path_to or "", path.rpartition(".")[2])
        else:
            yield Step(action, path)
            if action == "drop":
                yield Step("create", path)
