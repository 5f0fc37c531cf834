"""The past against plain models: histories of real repositories, and a replay of the feed beside writers."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore.errors import MetastoreError
from metastore.names import parse_path
from metastore.past.pins import Pin
from tests.concurrency.workers import Job, Team, Turn
from tests.past.trees import tree
from tests.traces.test_traces import CATALOG, apply, names_of, read_trace

Tree = dict[tuple[str, ...], tuple[int, int]]


def files(managers: Any) -> dict[tuple[str, ...], str]:
    """Return the blob of each file of a trace, by its path."""
    found, waiting = dict[tuple[str, ...], str](), [CATALOG]
    while waiting:
        schema = waiting.pop()
        found |= {one.names: one.properties["blob"] for one in managers.filesets.list(schema)}
        waiting += [one.names for one in managers.schemas.list(schema)]
    return found


def test_a_trace_at_random_points(sqlite_url: str, shared_data: Path) -> None:
    check_trace(sqlite_url, read_trace(shared_data, "tenacity").operations[:400], 8)


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("server", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
@pytest.mark.parametrize("trace", ["tenacity", "dbos", "iceberg-python"])
def test_whole_traces_at_50_random_points(
    server: str, trace: str, shared_data: Path, request: pytest.FixtureRequest
) -> None:
    check_trace(request.getfixturevalue(f"{server}_url"), read_trace(shared_data, trace).operations, 50)


def check_trace(url: str, operations: list[Any], pins: int) -> None:
    """Pin random points of the history of a repository, then collect: each shows the files of then."""
    points = set(random.Random(1).sample(range(len(operations)), pins))
    model, expected = dict[tuple[str, ...], str](), dict[str, dict[tuple[str, ...], str]]()
    with ms.open(url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.cat", type="fileset")
        store.schemas.create(CATALOG)
        for n, operation in enumerate(operations):
            apply(store, operation)
            action, path, *rest = operation
            if action in ("drop", "rename"):
                del model[names_of(path)]
            if action != "drop":
                model[names_of(rest[0] if action == "rename" else path)] = rest[-1]
            if n in points:
                expected[store.pin(f"pin {n}").position] = dict(model)
        store.gc(retention=timedelta(0), keep_versions=1)
        assert len(expected) == pins
        for position, then in expected.items():
            assert files(store.at(position)) == then
        assert store.verify() == []


def replayed(changes: Iterable[ms.Change]) -> Tree:
    """Return (id, version) by path after some changes: a drop takes away, a rename moves, all that is below."""
    found: Tree = {}
    for change in changes:
        before, after = (p and parse_path(p) for p in (change.path_before, change.path_after))
        if before and not after:
            found = {path: row for path, row in found.items() if path[: len(before)] != before}
        elif before and after and before != after:
            found = {
                (*after, *path[len(before) :]) if path[: len(before)] == before else path: row
                for path, row in found.items()
            }
        if after:
            found[parse_path(change.path_after or "")] = (change.entity_id, change.version)
    return found


def write(store: ms.Store, number: int, go_on: Callable[[], bool]) -> None:
    """Create, alter, rename and drop tables and schemas that all writers share."""
    choose = random.Random(number)
    while go_on():
        schema, name = f"m.c.s{choose.randrange(3)}", f"t{choose.randrange(6)}"
        with suppress(MetastoreError):
            chance = choose.random()
            if chance < 0.45:
                store.tables.create(f"{schema}.{name}", parents=True)
            elif chance < 0.75:
                store.tables.alter(f"{schema}.{name}", ms.SetProperty("k", str(choose.random())))
            elif chance < 0.85:
                store.tables.rename(f"{schema}.{name}", f"m.c.s{choose.randrange(3)}.t{choose.randrange(6)}")
            elif chance < 0.95:
                store.tables.drop(f"{schema}.{name}")
            else:
                store.schemas.rename(schema, f"s{choose.randrange(3)}")


@pytest.mark.postgres
def test_pins_beside_writers_show_a_replay_of_the_feed(postgres_url: str) -> None:
    with ms.open(postgres_url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        stop = threading.Event()
        go_on = lambda: not stop.is_set()  # noqa: E731
        writers = [threading.Thread(target=write, args=(store, n, go_on)) for n in range(6)]
        for writer in writers:
            writer.start()
        try:
            pins = [_pin_after_changes(store, n) for n in range(12)]
        finally:
            stop.set()
            for writer in writers:
                writer.join()
        check_pins(store, [pin.position for pin in pins])


def _pin_after_changes(store: ms.Store, number: int) -> Pin:
    """Take a pin when there are two changes more than at the pin before."""
    while sum(1 for _ in islice(store.changes(), 2 * number + 2)) <= 2 * number + 1:
        pass
    return store.pin(f"pin {number}")


def check_pins(store: ms.Store, pins: list[str]) -> None:
    """Compare the tree at each pin with a replay of the feed up to it."""
    changes = list(store.changes())
    assert len(changes) > len(pins)
    for pin in pins:
        seen = {parse_path(path): row[:2] for (_, path), row in tree(store.at(pin)).items()}
        assert seen == replayed(c for c in changes if c.position[: len(pin)] <= pin)


def write_on(turn: Turn, number: int) -> None:
    """Write until the pins are taken, and stall now and then, as a busy process does."""
    stalls = random.Random(number)

    def go_on() -> bool:
        if stalls.random() < 0.02:
            time.sleep(stalls.uniform(0, 0.1))
        return turn.go_on()

    write(turn.store, number, go_on)


def take_pins(turn: Turn, count: int) -> list[str]:
    """Take pins while the others write."""
    return [turn.store.pin(f"pin {n}").position for n in range(count)]


@pytest.mark.long
@pytest.mark.postgres
@pytest.mark.parametrize("processes", [8, 16])
def test_pins_beside_processes_that_stall(postgres_url: str, processes: int) -> None:
    with ms.open(postgres_url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        team = Team()
        jobs = [Job(write_on, n, background=True) for n in range(processes)]
        *_, pins = team.run(postgres_url, [*jobs, Job(take_pins, 200)])
        team.close()
        assert len(set(pins)) > 20
        check_pins(store, pins)
        assert store.verify() == []
