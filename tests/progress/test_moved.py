"""What happens to the entity between an announcement and its application: moved or expired, never a dead path."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import metastore as ms
from metastore.port.intents import FORMAT, Entry
from tests.concurrency.checks import seed, violations
from tests.concurrency.raw import is_sqlite, rows
from tests.concurrency.workers import outcome
from tests.progress.hooks import Lost, announces, before

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

PATH = "lake.cat.s.t"
MOVES: dict[str, tuple[Callable[[ms.Store], Any], str | None]] = {
    "rename of the table": (lambda store: store.tables.rename(PATH, "u"), "lake.cat.s.u"),
    "rename of the schema": (lambda store: store.schemas.rename("lake.cat.s", "r"), "lake.cat.r.t"),
    "rename of the catalog": (lambda store: store.catalogs.rename("lake.cat", "c"), "lake.c.s.t"),
    "move": (lambda store: store.tables.rename(PATH, "lake.cat.o.t"), "lake.cat.o.t"),
    "drop of the table": (lambda store: store.tables.drop(PATH), None),
    "drop of the schema": (lambda store: store.schemas.drop("lake.cat.s", cascade=True), None),
}


@pytest.mark.parametrize("call", ["pending", "help"], ids=["before it reads", "before it applies"])
@pytest.mark.parametrize("held", [False, True], ids=["by path", "by entity"])
@pytest.mark.parametrize("move", MOVES)
def test_moved_after_the_announcement(url: str, move: str, held: bool, call: str) -> None:
    """By its path: EntityNotFound. By the entity: the change lands where that is now."""
    seed(url, PATH, "lake.cat.o")
    act, where = MOVES[move]
    operation = ms.new_operation_id()
    with ms.open(url, principal="victim", deadline=10.0) as victim, ms.open(url) as other:
        table = victim.tables.load(PATH)
        announces(victim, table)
        with before(victim, lambda: act(other), calls=(call,), times=1) as steps:
            if where is None or not held:
                with pytest.raises(ms.EntityNotFound):
                    victim.tables.alter(table if held else PATH, ms.SetComment("x"), operation_id=operation)
                assert victim.outcome(operation).state == "failed"
            else:
                found = victim.tables.alter(table, ms.SetComment("x"), operation_id=operation)
                assert found == victim.tables.load(where)
                assert found.comment == "x"
                assert victim.outcome(operation).result.version == found.version
        assert steps == [call]
        versions = [v for v in victim.tables.history(table) if v.operation_id == operation]
        assert len(versions) == (where is not None and held)
        assert all(v.path_before == v.path_after == where for v in versions)
    assert rows(url, "SELECT 1 FROM operation WHERE action = 'pending'") == []
    assert violations(url) == []


@pytest.mark.parametrize("call", ["pending", "help"])
def test_another_entity_takes_the_path(url: str, call: str) -> None:
    """The path means what is there when the change is applied: linearizable."""
    seed(url, PATH)
    with ms.open(url, principal="victim", deadline=10.0) as victim, ms.open(url) as other:
        table = victim.tables.load(PATH)
        announces(victim, table)

        def swap() -> None:
            other.tables.rename(PATH, "u")
            other.tables.create(PATH, comment="new")

        with before(victim, swap, calls=(call,), times=1):
            found = victim.tables.alter(PATH, ms.SetProperty("k", "v"))
        assert found.id != table.id
        assert (found.version, found.comment) == (2, "new")
        assert victim.tables.load("lake.cat.s.u").properties == {}
    assert violations(url) == []


def announce(store: ms.Store, table: ms.Table, seconds: float, *, by_path: bool = True) -> Any:
    """Write an intent down whose owner never comes back."""
    operation = ms.new_operation_id()
    changes = '[{"change": "SetComment", "text": "late"}]'
    path = table.path if by_path else None
    entry = Entry(operation, "pending", "dead", table.id, "table", path, changes, FORMAT, seconds)
    store._session.backend.write_down(entry)
    return operation


def action_of(url: str, operation: Any) -> str:
    ((action,),) = rows(url, f"SELECT action FROM operation WHERE operation_id = '{operation}'")
    return str(action)


@pytest.mark.parametrize("by_path", [True, False], ids=["by path", "by entity"])
def test_whoever_writes_next_applies_what_a_dead_process_announced(url: str, by_path: bool) -> None:
    seed(url, PATH)
    with ms.open(url) as store:
        table = store.tables.load(PATH)
        operation = announce(store, table, 30, by_path=by_path)
        assert store.outcome(operation).state == "pending"
        found = store.tables.alter(PATH, ms.SetProperty("k", "v"))
        assert (found.version, found.comment) == (3, "late")
        assert store.outcome(operation).state == "committed"
        assert store.outcome(operation).result == store.tables.load(PATH, version=2)
    assert violations(url) == []


@pytest.mark.parametrize("move", MOVES)
def test_a_helper_finds_that_the_path_is_dead(url: str, move: str) -> None:
    """The owner is gone: its by-path intent is recorded as moved, or withdrawn with the drop."""
    seed(url, PATH, "lake.cat.o")
    act, where = MOVES[move]
    with ms.open(url) as store:
        table = store.tables.load(PATH)
        operation = announce(store, table, 30)
        act(store)
        if where is not None:
            assert store.tables.alter(where, ms.SetProperty("k", "v")).comment is None
            assert action_of(url, operation) == "moved"
            assert store.outcome(operation).state == "cancelled"
        assert not [v for v in store.tables.history(table) if v.operation_id == operation]
    assert violations(url) == []


def test_an_intent_expires(url: str) -> None:
    """A helper after its deadline records it as expired."""
    seed(url, PATH)
    with ms.open(url) as store:
        table = store.tables.load(PATH)
        operation = announce(store, table, 0.0)
        found = store.tables.alter(PATH, ms.SetProperty("k", "v"))
        assert (found.version, found.comment) == (2, None)
        assert action_of(url, operation) == "expired"
        assert store.outcome(operation).state == "cancelled"
    assert violations(url) == []


@pytest.mark.parametrize("call", ["pending", "help"])
def test_the_deadline_passes_after_the_announcement(url: str, call: str) -> None:
    """The caller is told that it was not applied, and it never is."""
    seed(url, PATH)
    operation, lost = ms.new_operation_id(), Lost()
    with ms.open(url, hooks=[lost]) as victim, ms.open(url) as other:
        table = victim.tables.load(PATH)
        announces(victim, table)

        def wait() -> None:
            expired = f"SELECT 1 FROM operation WHERE operation_id = '{operation}' AND deadline < "
            now = "extract(epoch FROM clock_timestamp()) * 1000000" if "postgres" in url else str(10**18)
            ends = time.monotonic() + 1.3
            while not rows(url, expired + now) or time.monotonic() < ends:
                time.sleep(0.02)

        with before(victim, wait, calls=(call,), times=1):
            said = outcome(
                victim.tables.alter, PATH, ms.SetComment("late"), deadline=1.1, operation_id=operation
            )  # SQLite may still apply it, when it was read in time
        assert said == "DeadlineExceeded" or (said == "ok" and call == "help" and is_sqlite(url))
        applied = said == "ok"
        assert other.outcome(operation).state == ("committed" if applied else "cancelled")
        found = other.tables.alter(PATH, ms.SetProperty("k", "v"))
        assert (found.version, found.comment) == ((3, "late") if applied else (2, None))
    assert violations(url) == []


@pytest.mark.parametrize("call", ["pending", "help"])
def test_somebody_applies_it_just_before_its_deadline(url: str, call: str) -> None:
    """The caller comes too late to cancel, and returns the result."""
    seed(url, PATH)
    operation = ms.new_operation_id()
    with ms.open(url) as victim, ms.open(url) as other:
        announces(victim, victim.tables.load(PATH))

        def help_and_wait() -> None:
            other.tables.alter(PATH, ms.SetProperty("k", "v"))
            time.sleep(2.0)

        with before(victim, help_and_wait, calls=(call,), times=1):
            found = victim.tables.alter(PATH, ms.SetComment("in time"), deadline=1.9, operation_id=operation)
        assert (found.version, found.comment) == (2, "in time")
        assert other.outcome(operation).result.version == 2
    assert violations(url) == []
