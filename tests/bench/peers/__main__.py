"""Run the benchmark beside the peers."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from tests.bench.core.setting import Setting
from tests.bench.figures import Figures
from tests.bench.peers import documents, results
from tests.bench.peers.bars import CLIENTS, bars
from tests.bench.peers.contenders import CONTENDERS, ON_SERVERS
from tests.bench.peers.ground import Ground
from tests.bench.peers.history import checker
from tests.bench.peers.measure import Run
from tests.bench.peers.mix import Lake
from tests.bench.peers.printed import print_statements
from tests.servers.listening import Missing

LENGTH, SHORT_LENGTH = 4.0, 1.5
TURNS = 3
CHECKED = 3.0
"""Seconds of the windows that are recorded; in short there are no others."""


def main() -> int:
    """Measure, print the tables, write build/bench/peers.json; return 1 if what must be right is not.

    Missed bars are reported and fail nothing.
    """
    parser = _parser()
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    if arguments.statements:
        print_statements(console)
        return 0
    wanted = arguments.only or list(CONTENDERS)
    if unknown := sorted({*wanted} - {*CONTENDERS}):
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(CONTENDERS)}")
    clients = arguments.clients or ((max(CLIENTS),) if arguments.short else CLIENTS)
    setting = Setting(Figures("peers", bars(clients)), console, arguments.short)
    started = time.monotonic()
    with setting.closing:
        run = _measured(setting, wanted, clients, arguments)
    results.show(run, console)
    setting.figures.show(console)
    console.print(setting.figures.write(keep=bool(arguments.only)), highlight=False)
    if not arguments.only:
        console.print(documents.write(run, docs=arguments.docs), highlight=False)
    console.print(f"{time.monotonic() - started:.0f} s", highlight=False)
    return int(any(run.wrong(name) for name in run.ground.contenders if name != ON_SERVERS))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers", description=__doc__)
    parser.add_argument("--short", action="store_true", help="one window of each, with the most clients; no Spark")
    parser.add_argument("--length", type=float, metavar="SECONDS", help=f"how long a window is ({LENGTH:g})")
    parser.add_argument("--turns", type=int, metavar="N", help=f"how often each window is repeated ({TURNS})")
    parser.add_argument("--clients", type=int, nargs="+", metavar="N", help="how many clients (1 8 32)")
    parser.add_argument("--schemas", type=int, default=Lake.schemas, help="how many schemas have the 10,000 tables")
    parser.add_argument("--statements", action="store_true", help="print what each peer sends, and do nothing else")
    parser.add_argument("--docs", action="store_true", help="write the figures into docs/performance-peers.md too")
    parser.add_argument("--only", metavar="NAME", action="append", help=f"one of {', '.join(CONTENDERS)}")
    return parser


def _measured(setting: Setting, wanted: list[str], clients: tuple[int, ...], arguments: argparse.Namespace) -> Run:
    ground = Ground(setting, setting.durable, Lake(schemas=arguments.schemas), wanted)
    for name, why in ground.missing.items():
        setting.console.print(f"{name} is left out: {why}", highlight=False)
    length = arguments.length or (SHORT_LENGTH if arguments.short else LENGTH)
    recorded, turns = (SHORT_LENGTH, 0) if arguments.short else (CHECKED, TURNS)
    run = Run(setting, ground, length, recorded, turns if arguments.turns is None else arguments.turns, clients)
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        run.measure(Path(folder))
        if not arguments.short:
            try:
                with checker() as check:
                    run.check(check)
            except Missing as reason:
                setting.console.print(f"the history checker is left out: {reason}", highlight=False)
    run.record()
    return run


if __name__ == "__main__":
    sys.exit(main())
