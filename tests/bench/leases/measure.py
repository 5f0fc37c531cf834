"""Measures all cells: one crew for each number of processes, in which the kinds of locks take turns."""

from __future__ import annotations

import multiprocessing
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from tests.bench.contention.crew import together
from tests.bench.contention.outcome import Outcome
from tests.bench.core.setting import Setting
from tests.bench.leases.bars import RIVALS
from tests.bench.leases.cells import LOADS, Cell, Load
from tests.bench.leases.places import Ground
from tests.bench.leases.window import windows
from tests.bench.timing import ratios

__all__ = ["Run"]


@dataclass
class Run:
    """One run: where, how long a window is in seconds, how many turns, and what each turn gave."""

    setting: Setting
    ground: Ground
    peers: Sequence[str]
    length: float
    turns: int
    outcomes: dict[Cell, list[Outcome]] = field(default_factory=lambda: defaultdict(list))

    def cells(self, loads: Sequence[Load] = LOADS) -> None:
        """Measure every peer under these loads."""
        for count in sorted({load.processes for load in loads}):
            begun = time.monotonic()
            mine = [load for load in loads if load.processes == count]
            before, plan = self._turn(mine[:1], 0), self._plan(mine)
            outcomes = self._crew(count, [*before, *plan])[len(before) :]  # who waits first opens connections
            for cell, outcome in zip(plan, outcomes, strict=True):
                self.outcomes[cell].append(outcome)
            took = time.monotonic() - begun
            self.setting.console.print(f"  {count} processes: {len(plan)} windows; {took:.0f} s", highlight=False)
        self._record()

    def _plan(self, loads: Sequence[Load]) -> list[Cell]:
        """In each turn every load once; under each load every peer, in each turn another one first."""
        firsts = [turn * len(self.peers) // self.turns for turn in range(self.turns)]
        return [cell for first in firsts for cell in self._turn(loads, first)]

    def _turn(self, loads: Sequence[Load], first: int) -> list[Cell]:
        order = [*self.peers[first:], *self.peers[:first]]
        return [Cell(load, peer) for load in loads for peer in order]

    def _crew(self, count: int, plan: Sequence[Cell]) -> list[Outcome]:
        """Run all windows in one crew of processes; return what each gave."""
        inside = multiprocessing.get_context("forkserver").RawValue("i", 0)
        where = (self.ground.places, self.peers, plan)
        tasks = [(windows, (*where, number, self.length, inside)) for number in range(count)]
        found = together(tasks, len(plan) * (self.length + 1))
        return [Outcome.of(told, self.length) for told in zip(*found, strict=True)]

    def _record(self) -> None:
        record = self.setting.figures.record
        for cell, turns in self.outcomes.items():
            record(f"{cell}_per_s", [turn.rate for turn in turns])
            record(f"{cell}_p50_ms", [turn.p50 for turn in turns])
            record(f"{cell}_p99_ms", [turn.p99 for turn in turns])
            record(f"{cell}_worst_ms", [turn.worst for turn in turns])
            record(f"{cell}_fairness", [turn.fairness for turn in turns])
            record(f"{cell}_errors", [sum(turn.errors for turn in turns)])
        for load in {cell.load for cell in self.outcomes}:
            for ours, others in RIVALS.items():
                for other in others:
                    self._compare(load, ours, other)

    def _compare(self, load: Load, ours: str, other: str) -> None:
        """Record how many operations ours does while the other does one, in each turn."""
        pair = [self.outcomes.get(Cell(load, peer)) for peer in (ours, other)]
        if pair[0] and pair[1]:
            rates = [[max(turn.rate, 1 / self.length) for turn in turns] for turns in pair if turns]
            self.setting.figures.record(f"{load}_{ours}_vs_{other}", ratios(*rates))

    def middle(self, cell: Cell, what: str) -> float:
        """Return the median of a cell's turns."""
        return median(getattr(turn, what) for turn in self.outcomes[cell])
