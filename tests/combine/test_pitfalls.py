"""What goes wrong for one of a batch, and for none of the others; docs/progress.md has the list."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import metastore as ms
from metastore import Store
from metastore.combine.decided import Decided
from tests.combine.gate import LONGEST, batches_of, held, lanes, together, until_waiting
from tests.concurrency.silent import hears_late_answers

SCHEMA = "lake.c.s"
Call = Callable[[], Any]


def set_in(store: Store, n: int, key: str, value: str = "1", **options: Any) -> Call:
    return lambda: store.tables.alter(f"{SCHEMA}.t{n}", ms.SetProperty(key, value), **options)


def test_a_deadline_in_a_batch_is_its_own(store: Store, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row of one is locked for longer than it may wait; it is not applied later, and the others are at once."""
    hears_late_answers(monkeypatch)
    _, writes = lanes(store)
    locked = store.tables.load(f"{SCHEMA}.t0")
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        connection.execute("SELECT 1 FROM entity WHERE id = %s FOR UPDATE", [locked.id])
        found = together(writes, [set_in(store, 0, "late", deadline=1.0), set_in(store, 1, "k"), set_in(store, 2, "k")])
        connection.rollback()
    assert isinstance(found[0], ms.DeadlineExceeded)
    assert [one.version for one in found[1:]] == [2, 2]
    assert store.tables.load(f"{SCHEMA}.t0").properties == {}
    assert store.verify() == []


@pytest.mark.parametrize("reached", ["find_below", "write_together", "answer"])
def test_a_time_that_ends_in_mid_batch(store: Store, reached: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the batch is when the time of one ends: a call that is told that it was not applied never is."""
    _, writes = lanes(store)
    backend: Any = store._session.backend
    over, name = threading.Event(), "find_below" if reached == "find_below" else "write_together"
    original = getattr(backend, name)

    def slow(*arguments: Any) -> Any:
        monkeypatch.setattr(backend, name, original)
        if reached == "answer":
            answer = original(*arguments)
            assert over.wait(LONGEST)
            return answer
        assert over.wait(LONGEST)
        return original(*arguments)

    def late() -> Any:
        try:
            return set_in(store, 0, "late", deadline=1.0)()
        finally:
            over.set()

    monkeypatch.setattr(backend, name, slow)
    found = together(writes, [late, set_in(store, 0, "a"), set_in(store, 1, "b")])
    assert ("late" in store.tables.load(f"{SCHEMA}.t0").properties) is (reached == "answer")
    if reached == "answer":
        assert "late" in found[0].properties
    else:
        assert isinstance(found[0], ms.DeadlineExceeded)
        assert "was not applied: its deadline passed" in str(found[0])
    assert ("a" in found[1].properties, "b" in found[2].properties) == (True, True)
    assert store.verify() == []


def test_an_intent_is_withdrawn_when_its_time_is_over(store: Store, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that lost two batches are announced; on a locked row nobody helps them, and their time ends."""
    hears_late_answers(monkeypatch)
    _, writes = lanes(store)
    table = store.tables.load(f"{SCHEMA}.t0")
    store._session.hot.note(table.id, ("table", table.names))
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        connection.execute("SELECT 1 FROM entity WHERE id = %s FOR UPDATE", [table.id])
        found = together(writes, [set_in(store, 0, f"k{n}", deadline=1.5) for n in range(4)])
        connection.rollback()
    assert [type(one) for one in found] == [ms.DeadlineExceeded] * 4
    assert store.tables.load(f"{SCHEMA}.t0").properties == {}
    assert store.stats().pending == 0
    assert store.verify() == []


def test_a_leader_that_is_interrupted_while_it_tells(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody takes its own commit for another's: the create finds its table, the drop that it dropped, and so on."""
    _, writes = lanes(store)
    tell = Decided.tell

    def interrupted(self: Decided, *arguments: Any) -> None:
        monkeypatch.setattr(Decided, "tell", tell)
        raise KeyboardInterrupt

    monkeypatch.setattr(Decided, "tell", interrupted)
    swap = ms.SetProperty("k", "1", expected=None)
    calls: list[Call] = [
        set_in(store, 3, "leader", deadline=60.0),  # the one with the most time left leads
        lambda: store.tables.create(f"{SCHEMA}.new"),
        lambda: store.tables.drop(f"{SCHEMA}.t0"),
        lambda: store.tables.alter(f"{SCHEMA}.t1", swap),
        lambda: store.tables.rename(f"{SCHEMA}.t2", "renamed"),
    ]
    with batches_of(writes) as sizes:
        hurt, made, dropped, swapped, renamed = together(writes, calls)
    assert sizes == [5]
    assert isinstance(hurt, KeyboardInterrupt)
    assert (made.name, dropped, swapped.properties, renamed.name) == ("new", True, {"k": "1"}, "renamed")
    assert [version.action for version in store.tables.history(made)] == ["create"]
    assert store.metrics().ambiguous == {"applied": 4}
    assert store.verify() == []


def test_an_id_that_is_given_twice_goes_past_the_lane(store: Store) -> None:
    """A repeat must find the row of the first; neither waits behind the lane, and the change happens once."""
    _, writes = lanes(store)
    own = ms.new_operation_id()
    with batches_of(writes) as sizes, held(writes), ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: set_in(store, 0, "k", operation_id=own)(), range(2)))
    assert sizes == []
    assert [one.version for one in both] == [2, 2]
    assert len(list(store.tables.history(f"{SCHEMA}.t0"))) == 2


@pytest.mark.parametrize("sent", [False, True])
def test_an_interrupt_in_the_leader_hurts_no_other(store: Store, sent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader is interrupted before its message or after it: its own call is withdrawn or has happened."""
    _, writes = lanes(store)
    backend: Any = store._session.backend
    original = backend.write_together

    def interrupted(batch: Any, patience: int) -> Any:
        monkeypatch.setattr(backend, "write_together", original)
        if sent:
            original(batch, patience)
        raise KeyboardInterrupt

    monkeypatch.setattr(backend, "write_together", interrupted)
    found = together(writes, [set_in(store, n, f"k{i}", deadline=60.0 - i) for i, n in enumerate((0, 0, 1))])
    (hurt,) = [one for one in found if isinstance(one, KeyboardInterrupt)]
    assert isinstance(found[0], KeyboardInterrupt)
    assert [f"k{i}" in one.properties for i, one in enumerate(found[1:], 1)] == [True, True]
    happened = "k0" in store.tables.load(f"{SCHEMA}.t0").properties
    state = store.outcome(vars(hurt)["operation_id"]).state
    assert (state == "committed") == (len(list(store.tables.history(f"{SCHEMA}.t0"))) == 3) == happened
    assert store.verify() == []


def test_a_fork_in_mid_batch(store: Store) -> None:
    """The child's calls go on their own connections, and the parent's batch is applied once."""
    _, writes = lanes(store)
    with ThreadPoolExecutor(2) as pool:
        futures: list[Future[Any]] = []
        with held(writes):
            for n in range(2):
                futures.append(pool.submit(set_in(store, 0, f"parent{n}")))
                until_waiting(writes, n + 1, futures)
            pid = os.fork()
            if not pid:  # pragma: no cover  (in the child)
                right = False
                try:
                    right = store.tables.alter(f"{SCHEMA}.t0", ms.SetProperty("child", "1")).version == 2
                finally:
                    os._exit(0 if right else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert sorted(future.result(LONGEST).version for future in futures) == [3, 4]
    assert set(store.tables.load(f"{SCHEMA}.t0").properties) == {"parent0", "parent1", "child"}
    assert len(list(store.tables.history(f"{SCHEMA}.t0"))) == 4
    assert store.verify() == []


_THREADS, _ROUNDS = 12, 8
SCHEMAS = ("a", "b", "d")


def _calls(store: Store, dice: random.Random, number: int, n: int) -> list[Call]:
    schema, other = dice.sample([*SCHEMAS, "x", "y"], 2)
    path = f"lake.c.{schema}"
    return [
        lambda: store.schemas.rename(path, other),
        lambda: store.schemas.drop(path, cascade=True),
        lambda: store.schemas.restore(path),
        *[lambda: store.tables.create(f"{path}.n{number}_{n}")] * 3,
        *[lambda: store.tables.drop(f"{path}.n{number}_{dice.randrange(n + 1)}")] * 2,
    ]


def test_drops_and_renames_of_what_has_children(store: Store) -> None:
    """Threads drop, restore and rename schemas while others make and drop tables in them: no orphan, no name twice."""
    for name in SCHEMAS:
        store.schemas.create(f"lake.c.{name}")

    def work(number: int) -> int:
        dice, done = random.Random(number), 0
        for n in range(_ROUNDS):
            try:
                done += bool(dice.choice(_calls(store, dice, number, n))())
            except (ms.EntityNotFound, ms.EntityAlreadyExists):
                continue
        return done

    with ThreadPoolExecutor(_THREADS) as pool:
        assert sum(pool.map(work, range(_THREADS))) > 0
    there = [schema.name for schema in store.schemas.list("lake.c")]
    assert len(set(there)) == len(there)
    for name in there:
        tables = [table.name for table in store.tables.list(f"lake.c.{name}")]
        assert len(set(tables)) == len(tables)
    assert store.verify() == []
    assert store.stats().pending == 0
    assert store.stats().marks == ()
