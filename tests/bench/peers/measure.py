"""Measures the mix: one crew for each arrangement, in which the contenders take turns. Then it checks them.

There are so many processes with one thread each; and, as the main arrangement, two processes with 16 threads each.

The windows that are timed are not recorded (writing each operation down costs more than 3 %); one more window of each
contender, on a fresh database, is. The tables of both are checked.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from statistics import median

from tests.bench.combining.window import Cell as ThreadsCell
from tests.bench.combining.window import windows as threads_windows
from tests.bench.contention.crew import together
from tests.bench.core.setting import Setting
from tests.bench.peers.anomalies import in_records, in_tables
from tests.bench.peers.bars import MAIN
from tests.bench.peers.contenders import LOCK_PEERS, ON_SERVERS, SERVERS
from tests.bench.peers.ground import Ground
from tests.bench.peers.told import Figure, Told
from tests.bench.peers.window import Cell, windows
from tests.bench.timing import ratios

__all__ = ["Check", "Run"]

OURS, IN_HAND = "ours", "ours_in_hand"

Size = int | str
"""A number of processes with one thread each, or the name of the main arrangement."""
Check = Callable[[str, Path], Counter[str]]
"""Of a database and the folder of what was recorded of it: what is wrong, by rule."""


@dataclass
class Run:
    """One run: how long a window is in seconds, how many turns, and what was found."""

    setting: Setting
    ground: Ground
    length: float
    recorded: float
    """The length of the windows that are recorded."""
    turns: int
    """0: the windows that are recorded are the only ones."""
    clients: Sequence[int]
    figures: dict[tuple[str, Size], list[Figure]] = field(default_factory=lambda: defaultdict(list))
    anomalies: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """By our own count."""
    histories: list[tuple[str, str, Path]] = field(default_factory=list)
    """What was recorded: whose it is, the URL of its database, the folder."""
    findings: dict[str, Counter[str]] | None = None
    """By the checker's; None: it did not look."""
    operations: Counter[str] = field(default_factory=Counter)
    """How many were recorded of each contender."""
    errors: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def __post_init__(self) -> None:
        self._numbers = count()

    @property
    def sizes(self) -> list[Size]:
        """All arrangements, the main one last."""
        return [*self.clients, MAIN.name]

    def measure(self, folder: Path) -> None:
        """Measure every contender with each number of clients; those windows that are recorded go below ``folder``."""
        urls = {name: self.ground.fresh() for name in self.ground.contenders} if self.turns else {}
        for clients in self.clients:
            begun = time.monotonic()
            plan = self._timed(clients, urls)
            first = len(urls) if self.turns > 1 else 0  # a turn before the first, which finds nothing in memory
            plan = [*(replace(cell, number=next(self._numbers)) for cell in plan[:first]), *plan]
            if clients == max(self.clients):
                plan += self._recorded(clients, folder)
            self.ground.settle()
            for cell, told in list(zip(plan, self._crew(plan), strict=True))[first:]:
                self._note(cell, told)
            self._say(f"{clients} clients: {len(plan)} windows; {time.monotonic() - begun:.0f} s")
            self.histories += [(cell.contender, cell.url, cell.folder) for cell in plan if cell.folder is not None]
        self._measure_threads()
        for name, url in urls.items():
            self.anomalies[name] += in_tables(url)
            self.ground.server.drop_database(url)
        for name, url, recorded in self.histories:
            self.anomalies[name] += in_tables(url) + in_records(url, recorded)

    def _measure_threads(self) -> None:
        """Measure the main arrangement: the threads of ours share a store, and know no entity in hand."""
        begun, names = time.monotonic(), [name for name in self.ground.contenders if name != IN_HAND]
        urls = {name: self.ground.fresh() for name in names}
        cells = [
            ThreadsCell(name, MAIN, urls[name], next(self._numbers), turn, self.length, self.ground.ports.get(name))
            for turn in range(max(1, self.turns))
            for name in names[turn % len(names) :] + names[: turn % len(names)]
        ]
        self.ground.settle()
        tasks = [(threads_windows, (cells, self.ground.lake, process)) for process in range(MAIN.processes)]
        found = together(tasks, sum(cell.length + 10 for cell in cells))
        for n, cell in enumerate(cells):
            told = [each for process in found for each in process[n]]
            self.errors[cell.contender] += sum((each.errors for each in told), Counter[str]())
            self.figures[cell.contender, MAIN.name].append(Figure.of(told, cell.length))
        for name, url in urls.items():
            self.anomalies[name] += in_tables(url)
            self.ground.server.drop_database(url)
        self._say(f"{MAIN.name} threads: {len(cells)} windows; {time.monotonic() - begun:.0f} s")

    def check(self, check: Check) -> None:
        """Let the checker look at what was recorded."""
        begun = time.monotonic()
        self.findings = {name: check(url, folder) for name, url, folder in self.histories}
        self._say(f"checked {len(self.findings)} histories; {time.monotonic() - begun:.0f} s")

    def _timed(self, clients: int, urls: Mapping[str, str]) -> list[Cell]:
        """Every turn begins with another contender."""
        names = self.ground.contenders
        order = [(turn, names[(turn + n) % len(names)]) for turn in range(self.turns) for n in range(len(names))]
        return [self._cell(name, clients, urls[name], turn, self.length) for turn, name in order]

    def _recorded(self, clients: int, folder: Path) -> list[Cell]:
        names = self.ground.contenders
        last, fresh = self.turns, self.ground.fresh
        return [self._cell(name, clients, fresh(), last, self.recorded, folder / name) for name in names]

    def record(self) -> None:
        """Hand over the figures."""
        record = self.setting.figures.record
        for (name, size), turns in self.figures.items():
            cell = f"mixed_{size}_{name}"
            record(f"{cell}_per_s", [turn.rate for turn in turns])
            record(f"{cell}_p50_ms", [turn.p50 for turn in turns])
            record(f"{cell}_p99_ms", [turn.p99 for turn in turns])
            record(f"{cell}_client_us", [turn.cpu_us for turn in turns])
            record(f"{cell}_round_trips", [turn.trips for turn in turns])
            record(f"{cell}_failed", [turn.failed for turn in turns])
        for size in self.sizes:
            self._against("peer", size, LOCK_PEERS)
            self._against("service", size, SERVERS)
        if (best := self.best(LOCK_PEERS, MAIN.name)) is not None and (OURS, MAIN.name) in self.figures:
            pair = [[turn.trips for turn in self.figures[name, MAIN.name]] for name in (OURS, best)]
            record("round_trips_vs_best_lock_peer", ratios(*pair))
        for name in self.ground.contenders:
            figure = "anomalies_treelock_two_servers" if name == ON_SERVERS else f"anomalies_{name}"
            record(figure, [self.wrong(name)])

    def best(self, names: Sequence[str], size: Size) -> str | None:
        """Return the one of these with the most operations per second."""
        there = [name for name in names if (name, size) in self.figures]
        return max(there, key=lambda name: self.middle(name, size, "rate"), default=None)

    def wrong(self, name: str) -> int:
        """Return how many anomalies there are: by the count that sees more."""
        found = 0 if self.findings is None else self.findings[name].total()
        return max(found, self.anomalies[name].total())

    def middle(self, name: str, size: Size, what: str) -> float:
        """Return the median of the turns."""
        return median(getattr(turn, what) for turn in self.figures[name, size])

    def _against(self, what: str, size: Size, names: Sequence[str]) -> None:
        best = self.best(names, size)
        if best is not None and (OURS, size) in self.figures:
            pair = [[turn.rate for turn in self.figures[name, size]] for name in (OURS, best)]
            self.setting.figures.record(f"mixed_{size}_vs_best_lock_{what}", ratios(*pair))

    def _cell(self, name: str, clients: int, url: str, turn: int, length: float, folder: Path | None = None) -> Cell:
        return Cell(name, clients, url, self.ground.ports.get(name), next(self._numbers), turn, length, folder)

    def _crew(self, cells: Sequence[Cell]) -> list[list[Told]]:
        """Run all windows in one crew of processes; return for each what its clients were told."""
        tasks = [(windows, (cells, self.ground.lake, process)) for process in range(cells[0].clients)]
        found = together(tasks, sum(cell.length + 10 for cell in cells))
        return [[told for process in found for told in process[n]] for n in range(len(cells))]

    def _note(self, cell: Cell, told: Sequence[Told]) -> None:
        self.errors[cell.contender] += sum((each.errors for each in told), Counter[str]())
        if cell.folder is None or not self.turns:
            self.figures[cell.contender, cell.clients].append(Figure.of(told, cell.length))
        if cell.folder is not None:
            self.operations[cell.contender] += sum(each.in_time for each in told)

    def _say(self, text: str) -> None:
        self.setting.console.print(f"  {text}", highlight=False)
