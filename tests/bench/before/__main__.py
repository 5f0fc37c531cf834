"""Measure this tree beside the tree of an earlier commit: ``python -m tests.bench.before --before REV``.

Both are opened on databases of one server and take turns of a fraction of a second, so that a change of the machine's
mood meets both. A ratio is that of one turn, the figure the median of all. Above 1, this tree is faster; of processor
time (``cpu``: the client's; ``server_cpu``: the server's for it), this tree takes more.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from statistics import median

from rich.console import Console
from rich.progress import track

from tests.bench.before.trees import COUNTS, ROOT, Side, tree_of
from tests.bench.core.setting import COMMON, DURABLE
from tests.bench.figures import Bar, Figures, reported
from tests.bench.timing import ratios
from tests.servers.postgres import PostgresServer

BARS = {
    "write_vs_before": Bar(">=", 0.98),
    "read_vs_before": Bar(">=", 0.98),
    "hot_vs_before": Bar(">=", 0.95),
    **{f"{verb}_vs_before": reported for verb in ("alter", "create", "drop")},
    **{f"{verb}_cpu_vs_before": reported for verb in ("alter", "create", "load")},
    **{f"{verb}_server_cpu_vs_before": reported for verb in ("alter", "create", "load")},
    **{f"{verb}_per_s": reported for verb in COUNTS},
}


def main() -> int:
    """Print the table, write build/bench/before.json. Missed bars are reported; only a crash fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.before", description=__doc__)
    parser.add_argument("--before", default="HEAD~1", metavar="REV", help="the commit to compare with")
    parser.add_argument("--turns", type=int, default=40, help="how many turns each verb has")
    parser.add_argument("--only", choices=list(COUNTS), action="append", help="a verb")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    with contextlib.ExitStack() as closing:
        server = closing.enter_context(PostgresServer(settings={**COMMON, **DURABLE}))
        now, before = (Side(root, server, closing) for root in (ROOT, tree_of(arguments.before)))
        verbs = arguments.only or list(COUNTS)
        for turn in track(range(-2, arguments.turns), "turns", console=console, disable=not sys.stdout.isatty()):
            for verb in verbs:
                for side in (now, before) if turn % 2 else (before, now):
                    side.turn(verb, COUNTS[verb], keep=turn >= 0)
    figures = Figures("before", BARS)
    for verb in verbs:
        name = {"load": "read"}.get(verb, verb)
        figures.record(f"{name}_vs_before", ratios(now.rates[verb], before.rates[verb]))
        figures.record(f"{verb}_per_s", now.rates[verb])
        if f"{verb}_cpu_vs_before" in BARS:
            figures.record(f"{verb}_cpu_vs_before", ratios(now.cpu[verb], before.cpu[verb]))
            figures.record(f"{verb}_server_cpu_vs_before", ratios(now.server_cpu[verb], before.server_cpu[verb]))
    writes = [verb for verb in ("alter", "create", "drop") if verb in verbs]
    if writes:
        turns = zip(*(ratios(now.rates[verb], before.rates[verb]) for verb in writes), strict=True)
        figures.record("write_vs_before", [median(turn) for turn in turns])
    figures.show(console)
    console.print(str(figures.write(keep=bool(arguments.only))), highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
