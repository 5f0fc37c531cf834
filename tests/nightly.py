"""``python -m tests.nightly`` (``make nightly``): the long forms of all judges, one after the other, in 90 minutes.

Each part is a target of the Makefile in a length that fits into the night. It ends with a table and one verdict, and
with 1 if a part found something or did not end in its time. The last line is a row for the table in
docs/correctness.md. Names choose parts.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

__all__ = ["PARTS", "Part", "Result", "row", "run", "verdict"]

_TREE: Final = Path(__file__).resolve().parents[1]
_OF_MAKE: Final = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "ARGS")
"""What ``make nightly ARGS=…`` hands on, and each part has of its own."""
_GRACE: Final = 20.0
"""Seconds that a part has to end its servers after its time is over."""


class Part(NamedTuple):
    """One judge: its words for make, and after how many minutes it is ended."""

    name: str
    words: tuple[str, ...]
    minutes: float


class Result(NamedTuple):
    """How a part ended. ``code`` is None if its time was over."""

    part: Part
    code: int | None
    seconds: float


PARTS: Final = (
    Part("long tests", ("test-long", "ARGS=--deselect tests/joints/test_plans.py"), 32),  # the next part has them
    Part("joints", ("joints", "ARGS=--seconds 600"), 14),
    Part("mutants", ("mutants", "ARGS=--sample 20"), 13),
    Part("load", ("load",), 8),
    Part("interleavings", ("interleavings", "ARGS=--minutes 3"), 4),
    Part("interleavings of statements", ("interleavings-sql", "ARGS=--minutes 3"), 4),
    Part("soak", ("soak", "ARGS=--minutes 3"), 4),
    Part("oracle of rights", ("oracle",), 8),
    Part("soak of leases", ("soak-leases", "ARGS=--acquisitions 500"), 3),
)
"""No night takes longer than all of their limits together: 90 minutes."""


def main() -> int:
    """Run all parts, or those that are named; return 1 if one is not good."""
    parser = argparse.ArgumentParser(prog="tests.nightly", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(part.name for part in PARTS)}; all without one")
    names = parser.parse_args().parts
    if unknown := set(names) - {part.name for part in PARTS}:
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    console, results = Console(), list[Result]()
    for part in PARTS:
        if not names or part.name in names:
            console.rule(part.name)
            results.append(run(["make", "--no-print-directory", *part.words], part))
    console.rule()
    console.print(_table(results))
    console.print(verdict(results))
    console.print(row(results, _commit()), soft_wrap=True)
    return int(any(result.code != 0 for result in results))


def run(command: Sequence[str], part: Part) -> Result:
    """Run a part, and end it with all its processes when its time is over."""
    began = time.monotonic()
    ours = {name: value for name, value in os.environ.items() if name not in _OF_MAKE}
    with subprocess.Popen(command, cwd=_TREE, env=ours, stdin=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            code: int | None = process.wait(60 * part.minutes)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
    return Result(part, code, time.monotonic() - began)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a part; an interrupt lets it stop its servers first."""
    for number, seconds in ((signal.SIGINT, _GRACE), (signal.SIGKILL, None)):
        if process.poll() is not None:
            return
        os.killpg(process.pid, number)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            continue


def _table(results: Sequence[Result]) -> Table:
    table = Table("part", "minutes", "result")
    for part, code, seconds in results:
        said = "[green]good[/green]" if code == 0 else f"[red]{_said(code)}[/red]"
        table.add_row(part.name, f"{seconds / 60:.1f}", said)
    return table


def _said(code: int | None) -> str:
    return "did not end in its time" if code is None else f"ended with {code}"


def verdict(results: Sequence[Result]) -> str:
    """Return one line about all parts."""
    wrong = [f"{part.name} {_said(code)}" for part, code, _ in results if code != 0]
    took = f"{sum(seconds for _, _, seconds in results) / 60:.0f} minutes"
    return f"WRONG, {took}: {'; '.join(wrong)}" if wrong else f"nothing is wrong, {took}"


def row(results: Sequence[Result], commit: str) -> str:
    """Return a row for the table of whole runs in docs/correctness.md."""
    whole = "" if len(results) == len(PARTS) else f" (only {', '.join(part.name for part, _, _ in results)})"
    return f"| `{commit}` | {datetime.now(UTC):%Y-%m-%d} | `make nightly`{whole}: {verdict(results)} |"


def _commit() -> str:
    words = ("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    done = subprocess.run(words, cwd=_TREE, check=False, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
