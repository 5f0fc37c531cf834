"""``python -m tests.drills``: let machines fail under clients, and judge what these were told (``make drills``).

Each drill runs in both modes of replication, on a cluster of its own for each mode. The exit code is 0 if every drill
is clean, 1 for a contradiction, 2 if something that a drill needs is missing, or never happened. The record of a drill
that is not clean stays; ``--judge FOLDER`` judges it again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.drills.cluster import Cluster
from tests.drills.judge import Verdict, judged
from tests.drills.kinds import KINDS
from tests.drills.run import run
from tests.joints.judge.verdict import EXIT, Word
from tests.servers.listening import Missing

__all__ = ["main"]

_MODES: Final = ("synchronous", "asynchronous")
_SHOWN: Final = 10
_WIDTH: Final = 130
"""Of the table: in a file its columns are not cut."""
_COLUMNS: Final = {
    "acknowledged": "acknowledged",
    "lost": "lost",
    "bare lost": "bare: lost",
    "held twice": "held twice",
    "tokens again": "tokens again",
    "without service": "no service (s)",
    "bare without service": "bare (s)",
}
"""What the table shows of the figures, and under which title."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    chosen = _parsed(arguments)
    console = Console(stderr=chosen.json)
    if not console.is_terminal:
        console.width = _WIDTH
    try:
        verdicts = [judged(chosen.judge)] if chosen.judge else list(_drills(chosen, console))
    except Missing as missing:
        console.print(f"no drill was run: {missing}", highlight=False)
        return EXIT["unsure"]
    for verdict in verdicts:
        _explain(verdict, console)
    console.print(_table(verdicts))
    if chosen.json:
        print(json.dumps([{"verdict": one.word, **asdict(one)} for one in verdicts], indent=2))
    words: set[Word] = {one.word for one in verdicts}
    return EXIT["contradicted" if "contradicted" in words else "clean" if words == {"clean"} else "unsure"]


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.drills", description=__doc__)
    parser.add_argument("kinds", nargs="*", help=f"of {', '.join(KINDS)}; all without one")
    parser.add_argument("--mode", choices=[*_MODES, "both"], default="both", help="how the cluster replicates")
    parser.add_argument("--drills", type=int, default=0, help="how many in all; without it each once")
    parser.add_argument("--unprotected", action="store_true", help="judge an asynchronous cluster as a synchronous one")
    parser.add_argument("--keep", action="store_true", help="keep the records of clean drills, too")
    parser.add_argument("--judge", type=Path, metavar="FOLDER", help="judge a record that was kept, and run nothing")
    parser.add_argument("--json", action="store_true", help="write the verdicts as JSON")
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.kinds) - set(KINDS):
        parser.error(f"no kind is called {', '.join(sorted(unknown))}")
    return chosen


def _drills(chosen: argparse.Namespace, console: Console) -> Iterator[Verdict]:
    kinds = chosen.kinds or list(KINDS)
    modes = _MODES[:1] if chosen.unprotected else _MODES if chosen.mode == "both" else (chosen.mode,)
    rounds = -(-chosen.drills // (len(kinds) * len(modes))) if chosen.drills else 1
    count = TextColumn("{task.completed}/{task.total}")
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=rounds * len(kinds) * len(modes))
        for mode in modes:
            progress.update(task, description=f"{mode}: the cluster starts")
            with Cluster(synchronous=mode == "synchronous" and not chosen.unprotected) as cluster:
                for number, kind in enumerate(kinds * rounds):

                    def say(what: str, about: str = f"{mode} {kind}") -> None:
                        progress.update(task, description=f"{about}: {what}")

                    yield _drill(cluster, kind, number, chosen, say, console)
                    progress.advance(task)


def _drill(
    cluster: Cluster,
    kind: str,
    number: int,
    chosen: argparse.Namespace,
    say: Callable[[str], None],
    console: Console,
) -> Verdict:
    folder = Path(tempfile.mkdtemp(prefix="metastore-drill-"))
    began = time.monotonic()
    run(cluster, kind, folder, number, say)
    verdict = judged(folder, synchronous=chosen.unprotected or None)
    console.print(f"{verdict.mode} {kind}: {verdict.word} in {time.monotonic() - began:.0f} s", highlight=False)
    if verdict.word == "clean" and not chosen.keep:
        shutil.rmtree(folder)
    else:
        console.print(f"the record stays: --judge {folder}", highlight=False, soft_wrap=True)
    return verdict


def _explain(verdict: Verdict, console: Console) -> None:
    about = f"{verdict.mode} {verdict.kind}"
    for line in verdict.found[:_SHOWN]:
        console.print(f"{about}: {line}", style="red", highlight=False, markup=False, soft_wrap=True)
    for doubt in verdict.doubts:
        console.print(f"{about}: {doubt}", style="yellow", highlight=False, soft_wrap=True)


def _table(verdicts: list[Verdict]) -> Table:
    table = Table("drill", "mode", "verdict", *_COLUMNS.values())
    for one in verdicts:
        table.add_row(one.kind, one.mode, one.word, *(str(one.figures[name]) for name in _COLUMNS))
    return table


if __name__ == "__main__":
    sys.exit(main())
