"""A process that stands still in the middle of an operation, and is killed, or goes on: others finish meanwhile."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

import pytest

import metastore as ms
from metastore.port.intents import Mark
from tests.concurrency.checks import seed, violations
from tests.concurrency.raw import rows
from tests.progress.hooks import announces
from tests.progress.parked import Parked

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

PATH = "lake.cat.s.t"
SOON = 1.2
"""Seconds: a deadline that passes soon, but not before the operation has come to its point on a busy machine."""
POINTS = ("commit", "write_down", "pending", "help")
"""After its read; before and after its announcement; in the middle of helping."""


def alter(store: ms.Store, point: str, operation: UUID, seconds: float) -> tuple[int, list[str]]:
    """Add a column: twice would be an error. Return the version, and the columns there were then."""
    if point != "commit":
        announces(store, store.tables.load(PATH))
    found = store.tables.alter(PATH, ms.AddColumn("parked", "int"), operation_id=operation, deadline=seconds)
    return found.version, [c.name for c in found.columns]


def others_finish(url: str, *, within: float = 15.0) -> None:
    """Two other stores alter, create, rename and drop around the one that stands still."""
    began = time.monotonic()
    with ms.open(url, principal="others") as one, ms.open(url, principal="others") as two:
        for n in range(10):
            (one, two)[n % 2].tables.alter(PATH, ms.AddColumn(f"c{n}", "int"))
        two.tables.create("lake.cat.s.new")
        one.tables.rename("lake.cat.s.new", "newer")
        two.tables.drop("lake.cat.s.newer")
    assert time.monotonic() - began < within


def applied(url: str, operation: UUID) -> list[tuple[Any, ...]]:
    return rows(url, f"SELECT version FROM operation WHERE operation_id = '{operation}' AND seq IS NOT NULL")


@pytest.mark.parametrize("point", POINTS)
def test_killed(url: str, point: str) -> None:
    """What was announced is applied by the others, once; what was not, never."""
    seed(url, PATH)
    operation = ms.new_operation_id()
    with Parked(url, point, alter, point, operation, 30.0) as parked, ms.open(url) as store:
        announced = point in ("pending", "help")
        assert store.outcome(operation).state == ("pending" if announced else "unknown")
        others_finish(url)
        parked.kill()
        others_finish_again = store.tables.alter(PATH, ms.SetComment("after"))
        assert others_finish_again.version == 12 + announced
        assert store.outcome(operation).state == ("committed" if announced else "unknown")
        assert len(applied(url, operation)) == announced
    assert violations(url) == []


@pytest.mark.parametrize("point", POINTS)
def test_continued(url: str, point: str) -> None:
    """What it returns is what history says."""
    seed(url, PATH)
    operation = ms.new_operation_id()
    with Parked(url, point, alter, point, operation, 30.0) as parked, ms.open(url) as store:
        others_finish(url)
        how, (version, columns) = parked.go_on()
        assert how == "returned"
        assert applied(url, operation) == [(version,)]
        (mine,) = [v for v in store.tables.history(PATH) if v.operation_id == operation]
        assert isinstance(mine.entity, ms.Table)
        assert [c.name for c in mine.entity.columns] == columns
        assert (version == 2) == (point in ("pending", "help"))  # announced first, applied first
        assert store.tables.load(PATH).version == 12
    assert violations(url) == []


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "continued"])
def test_expired(url: str, killed: bool) -> None:
    """No helper came before its deadline: no later helper applies it."""
    seed(url, PATH)
    operation = ms.new_operation_id()
    with Parked(url, "help", alter, "help", operation, SOON) as parked, ms.open(url) as store:
        ends = time.monotonic() + SOON + 0.1
        while time.monotonic() < ends:
            assert store.outcome(operation).state == "pending"
            time.sleep(0.02)
        if killed:
            parked.kill()
            others_finish(url)
        else:
            others_finish(url)
            how, error = parked.go_on()
            assert (how, type(error)) == ("raised", ms.DeadlineExceeded)
        assert store.outcome(operation).state == "cancelled"
        assert applied(url, operation) == []
        again = store.tables.alter(PATH, ms.AddColumn("parked", "int"), operation_id=operation)  # a repeat may
        assert again.version == 12
        assert applied(url, operation) == [(12,)]
    assert violations(url) == []


def test_its_deadline_passed_before_it_applied_anything(url: str) -> None:
    """It stands still between its reading and its compare-and-swap until the deadline is over; alone."""
    seed(url, PATH)
    operation = ms.new_operation_id()
    with Parked(url, "help", alter, "help", operation, SOON) as parked, ms.open(url) as store:
        time.sleep(SOON + 0.1)
        how, answer = parked.go_on()
        state = store.outcome(operation).state
        assert state == ("committed" if how == "returned" else "cancelled"), answer
        assert len(applied(url, operation)) == (how == "returned")
    assert violations(url) == []


def helps(store: ms.Store, operation: UUID) -> int:
    """Apply the announced changes of others, with an own change."""
    return store.tables.alter(PATH, ms.AddColumn("parked", "int"), operation_id=operation, deadline=30.0).version


def test_in_the_middle_of_helping_another(url: str) -> None:
    """The helper that stands still has another's intent in its hands: the first to apply it counts, and only once."""
    seed(url, PATH)
    first, second = ms.new_operation_id(), ms.new_operation_id()
    with Parked(url, "pending", alter, "pending", first, 30.0) as owner:
        with Parked(url, "help", alter, "help", second, 30.0) as helper, ms.open(url) as store:
            assert {store.outcome(o).state for o in (first, second)} == {"pending"}
            with pytest.raises(ms.EntityAlreadyExists):
                store.tables.alter(PATH, ms.AddColumn("parked", "int"))
            assert store.outcome(first).state == "committed"
            assert store.outcome(second).state == "failed"  # the same column, later
            assert helper.go_on()[0] == "raised"
        assert owner.go_on() == ("returned", (2, ["parked"]))
    assert violations(url) == []


def marks(store: ms.Store, operation: UUID, seconds: float) -> None:
    """Announce a rename, as far as its mark."""
    table = store.tables.load(PATH)
    store._session.backend.mark(Mark(operation, table.id, seconds))
    store.tables.rename(table, "renamed", operation_id=operation)


def test_the_owner_of_a_mark_is_killed(url: str) -> None:
    """An operation that meets the mark waits for its end, removes it, and goes on."""
    seed(url, PATH)
    operation = ms.new_operation_id()
    with Parked(url, "commit", marks, operation, 0.8) as parked, ms.open(url) as store:
        began = time.monotonic()
        parked.kill()
        assert [m.operation_id for m in store.stats().marks] == [str(operation)]
        assert store.tables.alter(PATH, ms.SetComment("x")).version == 2
        assert time.monotonic() - began < 0.8 + 10
        assert store.stats().marks == ()
        assert store.outcome(operation).state == "unknown"
        assert store.tables.rename(PATH, "u").version == 3
    assert violations(url) == []


def test_the_owner_of_a_mark_comes_back(url: str) -> None:
    """Its mark was taken away: it begins again, and what it returns is what history says."""
    seed(url, PATH)
    operation = ms.new_operation_id()
    with Parked(url, "commit", marks, operation, 0.1) as parked, ms.open(url) as store:
        assert store.tables.alter(PATH, ms.SetComment("x")).version == 2
        assert parked.go_on() == ("returned", None)
        assert store.outcome(operation).result.version == 3
        assert store.tables.load("lake.cat.s.renamed").comment == "x"
    assert violations(url) == []
