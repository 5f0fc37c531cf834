"""Run the benchmarks of the core, or some of them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from rich.console import Console

from tests.bench.core import bulk, imports, round_trips, rss, same_sql, siblings, sizes, sqlite
from tests.bench.core.bars import BARS, GROUPS
from tests.bench.core.setting import Setting
from tests.bench.figures import Figures

MEASURES: dict[str, Callable[[Setting], None]] = {
    "round_trips": round_trips.measure,
    "same_sql": same_sql.measure,
    "siblings": siblings.measure,
    "sizes": sizes.measure,
    "bulk": bulk.measure,
    "rss": rss.measure,
    "imports": imports.measure,
    "sqlite": sqlite.measure,
}


def main() -> int:
    """Measure, print the table, write build/bench/core.json. Missed bars are reported; only a crash fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.core", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short runs: to see that all works")
    parser.add_argument("--only", metavar="NAME", action="append", help=f"a figure, or one of: {', '.join(GROUPS)}")
    arguments = parser.parse_args()
    groups = [name for name in GROUPS if not arguments.only or _meant(name, arguments.only)]
    if not groups:
        parser.error(f"no figure and no group is called {arguments.only}")
    console = Console(width=None if sys.stdout.isatty() else 120)
    setting = Setting(Figures("core", BARS), console, arguments.quick)
    started = time.monotonic()
    with setting.closing:
        for name in groups:
            begun = time.monotonic()
            MEASURES[name](setting)
            console.print(f"{name}: {time.monotonic() - begun:.0f} s", highlight=False)
    setting.figures.show(console)
    path = setting.figures.write(keep=bool(arguments.only))
    console.print(f"{path}; {time.monotonic() - started:.0f} s", highlight=False)
    return 0


def _meant(group: str, wanted: list[str]) -> bool:
    return any(name == group or name in GROUPS[group] for name in wanted)


if __name__ == "__main__":
    sys.exit(main())
