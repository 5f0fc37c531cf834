"""What a batch means: what its members mean one after the other, whatever becomes of the others."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import psycopg
import pytest

import metastore as ms
from metastore import Store
from metastore.combine.waiting import ROUNDS
from metastore.port.commit import Unknown
from metastore.retry.policy import Attempt
from tests.combine.gate import announced, batches_of, lanes, setting, together

pytestmark = pytest.mark.one_in(3)

SCHEMA = "lake.c.s"
Call = Callable[[], Any]


def path(n: int) -> str:
    return f"{SCHEMA}.t{n}"


def set_in(store: Store, n: int, key: str, value: str = "1", **options: Any) -> Call:
    return lambda: store.tables.alter(path(n), ms.SetProperty(key, value), **options)


def test_reads_of_one_batch(store: Store) -> None:
    reads, _ = lanes(store)
    calls: list[Call] = [lambda n=n: store.tables.load(path(n)) for n in (0, 1, 1, 2)]  # type: ignore[misc]
    calls += [lambda: store.tables.exists(path(3)), lambda: store.tables.exists(f"{SCHEMA}.none")]
    calls += [lambda: store.tables.load(f"{SCHEMA}.none"), lambda: store.views.load(path(0))]
    with batches_of(reads) as sizes:
        found = together(reads, calls)
    assert sizes == [8]
    assert [t.name for t in found[:4]] == ["t0", "t1", "t1", "t2"]
    assert found[4:6] == [True, False]
    assert isinstance(found[6], ms.EntityNotFound)
    assert isinstance(found[7], ms.EntityNotFound)
    assert str(found[6]) == f"{SCHEMA}.none does not exist; create it, or correct the path"


def test_reads_below_a_schema_that_was_renamed(store: Store, url: str) -> None:
    reads, _ = lanes(store)
    with ms.open(url) as other:
        other.schemas.rename(SCHEMA, "s2")
    calls: list[Call] = [lambda: store.tables.exists(path(0)), lambda: store.catalogs.exists("lake.c")]
    calls += [lambda: store.tables.load(path(1))]
    found = together(reads, calls)
    assert found[:2] == [False, True]
    assert isinstance(found[2], ms.EntityNotFound)
    assert str(found[2]).startswith(f"{path(1)} does not exist: there is no {SCHEMA}; create it")


def test_alters_of_one_batch_are_operations_of_their_own(store: Store) -> None:
    _, writes = lanes(store)
    calls = [set_in(store, n % 3, f"k{n}", principal=f"p{n}") for n in range(9)]
    before = store.metrics().operations.get("alter", {})
    with batches_of(writes) as sizes:
        found = together(writes, calls)
    assert sizes == [9]
    counted = store.metrics()
    assert counted.operations["alter"] == before | {"self": before.get("self", 0) + 9}
    assert counted.attempts["alter"].count == counted.commit_seconds["alter"].count >= 9
    assert [t.version for t in found] == [2, 2, 2, 3, 3, 3, 4, 4, 4]
    for n, table in enumerate(found):
        assert table.modified_by == f"p{n}"
        assert set(table.properties) == {f"k{m}" for m in range(n % 3, n + 1, 3)}
        assert table == store.tables.load(path(n % 3), version=table.version)
    for n in range(3):
        history = list(store.tables.history(path(n)))
        assert [one.version for one in history] == [1, 2, 3, 4]
        assert [one.principal for one in history[1:]] == [f"p{n}", f"p{n + 3}", f"p{n + 6}"]
        assert len({one.operation_id for one in history}) == 4
        assert [store.outcome(one.operation_id).state for one in history] == ["committed"] * 4
        assert store.tables.load(path(n)) == found[n + 6]
    assert [c.version for c in store.changes() if c.kind == "table" and c.action == "alter"] == [2, 3, 4] * 3
    assert store.verify() == []


def test_an_error_of_one_is_its_own(store: Store) -> None:
    _, writes = lanes(store)
    add = ms.AddColumn("b", "string")
    calls: list[Call] = [
        lambda: store.tables.alter(path(0), add),
        lambda: store.tables.alter(path(0), add),
        set_in(store, 0, "k"),
        set_in(store, 0, "k"),  # changes nothing by then
        lambda: store.tables.alter(f"{SCHEMA}.none", add),
        lambda: store.tables.alter(path(1), ms.SetProperty("k", "new", expected="old")),
        set_in(store, 1, "k"),
        lambda: store.tables.alter(path(2), add, expected_version=7),
        lambda: store.tables.alter(path(2), add, expected_version=1),
    ]
    with batches_of(writes) as sizes:
        found = together(writes, calls)
    assert sizes[0] == 9
    kinds = [type(one).__name__ for one in found]
    assert kinds == [
        "Table",
        "EntityAlreadyExists",
        "Table",
        "Table",
        "EntityNotFound",
        "VersionConflict",
        "Table",
        "VersionConflict",
        "Table",
    ]
    assert [found[n].version for n in (0, 2, 3, 6, 8)] == [2, 3, 3, 2, 2]
    assert found[3] == found[2]  # it is what was committed, with the time of that commit
    assert store.verify() == []


def test_entities_in_hand_merge_from_the_newest(store: Store) -> None:
    _, writes = lanes(store)
    old = store.tables.load(path(0))
    new = store.tables.alter(old, ms.SetProperty("first", "1"))
    calls: list[Call] = [partial(store.tables.alter, t, ms.SetProperty(f"k{n}", "1")) for n, t in enumerate((old, new))]
    found = together(writes, calls)
    assert [t.version for t in found] == [3, 4]
    assert set(found[1].properties) == {"first", "k0", "k1"}


def test_who_lost_goes_into_the_next_batch_without_a_read(store: Store, url: str) -> None:
    _, writes = lanes(store)
    in_hand = [store.tables.load(path(n)) for n in range(2)]
    with ms.open(url) as other:
        other.tables.alter(path(0), ms.SetProperty("theirs", "1"))
    calls: list[Call] = [partial(store.tables.alter, t, ms.SetProperty("mine", "1")) for t in in_hand]
    with batches_of(writes) as sizes:
        found = together(writes, calls)
    assert [t.version for t in found] == [3, 2]
    assert set(found[0].properties) == {"theirs", "mine"}
    assert sizes == [2, 1]
    assert store.metrics().conflicts == {"alter": {"self": 1}}


def test_a_mark_a_guard_and_an_intent_are_left_to_the_full_operation(store: Store, url: str) -> None:
    _, writes = lanes(store)
    calls = [set_in(store, n, "k") for n in range(3)]
    with ms.open(url) as other:
        other.schemas.rename(SCHEMA, "s2")
        other.schemas.rename("lake.c.s2", "s")  # every scope version that is known here is old
    found = together(writes, calls)
    assert [t.version for t in found] == [2, 2, 2]
    assert store.verify() == []


def test_a_renamed_entity_in_hand_is_altered_where_it_is(store: Store, url: str) -> None:
    _, writes = lanes(store)
    in_hand = store.tables.load(path(0))
    with ms.open(url) as other:
        other.tables.rename(path(0), "elsewhere")
    calls: list[Call] = [lambda: store.tables.alter(in_hand, ms.SetProperty("k", "1")), set_in(store, 0, "k")]
    found = together(writes, calls)
    assert found[0].path == f"{SCHEMA}.elsewhere"
    assert isinstance(found[1], ms.EntityNotFound)
    assert store.verify() == []


def test_a_batch_of_64_with_one_poisoned_one_too_large_one_locked(store: Store, url: str) -> None:
    _, writes = lanes(store)
    store.tables.create_many(SCHEMA, [{"name": f"u{n}", "columns": [ms.Column("a", "int")]} for n in range(64)])
    calls: list[Call] = [
        lambda n=n: store.tables.alter(f"{SCHEMA}.u{n}", ms.SetProperty("k", "1"))  # type: ignore[misc]
        for n in range(64)
    ]
    calls[7] = lambda: store.tables.alter(f"{SCHEMA}.u7", ms.SetProperty("k", "x" * (2 << 20)))
    calls[8] = lambda: store.tables.alter(f"{SCHEMA}.u8", ms.SetProperty("k", "\x00"))
    locked = store.tables.load(f"{SCHEMA}.u9").id
    held, answered = threading.Event(), threading.Event()

    def hold() -> None:
        with psycopg.connect(url.replace("+psycopg", "")) as connection:
            connection.execute("SELECT 1 FROM entity WHERE id = %s FOR UPDATE", [locked])
            held.set()
            answered.wait(60)

    def others_first(n: int, call: Call) -> Call:
        def run() -> Any:
            try:
                return call()
            finally:
                with lock:
                    done.append(n)
                    if len(done) == 63:
                        answered.set()

        return run

    done: list[int] = []
    lock = threading.Lock()
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    try:
        with batches_of(writes) as sizes:
            found = together(writes, [others_first(n, call) for n, call in enumerate(calls)])
    finally:
        answered.set()
        thread.join()
    assert sizes[0] == 64
    assert done[-1] == 9  # the locked one waited; nobody waited for it
    assert isinstance(found[7], ms.InvalidArgument)
    good = [n for n in range(64) if n not in (7, 8)]
    assert [found[n].version for n in good] == [2] * len(good)
    assert found[8].properties["k"] == "\x00"
    assert store.verify() == []


def test_a_bug_in_a_change_is_its_owners(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def apply(self: Any, doc: Any, path: Any) -> None:
        raise RuntimeError("a bug in a change")

    _, writes = lanes(store)
    monkeypatch.setattr(ms.SetComment, "apply", apply)
    buggy: Call = lambda: store.tables.alter(path(0), ms.SetComment("x"))  # noqa: E731
    found = together(writes, [set_in(store, 0, "a"), buggy, set_in(store, 0, "b")])
    assert [found[n].version for n in (0, 2)] == [2, 3]
    assert isinstance(found[1], RuntimeError)


@pytest.mark.parametrize("applied", [False, True])
def test_a_lost_answer_is_resolved_by_each_operation_id(
    store: Store, applied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, writes = lanes(store)
    backend: Any = store._session.backend
    original = backend.write_together

    def lost(batch: Any, patience: Any) -> Any:
        monkeypatch.setattr(backend, "write_together", original)
        if applied:
            original(batch, patience)
        return Unknown("the connection was cut")

    monkeypatch.setattr(backend, "write_together", lost)
    found = together(writes, [set_in(store, n % 2, f"k{n}") for n in range(6)])
    assert sorted(t.version for t in found) == [2, 2, 3, 3, 4, 4]
    for n in range(2):
        assert [one.version for one in store.tables.history(path(n))] == [1, 2, 3, 4]
        assert set(store.tables.load(path(n)).properties) == {f"k{m}" for m in range(n, 6, 2)}
    resolved = store.metrics().ambiguous
    assert resolved == {"applied" if applied else "not_applied": 6}
    assert store.verify() == []


def test_creates_of_one_batch(store: Store) -> None:
    _, writes = lanes(store)
    schema = store.schemas.load(SCHEMA)
    calls: list[Call] = [
        lambda n=n: store.tables.create(f"{SCHEMA}.n{n}", comment=str(n), principal=f"p{n}")  # type: ignore[misc]
        for n in (3, 1, 2)
    ]
    calls += [lambda: store.tables.create(f"{SCHEMA}.n1"), lambda: store.tables.create(path(0))]
    calls += [lambda: store.tables.create("n4", parent=schema), lambda: store.views.create(f"{SCHEMA}.v", columns=[])]
    calls += [lambda: store.tables.create(f"{SCHEMA}.nul", comment="\x00"), lambda: store.schemas.create("lake.c.s2")]
    with batches_of(writes) as sizes:
        found = together(writes, calls[:6] + calls[7:])
    assert sizes == [8, 1]  # the second n1 went with the next batch
    names = [getattr(one, "name", type(one).__name__) for one in found]
    assert names == ["n3", "n1", "n2", "EntityAlreadyExists", "EntityAlreadyExists", "n4", "nul", "s2"]
    made_first = [change.path_after for change in store.changes()][-6:]
    assert made_first == [f"{SCHEMA}.{name}" for name in ("n3", "n1", "n2", "n4", "nul")] + ["lake.c.s2"]
    for n, table in zip((3, 1, 2), found, strict=False):
        assert (table.comment, table.created_by, table.version) == (str(n), f"p{n}", 1)
        assert store.tables.load(table.path) == table
        (made,) = store.tables.history(table.path)
        assert made.entity == table
        assert store.outcome(made.operation_id) == ms.Outcome("committed", table)
    assert store.verify() == []


def test_drops_of_one_batch(store: Store, url: str) -> None:
    _, writes = lanes(store)
    in_hand = store.tables.load(path(2))
    old = store.tables.load(path(3))
    store.tables.alter(old, ms.SetComment("newer"))
    moved = announced(store, path(0), setting("theirs", "1"))
    calls: list[Call] = [lambda n=n: store.tables.drop(path(n), principal=f"p{n}") for n in (0, 1, 0)]  # type: ignore[misc]
    calls += [lambda: store.tables.drop(in_hand), lambda: store.tables.drop(old), lambda: store.views.drop(path(4))]
    calls += [lambda: store.tables.drop(f"{SCHEMA}.none"), lambda: store.tables.drop(path(5), expected_version=9)]
    with batches_of(writes) as sizes:
        found = together(writes, calls)
    assert sizes == [8, 1]  # the second drop of t0 went with the next batch
    assert sorted(found[:3]) == [False, True, True]
    assert found[3:7] == [True, True, False, False]
    assert isinstance(found[7], ms.VersionConflict)
    # sent away, and counted: a claim under the number of before would come too late
    assert [(step.action, step.attempt) for step in store._session.backend.steps(moved)] == [("moved", 1)]
    assert list(store.tables.names(SCHEMA)) == ["t4", "t5", "t6", "t7"]
    assert store.tables.restore(path(0)).version == 3
    dropped = [c for c in store.changes() if c.action == "drop"]
    assert {(c.path_before, c.principal) for c in dropped[:2]} == {(path(0), "p0"), (path(1), "p1")}
    assert store.verify() == []


def test_a_drop_waits_for_nobody_and_hurts_nobody(store: Store, url: str) -> None:
    """A batch passes over a row that another transaction holds; its owner waits for it alone."""
    _, writes = lanes(store)
    locked = store.tables.load(path(0)).id
    others, ended = threading.Event(), threading.Event()
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        connection.execute("SELECT 1 FROM guard WHERE id = %s FOR UPDATE", [locked])

        def drop(n: int) -> bool:
            done = store.tables.drop(path(n))
            if n:
                others.set()
            return done

        def free() -> None:
            others.wait(60)
            connection.rollback()
            ended.set()

        thread = threading.Thread(target=free)
        thread.start()
        found = together(writes, [lambda: drop(0), lambda: drop(1)])
        thread.join()
    assert found == [True, True]
    assert ended.is_set()
    assert store.verify() == []


def test_a_batch_carries_the_intents_that_it_meets(store: Store) -> None:
    _, writes = lanes(store)
    good = announced(store, path(0), setting("theirs", "1"))
    bad = announced(store, path(0), setting("theirs", "2", expected="0"))
    late = announced(store, path(0), setting("late", "1"), seconds=-1.0)
    alone = announced(store, path(2), setting("theirs", "1"))
    with batches_of(writes) as sizes:
        found = together(writes, [set_in(store, 0, "mine"), set_in(store, 1, "mine"), set_in(store, 0, "more")])
    assert sizes == [3, 2]
    assert [t.version for t in found] == [3, 2, 4]
    assert set(found[2].properties) == {"theirs", "mine", "more"}
    assert [store.outcome(own).state for own in (good, bad, late, alone)] == [
        "committed",
        "failed",
        "cancelled",
        "pending",
    ]
    history = list(store.tables.history(path(0)))
    assert [(one.version, one.principal) for one in history[1:]] == [(2, "other"), (3, "tester"), (4, "tester")]
    assert history[1].operation_id == good
    # on an entity where intents were met lately, the next batch looks for them before it is refused
    again = announced(store, path(0), setting("again", "1"))
    conflicts = store.metrics().conflicts
    found = together(writes, [set_in(store, 0, "last"), set_in(store, 0, "of all")])
    assert [t.version for t in found] == [6, 7]
    assert store.outcome(again).state == "committed"
    assert store.metrics().conflicts == conflicts
    assert [n.version for n in store.tables.history(path(0))] == list(range(1, 8))
    assert store.verify() == []


def test_what_changes_nothing_shows_its_version_whatever_the_batch_carries(store: Store) -> None:
    _, writes = lanes(store)
    announced(store, path(0), setting("theirs", "1"))
    _, table = together(writes, [set_in(store, 0, "mine"), set_in(store, 0, "more")])
    own = announced(store, path(0), setting("more", "1"))
    with batches_of(writes) as sizes:
        same, last = together(writes, [set_in(store, 0, "more"), set_in(store, 0, "last")])
    assert sizes == [2]
    assert [same, store.outcome(own).result, store.tables.load(path(0))] == [table, table, last]


def test_an_intent_that_is_cancelled_meanwhile_is_not_carried(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    _, writes = lanes(store)
    own = announced(store, path(0), setting("theirs", "1"))
    backend: Any = store._session.backend
    original = backend.write_together

    def cancelled_first(batch: Any, patience: Any) -> Any:
        if any(step.carried for one in batch.alters for step in one.steps):
            backend.cancel(own)
        return original(batch, patience)

    monkeypatch.setattr(backend, "write_together", cancelled_first)
    found = together(writes, [set_in(store, 0, "a"), set_in(store, 0, "b")])
    assert sorted(t.version for t in found) == [2, 3]
    assert store.outcome(own).state == "cancelled"
    assert "theirs" not in store.tables.load(path(0)).properties
    assert store.verify() == []


def test_a_frozen_schema_stops_a_batch(store: Store, url: str) -> None:
    _, writes = lanes(store)
    with ms.open(url) as other, other.schemas.exclusive(SCHEMA, ttl=60.0):
        calls: list[Call] = [
            set_in(store, 0, "k", deadline=1.0),
            lambda: store.tables.create(f"{SCHEMA}.new", deadline=1.0),
            lambda: store.tables.drop(path(1), deadline=1.0),
        ]
        found = [together(writes, [call])[0] for call in calls]
    assert [type(one) for one in found] == [ms.ScopeFrozen] * 3
    assert [t.version for t in store.tables.list(SCHEMA)] == [1] * 8


def test_all_kinds_of_writes_travel_in_one_batch(store: Store) -> None:
    """Of one entity: first what alters it, then one rename or drop; a second one waits for the next batch."""
    _, writes = lanes(store)
    tables, backend = store.tables, store._session.backend
    calls: list[Call] = [
        lambda: tables.drop(path(0)),
        set_in(store, 0, "k"),
        lambda: tables.rename(path(1), "r1"),
        set_in(store, 1, "k"),
        lambda: tables.create(f"{SCHEMA}.new"),
        lambda: tables.rename(path(2), "t3"),  # taken
        lambda: tables.rename(path(4), "new"),  # the create takes it
        lambda: tables.rename(path(5), "t5"),  # it has that name
        lambda: tables.rename(f"{SCHEMA}.none", "x"),
        lambda: tables.create(path(6)),  # taken, and dropped behind it
        lambda: tables.drop(path(6)),
        lambda: tables.rename(path(7), "r7"),
        lambda: tables.rename(path(7), "s7"),  # nothing is there any more by then
    ]
    with batches_of(writes) as sizes, sent_by(backend) as messages:
        found = together(writes, calls)
    assert sizes == [13, 2]
    assert [len(one) for one in messages] == [4]  # locks, creates, alters, exclusive updates
    names = [getattr(one, "name", type(one).__name__) for one in found]
    taken, nothing = "EntityAlreadyExists", "EntityNotFound"
    assert names == ["bool", "t0", "r1", "t1", "new", taken, taken, "t5", nothing, taken, "bool", "r7", nothing]
    assert str(found[5]) == str(alone(store, calls[5]))
    assert str(found[9]) == str(alone(store, lambda: tables.create(f"{SCHEMA}.new"))).replace(".new", ".t6")
    assert [(v.action, v.version) for v in tables.history(found[2])] == [("create", 1), ("alter", 2), ("rename", 3)]
    assert found[2].properties == {"k": "1"}
    assert tables.load(f"{SCHEMA}.r1") == found[2]
    assert list(tables.names(SCHEMA)) == ["new", "r1", "r7", "t2", "t3", "t4", "t5"]
    assert store.verify() == []


def alone(store: Store, call: Call) -> Any:
    """Return what a call returns that goes alone, or its error."""
    try:
        return call()
    except ms.MetastoreError as error:
        return error


@contextmanager
def sent_by(backend: Any) -> Iterator[list[list[str]]]:
    """Give the messages of several statements that a backend sends, as their texts."""
    messages: list[list[str]] = []
    original = backend.pool.send

    def send(statements: Any, *arguments: Any, **options: Any) -> Any:
        messages.append([text for text, _ in statements])
        return original(statements, *arguments, **options)

    backend.pool.send = send
    try:
        yield messages
    finally:
        del backend.pool.send


def test_batches_of_two_processes_on_the_same_names(store: Store, url: str) -> None:
    """Each drops, makes, renames and alters the same tables: they wait for each other in one order."""
    started = threading.Barrier(24)

    def client(shared: Store, n: int) -> None:
        started.wait(60)
        for turn in range(12):
            name = path((n + turn) % 3)
            with suppress(ms.EntityNotFound, ms.EntityAlreadyExists):
                match (n + turn // 3) % 4:
                    case 0:
                        shared.tables.drop(name)
                        shared.tables.create(name)
                    case 1:
                        shared.tables.rename(name, f"away{n}")
                        shared.tables.rename(f"{SCHEMA}.away{n}", name.rpartition(".")[2])
                    case _:
                        shared.tables.alter(name, ms.SetProperty(f"k{n}", str(turn)))

    with ms.open(url, principal="other") as other, ThreadPoolExecutor(24) as pool:
        for future in [pool.submit(client, (store, other)[n % 2], n) for n in range(24)]:
            future.result()
        assert other.verify() == []


def test_a_batch_leaves_nothing_to_the_garbage_collector(store: Store) -> None:
    """Not even with an error, whose traceback would hold the leader's frames, and so the whole batch."""
    _, writes = lanes(store)
    calls = [
        set_in(store, 0, "k"),
        lambda: store.tables.rename(f"{SCHEMA}.none", "x"),
        lambda: store.tables.drop(path(1)),
    ]
    gc.collect()
    gc.disable()
    try:
        found = [type(one).__name__ for one in together(writes, calls)]
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = {type(one).__name__ for one in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert found == ["Table", "EntityNotFound", "bool"]
    assert not left & {"Handle", "Waiting", "Group", "Decided", "Proposal", "EntityNotFound"}


def test_hooks_and_logs_count_attempts_on_after_lost_batches(
    store: Store, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A request that loses all its batches goes on alone: its attempts are numbered on, and its time runs on."""
    caplog.set_level(logging.DEBUG, "metastore.operations")
    seen: list[Attempt] = []
    with ms.open(url, hooks=[seen.append]) as mine, ms.open(url) as other:
        mine.tables.exists(path(0))
        backend: Any = mine._session.backend
        original = backend.write_together

        def overtaken(batch: Any, patience: int) -> Any:
            other.tables.alter(path(0), ms.SetProperty("theirs", str(len(seen))))
            return original(batch, patience)

        monkeypatch.setattr(backend, "write_together", overtaken)
        _, writes = lanes(mine)
        caplog.clear()
        found = together(writes, [set_in(mine, 0, "a"), set_in(mine, 0, "b")])
        assert [set(one.properties) >= {"theirs"} for one in found] == [True, True]
    calls = {one.operation_id for one in seen}
    assert len(calls) == 2
    for call in calls:
        told = [one for one in seen if one.operation_id == call]
        assert [one.number for one in told] == list(range(1, len(told) + 1))
        causes = [one.cause for one in told]
        assert causes[:ROUNDS] == ["self"] * ROUNDS
        assert causes.index(None) == len(told) - 1 >= ROUNDS
        assert [one.elapsed for one in told] == sorted(one.elapsed for one in told)
        logged: list[Any] = [r for r in caplog.records if getattr(r, "operation_id", None) == str(call)]
        assert [(r.levelno, r.attempts) for r in logged if r.levelno != logging.DEBUG] == [(logging.INFO, len(told))]
        assert [r.attempts for r in logged if getattr(r, "cause", None)] == list(range(1, len(told)))
