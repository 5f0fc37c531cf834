"""Operation ids: repeats, late originals, ids that are too old or from the future, and what ``outcome`` says."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest

import metastore as ms
from tests.concurrency.checks import seed, violations
from tests.concurrency.raw import rows
from tests.progress.hooks import announces

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

PATH = "lake.cat.s.t"
LATER = 1000
Call = Callable[[ms.Store, UUID], object]
CALLS: dict[str, Call] = {
    "create": lambda store, op: store.tables.create("lake.cat.s.new", comment="first", operation_id=op),
    "create with parents": lambda store, op: store.tables.create("lake.cat.p.q.t", parents=True, operation_id=op),
    "return": lambda store, op: store.tables.create(PATH, if_exists="return", operation_id=op),
    "replace": lambda store, op: store.tables.create(PATH, comment="r", if_exists="replace", operation_id=op),
    "alter": lambda store, op: store.tables.alter(PATH, ms.SetProperty("k", "1"), operation_id=op),
    "alter nothing": lambda store, op: store.tables.alter(PATH, ms.RemoveProperty("none"), operation_id=op),
    "alter a schema": lambda store, op: store.schemas.alter("lake.cat.s", ms.SetComment("s"), operation_id=op),
    "rename": lambda store, op: store.tables.rename("lake.cat.s.t2", "t3", operation_id=op),
    "move": lambda store, op: store.tables.rename("lake.cat.s.t3", "lake.cat.o.t3", operation_id=op),
    "drop": lambda store, op: store.tables.drop("lake.cat.o.t3", operation_id=op),
    "drop nothing": lambda store, op: store.tables.drop("lake.cat.s.none", operation_id=op),
    "restore": lambda store, op: store.tables.restore("lake.cat.o.t3", operation_id=op),
    "disable": lambda store, op: store.catalogs.disable("lake.two", operation_id=op),
    "enable": lambda store, op: store.catalogs.enable("lake.two", operation_id=op),
    "partition": lambda store, op: store.partitions.create(PATH, "p", values={"a": "1"}, operation_id=op),
    "drop a partition": lambda store, op: store.partitions.drop(PATH, "old", operation_id=op),
    "purge": lambda store, op: store.tables.purge("lake.cat.o.t4", operation_id=op),
    "exists": lambda store, op: store.tables.create(PATH, operation_id=op),
    "not found": lambda store, op: store.tables.alter("lake.cat.s.none", ms.SetComment("x"), operation_id=op),
    "not empty": lambda store, op: store.schemas.drop("lake.cat.s", operation_id=op),
    "expectation": lambda store, op: store.tables.alter(
        PATH, ms.SetProperty("k", "2", expected="other"), operation_id=op
    ),
    "version": lambda store, op: store.tables.alter(PATH, ms.SetComment("v"), expected_version=99, operation_id=op),
    "invalid": lambda store, op: store.tables.alter(PATH, ms.AddColumn("c", "no type"), operation_id=op),
}
ERRORS = ("exists", "not found", "not empty", "expectation", "version", "invalid")


def answer(call: Call, store: ms.Store, op: UUID) -> Any:
    """Return what a call returned, or the error that it raised, comparable."""
    try:
        found = call(store, op)
    except ms.MetastoreError as error:
        return type(error).__name__, str(error), {k: v for k, v in vars(error).items() if k[0] != "_"}
    return (found.path, found) if isinstance(found, ms.Entity) else found


def written(url: str) -> list[tuple[Any, ...]]:
    return rows(url, "SELECT count(*), max(seq) FROM operation WHERE seq IS NOT NULL")


def test_repeats_after_1000_later_commits(url: str) -> None:
    """Field case 34: Each repeat gives the first result, errors on their merits included, and writes nothing."""
    seed(url, PATH, "lake.cat.s.t2", "lake.cat.o.t4")
    with ms.open(url, principal="first") as store:
        store.catalogs.create("lake.two", type="relational")
        store.partitions.create(PATH, "old", values={"a": "0"})
        first = {name: (ms.new_operation_id(), call) for name, call in CALLS.items()}
        answers = {name: answer(call, store, op) for name, (op, call) in first.items()}
        for name in ERRORS:
            assert answers[name][0] in dir(ms), name
        for n in range(LATER):
            store.tables.alter(PATH, ms.SetProperty("k", str(n % 2)), ms.SetComment(str(n)))
        store.tables.create("lake.cat.s.none")  # now it would be there
        before = written(url)
        again = {name: answer(call, store, op) for name, (op, call) in first.items()}
        for name, found in answers.items():
            assert again[name] == found, name
            state = store.outcome(first[name][0])
            assert state.state == ("failed" if name in ERRORS else "committed"), name
        assert written(url) == before
    assert violations(url) == []


def test_repeats_when_it_is_gone(url: str) -> None:
    """Also who made it, and when, is as it was told the first time."""
    seed(url, PATH)
    with ms.open(url, principal="first") as store:
        partition, created, altered = (ms.new_operation_id() for _ in range(3))
        calls: list[Callable[[], Any]] = [
            lambda: store.partitions.create(PATH, "p", values={"a": "1"}, operation_id=partition),
            lambda: store.tables.create("lake.cat.s.new", operation_id=created),
            lambda: store.tables.alter("lake.cat.s.new", ms.SetComment("x"), operation_id=altered),
        ]
        answers = [call() for call in calls]
        store.partitions.drop(PATH, "p")
        store.tables.purge("lake.cat.s.new")
        for call, found in zip(calls, answers, strict=True):
            assert call() == found


def test_other_arguments(url: str) -> None:
    """A repeat asks for the same thing, or is refused; also while the first is an intent."""
    seed(url, PATH)
    with ms.open(url) as store:
        op = ms.new_operation_id()
        store.tables.alter(PATH, ms.SetComment("a"), operation_id=op)
        others: list[Callable[[], object]] = [
            lambda: store.tables.alter(PATH, ms.SetComment("b"), operation_id=op),
            lambda: store.tables.alter("lake.cat.s.u", ms.SetComment("a"), operation_id=op),
            lambda: store.tables.alter(PATH, ms.SetComment("a"), expected_version=1, operation_id=op),
            lambda: store.tables.rename(PATH, "u", operation_id=op),
            lambda: store.tables.drop(PATH, operation_id=op),
            lambda: store.tables.create("lake.cat.s.new", operation_id=op),
            lambda: store.schemas.alter("lake.cat.s", ms.SetComment("a"), operation_id=op),
            lambda: store.partitions.create(PATH, "p", values={"a": "1"}, operation_id=op),
        ]
        before = written(url)
        for call in others:
            with pytest.raises(ms.InvalidArgument, match="other arguments"):
                call()
        assert written(url) == before
        announces(store, store.tables.load(PATH))
        with pytest.raises(ms.InvalidArgument, match="other arguments"):
            others[0]()
        assert rows(url, "SELECT 1 FROM operation WHERE action = 'pending'") == []


def test_after_gc_an_id_is_refused_or_known(url: str) -> None:
    """An id that may have been forgotten is never applied twice."""
    seed(url, PATH)
    with ms.open(url) as store:
        table = store.tables.create("lake.cat.s.gone")
        todo: list[Call] = [
            partial(lambda n, store, op: store.tables.alter(PATH, ms.SetComment(str(n)), operation_id=op), n)
            for n in range(20)
        ]
        todo += [lambda store, op: store.tables.drop(table, operation_id=op), fails]
        calls = [(ms.new_operation_id(), call) for call in todo]
        for op, call in calls:
            call(store, op)
        never = ms.new_operation_id()
        store.gc(retention=timedelta(0), keep_versions=1)
        before = written(url)
        known = 0
        for op, call in calls:
            if store.outcome(op).state == "unknown":
                with pytest.raises(ms.InvalidArgument, match="cannot be distinguished"):
                    call(store, op)
            else:
                call(store, op)
                known += 1
        assert 1 <= known < len(calls)
        with pytest.raises(ms.InvalidArgument, match="cannot be distinguished"):
            store.tables.alter(PATH, ms.SetComment("never"), operation_id=never)
        with pytest.raises(ms.InvalidArgument, match="cannot be distinguished"):
            store.tables.create("lake.cat.s.never", operation_id=never)
        assert written(url) == before
        store.tables.alter(PATH, ms.SetComment("without an id"))


def fails(store: ms.Store, op: UUID) -> object:
    with pytest.raises(ms.EntityNotFound):
        store.tables.alter("lake.cat.s.none", ms.SetComment("x"), operation_id=op)
    return None


def shifted(seconds: float) -> UUID:
    """Return a new operation id as a clock that goes wrong by so many seconds would make it."""
    number = ms.new_operation_id().int
    return UUID(int=number + (round(seconds * 1000) << 80))


@pytest.mark.parametrize("seconds", [120, 3600, 10**8])
def test_ids_from_the_future(url: str, seconds: int) -> None:
    seed(url, PATH)
    with ms.open(url) as store:
        op = shifted(seconds)
        for name in ("create", "alter", "alter nothing", "drop nothing", "partition", "not found", "purge", "move"):
            with pytest.raises(ms.InvalidArgument, match="ahead"):
                CALLS[name](store, op)
        announces(store, store.tables.load(PATH))
        with pytest.raises(ms.InvalidArgument, match="ahead"):
            CALLS["alter"](store, op)
        assert store.outcome(op).state == "unknown"
        assert store.tables.load(PATH).version == 1
        assert store.tables.alter(PATH, ms.SetComment("x"), operation_id=shifted(30)).version == 2


def test_what_outcome_says(url: str) -> None:
    seed(url, PATH)
    with ms.open(url) as store:
        backend = store._session.backend
        committed, failed, cancelled, unknown = (ms.new_operation_id() for _ in range(4))
        assert store.outcome(unknown) == ms.Outcome("unknown")
        found = store.tables.alter(PATH, ms.SetComment("x"), operation_id=committed)
        assert store.outcome(str(committed)).state == "committed"
        assert store.outcome(committed).result == store.tables.load(PATH, version=found.version)
        with pytest.raises(ms.EntityAlreadyExists):
            store.tables.create(PATH, operation_id=failed)
        assert store.outcome(failed).state == "failed"
        assert isinstance(store.outcome(failed).result, ms.EntityAlreadyExists)
        assert backend.forbid(cancelled) == 1
        assert store.outcome(cancelled) == ms.Outcome("cancelled")
        assert store.tables.alter(PATH, ms.SetComment("y"), operation_id=cancelled).version == 3  # a repeat may
        assert store.outcome(cancelled).state == "committed"
        for wrong in ("x", UUID(int=0), 5):
            with pytest.raises(ms.InvalidArgument):
                store.outcome(wrong)  # type: ignore[arg-type]


def test_the_same_id_twice_at_once(url: str) -> None:
    """Threads, and stores: all get the one result."""
    seed(url, PATH)
    with ms.open(url) as one, ms.open(url) as two, ThreadPoolExecutor(8) as pool:
        for n in range(15):
            op = ms.new_operation_id()
            change = ms.AddColumn(f"c{n}", "int")
            stores = [(one, two)[k % 2] for k in range(8)]
            calls = [pool.submit(store.tables.alter, PATH, change, operation_id=op) for store in stores]
            assert {call.result().version for call in calls} == {n + 2}
    assert violations(url) == []
