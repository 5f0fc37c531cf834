"""Explore many programs: in this process, or in several, each with databases of its own."""

from __future__ import annotations

import atexit
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import metastore as ms
from tests.statements.explore import Explored, Program, Violated, explore
from tests.statements.matrix import Seen
from tests.statements.mutants import Mutant, Rewrite
from tests.statements.on_postgres import PostgresDatabase
from tests.statements.on_sqlite import SqliteDatabase
from tests.statements.programs import PROGRAMS
from tests.statements.schedule import Database, Workers

__all__ = ["Done", "Job", "opened", "run_all", "seen_in"]

_MOST = 3
"""Processes of one program."""
_MEMORY = Path("/dev/shm")


class Job(NamedTuple):
    """A program, and where it is explored."""

    on: str
    name: str


class Done(NamedTuple):
    """What became of a job."""

    job: Job
    explored: Explored | None
    problem: str | None
    """What is wrong, and the schedule that leads there."""


@contextmanager
def opened(on: str, url: str | None, mutant: Mutant | None = None) -> Iterator[Database]:
    """Open a database, PostgreSQL on an empty one at ``url``; with a mutant's fault, if one is given."""
    rewrite: Rewrite = str if mutant is None else mutant.rewrite
    with ExitStack() as stack:
        database: Database
        if on == PostgresDatabase.name:
            assert url is not None
            database = stack.enter_context(PostgresDatabase(url, rewrite))
        else:
            folder = tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None)
            database = stack.enter_context(SqliteDatabase(Path(stack.enter_context(folder)), rewrite))
        if mutant is not None:
            if mutant.schema:
                database.change(mutant.schema)
            stack.enter_context(mutant.planted())
        yield database


def run_all(jobs: Iterable[Job], urls: list[str], workers: int, limit: int) -> Iterator[Done]:
    """Do the jobs in processes, each of which takes one of the empty databases at ``urls``; yield what is done.

    A program with more than ``limit`` schedules is cut off, and that is said.
    """
    context = get_context("spawn")
    given = context.SimpleQueue()
    for url in urls:
        given.put(url)
    with ProcessPoolExecutor(workers, context, _begin, (given,)) as pool:
        futures = [pool.submit(_do, job, limit) for job in jobs]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


_TO_CLOSE = ExitStack()
_URLS: list[str] = []


def _begin(given: object) -> None:
    if not given.empty():  # type: ignore[attr-defined]
        _URLS.append(given.get())  # type: ignore[attr-defined]
    atexit.register(_TO_CLOSE.close)


@cache
def _database(on: str) -> Database:
    if on == PostgresDatabase.name:
        ms.migrate(_URLS[0])
    return _TO_CLOSE.enter_context(opened(on, _URLS[0] if _URLS else None))


@cache
def _workers() -> Workers:
    return _TO_CLOSE.enter_context(Workers(_MOST))


def _do(job: Job, limit: int) -> Done:
    try:
        return Done(job, explore(_program(job.name), _database(job.on), _workers(), limit), None)
    except Violated as violated:
        return Done(job, None, str(violated))


@cache
def _programs() -> dict[str, Program]:
    return {p.name: p for p in PROGRAMS}


def _program(name: str) -> Program:
    return _programs()[name]


def seen_in(program: Program, explored: Explored) -> Iterator[Seen]:
    """Yield what each operation of a pair met in the other one."""
    (first,), (second,) = program.processes
    for number, own, other in ((0, first, second), (1, second, first)):
        retried = explored.retried.get((number, 0), Counter())
        causes = frozenset(cause for each in retried for cause in each)
        yield Seen(own.group, other.group, explored.schedules, sum(retried.values()), causes)
