"""``python -m tests.statements``: all interleavings, and which operation makes which other one retry.

``--full``: every pair, some three, and the mutants; without it, the pairs of the test suite. Names choose programs, by
parts of their names. ``--matrix FILE`` writes the tables of the run into a document; cells without a result in this run
stay. ``--minutes`` takes the programs in a random order, and ends when the time is over: without the mutants.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

import metastore as ms
from tests.servers.postgres import PostgresServer
from tests.statements.explore import Explored, Violated, explore
from tests.statements.matrix import Seen, matrix, read_tables, tables, write_tables
from tests.statements.mutants import MUTANTS
from tests.statements.on_postgres import PostgresDatabase
from tests.statements.on_sqlite import SqliteDatabase
from tests.statements.programs import FEW, FEW_CALLED, PAIRS, PROGRAMS, TOGETHER
from tests.statements.running import Done, Job, opened, run_all, seen_in
from tests.statements.schedule import Workers

_MUTANT_LIMIT = 5_000


class _Sum:
    """What was found on one database."""

    def __init__(self) -> None:
        self.programs = 0
        self.counts: Counter[str] = Counter()
        self.seen: list[Seen] = []
        self.incomplete: list[str] = []

    def add(self, name: str, explored: Explored) -> None:
        self.programs += 1
        for what in ("schedules", "redundant", "cut_off", "held_back", "diverged", "verified"):
            self.counts[what] += getattr(explored, what)
        if explored.cut_off:
            self.incomplete.append(name)
        pairs = {p.name: p for p in PAIRS}
        if name in pairs:
            self.seen += seen_in(pairs[name], explored)

    def text(self) -> str:
        counts = self.counts
        text = (
            f"{self.programs} programs, {counts['schedules']} interleavings, each different from all others; "
            f"{counts['verified']} different contents verified; cut off: {counts['cut_off']}; with late retries only: "
            f"{counts['held_back']}; led elsewhere when repeated: {counts['diverged']}"
        )
        return text + "".join(f"\n  cut off: {name}" for name in self.incomplete)


def main() -> int:
    """Explore; return 1 if something is not as it should be."""
    parser = argparse.ArgumentParser(prog="tests.statements", description=__doc__)
    parser.add_argument("--full", action="store_true", help="every pair, some three, the mutants")
    parser.add_argument("--postgres", action="store_true", help="only on PostgreSQL")
    parser.add_argument("--sqlite", action="store_true", help="only on SQLite")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--limit", type=int, default=250, help="interleavings of one program; more are cut off")
    parser.add_argument("--matrix", type=Path, help="the document to write the tables into")
    parser.add_argument("--minutes", type=float, help="end after so long, whatever is left")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the order, with --minutes")
    parser.add_argument("names", nargs="*", help="programs, or parts of their names")
    arguments = parser.parse_args()
    names = [p.name for p in PROGRAMS if arguments.full or arguments.names or p.name in (*FEW, *FEW_CALLED)]
    if arguments.names:
        names = [n for n in names if any(part in n for part in arguments.names)]
    if not names:
        parser.error("no program has such a name")
    on = [n for n, not_wanted in ((SqliteDatabase.name, arguments.postgres), (PostgresDatabase.name, arguments.sqlite))
          if not not_wanted]  # fmt: skip
    together = {program.name for program in TOGETHER}
    jobs = [
        Job(database, n) for database in on for n in names if database == PostgresDatabase.name or n not in together
    ]
    if arguments.minutes is not None:
        random.Random(arguments.seed).shuffle(jobs)
        print(f"seed {arguments.seed}")
    with PostgresServer() as server:
        urls = [server.create_database() for _ in range(arguments.workers)]
        bad = _explore_all(jobs, urls, arguments, on)
        if arguments.full and not arguments.names and arguments.minutes is None:
            bad += _plant_all(server, on)
    return 1 if bad else 0


def _explore_all(jobs: list[Job], urls: list[str], arguments: argparse.Namespace, on: list[str]) -> int:
    console = Console(stderr=True)
    sums, bad, began = {name: _Sum() for name in on}, 0, time.perf_counter()
    ends = float("inf") if arguments.minutes is None else began + 60 * arguments.minutes
    columns = (
        TextColumn("interleavings"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(jobs))
        for done in run_all(jobs, urls, arguments.workers, arguments.limit):
            bad += _told(done)
            if done.explored is not None:
                sums[done.job.on].add(done.job.name, done.explored)
            progress.advance(task)
            if time.perf_counter() > ends:
                break
    for name, found in sums.items():
        print(f"{name}: {found.text()}")
    explored = sum(found.programs for found in sums.values())
    print(f"{explored} of {len(jobs)} programs, {time.perf_counter() - began:.0f} s; {bad} violations")
    if arguments.matrix is not None:
        before = read_tables(arguments.matrix)
        write_tables(arguments.matrix, "\n\n".join(tables(n, matrix(s.seen), before[n]) for n, s in sums.items()))
    return bad


def _told(done: Done) -> bool:
    if done.problem is not None:
        print(f"BAD {done.problem}", flush=True)
    return done.problem is not None


def _plant_all(server: PostgresServer, on: list[str]) -> int:
    """Explore the mutants; return how many were not found."""
    missed = 0
    for mutant in [m for m in MUTANTS if m.on in on]:
        url = server.create_database()
        ms.migrate(url)
        try:
            with Workers(2) as workers, opened(mutant.on, url, mutant) as database:
                explore(mutant.found_by(), database, workers, _MUTANT_LIMIT)
        except Violated as violated:
            print(f"found: {mutant.name} ({mutant.on}), by {str(violated).splitlines()[0][:160]}")
        else:
            missed += 1
            print(f"BAD not found: {mutant.name} ({mutant.on})")
        server.drop_database(url)
    return missed


if __name__ == "__main__":
    sys.exit(main())
