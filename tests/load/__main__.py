"""``python -m tests.load``: the short form of every proof under load: seven minutes on two cores.

The scenarios, each recorded and checked; the faults; every interleaving of statements, a reduced set; the checker's own
planted faults; the peers beside us. It exits with 1 on any anomaly. ``make help`` names the long forms, and ``make
nightly`` runs them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

import metastore as ms
from metastore.loadtest.job import LoadTest, run
from metastore.loadtest.scenarios import SCENARIOS
from metastore.loadtest.spark_job import loadtest_context
from tests.servers.postgres import PostgresServer

_CLIENTS = 8
_SECONDS = 3.0
_STALL = {"commit-burst": 6.0}
"""Scenarios that need longer than the others to show what they are about (seconds)."""
_ON_SQLITE = ("rename-storm", "commit-burst")
"""The long tests have hot-table there."""
TRACE = Path(__file__).resolve().parents[3] / "shared" / "data" / "traces" / "tenacity.jsonl.gz"


def main() -> int:
    """Run all parts, or those that are named; return 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="tests.load", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all without one")
    chosen = parser.parse_args()
    console, began = Console(), time.monotonic()
    wrong = []
    for name in chosen.parts or PARTS:
        started = time.monotonic()
        console.rule(name)
        good = PARTS[name](console)
        console.print(f"{name}: {'good' if good else 'WRONG'}, {time.monotonic() - started:.0f} s")
        wrong += [] if good else [name]
    console.rule()
    verdict = f"[red]wrong: {', '.join(wrong)}[/red]" if wrong else "[green]nothing is wrong[/green]"
    console.print(f"{verdict}, {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


def _scenarios(console: Console) -> bool:
    """Run each scenario on PostgreSQL, and some on SQLite."""
    good = True
    with loadtest_context(f"local[{_CLIENTS},4]", _CLIENTS), _places() as (postgres, sqlite, folder):
        last = sorted(SCENARIOS, key=lambda name: name == "zipf")  # its many tables make the others' records larger
        for url, name in [*((sqlite, name) for name in _ON_SQLITE), *((postgres, name) for name in last)]:
            if name == "trace" and not TRACE.exists():
                console.print(f"trace: left out, there is no {TRACE.name}")
                continue
            began = time.monotonic()
            done = run(
                url,
                name,
                clients=_CLIENTS,
                seconds=None if name == "trace" else _STALL.get(name, _SECONDS),
                master=f"local[{_CLIENTS},4]",
                out=folder / f"{name}-{url.partition(':')[0]}",
                trace=str(TRACE) if name == "trace" else None,
            )
            what = f"{name} on {url.partition('+')[0].partition(':')[0]}"
            good = _told(console, what, done, time.monotonic() - began) and good
    return good


def _told(console: Console, what: str, done: LoadTest, took: float) -> bool:
    (one,) = done.runs
    console.print(
        f"{what:28} {one.checked.operations:7,} operations: {'good' if done.clean else 'WRONG'}, {took:.0f} s"
    )
    for finding in [*one.findings[:3], *one.checked.missing[:3]]:
        console.print(str(finding), highlight=False, markup=False)
    return done.clean and one.checked.operations > 0


@contextmanager
def _places() -> Iterator[tuple[str, str, Path]]:
    with tempfile.TemporaryDirectory(prefix="metastore-load-") as place, PostgresServer() as server:
        urls = server.create_database(), f"sqlite:///{place}/load.db"
        for url in urls:
            ms.migrate(url)
        yield *urls, Path(place)


def _program(*words: str) -> Callable[[Console], bool]:
    def part(_: Console) -> bool:
        return subprocess.run([sys.executable, "-m", *words], check=False).returncode == 0

    return part


PARTS: dict[str, Callable[[Console], bool]] = {
    "scenarios": _scenarios,
    "faults": _program("tests.load.faults", "--seconds", "6", "--clients", "6"),
    "interleavings": _program("tests.statements"),
    "checker": _program("tests.checker.many", "--operations", "50000", "--faults", "stale read"),
    "peers": _program("tests.bench.peers", "--short"),
}

if __name__ == "__main__":
    sys.exit(main())
