"""``python -m tests.joints``: run all features beside each other, with faults, and judge every answer.

It goes in rounds of a minute, each on a database of its own. The exit code is 0 if every round is clean, 1 for a
contradiction, 2 if a record is not whole or something that belongs to the plan never happened. The record of a round
that is not clean stays; ``--judge FOLDER`` judges it again.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tests.joints.judge.verdict import EXIT, Verdict, Word, judged
from tests.joints.plans import PLANS
from tests.joints.run import ground, run

_ROUND = 60.0
_SHOWN = 20


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    chosen = _parsed(arguments)
    console = Console(stderr=chosen.json)
    verdicts = _judged_again(chosen) if chosen.judge else _rounds(chosen, console)
    if chosen.json:
        print(json.dumps({"seed": chosen.seed, "rounds": [one.as_json() for one in verdicts]}, indent=2))
    words = {one.word for one in verdicts}
    worst: Word = "contradicted" if "contradicted" in words else "clean" if words == {"clean"} else "unsure"
    colour = {"clean": "green", "unsure": "yellow", "contradicted": "red"}[worst]
    calls = sum(one.calls for one in verdicts)
    console.print(f"[{colour}]{worst}[/{colour}]: {len(verdicts)} rounds, {calls:,} calls, seed {chosen.seed}")
    return EXIT[worst]


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.joints", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="of all rounds together, without the judging")
    parser.add_argument("--database", choices=("postgres", "sqlite", "both"), default="both")
    parser.add_argument("--plan", choices=[*PLANS, "every"], default="every", help="the plan of each round")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of what is called and disturbed")
    parser.add_argument("--judge", type=Path, metavar="FOLDER", help="judge a record that was kept, and run nothing")
    parser.add_argument("--json", action="store_true", help="write the verdict as JSON")
    return parser.parse_args(arguments)


def _judged_again(chosen: argparse.Namespace) -> list[Verdict]:
    verdict = judged(chosen.judge)
    _show(verdict, Console(stderr=chosen.json))
    return [verdict]


def _rounds(chosen: argparse.Namespace, console: Console) -> list[Verdict]:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    verdicts, left, number = [], chosen.seconds, 0
    rounds = _planned(chosen)
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("begins", total=chosen.seconds)
        while left > 1:
            seconds, before = min(_ROUND, left, chosen.seconds / len(rounds)), chosen.seconds - left
            name, database = rounds[number % len(rounds)]

            def say(what: str, elapsed: float, before: float = before, name: str = name) -> None:
                progress.update(task, completed=before + elapsed, description=f"{name}: {what}")

            verdicts.append(_round(name, database, seconds, chosen.seed + number, say, console))
            left -= seconds
            number += 1
    return verdicts


def _planned(chosen: argparse.Namespace) -> list[tuple[str, str]]:
    """Return the plans and the databases of the rounds; they begin again when all had their turn."""
    names = list(PLANS) if chosen.plan == "every" else [chosen.plan]
    wanted = ("postgres", "sqlite") if chosen.database == "both" else (chosen.database,)
    return [(name, database) for name in names for database in PLANS[name].databases if database in wanted]


def _round(
    name: str, database: str, seconds: float, seed: int, say: Callable[[str, float], None], console: Console
) -> Verdict:
    place = Path(tempfile.mkdtemp(prefix="metastore-joints-"))
    plan, folder = PLANS[name], place / "record"
    with ground(database, place, plan) as on:
        run(plan, on, folder, seconds, seed, say)
    say("judging", seconds)
    verdict = judged(folder, plan.needed(database))
    console.print(f"{name} on {database}: {verdict.word}, {verdict.calls:,} calls, {verdict.events:,} events")
    if verdict.word == "clean":
        shutil.rmtree(place)
    else:
        _show(verdict, console)
        console.print(f"the record stays: --judge {folder}", highlight=False, soft_wrap=True)
    return verdict


def _show(verdict: Verdict, console: Console) -> None:
    """Say what is wrong, the smallest contradictions first, a few of each rule."""
    shown: Counter[str] = Counter()
    for one in verdict.found:
        shown[one.rule] += 1
        if shown[one.rule] <= 3 and shown.total() < _SHOWN:
            console.print(f"{one.rule}: {one.message}", style="red", highlight=False, markup=False, soft_wrap=True)
            for line in one.calls:
                console.print(f"    {line}", highlight=False, markup=False, soft_wrap=True)
    for doubt in verdict.doubts[:_SHOWN]:
        console.print(f"unsure: {doubt}", style="yellow", highlight=False, markup=False, soft_wrap=True)
    console.print(f"{verdict.rules}; {verdict.counts}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
