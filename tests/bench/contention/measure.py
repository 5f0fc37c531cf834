"""Measures cells, and holds those that have a bar against each other."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median_low

from tests.bench.contention import results
from tests.bench.contention.cells import POLICIES, Cell
from tests.bench.contention.crew import together
from tests.bench.contention.ground import Ground, check, rows_for
from tests.bench.contention.outcome import Outcome
from tests.bench.contention.window import Told, window
from tests.bench.core.setting import Setting

__all__ = ["Run"]

OURS = "helping"
HONEST_LIMIT = "blind_update"
COLD_TURNS = 5


@dataclass
class Run:
    """One run: its setting, the length of a window in seconds, and what was found."""

    setting: Setting
    length: float
    outcomes: dict[Cell, Outcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ground = Ground(self.setting)

    def measure(self, cell: Cell, length: float | None = None) -> Outcome:
        """Measure one cell in one window; raise if an operation was lost or applied twice."""
        length = length or self.length
        begun = time.monotonic()
        url = self.ground.fresh(cell.database)
        rows, own = rows_for(cell, url)
        tasks = [(window, (cell, url, each, mine, length)) for each, mine in zip(rows, own, strict=True)]
        told: list[Told] = together(tasks, length)
        check(cell, url, sorted({row for each in rows for row in each}, key=str), *_counts(told))
        outcome = self.outcomes[cell] = Outcome.of(told, length)
        took = time.monotonic() - begun
        self.setting.console.print(f"  {cell}: {outcome.rate:,.0f}/s; {took:.0f} s", highlight=False)
        return outcome

    def measure_all(self, cells: Iterable[Cell]) -> None:
        """Measure the cells that were not measured yet; what was found is kept after each."""
        for cell in cells:
            if cell not in self.outcomes:
                self.measure(cell)
                results.save(self.outcomes)

    def hot_5ms(self) -> None:
        """Compare ours with the best of the others."""
        cells = hot_cells("5ms")
        self.measure_all(cells.values())
        ours, record = self.outcomes[cells[OURS]], self._record("hot_5ms_32")
        others = [self.outcomes[cell] for name, cell in cells.items() if name != OURS]
        record("rate_vs_best_other", ours.rate / max(other.rate for other in others))
        record("p99_vs_best_other", ours.p99 / min(other.p99 for other in others))
        record("worst_attempts", ours.attempts_worst)
        record("fairness", ours.fairness)
        record("errors", ours.errors)
        record("rate", ours.rate)
        record("p99_ms", ours.p99)
        record("worst_ms", ours.worst)

    def hot_0ms(self) -> None:
        """Compare ours with each of some others."""
        cells = hot_cells("0ms")
        self.measure_all(cells.values())
        found, record = {name: self.outcomes[cell] for name, cell in cells.items()}, self._record("hot_0ms_32")
        ours, jitter = found[OURS], found["cas_jitter"]
        for name in ("for_update", "serializable", "cas"):
            record(f"rate_vs_{name}", ours.rate / found[name].rate)
        for name in ("cas_jitter", "advisory"):
            record(f"worst_vs_{name}", ours.worst / found[name].worst)
        # a process that did nothing counts as one that did one operation: no ratio to 0
        record("fairness_vs_cas_jitter", ours.fairness / max(jitter.fairness, 1 / max(jitter.fastest, 1)))
        record("errors", ours.errors)
        record("rate", ours.rate)
        record("p99_ms", ours.p99)
        record("worst_ms", ours.worst)
        record("fairness", ours.fairness)

    def cold(self) -> None:
        """Let ours and ``cas`` take turns: what is compared is a few percent."""
        pair = {name: Cell("postgres", "cold", "0ms", 8, name) for name in (OURS, "cas")}
        turns: dict[str, list[Outcome]] = {name: [] for name in pair}
        for turn in range(COLD_TURNS):
            for name in list(pair)[:: -1 if turn % 2 else 1]:
                turns[name].append(self.measure(pair[name], self.length / COLD_TURNS))
        for name, cell in pair.items():
            middle = median_low([outcome.rate for outcome in turns[name]])
            self.outcomes[cell] = next(outcome for outcome in turns[name] if outcome.rate == middle)
        results.save(self.outcomes)
        rates = {name: [outcome.rate for outcome in found] for name, found in turns.items()}
        ratios = [ours / cas for ours, cas in zip(rates[OURS], rates["cas"], strict=True)]
        self.setting.figures.record("cold_rate_vs_cas", ratios)
        self.setting.figures.record("cold_rate", rates[OURS])

    def _record(self, group: str) -> _Recorder:
        return _Recorder(self.setting, group)


@dataclass(frozen=True)
class _Recorder:
    setting: Setting
    group: str

    def __call__(self, name: str, value: float) -> None:
        self.setting.figures.record(f"{self.group}_{name}", [value])


def hot_cells(work: str) -> dict[str, Cell]:
    """The cells with a bar of one hot entity, by policy."""
    return {name: Cell("postgres", "hot", work, 32, name) for name in POLICIES["postgres"] if name != HONEST_LIMIT}


def _counts(told: Iterable[Told]) -> tuple[int, int]:
    pairs = [(each.applied, each.unknown) for each in told]
    return sum(applied for applied, _ in pairs), sum(unknown for _, unknown in pairs)
