"""An exclusive change among shared ones: a schema is renamed while 32 processes create tables in it."""

from __future__ import annotations

import time

import psycopg

import metastore as ms
from tests.bench.contention.crew import Meet, Task, together
from tests.bench.contention.ground import SCHEMA, Ground
from tests.bench.contention.outcome import percentile
from tests.bench.contention.policy import DEADLINE
from tests.bench.core.setting import CATALOG, COLUMNS, Setting

__all__ = ["measure"]

CREATORS = 32
EVERY = 1.0
WARM = 3

Created = tuple[int, int, float, int]
"""Tables that were made in the window, and in all; the longest time for one in seconds; errors."""


def measure(setting: Setting, ground: Ground, length: float) -> None:
    """Create without renames for the length of a window, then with one each second for three."""
    figures = setting.figures
    longer = 5.0 if setting.quick else 3 * length
    alone, _ = _creations(ground, length, renames=False)
    among, renames = _creations(ground, longer, renames=True)
    rates = [sum(created[0] for created in found) / took for found, took in ((alone, length), (among, longer))]
    times = [1000 * seconds for seconds in renames]
    figures.record("exclusive_rename_p95_ms", [percentile(times, 0.95)])
    figures.record("exclusive_rename_p50_ms", [percentile(times, 0.5)])
    figures.record("exclusive_rename_worst_ms", [max(times)])
    figures.record("creates_rate_under_rename", [rates[1] / rates[0]])
    figures.record("creates_per_s", rates[:1])
    figures.record("creates_worst_ms", [1000 * max(worst for _, _, worst, _ in alone)])
    figures.record("creates_worst_under_rename_ms", [1000 * max(worst for _, _, worst, _ in among)])
    failed = sum(seconds >= DEADLINE for seconds in renames) + sum(errors for *_, errors in (*alone, *among))
    figures.record("exclusive_errors", [failed])


def _creations(ground: Ground, length: float, *, renames: bool) -> tuple[list[Created], list[float]]:
    url = ground.fresh("postgres")
    tasks: list[Task] = [(_create, (url, number, length)) for number in range(CREATORS)]
    if renames:
        tasks.append((_rename, (url, length)))
    found = together(tasks, length)
    created: list[Created] = found[:CREATORS]
    _check(url, sum(made for _, made, _, _ in created))
    return created, found[CREATORS] if renames else []


def _check(url: str, made: int) -> None:
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        row = connection.execute("SELECT count(*) FROM guard WHERE kind = 'table' AND state = 0").fetchone()
    if row != (made,):
        raise RuntimeError(f"NOT EXACT: {made} tables were created, and {row} are there")


def _create(meet: Meet, url: str, number: int, length: float) -> Created:
    """Create with the schema in hand; take a fresh one in hand when what came back has another path."""
    in_time, made, worst, errors = 0, 0, 0.0, 0
    with ms.open(url, principal=f"process {number}") as store:
        schema = store.schemas.load(SCHEMA)
        for _ in range(WARM):
            store.tables.create(f"t{number}_{made}", parent=schema, columns=COLUMNS)
            made += 1
        meet()
        ends = time.monotonic() + length
        while (begun := time.monotonic()) < ends:
            try:
                table = store.tables.create(f"t{number}_{made}", parent=schema, columns=COLUMNS)
            except ms.MetastoreError:
                errors, worst = errors + 1, max(worst, DEADLINE)
                continue
            over = time.monotonic()
            made, in_time, worst = made + 1, in_time + (over <= ends), max(worst, over - begun)
            if _path_above(table) != schema.path:
                schema = store.schemas.load(schema)
    return in_time, made, worst, errors


def _path_above(table: ms.Table) -> str:
    return table.path.rpartition(".")[0]


def _rename(meet: Meet, url: str, length: float) -> list[float]:
    """Rename once per second; return how long each took in seconds."""
    took: list[float] = []
    with ms.open(url, principal="renamer") as store:
        other = store.schemas.create(f"{CATALOG}.warm")
        for number in range(WARM):
            other = store.schemas.rename(other, f"warm{number}")
        schema = store.schemas.load(SCHEMA)
        meet()
        start = time.monotonic()
        for number in range(max(1, int(length / EVERY))):
            time.sleep(max(0.0, start + number * EVERY + EVERY / 2 - time.monotonic()))
            begun = time.monotonic()
            try:
                schema = store.schemas.rename(schema, f"s{number}")
            except ms.MetastoreError:
                took.append(DEADLINE)
            else:
                took.append(time.monotonic() - begun)
    return took
