"""What one process of the benchmark does: commits, appends or creates for some seconds, through one catalog."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate
from sqlalchemy.exc import OperationalError

__all__ = ["SCHEMA", "Done", "Job", "Work", "work"]

SCHEMA = pa.schema([("n", pa.int64())])
Work = Literal["own", "hot", "create"]
_REFUSED = (CommitFailedException, CommitStateUnknownException, OperationalError)


@dataclass(frozen=True)
class Job:
    """What to do, through which catalog, by which process, from when (seconds since 1970) and for how long."""

    what: Work
    properties: tuple[tuple[str, str], ...]
    number: int
    begins: float
    seconds: float


@dataclass(frozen=True)
class Done:
    """What a process has done: acknowledged and failed calls, and the seconds that they took."""

    acknowledged: int
    failed: int
    seconds: float


@cache
def _catalog(properties: tuple[tuple[str, str], ...]) -> Catalog:
    return load_catalog("bench", **dict(properties))


def work(job: Job) -> Done:
    """Do it again and again until the time is over; a call that fails is counted and not repeated."""
    catalog = _catalog(job.properties)
    call = {"own": _commit, "hot": _append, "create": _create}[job.what](catalog, job.number)
    time.sleep(max(0.0, job.begins - time.time()))
    started, acknowledged, failed = time.monotonic(), 0, 0
    while time.monotonic() - started < job.seconds:
        try:
            call(acknowledged + failed)
            acknowledged += 1
        except _REFUSED:
            failed += 1
    return Done(acknowledged, failed, time.monotonic() - started)


def _commit(catalog: Catalog, number: int) -> Callable[[int], object]:
    """Return a commit to a table of the process's own: nothing but the catalog's work."""
    table = catalog.create_table(f"a.own{number}", SCHEMA)
    same = (AssertTableUUID(uuid=table.metadata.table_uuid),)
    return lambda n: catalog.commit_table(table, same, (SetPropertiesUpdate(updates={"n": str(n)}),))


def _append(catalog: Catalog, number: int) -> Callable[[int], object]:
    """Return an append to the one table of all; PyIceberg's own repeats are off, so that each attempt is counted."""
    row = pa.table({"n": pa.array([number], pa.int64())})
    return lambda _: catalog.load_table("a.hot").append(row)


def _create(catalog: Catalog, number: int) -> Callable[[int], object]:
    return lambda n: catalog.create_table(f"a.new{number}_{n}", SCHEMA)
