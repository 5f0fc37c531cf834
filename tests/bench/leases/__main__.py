"""Run the benchmarks of leases, or some of them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from rich.console import Console

from tests.bench.core.setting import Setting
from tests.bench.figures import Figures
from tests.bench.leases import documents, fenced, results, trips
from tests.bench.leases.bars import BARS, GROUPS
from tests.bench.leases.cells import PEERS, PROCESSES
from tests.bench.leases.measure import Run
from tests.bench.leases.places import ground

LENGTH, QUICK_LENGTH = 2.0, 0.3
TURNS = 3
VALUES, QUICK_VALUES = 9, 2


def main() -> int:
    """Measure, print the tables, write build/bench/leases.json. Missed bars are reported; only a crash fails."""
    parser = _parser()
    arguments = parser.parse_args()
    only = arguments.only or [*GROUPS, *PEERS]
    groups = [name for name in GROUPS if name in only] or ["cells"]
    peers = [name for name in PEERS if name in only] or list(PEERS)
    if arguments.docs and arguments.only:
        parser.error("the document is written by a run of everything: --docs goes without --only")
    if unknown := sorted({*only} - {*GROUPS, *PEERS}):
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join([*GROUPS, *PEERS])}")
    console = Console(width=None if sys.stdout.isatty() else 200)
    setting = Setting(Figures("leases", BARS), console, arguments.quick)
    started = time.monotonic()
    with setting.closing:
        run = _measured(setting, groups, peers, arguments)
    results.show(run, console)
    results.headline(setting.figures).show(console)
    console.print(setting.figures.write(keep=bool(arguments.only)), highlight=False)
    if not arguments.only:
        console.print(documents.write(run, docs=arguments.docs), highlight=False)
    console.print(f"{time.monotonic() - started:.0f} s", highlight=False)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.leases", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short windows, one turn: to see that all works")
    parser.add_argument("--length", type=float, metavar="SECONDS", help=f"how long a window is ({LENGTH:g})")
    parser.add_argument("--turns", type=int, metavar="N", help=f"how often each window is repeated ({TURNS})")
    parser.add_argument("--docs", action="store_true", help="write the figures into docs/performance-leases.md too")
    parser.add_argument(
        "--only", metavar="NAME", action="append", help=f"{', '.join(GROUPS)}, or one of {', '.join(PEERS)}"
    )
    return parser


def _measured(setting: Setting, groups: list[str], peers: list[str], arguments: argparse.Namespace) -> Run:
    where = ground(setting, peers, max(PROCESSES))
    for peer, why in where.missing.items():
        setting.console.print(f"{peer} is left out: {why}", highlight=False)
    present = [peer for peer in peers if peer not in where.missing]
    length = arguments.length or (QUICK_LENGTH if arguments.quick else LENGTH)
    run = Run(setting, where, present, length, arguments.turns or (1 if arguments.quick else TURNS))
    measures: dict[str, Callable[[], None]] = {
        "round_trips": lambda: trips.measure(setting, where, present),
        "fenced": lambda: fenced.measure(setting, where.places.postgres, QUICK_VALUES if arguments.quick else VALUES),
        "cells": run.cells,
    }
    for name in groups:
        begun = time.monotonic()
        measures[name]()
        setting.console.print(f"{name}: {time.monotonic() - begun:.0f} s", highlight=False)
    return run


if __name__ == "__main__":
    sys.exit(main())
