"""Batches that fail, for as long as it is told: no session of the server grows. ``python -m tests.soak.memory``.

Threads share few connections, so that their writes travel together. Other programs lock what they write, in any order;
names are taken, and versions have changed; and the server refuses one row of ten, so that messages fail on a busy
machine too. A failed message must leave nothing behind: no statement that it prepared, for example. It exits with 1 if
a session has grown, and with 2 if the run shows nothing.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

import psutil
import psycopg
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import metastore as ms
from tests.servers.postgres import PostgresServer

__all__ = ["growth", "main"]

_SCHEMA: Final = "m.c.s"
_TABLES: Final = 8
_THREADS, _CONNECTIONS, _STRANGERS = 16, 3, 4
_NAME: Final = "metastore_soak"
_MIB: Final = 1 << 20
_GROWTH: Final = 6 * _MIB
"""By how much a session may grow after the first half of a run (bytes): caches of its catalog, allocated in blocks."""
_LEAST: Final = 40
"""So many messages must fail in the second half, or a run shows nothing. So many once left 46 MiB in a session."""
_REFUSES: Final = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF random() < 0.1 THEN RAISE EXCEPTION 'refused by the soak test' USING ERRCODE = 'serialization_failure'; END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER refuse BEFORE INSERT ON operation FOR EACH ROW EXECUTE FUNCTION refuse()"""
_LOCKS: Final = (
    "SELECT FROM entity WHERE id IN (SELECT id FROM guard WHERE kind = 'table' ORDER BY random() LIMIT 2) FOR UPDATE",
    "SELECT FROM guard WHERE kind IN ('schema', 'table') ORDER BY random() LIMIT 1 FOR UPDATE",
)
_SESSIONS: Final = "SELECT pid FROM pg_stat_activity WHERE application_name = %s"
_HOLDS: Final = (0.3, 2.0)
"""How long they lock what they lock (seconds): longer than a message waits for a row (50 ms), which then fails."""
Sample = Mapping[int, int]
"""Of each session, by its process id, how much memory it has for itself (bytes)."""


def main(arguments: list[str] | None = None) -> int:
    """Run it; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.memory", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    chosen = parser.parse_args(arguments)
    console, failed, over = Console(), Counter[str](), threading.Event()
    with PostgresServer() as server, ThreadPoolExecutor(_THREADS + _STRANGERS) as pool:
        url = server.create_database()
        ms.migrate(url)
        with ms.open(f"{url}?application_name={_NAME}", deadline=30.0, pool_size=_CONNECTIONS) as store:
            _seed(store)
            dsn = url.replace("+psycopg", "")
            with psycopg.connect(dsn) as connection:
                connection.execute(_REFUSES)
            dice = [random.Random(f"{chosen.seed} {n}") for n in range(_THREADS + _STRANGERS)]
            running = [pool.submit(_calls, store, one, failed, over) for one in dice[:_THREADS]]
            running += [pool.submit(_strange, dsn, one, over) for one in dice[_THREADS:]]
            try:
                samples, counts = _sampled(dsn, chosen.minutes * 60, failed, console)
            finally:
                over.set()
            for one in running:
                one.result()
    grown, lost = growth(samples), counts[-1] - counts[len(counts) // 2]
    console.print(f"seed {chosen.seed}; failed calls: {dict(failed)}; failed messages: {counts[-1]}, at last {lost}")
    console.print(f"memory of all sessions: {_told(samples)}")
    if not grown or lost < _LEAST:
        console.print("[yellow]unsure: no session lived to the end, or too few messages failed[/yellow]")
        return 2
    worst = max(grown.values())
    colour = "red" if worst > _GROWTH else "green"
    console.print(f"[{colour}]after the first half, a session grew by {worst / _MIB:.1f} MiB at most[/{colour}]")
    return int(worst > _GROWTH)


def growth(samples: Sequence[Sample]) -> dict[int, int]:
    """Return by how much each session that lived through the second half grew in it."""
    first, last = samples[len(samples) // 2], samples[-1]
    return {pid: last[pid] - first[pid] for pid in first.keys() & last.keys()}


def _rolled_back(connection: psycopg.Connection[Any]) -> int:
    """Return how many messages failed at the server."""
    row = connection.execute("SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()")
    return int(row.fetchall()[0][0])


def _told(samples: Sequence[Sample]) -> str:
    """Say how much the sessions had together, ten times in the run."""
    shown = samples[:: max(1, len(samples) // 10)]
    return ", ".join(f"{sum(one.values()) / _MIB:.1f}" for one in shown) + " MiB"


def _seed(store: ms.Store) -> None:
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    for n in range(_TABLES):
        store.tables.create(f"{_SCHEMA}.t{n}", parents=True)


def _sampled(dsn: str, seconds: float, failed: Counter[str], console: Console) -> tuple[list[Sample], list[int]]:
    """Measure the sessions until the time is over, and count how many messages have failed by then."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    samples, counts, began = list[Sample](), list[int](), time.monotonic()
    with Progress(*columns, console=console, transient=True) as progress, psycopg.connect(dsn, autocommit=True) as asks:
        task = progress.add_task("begins", total=seconds)
        while (elapsed := time.monotonic() - began) < seconds:
            sample = {}
            for (pid,) in asks.execute(_SESSIONS, (_NAME,)).fetchall():
                with suppress(psutil.Error):  # it has just ended
                    sample[pid] = psutil.Process(pid).memory_full_info().uss
            samples.append(sample)
            counts.append(_rolled_back(asks))
            told = f"{sum(sample.values()) / _MIB:.1f} MiB, {failed.total()} calls failed"
            progress.update(task, completed=elapsed, description=told)
            time.sleep(min(5.0, seconds / 40))
    return samples, counts


def _calls(store: ms.Store, dice: random.Random, failed: Counter[str], over: threading.Event) -> None:
    """Call, and count what fails."""
    number = 0

    def table() -> str:
        return f"{_SCHEMA}.t{dice.randrange(_TABLES)}"

    def alter() -> object:
        return store.tables.alter(table(), ms.SetProperty(f"k{dice.randrange(6)}", str(number)))

    def outdated() -> object:
        return store.tables.alter(table(), ms.SetProperty("k", str(number)), expected_version=1)

    def taken() -> object:
        return store.tables.create(table())

    def made() -> object:
        return store.tables.create(f"{_SCHEMA}.u{dice.randrange(4)}")

    def dropped() -> object:
        return store.tables.drop(f"{_SCHEMA}.u{dice.randrange(4)}")

    def renamed() -> object:
        return store.tables.rename(f"{_SCHEMA}.u{dice.randrange(4)}", f"u{dice.randrange(4)}")

    calls: list[Callable[[], object]] = [alter, alter, outdated, taken, made, dropped, renamed]
    while not over.is_set():
        number += 1
        try:
            dice.choice(calls)()
        except ms.MetastoreError as error:
            failed[type(error).__name__] += 1


def _strange(dsn: str, dice: random.Random, over: threading.Event) -> None:
    """Lock rows for a moment, again and again, as a program does that is not of this library."""
    with psycopg.connect(dsn) as connection:
        while not over.is_set():
            try:
                for _ in range(2):
                    connection.execute(dice.choice(_LOCKS))
                over.wait(dice.uniform(*_HOLDS))
            except psycopg.errors.DeadlockDetected:
                connection.rollback()
            connection.commit()  # what is rolled back counts as a message that failed
            over.wait(dice.uniform(0.0, 0.05))


if __name__ == "__main__":
    sys.exit(main())
