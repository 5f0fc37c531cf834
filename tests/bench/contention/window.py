"""One process in one cell: it adds again and again until the window is over."""

from __future__ import annotations

import random
import time
from array import array
from collections import Counter
from dataclasses import dataclass, field

import metastore as ms
from tests.bench.contention.cells import Cell
from tests.bench.contention.crew import Meet
from tests.bench.contention.policies import opened
from tests.bench.contention.policy import DEADLINE, GaveUp, Row

__all__ = ["Told", "window"]

WARM = 5
"""Operations before the window, on a separate row: psycopg prepares a statement at its third execution."""


@dataclass
class Told:
    """What one process saw. An operation that was begun in the window is waited for."""

    seconds: array[float] = field(default_factory=lambda: array("d"))
    attempts: array[int] = field(default_factory=lambda: array("L"))
    in_time: int = 0
    """Operations that were applied before the window was over."""
    applied: int = 0
    unknown: int = 0
    """Operations that may or may not have been applied."""
    errors: Counter[str] = field(default_factory=Counter)


def window(meet: Meet, cell: Cell, url: str, rows: tuple[Row, ...], own: Row, length: float) -> Told:
    """Add to one of ``rows`` at a time, chosen at random, for ``length`` seconds after all have met."""
    policy, told = opened(cell, url), Told()
    try:
        for _ in range(WARM):
            policy.add(own)
        meet()
        ends = time.monotonic() + length
        while time.monotonic() < ends:
            row = rows[0] if len(rows) == 1 else random.choice(rows)
            begun = time.monotonic()
            try:
                policy.add(row)
            except (GaveUp, ms.MetastoreError) as error:
                told.errors[type(error).__name__] += 1
                told.unknown += isinstance(error, ms.OutcomeUnknown)
                told.seconds.append(DEADLINE)
            else:
                over = time.monotonic()
                told.seconds.append(over - begun)
                told.applied += 1
                told.in_time += over <= ends
            told.attempts.append(policy.attempts)
    finally:
        policy.close()
    return told
