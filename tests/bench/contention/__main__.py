"""Run the cells which have a bar, or all, or some of them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from fnmatch import fnmatch

from rich.console import Console

from tests.bench.contention import charts, exclusive, results, trips
from tests.bench.contention.bars import BARS, GROUPS
from tests.bench.contention.cells import Cell, every_cell
from tests.bench.contention.measure import Run
from tests.bench.core.setting import Setting
from tests.bench.figures import Figures

LENGTH, QUICK_LENGTH = 20.0, 2.0
MEASURES: dict[str, Callable[[Run], None]] = {
    "round_trips": lambda run: trips.measure(run.setting),
    "hot_5ms_32": Run.hot_5ms,
    "hot_0ms_32": Run.hot_0ms,
    "cold": Run.cold,
    "exclusive": lambda run: exclusive.measure(run.setting, run.ground, run.length),
}


def main() -> int:
    """Measure, print the tables, write build/bench/. Missed bars are reported; only a crash fails."""
    parser = _parser()
    arguments = parser.parse_args()
    groups, cells = _meant(arguments.only, arguments.full)
    if not groups and not cells:
        parser.error(f"no figure, group or cell is called {arguments.only}; a cell: {every_cell()[0]}")
    console = Console(width=None if sys.stdout.isatty() else 140)
    setting = Setting(Figures("contention", BARS), console, arguments.quick)
    run = Run(setting, arguments.length or (QUICK_LENGTH if arguments.quick else LENGTH))
    started = time.monotonic()
    with setting.closing:
        for name in groups:
            begun = time.monotonic()
            MEASURES[name](run)
            console.print(f"{name}: {time.monotonic() - begun:.0f} s", highlight=False)
        run.measure_all(cells)
    results.show(run.outcomes, console)
    if groups:
        setting.figures.show(console)
        console.print(setting.figures.write(keep=bool(arguments.only)), highlight=False)
    for path in charts.write(results.load(), docs=arguments.docs, console=console):
        console.print(path, highlight=False)
    console.print(f"{time.monotonic() - started:.0f} s", highlight=False)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.contention", description=__doc__)
    parser.add_argument("--full", action="store_true", help="all cells, not only those which have a bar: hours")
    parser.add_argument("--quick", action="store_true", help="short windows: to see that all works")
    parser.add_argument("--length", type=float, metavar="SECONDS", help="how long a window is")
    parser.add_argument("--docs", action="store_true", help="write the charts to docs/ too")
    parser.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        help=f"a figure, one of {', '.join(GROUPS)}, or a pattern of cells: postgres/hot/5ms/*/helping",
    )
    return parser


def _meant(only: list[str] | None, full: bool) -> tuple[list[str], list[Cell]]:
    """Return the groups of figures and the cells to measure."""
    if not only:
        return list(GROUPS), every_cell() if full else []
    groups = [name for name, bars in GROUPS.items() if any(wanted == name or wanted in bars for wanted in only)]
    return groups, [cell for cell in every_cell() if any(fnmatch(str(cell), wanted) for wanted in only)]


if __name__ == "__main__":
    sys.exit(main())
