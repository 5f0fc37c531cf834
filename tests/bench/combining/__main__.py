"""Measure the mix and one hot table in each arrangement; write build/bench/combining.json."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from rich.console import Console

import metastore as ms
from tests.bench.combining.hot_table import COUNTER, HOT_TABLE, PEER, Counted, hot_windows
from tests.bench.combining.sqlite import written_per_s
from tests.bench.combining.window import ASYNC, BEFORE, OURS, Arrangement, Cell, windows
from tests.bench.contention.crew import together
from tests.bench.contention.outcome import percentile
from tests.bench.core.setting import Setting
from tests.bench.figures import Bar, Figures, reported
from tests.bench.peers.anomalies import in_tables
from tests.bench.peers.ground import Ground
from tests.bench.peers.mix import Lake
from tests.bench.peers.told import Figure, Told
from tests.bench.timing import ratios

PEERS = ("for_update", "advisory", "treelock")
LOCK_PEERS = ("for_update", "advisory")
ARRANGEMENTS = (
    Arrangement("mix_1x1", 1, 1),
    Arrangement("mix_32x1", 32, 1),
    Arrangement("mix_2x16", 2, 16),
    Arrangement("mix_2x64", 2, 64),
    Arrangement("hot_2x16", 2, 16, hot=True),
)
WITH_TASKS = "mix_2x64"
"""The arrangement in which the async store takes its turn too."""
SQLITE = "sqlite"
OF_A_CELL = ("per_s", "p50_ms", "p99_ms", "client_us", "round_trips", "fairness")


def bars() -> dict[str, Bar]:
    """Return every figure and its bar."""
    return {
        "mix_1x1_vs_for_update": Bar(">=", 0.95),
        "mix_32x1_vs_for_update": Bar(">=", 0.9),
        "mix_2x16_vs_for_update": Bar(">=", 1.8),
        "mix_2x64_vs_for_update": Bar(">=", 3),
        "hot_2x16_vs_for_update": Bar(">=", 6),
        "mix_2x64_vs_best_lock_peer": Bar(">=", 3),
        "async_2x64_vs_for_update": Bar(">=", 3),
        "p99_2x64_vs_for_update": Bar("<=", 0.3),
        "trips_2x64": Bar("<=", 0.2),
        "client_us_2x64": Bar("<=", 100),
        "one_thread_latency_vs_before": Bar("<=", 1.0),
        "fairness_2x64": Bar(">=", 0.5),
        "hot_table_16_vs_1": Bar(">=", 0.5),
        "hot_table_16_vs_for_update": Bar(">=", 0.6),
        "hot_table_16_worst_attempts": Bar("<=", 4),
        "hot_table_16_fairness": Bar(">=", 0.7),
        "hot_table_1x16_vs_for_update": Bar(">=", 2.5),
        "hot_table_2x16_vs_for_update": Bar(">=", 2.5),
        "hot_table_2x16_fairness": Bar(">=", 0.5),
        "hot_table_2x16_worst_attempts": Bar("<=", 4),
        "hot_table_2x16_trips": Bar("<=", 0.7),
        "hot_table_1x16_trips": reported,
        **{f"{one.name}_{name}_per_s": reported for one in HOT_TABLE for name in (OURS, PEER)},
        **{f"{one.name}_{name}_p99_ms": reported for one in HOT_TABLE for name in (OURS, PEER)},
        "sqlite_16_threads_vs_before": Bar(">=", 3),
        "sqlite_16_threads_per_s": reported,
        "sqlite_16_threads_before_per_s": reported,
        "violations": Bar("<=", 0),
        "load_of_the_machine": reported,
        **{
            f"{one.name}_{name}_{what}": reported
            for one in ARRANGEMENTS
            for name in contenders(one)
            for what in OF_A_CELL
        },
    }


def contenders(arrangement: Arrangement) -> list[str]:
    """Return who takes a turn in an arrangement."""
    return [OURS, BEFORE, *PEERS, *([ASYNC] if arrangement.name == WITH_TASKS else [])]


@dataclass
class Run:
    """One run: how long a window is in seconds, how many turns, and what was found."""

    setting: Setting
    ground: Ground
    length: float
    turns: int
    figures: dict[tuple[str, str], list[Figure]] = field(default_factory=lambda: defaultdict(list))
    fairness: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    hot: dict[tuple[str, str], list[list[Counted]]] = field(default_factory=lambda: defaultdict(list))
    violations: int = 0
    _numbers: count[int] = field(default_factory=count)

    def measure(self, arrangement: Arrangement) -> None:
        """Let the contenders take turns in one arrangement; then look for what is wrong in the tables."""
        names = contenders(arrangement)
        urls = {name: self.ground.fresh() for name in names}
        order = [names[(turn + n) % len(names)] for turn in range(self.turns) for n in range(len(names))]
        cells = [
            Cell(name, arrangement, urls[name], next(self._numbers), n // len(names), self.length)
            for n, name in enumerate(order)
        ]
        self.ground.settle()
        tasks = [(windows, (cells, self.ground.lake, process)) for process in range(arrangement.processes)]
        found = together(tasks, sum(cell.length + 10 for cell in cells))
        for n, cell in enumerate(cells):
            self._note(cell, [told for process in found for told in process[n]])
        for name, url in urls.items():
            wrong = in_tables(url).total()
            if name in (OURS, BEFORE, ASYNC):
                with ms.open(url) as store:
                    wrong += len(store.verify())
                self.violations += wrong
            self.setting.console.print(f"{arrangement.name} {name}: {self._said(arrangement, name)}, {wrong} wrong")
            self.ground.server.drop_database(url)

    def measure_hot(self, arrangement: Arrangement) -> None:
        """Let ours and the row locks take turns at one hot table; then compare the counter with what was committed."""
        names = [OURS, PEER]
        urls = {name: self.ground.fresh() for name in names}
        cells = [
            Cell(name, arrangement, urls[name], next(self._numbers), turn, self.length)
            for turn in range(self.turns)
            for name in (names if turn % 2 == 0 else names[::-1])
        ]
        self.ground.settle()
        tasks = [(hot_windows, (cells, self.ground.lake, process)) for process in range(arrangement.processes)]
        found = together(tasks, sum(cell.length + 10 for cell in cells))
        counts: dict[str, int] = defaultdict(int)
        for n, cell in enumerate(cells):
            clients = [one for process in found for one in process[n]]
            self.hot[arrangement.name, cell.contender].append(clients)
            counts[cell.contender] += sum(one.counts for one in clients)
            self._say_hot(cell, clients)
        for name, url in urls.items():
            with ms.open(url) as store:
                counter = store.tables.load(self.ground.lake.path(0)).properties[COUNTER]
                self.violations += (int(counter) != counts[name]) + (len(store.verify()) if name == OURS else 0)
            self.ground.server.drop_database(url)

    def measure_sqlite(self) -> None:
        """Let threads that share a transaction on SQLite take turns with threads that do not."""
        rates: dict[bool, list[float]] = {True: [], False: []}
        with tempfile.TemporaryDirectory() as folder:
            for turn in range(self.turns):
                for together_ in (False, True) if turn % 2 == 0 else (True, False):
                    place = Path(folder) / f"{turn}{together_}"
                    rates[together_].append(written_per_s(place, self.length, together=together_))
        self.setting.figures.record("sqlite_16_threads_per_s", rates[True])
        self.setting.figures.record("sqlite_16_threads_before_per_s", rates[False])
        self.setting.figures.record("sqlite_16_threads_vs_before", ratios(rates[True], rates[False]))

    def _say_hot(self, cell: Cell, clients: Sequence[Counted]) -> None:
        attempts = [n for one in clients for n in one.attempts] or [0]
        done, name = [one.done for one in clients], f"{cell.arrangement.name} {cell.contender}"
        self.setting.console.print(
            f"{name}: {_rate(clients, cell.length):,.0f}/s, p99 {_p99(clients):.0f} ms, slowest/fastest "
            f"{min(done) / max(done):.2f}, attempts worst {max(attempts)}, mean {sum(attempts) / len(attempts):.2f}, "
            f"{_trips(clients):.2f} round trips"
        )

    def _record_hot(self) -> None:
        note, rates = self.setting.figures.record, dict[tuple[str, str], list[float]]()
        for (arrangement, name), turns in self.hot.items():
            rates[arrangement, name] = [_rate(clients, self.length) for clients in turns]
            note(f"{arrangement}_{name}_per_s", rates[arrangement, name])
            note(f"{arrangement}_{name}_p99_ms", [_p99(clients) for clients in turns])
        for arrangement in ("hot_table_16", "hot_table_1x16", "hot_table_2x16"):
            if (arrangement, OURS) in rates:
                note(f"{arrangement}_vs_for_update", ratios(rates[arrangement, OURS], rates[arrangement, PEER]))
        for arrangement in ("hot_table_1x16", "hot_table_2x16"):
            if (arrangement, OURS) in rates:
                note(f"{arrangement}_trips", [_trips(turn) for turn in self.hot[arrangement, OURS]])
        if ("hot_table_2x16", OURS) in rates:
            threads = self.hot["hot_table_2x16", OURS]
            note("hot_table_2x16_worst_attempts", [max(n for one in turn for n in one.attempts) for turn in threads])
            note("hot_table_2x16_fairness", [min(c.done for c in t) / max(c.done for c in t) for t in threads])
        if ("hot_table_16", OURS) in rates:
            sixteen = self.hot["hot_table_16", OURS]
            note("hot_table_16_worst_attempts", [max(n for one in turn for n in one.attempts) for turn in sixteen])
            note("hot_table_16_fairness", [min(c.done for c in t) / max(c.done for c in t) for t in sixteen])
            if ("hot_table_1", OURS) in rates:
                note("hot_table_16_vs_1", ratios(rates["hot_table_16", OURS], rates["hot_table_1", OURS]))

    def _note(self, cell: Cell, told: Sequence[Told]) -> None:
        key = cell.arrangement.name, cell.contender
        self.figures[key].append(Figure.of(told, cell.length))
        done = [each.in_time for each in told]
        self.fairness[key].append(min(done) / max(done))

    def _said(self, arrangement: Arrangement, name: str) -> str:
        one = self.figures[arrangement.name, name][-1]
        return f"{one.rate:,.0f}/s, p99 {one.p99:.0f} ms, {one.cpu_us:.0f} µs, {one.trips:.2f} round trips"

    def record(self) -> None:
        """Hand over the figures."""
        self._record_hot()
        note = self.setting.figures.record
        for (arrangement, name), turns in self.figures.items():
            cell = f"{arrangement}_{name}"
            note(f"{cell}_per_s", [turn.rate for turn in turns])
            note(f"{cell}_p50_ms", [turn.p50 for turn in turns])
            note(f"{cell}_p99_ms", [turn.p99 for turn in turns])
            note(f"{cell}_client_us", [turn.cpu_us for turn in turns])
            note(f"{cell}_round_trips", [turn.trips for turn in turns])
            note(f"{cell}_fairness", self.fairness[arrangement, name])
        for arrangement in {arrangement for arrangement, _ in self.figures}:
            note(f"{arrangement}_vs_for_update", self._ratios(arrangement, "for_update", "rate"))
        if ("mix_1x1", OURS) in self.figures:
            note("one_thread_latency_vs_before", self._ratios("mix_1x1", BEFORE, "p50"))
        if ("mix_2x64", OURS) in self.figures:
            best = max(LOCK_PEERS, key=lambda name: sum(one.rate for one in self.figures["mix_2x64", name]))
            note("mix_2x64_vs_best_lock_peer", self._ratios("mix_2x64", best, "rate"))
            note("async_2x64_vs_for_update", self._ratios("mix_2x64", "for_update", "rate", ASYNC))
            note("p99_2x64_vs_for_update", self._ratios("mix_2x64", "for_update", "p99"))
            note("trips_2x64", [one.trips for one in self.figures["mix_2x64", OURS]])
            note("client_us_2x64", [one.cpu_us for one in self.figures["mix_2x64", OURS]])
            note("fairness_2x64", self.fairness["mix_2x64", OURS])
        note("violations", [self.violations])

    def _ratios(self, arrangement: str, peer: str, what: str, ours: str = OURS) -> list[float]:
        pair = [[getattr(one, what) for one in self.figures[arrangement, name]] for name in (ours, peer)]
        return ratios(*pair)


def _rate(clients: Sequence[Counted], length: float) -> float:
    return sum(one.done for one in clients) / length


def _p99(clients: Sequence[Counted]) -> float:
    return 1000 * percentile([second for one in clients for second in one.seconds], 0.99)


def _trips(clients: Sequence[Counted]) -> float:
    return sum(one.trips for one in clients) / max(1, sum(len(one.seconds) for one in clients))


def main() -> int:
    """Measure; return 1 if what must be right is not. Missed bars are reported and fail nothing."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.combining", description=__doc__)
    parser.add_argument("--short", action="store_true", help="one turn of short windows")
    parser.add_argument("--length", type=float, metavar="SECONDS", help="how long a window is (4; in short 1.5)")
    parser.add_argument("--turns", type=int, metavar="N", help="how often each window is repeated (3; in short 1)")
    parser.add_argument("--only", action="append", metavar="ARRANGEMENT", help="one of them")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    setting = Setting(Figures("combining", bars()), console, arguments.short)
    wanted = arguments.only or [*(one.name for one in (*ARRANGEMENTS, *HOT_TABLE)), SQLITE]
    length = arguments.length or (1.5 if arguments.short else 4.0)
    turns = arguments.turns or (1 if arguments.short else 3)
    loads = [os.getloadavg()[0]]
    with setting.closing:
        run = Run(setting, Ground(setting, setting.durable, Lake(), list(PEERS)), length, turns)
        for arrangement in ARRANGEMENTS:
            if arrangement.name in wanted:
                run.measure(arrangement)
                loads.append(os.getloadavg()[0])
        for arrangement in HOT_TABLE:
            if arrangement.name in wanted:
                run.measure_hot(arrangement)
                loads.append(os.getloadavg()[0])
        if SQLITE in wanted:
            run.measure_sqlite()
        run.record()
    setting.figures.record("load_of_the_machine", loads)
    setting.figures.show(console)
    console.print(setting.figures.write(keep=bool(arguments.only)), highlight=False)
    return int(run.violations > 0)


if __name__ == "__main__":
    sys.exit(main())
