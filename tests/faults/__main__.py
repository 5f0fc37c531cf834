"""Plant faults one by one, and show that the tests find each: ``python -m tests.faults``.

The exit code is 1 if a fault is missed, and 2 if one has no place in the tree any more.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from tests.faults.fault import DoesNotApply, Fault
from tests.faults.faults import FAULTS
from tests.faults.running import Run, in_copies, run

_TREE = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="the faults whose names have this text")
    parser.add_argument("--workers", metavar="N", type=int, default=1, help="how many faults are tried at once")
    parser.add_argument("--json", action="store_true", help="write the result as JSON")
    options = parser.parse_args()
    chosen = [fault for fault in FAULTS if options.only.lower() in fault.name.lower()]
    if not chosen:
        parser.error(f"no fault has {options.only!r} in its name")
    lost = list(_without_a_place(chosen))
    if lost:
        print("\n".join(lost), file=sys.stderr)
        return 2
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("Faults", total=len(chosen))
        runs = []
        for one in in_copies(_TREE, chosen, max(1, options.workers), run):
            runs.append(one)
            missed = sum(not r.found for r in runs)
            progress.update(task, advance=1, description=f"Faults, {missed} missed")
    _write_json(runs) if options.json else _write(runs)
    return int(not all(one.found for one in runs))


def _without_a_place(faults: Sequence[Fault]) -> Iterator[str]:
    for fault in faults:
        try:
            fault.file_in(_TREE)
        except DoesNotApply as error:
            yield str(error)


def _write_json(runs: Sequence[Run]) -> None:
    rows = [
        {
            "fault": one.fault.name,
            "found": one.found,
            "test": one.test,
            "seconds": round(one.seconds, 1),
            "problem": one.problem,
        }
        for one in runs
    ]
    print(json.dumps({"faults": len(runs), "missed": sum(not one.found for one in runs), "runs": rows}, indent=2))


def _write(runs: Sequence[Run]) -> None:
    table = Table("Fault", "", "By", "Seconds")
    for one in runs:
        by = one.test if one.found else one.problem.rpartition("\n")[2] or one.fault.tests
        table.add_row(Text(one.fault.name), "found" if one.found else "MISSED", Text(by), f"{one.seconds:.0f}")
    console = Console()
    console.print(table)
    console.print(f"{len(runs)} faults, {sum(not one.found for one in runs)} missed.")


if __name__ == "__main__":
    sys.exit(main())
