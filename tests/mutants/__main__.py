"""Change one line of the kernel at a time, and show which test finds it: ``python -m tests.mutants``.

The tests that call a mutant's function are run. So all tests are run once at first, and what each calls is kept in
``build/mutants``; ``--record`` does so again.

The exit code is 1 if a mutant survives whose survival is not argued in ``argued.py``, and 2 if tests could not be run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from tests.faults.running import in_copies
from tests.mutants.areas import ASKED
from tests.mutants.argued import ARGUED
from tests.mutants.choose import chosen
from tests.mutants.judging import Judge, Verdict
from tests.mutants.near import read
from tests.mutants.reach import FOLDER
from tests.servers.postgres import VARIABLE, PostgresServer, external_url

_TREE = Path(__file__).resolve().parents[2]
_RECORD = _TREE / "build" / "mutants"
T = TypeVar("T")


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="the mutants whose area or name has this text")
    parser.add_argument("--sample", metavar="N", type=int, help="N of the mutants, others on each day")
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="another choice of 200 mutants")
    parser.add_argument("--workers", metavar="N", type=int, default=1, help="how many mutants are tried at once")
    parser.add_argument("--near", action="store_true", help="run the nearest tests, and no others: a first look")
    parser.add_argument("--record", action="store_true", help="run all tests first, and keep what each calls")
    parser.add_argument("--list", action="store_true", help="show the mutants, and run nothing")
    parser.add_argument("--json", action="store_true", help="write the result as JSON")
    options = parser.parse_args()
    wanted = options.only.lower()
    items = [(a, m) for a, m in chosen(_TREE, options.seed) if wanted in f"{a.name} {m.name}".lower()]
    if options.sample is not None:
        items = sample(items, options.sample, datetime.now(UTC).toordinal())
    if not items:
        parser.error(f"no mutant has {options.only!r} in its name")
    if options.list:
        print("\n".join(mutant.name for _, mutant in items))
        return 0
    if options.record or not _RECORD.is_dir():
        record(options.workers)
    verdicts = []
    with _one_server(), Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("Mutants", total=len(items))
        judge = Judge(ARGUED, read(_RECORD, _TREE), options.near).judge
        for one in in_copies(_TREE, items, max(1, options.workers), judge):
            verdicts.append(one)
            progress.console.print(Text(f"{one.said}: {one.mutant.name}  {one.test}"), soft_wrap=True)
            lost = sum(v.said in ("survived", "unclear") for v in verdicts)
            progress.update(task, advance=1, description=f"Mutants, {lost} not found")
    _write_json(verdicts) if options.json else _write(verdicts)
    said = {one.said for one in verdicts}
    return 1 if "survived" in said else 2 if "unclear" in said else 0


def record(workers: int) -> None:
    """Run all tests that are asked, and keep what each calls. Tests that fail are left out."""
    new = _RECORD.with_name("mutants.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutants.reach", "--tb=no"]
    command += ["-n", str(workers), "--dist", "loadgroup", "--whole", "-m", "not long and not spark"]
    subprocess.run(
        [*command, *(f"tests/{one}" for one in ASKED)],
        cwd=_TREE,
        env={**os.environ, FOLDER: str(new)},
        stdout=sys.stderr,
        check=False,
    )
    shutil.rmtree(_RECORD, ignore_errors=True)
    new.rename(_RECORD)


@contextmanager
def _one_server() -> Iterator[None]:
    """Keep one PostgreSQL for the tests of all mutants: to start one takes as long as most tests."""
    if external_url():
        yield
        return
    with PostgresServer(in_memory=True) as server:
        os.environ[VARIABLE] = server.dsn()
        try:
            yield
        finally:
            del os.environ[VARIABLE]


def sample(items: Sequence[T], size: int, day: int) -> list[T]:
    """Return some of the items, spread over all. Each is in the sample of one day in a row of days."""
    step = max(1, len(items) // max(1, size))
    return list(items[day % step :: step])[:size]


def _counts(verdicts: Sequence[Verdict]) -> dict[str, int]:
    counts = Counter(one.said for one in verdicts)
    return {"mutants": len(verdicts), **{said: counts[said] for said in ("found", "argued", "survived", "unclear")}}


def _write_json(verdicts: Sequence[Verdict]) -> None:
    runs = [
        {
            "mutant": one.mutant.name,
            "area": one.area.name,
            "kind": one.mutant.kind,
            "verdict": one.said,
            "by": one.test,
            "seconds": round(one.seconds, 1),
        }
        for one in verdicts
    ]
    print(json.dumps({**_counts(verdicts), "runs": runs}, indent=2))


def _write(verdicts: Sequence[Verdict]) -> None:
    table = Table("Mutant", "", "By", "Seconds")
    for one in verdicts:
        said = one.said if one.said in ("found", "argued") else one.said.upper()
        table.add_row(Text(one.mutant.name), said, Text(one.test), f"{one.seconds:.0f}")
    console = Console()
    console.print(table)
    console.print(", ".join(f"{count} {said}" for said, count in _counts(verdicts).items()) + ".")


if __name__ == "__main__":
    sys.exit(main())
