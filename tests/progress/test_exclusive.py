"""Exclusive operations under a stream of writes below: they mark, pass, and let the others go on."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import metastore as ms
from metastore.port.intents import Mark
from tests.concurrency.checks import seed, violations
from tests.concurrency.raw import is_sqlite
from tests.concurrency.workers import Job, Team, Turn

BOUND = {"sqlite": 5.0, "postgres": 5.0}
"""How long the 95th of 100 exclusive operations takes at most (seconds), on a busy machine."""


def create_below(turn: Turn, number: int) -> int:
    """Create below the schema, wherever it is, while it is anywhere."""
    schema, done = turn.store.schemas.load("lake.cat.s"), 0
    n = 0
    turn.meet()
    while turn.go_on():
        n += 1
        try:
            turn.store.tables.create(f"t{number}_{n}", parent=schema)
            done += 1
        except (ms.EntityNotFound, ms.NotInUse):
            time.sleep(0.001)  # it is dropped, or disabled, at this moment
    return done


def be_exclusive(turn: Turn, rounds: int) -> list[tuple[str, float]]:
    """Do each of them, there and back; return how long each took."""
    store, took = turn.store, list[tuple[str, float]]()
    calls: list[tuple[str, Callable[[], object]]] = [
        ("rename", lambda: store.schemas.rename("lake.cat.s", "r")),
        ("rename", lambda: store.schemas.rename("lake.cat.r", "s")),
        ("rename", lambda: store.catalogs.rename("lake.cat", "dog")),
        ("rename", lambda: store.catalogs.rename("lake.dog", "cat")),
        ("move", lambda: store.schemas.rename("lake.cat.s", "lake.two.s")),
        ("move", lambda: store.schemas.rename("lake.two.s", "lake.cat.s")),
        ("drop", lambda: store.schemas.drop("lake.cat.s", cascade=True)),
        ("restore", lambda: store.schemas.restore("lake.cat.s")),
        ("disable", lambda: store.catalogs.disable("lake.cat")),
        ("enable", lambda: store.catalogs.enable("lake.cat")),
    ]
    turn.meet()
    for _ in range(rounds):
        for verb, call in calls:
            began = time.monotonic()
            assert call() is not False
            took.append((verb, time.monotonic() - began))
    return took


def test_they_pass_within_a_bound(team: Team, url: str, record_property: Callable[[str, object], None]) -> None:
    """6a. Eight creators all the time."""
    seed(url)
    with ms.open(url) as store:
        store.catalogs.create("lake.two", type="relational")
    *created, took = team.run(url, [*[Job(create_below, n, background=True) for n in range(8)], Job(be_exclusive, 5)])
    seconds = sorted(t for _, t in took)
    p95 = seconds[len(seconds) * 95 // 100]
    record_property("p95 of exclusive operations, seconds", round(p95, 3))
    print(f"p50 {seconds[len(seconds) // 2]:.3f} p95 {p95:.3f} max {seconds[-1]:.3f}, created {created}")
    assert p95 < BOUND["sqlite" if is_sqlite(url) else "postgres"], took
    assert sum(created) > 0
    with ms.open(url) as store:
        assert store.stats().marks == ()
    assert violations(url) == []


def test_two_that_cross(team: Team, url: str) -> None:
    """Two processes move two schemas below each other, and rename both, under creators: neither waits for ever."""
    seed(url, "lake.cat.a", "lake.cat.b")
    jobs = [Job(move_around, "a", "b"), Job(move_around, "b", "a")]
    results = team.run(url, [*jobs, *[Job(create_beside, n, background=True) for n in range(2)]])
    assert all(moved > 0 for moved in results[:2])
    with ms.open(url) as store:
        assert store.stats().marks == ()
    assert violations(url) == []


def create_beside(turn: Turn, number: int) -> int:
    """Create below one of the two, wherever it is."""
    schema, done = turn.store.schemas.load(f"lake.cat.{'ab'[number]}"), 0
    turn.meet()
    while turn.go_on():
        turn.store.tables.create(f"t{done}", parent=schema)
        done += 1
    return done


def move_around(turn: Turn, mine: str, other: str) -> int:
    """Move one schema below the other and back; return how often it went."""
    store, moved = turn.store, 0
    own, target = store.schemas.load(f"lake.cat.{mine}"), store.schemas.load(f"lake.cat.{other}")
    turn.meet()
    ends = time.monotonic() + 60.0
    while moved < 5 and time.monotonic() < ends:
        try:
            below = store.schemas.load(target)
            store.schemas.rename(own, (*below.names, mine))
            store.schemas.rename(own, f"lake.cat.{mine}")
            moved += 1
        except (ms.InvalidArgument, ms.EntityNotFound):
            continue  # the other one was quicker: it is below this one now
    return moved


@pytest.mark.parametrize("held", [True, False], ids=["by entity", "by path"])
def test_a_mark_of_the_dead_is_met_by_an_exclusive_one(url: str, held: bool) -> None:
    """It is cleared by a rename as well as by a writer."""

    seed(url, "lake.cat.s.t")
    with ms.open(url) as store:
        schema = store.schemas.load("lake.cat.s")
        store._session.backend.mark(Mark(ms.new_operation_id(), schema.id, 0.3))
        began = time.monotonic()
        assert store.schemas.rename(schema if held else "lake.cat.s", "r").version == 2
        assert time.monotonic() - began < 10
        assert store.stats().marks == ()
        assert store.tables.create("lake.cat.r.new").version == 1
