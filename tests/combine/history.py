"""``python -m tests.combine.history``: processes of many threads on PostgreSQL, disturbed, and their history checked.

Each process has one store for all of its threads, so that what waits together travels together. Meanwhile processes get
SIGKILL, connections are cut, and the server is crashed and started again. Then the history checker compares what each
thread saw with the feed, and ``store.verify()`` looks at the tables. It exits with 1 if anything is wrong.

Before the server ends, all that the check needs is in the record folder. The folder stays unless the check is clean, so
that ``--check FOLDER`` repeats a check that was cut off. ``--folder`` names a folder that stays in any case.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from ctypes import c_uint64
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import SparkSession
from rich.console import Console

import metastore as ms
from metastore.checker.check import check
from metastore.checker.clients import run_facts
from metastore.checker.gather import copy_tables, join_logs, position
from metastore.checker.recorder import Recorder
from metastore.loadtest.calls import Calls
from metastore.spark.context import spark_context
from tests.load.disturbing import cut
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import PostgresProxy

_SPAWN = multiprocessing.get_context("spawn")
_SCHEMAS = ("lake.c.s0", "lake.c.s1")
_TABLES = 6
_DIED, _ENDED = "died", "ended.json"
"""Of the record folder: what ended a thread that should have gone on; and what the run itself found."""
_DEADLINE = 10.0
_SAY_EVERY = 60.0
"""Seconds between two lines that say how far it is."""
_CALM = 3.0
"""Seconds at the end without one."""

# Of the operations that have a position, how many were written at one instant with another one: a batch has one time.
_TOGETHER = """SELECT coalesce(sum(n), 0), coalesce(sum(n) FILTER (WHERE n > 1), 0), coalesce(max(n), 0)
FROM (SELECT count(DISTINCT operation_id) AS n FROM operation WHERE seq IS NOT NULL GROUP BY time) AS instants"""


def _work(url: str, folder: str, name: str, threads: int, over: Any, done: Any) -> None:
    """Call until ``over`` is set, in so many threads of one store; each counts in ``done`` what has returned."""
    while not over.is_set():
        try:
            with ms.open(url, deadline=_DEADLINE, pool_size=threads) as store:
                running = [
                    threading.Thread(target=_thread, args=(store, Path(folder), name, n, over, done))
                    for n in range(threads)
                ]
                for thread in running:
                    thread.start()
                for thread in running:
                    thread.join()
                return
        except ms.BackendUnavailable:
            time.sleep(0.05)  # the server is away


def _thread(store: ms.Store, folder: Path, process: str, thread: int, over: Any, done: Any) -> None:
    name = f"{process}t{thread}"
    recorder, dice = Recorder(folder, name), random.Random(name)
    calls, number = Calls(store, recorder), 0
    try:
        while not over.is_set():
            number += 1
            _call(calls, dice, name, number)
            done[thread] += 1
            if calls.away:
                time.sleep(0.05)
    except BaseException:  # an error of the library that no call may raise: the others go on, and the run is not clean
        (folder / _DIED / name).write_text(traceback.format_exc())
        raise
    recorder.close()


def _call(calls: Calls, dice: random.Random, name: str, number: int) -> None:
    """Make one call: mostly what travels in batches; now and then what meets a batch from outside."""
    schema, what = dice.choice(_SCHEMAS), dice.randrange(200)
    table = f"{schema}.t{dice.randrange(_TABLES)}"
    if what < 90:  # the same keys in each process: documents must not grow with the number of those that were killed
        calls.alter(table, ms.SetProperty(name.partition("t")[2], f"{name} {number}"))
    elif what < 140:
        calls.load(table)
    elif what < 168:
        calls.create(f"{schema}.n{name}_{number % 4}")
    elif what < 190:
        calls.drop(f"{schema}.n{name}_{dice.randrange(4)}")
    elif what < 196:
        calls.transaction(table, lambda tx: tx.alter(tx.load(table), ms.SetProperty("seen", f"{name} {number}")))
    elif what < 199:
        calls.rename(f"{schema}.t{_TABLES}", f"{schema}.t{_TABLES + 1}")
        calls.rename(f"{schema}.t{_TABLES + 1}", f"{schema}.t{_TABLES}")
    else:
        calls.freeze(
            schema, lambda tx: tx.alter(schema, ms.SetProperty("frozen", name), kind="schema"), ttl=1, timeout=2
        )


class _Crew:
    """The processes, and what is done to them."""

    def __init__(self, urls: tuple[str, ...], folder: Path, threads: int) -> None:
        self._urls, self._folder, self._threads = urls, folder, threads
        self._over, self._number = _SPAWN.Event(), 0
        self._counts: list[Any] = []
        self._processes = [self._start() for _ in urls]

    @property
    def done(self) -> int:
        """How many calls have returned."""
        return sum(self.calls.values())

    @property
    def calls(self) -> dict[str, int]:
        """How many calls of each thread have returned: no fewer are in its records, even if it was killed."""
        counted = [(f"p{p}t{t}", count) for p, counts in enumerate(self._counts, 1) for t, count in enumerate(counts)]
        return {name: count for name, count in counted if count}

    def _start(self) -> SpawnProcess:
        url, self._number = self._urls[self._number % len(self._urls)], self._number + 1
        self._counts.append(_SPAWN.RawArray(c_uint64, self._threads))
        arguments = (url, str(self._folder), f"p{self._number}", self._threads, self._over, self._counts[-1])
        process = _SPAWN.Process(target=_work, args=arguments, daemon=True)
        process.start()
        return process

    def kill(self, dice: random.Random) -> str:
        """SIGKILL; another process takes its place."""
        n = dice.randrange(len(self._processes))
        self._processes[n].kill()
        self._processes[n].join()
        self._processes[n] = self._start()
        return "killed"

    def end(self) -> list[str]:
        """Let all end by themselves; return what did not."""
        self._over.set()
        for process in self._processes:
            process.join(6 * _DEADLINE)
        wrong = [f"a process ended with {p.exitcode}" for p in self._processes if p.exitcode != 0]
        for process in self._processes:
            process.kill()
        return wrong


def _restart(server: PostgresServer, dice: random.Random) -> str:
    dice.choice((server.kill, server.halt))()
    server.start()
    return "restarted"


def _run(chosen: argparse.Namespace, server: PostgresServer, url: str, folder: Path, console: Console) -> list[str]:
    """Let the processes work, and disturb them, until enough was done; return what went wrong meanwhile."""
    dice, disturbed = random.Random(chosen.seed), Counter[str]()
    with PostgresProxy("127.0.0.1", server.port) as proxy:
        crew = _Crew((url, proxy.url_for(url)), folder, chosen.threads)
        actions: list[Callable[[], str]] = [lambda: crew.kill(dice)] * 3 + [lambda: cut(proxy, dice)] * 6
        actions += [lambda: _restart(server, dice)]
        began = said = time.monotonic()
        while crew.done < chosen.operations and time.monotonic() < began + 60 * chosen.minutes:
            time.sleep(dice.uniform(0.3, 1.7) * chosen.every)
            disturbed[dice.choice(actions)()] += 1
            if time.monotonic() > said + _SAY_EVERY:
                said = time.monotonic()
                console.print(
                    f"{said - began:.0f} s: about {crew.done:,} calls; {dict(disturbed)}",
                    highlight=False,
                    soft_wrap=True,
                )
        proxy.reset()
        time.sleep(_CALM)
        wrong = crew.end()
    said_so = {"names": list(crew.calls), "calls": crew.calls}
    (folder / "run.json").write_text(json.dumps(run_facts(folder) | said_so))
    lasted = f"{time.monotonic() - began:.0f} s"
    console.print(
        f"seed {chosen.seed}: {lasted}, about {crew.done:,} calls; {dict(disturbed)}", highlight=False, soft_wrap=True
    )
    died = [f"thread {path.name} died:\n{path.read_text()}" for path in sorted((folder / _DIED).iterdir())]
    return wrong + died


def _recorded(chosen: argparse.Namespace, folder: Path, console: Console) -> None:
    """Run it on a server of its own; leave in ``folder`` all that the check needs."""
    with PostgresServer() as server:
        url = server.create_database()
        _prepare(url)
        (folder / _DIED).mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"since": position(url)}))
        wrong = _run(chosen, server, url, folder, console)
        copy_tables(folder, url)
        wrong += _accounted(url, console)
        (folder / _ENDED).write_text(json.dumps(wrong))


def _prepare(url: str) -> None:
    ms.migrate(url)
    with ms.open(url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        for schema in _SCHEMAS:
            store.schemas.create(schema)
            store.tables.create_many(schema, [{"name": f"t{n}"} for n in range(_TABLES + 1)])


def _accounted(url: str, console: Console) -> list[str]:
    """Say how much travelled together; return what is wrong with the tables."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        written, together, most = connection.execute(_TOGETHER).fetchone() or (0, 0, 0)
    text = f"{written:,} commits, {together:,} at one instant with others, at most {most} together"
    console.print(text, highlight=False)
    with ms.open(url) as store:
        problems = [str(problem) for problem in store.verify()]
    console.print(f"verify: {len(problems)} problems", highlight=False)
    return problems + ([] if together else ["nothing travelled together"])


def _checked(folder: Path, console: Console) -> list[str]:
    """Check a record folder; return what is wrong, with what its run found. It may be called again."""
    if not (folder / _ENDED).exists():
        return [f"{folder} has no {_ENDED}: its run was cut off, or its server ended first. Make another run"]
    began = time.monotonic()
    with spark_context("local[2]") as context:
        spark = SparkSession(context)
        spark.conf.set("spark.sql.shuffle.partitions", "8")
        if not (folder / "operations" / "_SUCCESS").exists():
            join_logs(spark, folder)
        checked = check(spark, folder)
        spark.stop()
    verdict = "clean" if checked.clean else checked.counts or "not all records are there"
    text = f"{checked.operations:,} operations and {checked.events:,} events: {verdict}"
    console.print(f"{text}, checked in {time.monotonic() - began:.0f} s", highlight=False, soft_wrap=True)
    found: list[str] = json.loads((folder / _ENDED).read_text())
    return found + [str(finding) for finding in checked.findings] + list(checked.missing)


def main(arguments: list[str] | None = None) -> int:
    """Run and check it, or repeat a check; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.combine.history", description=__doc__)
    parser.add_argument("--operations", type=int, default=1_000_000, help="after how many calls it ends")
    parser.add_argument("--minutes", type=float, default=60.0, help="after how long it ends all the same")
    parser.add_argument("--every", type=float, default=3.5, help="seconds between two disturbances, on average")
    parser.add_argument("--threads", type=int, default=16, help="of each of the two processes")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of what is disturbed when")
    parser.add_argument("--folder", type=Path, help="a new folder that stays; else one that stays unless all is clean")
    parser.add_argument("--check", type=Path, help="repeat the check of this record folder, and run nothing")
    chosen, console = parser.parse_args(arguments), Console()
    folder = chosen.check or chosen.folder or Path(tempfile.mkdtemp(prefix="metastore-history-"))
    if chosen.check is None:
        console.print(f"the record folder is {folder}", highlight=False, soft_wrap=True)
        _recorded(chosen, folder, console)
    wrong = _checked(folder, console)
    for problem in wrong[:50]:
        console.print(problem, highlight=False, soft_wrap=True, markup=False)
    verdict = f"{len(wrong)} things are wrong; {folder} stays" if wrong else "nothing is wrong"
    console.print(verdict, highlight=False, soft_wrap=True)
    if not wrong and folder not in (chosen.check, chosen.folder):
        shutil.rmtree(folder)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
