"""Cancellation at every await: a cancelled call has happened or is withdrawn, and its outcome says which."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

import metastore as ms
from metastore.aio.surface import AsyncStore, AsyncTransaction
from metastore.backends.memory.past import MemoryPast, MemoryReaders
from metastore.backends.postgres.backend import PostgresBackend
from metastore.clock import SYSTEM
from metastore.port.records import Origin
from tests.aio.cutting import Cut, cutting

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

Do = Callable[[AsyncStore, str], Awaitable[Any]]
Happened = Callable[[AsyncStore, str], Awaitable[bool]]


async def is_altered(astore: AsyncStore, path: str) -> bool:
    return (await astore.tables.load(path)).properties.get("k") == "1"


@dataclass(frozen=True)
class Case:
    """A call on a fresh table, and whether it happened."""

    name: str
    do: Do
    happened: Happened
    prepare: Do | None = None


def alter(astore: AsyncStore, path: str) -> Awaitable[Any]:
    return astore.tables.alter(path, ms.SetProperty("k", "1"))


async def make_hot(astore: AsyncStore, path: str) -> None:
    """The next change is announced at once."""
    table = await astore.tables.load(path)
    astore._sync._session.hot.note(table.id, ("table", table.names))  # type: ignore[attr-defined]


async def in_transaction(astore: AsyncStore, path: str) -> None:
    async with astore.transaction() as tx:
        await tx.tables.alter(path, ms.SetProperty("k", "1"))
        await tx.tables.create(f"{path}_too")


async def in_run(astore: AsyncStore, path: str) -> None:
    async def both(tx: AsyncTransaction) -> None:
        await tx.tables.alter(path, ms.SetProperty("k", "1"))
        await asyncio.sleep(0)
        await tx.tables.create(f"{path}_too")

    await astore.run(both)


async def in_long_run(astore: AsyncStore, path: str) -> None:
    """Its turn is so long that the ticket is given back after the commit, by a message of its own."""

    async def altered(tx: AsyncTransaction) -> None:
        await tx.tables.alter(path, ms.SetProperty("k", "1"))
        await asyncio.sleep(0.03)

    await astore.run(altered)


async def exclusively(astore: AsyncStore, path: str) -> None:
    async with astore.schemas.exclusive("m.c.s", ttl=5) as tx:
        await tx.tables.alter(path, ms.SetProperty("k", "1"))
        await tx.tables.create(f"{path}_too")


async def both_happened(astore: AsyncStore, path: str) -> bool:
    altered, made = await is_altered(astore, path), await astore.tables.exists(f"{path}_too")
    assert altered == made
    return altered


async def purge(astore: AsyncStore, path: str) -> None:
    """Its operation is over before the rows are deleted, which gc does too: a cancellation then does not name it."""
    operation_id = ms.new_operation_id()
    try:
        await astore.tables.purge(path, operation_id=operation_id)
    except asyncio.CancelledError as error:
        vars(error).setdefault("operation_id", operation_id)
        raise


async def drop(astore: AsyncStore, path: str) -> None:
    await astore.tables.drop(path)


async def is_gone(astore: AsyncStore, path: str) -> bool:
    return not await astore.tables.exists(path)


async def is_held(astore: AsyncStore, path: str) -> bool:
    assert await astore.leases.holder(path) is None, "nobody has the lease in hand, so it must be free"
    return False


async def under_lease(astore: AsyncStore, path: str) -> None:
    async with astore.leases.acquire(path):
        raise AssertionError("never without a cut")


CASES = [
    Case(
        "create",
        lambda astore, path: astore.tables.create(f"{path}_new"),
        lambda astore, path: astore.tables.exists(f"{path}_new"),
    ),
    Case("alter", alter, is_altered),
    Case("alter what is hot", alter, is_altered, make_hot),
    Case("drop", drop, is_gone),
    Case(
        "rename",
        lambda astore, path: astore.tables.rename(path, "renamed_" + path.rpartition(".")[2]),
        is_gone,
    ),
    Case("restore", lambda astore, path: astore.tables.restore(path), lambda a, p: a.tables.exists(p), drop),
    Case("purge", purge, is_gone),
    Case(
        "partition",
        lambda astore, path: astore.partitions.create(path, "p", values={}),
        lambda astore, path: astore.partitions.exists(path, "p"),
    ),
    Case("transaction", in_transaction, both_happened),
    Case("run", in_run, both_happened),
    Case("run on what is hot", in_long_run, is_altered, make_hot),
    Case("exclusive", exclusively, both_happened),
]


async def cut_at(astore: AsyncStore, case: Case, path: str, at: int, *, late: bool) -> bool:
    """Make the call on a new table and cancel it at one wait; check what it came to. False: there is no such wait."""
    await astore.tables.create(path)
    if case.prepare is not None:
        await case.prepare(astore, path)
    cut = Cut(at, late=late)
    with cutting(cut):
        task = cut.start(_coroutine(case.do(astore, path)))
        await asyncio.wait([task])
    if not cut.done:
        await task
        assert await case.happened(astore, path)
        return False
    with pytest.raises(asyncio.CancelledError) as raised:
        await task
    operation_id = getattr(raised.value, "operation_id", None)
    state = "unknown" if operation_id is None else (await astore.outcome(operation_id)).state
    happened = await case.happened(astore, path)
    assert (state == "committed") == happened, (case.name, at, late, state)
    assert state in ("committed", "cancelled", "unknown")
    return True


async def _coroutine(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_at_every_await(case: Case, url: str) -> None:
    async def main() -> None:
        async with await ms.open_async(url) as astore:
            await astore.metalakes.create("m")
            await astore.catalogs.create("m.c", type="relational")
            await astore.schemas.create("m.c.s")
            cuts = 0
            for late in (False, True):
                at = 1
                while await cut_at(astore, case, f"m.c.s.t{cuts}", at, late=late):
                    at, cuts = at + 1, cuts + 1
                cuts += 1
            assert cuts > 3
            assert await astore.verify() == []
            assert (await astore.stats()).pending == 0
            assert (await astore.stats()).marks == ()

    asyncio.run(main())


OTHERS = 6


@pytest.mark.parametrize("late", [False, True])
def test_one_among_others_that_travel_together(url: str, late: bool) -> None:
    """The cancelled one leads a batch or is in another's: it has happened or not, and the others all happen."""

    async def cut_one(astore: AsyncStore, at: int, which: int) -> bool:
        paths = [f"m.c.s.t{n % 2}" for n in range(OTHERS)]
        marks = [f"{at}_{which}_{n}" for n in range(OTHERS)]
        cut, tasks = Cut(at, late=late), []
        with cutting(cut):
            for n in range(OTHERS):
                change = _coroutine(astore.tables.alter(paths[n], ms.SetProperty(marks[n], "v")))
                tasks.append(cut.start(change) if n == which else asyncio.create_task(change))
            await asyncio.wait(tasks)
        for n, task in enumerate(tasks):
            happened = marks[n] in (await astore.tables.load(paths[n])).properties
            if n != which or not cut.done:
                await task
                assert happened
                continue
            with pytest.raises(asyncio.CancelledError) as raised:
                await task
            operation_id = getattr(raised.value, "operation_id", None)
            state = "unknown" if operation_id is None else (await astore.outcome(operation_id)).state
            assert (state == "committed") == happened, (at, which, state)
        return cut.done

    async def main() -> None:
        async with await ms.open_async(url) as astore:
            await astore.metalakes.create("m")
            await astore.catalogs.create("m.c", type="relational")
            await astore.schemas.create("m.c.s")
            for n in range(2):
                await astore.tables.create(f"m.c.s.t{n}")
            for which in (0, 1, OTHERS - 1):
                at = 1
                while await cut_one(astore, at, which) and at < 12:
                    at += 1
                assert at > 1
            assert await astore.verify() == []
            assert (await astore.stats()).pending == 0

    asyncio.run(main())


def each_verb(astore: AsyncStore, n: int) -> list[Awaitable[Any]]:
    """Return one call of each kind that travels in batches, on tables of their own but for the alters."""
    alone = ms.SetProperty("k", "1", expected=None)  # a second time it would be refused
    return [
        astore.tables.create(f"m.c.s.made{n}"),
        astore.tables.alter(f"m.c.s.a{n}", alone),
        astore.tables.drop(f"m.c.s.d{n}"),
        astore.tables.rename(f"m.c.s.r{n}", f"q{n}"),
        astore.tables.alter(f"m.c.s.a{n}", ms.SetProperty("other", "1")),
        astore.tables.load(f"m.c.s.l{n}"),
    ]


async def became(astore: AsyncStore, n: int) -> list[bool]:
    """Return which of these calls happened."""
    there = {name async for name in astore.tables.names("m.c.s")}
    properties = (await astore.tables.load(f"m.c.s.a{n}")).properties
    written = [f"made{n}" in there, "k" in properties, f"d{n}" not in there, f"q{n}" in there, "other" in properties]
    return [*written, False]


def is_right(which: int, value: Any, n: int) -> bool:
    names = (f"made{n}", f"a{n}", None, f"q{n}", f"a{n}", f"l{n}")
    return value is True if which == 2 else value.name == names[which]


@pytest.mark.postgres
@pytest.mark.parametrize("late", [False, True])
def test_one_of_each_verb_at_every_await(postgres_url: str, late: bool) -> None:
    """Each in turn is cancelled at each of its waits; the others of its batch get their own answers."""

    async def cut_one(astore: AsyncStore, at: int, which: int, n: int) -> bool:
        for name in "adrl":
            await astore.tables.create(f"m.c.s.{name}{n}")
        cut = Cut(at, late=late)
        with cutting(cut):
            calls = [_coroutine(call) for call in each_verb(astore, n)]
            tasks = [cut.start(call) if k == which else asyncio.create_task(call) for k, call in enumerate(calls)]
            await asyncio.wait(tasks)
        happened = await became(astore, n)
        for k, task in enumerate(tasks):
            if k != which or not cut.done:
                assert is_right(k, await task, n)
                assert happened[k] or k == len(tasks) - 1
                continue
            with pytest.raises(asyncio.CancelledError) as raised:
                await task
            operation_id = getattr(raised.value, "operation_id", None)
            state = "unknown" if operation_id is None else (await astore.outcome(operation_id)).state
            assert (state == "committed") == happened[k], (at, which, state)
        return cut.done

    async def main() -> None:
        async with await ms.open_async(postgres_url) as astore:
            await astore.metalakes.create("m")
            await astore.catalogs.create("m.c", type="relational")
            await astore.schemas.create("m.c.s")
            n = 0
            for which in range(6):
                at = 1
                while await cut_one(astore, at, which, n := n + 1):
                    at += 1
                assert at > 1
            assert await astore.verify() == []
            assert (await astore.stats()).pending == 0

    asyncio.run(main())


@pytest.mark.each_run_on("postgres")
def test_a_lease_that_nobody_gets_is_free(url: str) -> None:
    """Cancelled at each wait of ``acquire``, also of one that waits in the queue."""

    async def main() -> None:
        async with await ms.open_async(url) as astore:
            for late in (False, True):
                for at in range(1, 8):
                    held = await astore.leases.acquire("other", owner="other") if at > 3 else None
                    cut = Cut(at, late=late)
                    name = "other" if held else f"free {late} {at}"
                    with cutting(cut):
                        task = cut.start(_coroutine(astore.leases.acquire(name, timeout=0.2)))
                        await asyncio.wait([task])
                    if held is not None:
                        assert await held.release()
                    if cut.done:
                        assert task.cancelled()
                        assert await astore.leases.holder(name) is None
                        again = await astore.leases.acquire(name, timeout=5)  # no dead waiter stands before it
                        await again.release()
                    elif held is None:
                        await task.result().release()
                    else:
                        assert isinstance(task.exception(), ms.LeaseHeld)

    asyncio.run(main())


def test_what_was_not_sent_is_never_sent() -> None:
    """A call that waits for a thread is withdrawn: no thread makes it later."""

    async def main() -> None:
        async with await ms.open_async("memory://") as astore:
            await astore.metalakes.create("m")
            threads = astore._room.threads  # type: ignore[attr-defined]
            free = threading.Event()
            blocked = threads.submit(lambda: free.wait(20))
            task = asyncio.ensure_future(_coroutine(astore.metalakes.alter("m", ms.SetComment("late"))))
            await asyncio.sleep(0)
            assert threads.waiting == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            free.set()
            await blocked.done
            assert (await astore.metalakes.load("m")).version == 1

    asyncio.run(main())


def test_a_call_is_over_when_its_cancellation_arrives() -> None:
    """A thread that makes a commit cannot be stopped; the task waits for it, however often it is cancelled."""

    async def main() -> None:
        async with await ms.open_async("memory://") as astore:
            await astore.metalakes.create("m")
            backend = astore._sync._session.backend._port  # type: ignore[attr-defined]
            begun, free = threading.Event(), threading.Event()
            commit = backend.commit

            def slow(given: Any) -> Any:
                begun.set()
                assert free.wait(20)
                return commit(given)

            backend.commit = slow
            operation_id = ms.new_operation_id()
            change = astore.metalakes.alter("m", ms.SetComment("late"), operation_id=operation_id)
            task = asyncio.ensure_future(_coroutine(change))
            while not begun.is_set():
                await asyncio.sleep(0)
            for _ in range(3):
                task.cancel()
                for _ in range(20):
                    await asyncio.sleep(0)
                assert not task.done()
            backend.commit = commit
            free.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await astore.outcome(operation_id)).state == "committed"
            assert (await astore.metalakes.load("m")).comment == "late"

    asyncio.run(main())


def test_negative_control_without_the_withdrawal(monkeypatch: pytest.MonkeyPatch) -> None:
    """An intent that is not withdrawn is applied later: the cuts above find it."""
    monkeypatch.setattr("metastore.operation.ending.withdraw", lambda *_, **__: None)
    (hot,) = [case for case in CASES if case.name == "alter what is hot"]
    with pytest.raises(AssertionError):
        test_at_every_await(hot, "memory://")


def test_a_second_cancellation_does_not_stop_the_withdrawal(url: str) -> None:
    async def main() -> None:
        async with await ms.open_async(url) as astore:
            await astore.metalakes.create("m")
            await make_hot_lake(astore)
            cut = Cut(2, late=True)  # the intent is written down
            with cutting(cut):
                task = cut.start(_coroutine(astore.metalakes.alter("m", ms.SetComment("late"))))
                while not task.done():
                    if cut.done:
                        task.cancel()
                    await asyncio.sleep(0)
            assert task.cancelled()
            assert (await astore.stats()).pending == 0

    asyncio.run(main())


async def make_hot_lake(astore: AsyncStore) -> None:
    lake = await astore.metalakes.load("m")
    astore._sync._session.hot.note(lake.id, ("metalake", lake.names))  # type: ignore[attr-defined]


def test_asyncios_time_out_ends_a_call_with_its_own_error(url: str) -> None:
    """``asyncio.timeout`` compares the class of the error: it must stay a CancelledError."""

    async def main() -> None:
        async with await ms.open_async(url) as astore:
            await astore.metalakes.create("m")
            held = await astore.leases.acquire("x", owner="other")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await astore.leases.acquire("x", timeout=20)
            await held.release()
            await (await astore.leases.acquire("x")).release()

    asyncio.run(main())


def test_a_statement_in_flight_is_stopped_at_the_server(postgres_url: str) -> None:
    """It waits for a row that another session has locked: the server frees it at once, and the connection works."""
    import psycopg

    async def main() -> None:
        async with await ms.open_async(postgres_url, pool_size=1) as astore:
            lake = await astore.metalakes.create("m")
            with psycopg.connect(postgres_url.replace("+psycopg", "")) as other:
                other.execute("SELECT 1 FROM entity WHERE id = %s FOR UPDATE", [lake.id])
                operation_id = ms.new_operation_id()
                change = astore.metalakes.alter("m", ms.SetComment("x"), operation_id=operation_id)
                task = asyncio.ensure_future(_coroutine(change))
                while (await _blocked(other)) == 0:
                    await asyncio.sleep(0.01)
                began = SYSTEM.monotonic()
                task.cancel()
                with pytest.raises(asyncio.CancelledError) as raised:
                    await task
                assert SYSTEM.monotonic() - began < 10
                assert vars(raised.value)["operation_id"] == operation_id
                assert await _blocked(other) == 0
            assert (await astore.outcome(operation_id)).state == "cancelled"
            assert (await astore.metalakes.alter("m", ms.SetComment("y"))).version == 2

    asyncio.run(main())


async def _blocked(other: Any) -> int:
    text = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    count: int = other.execute(text).fetchone()[0]
    return count


@pytest.mark.postgres
def test_no_question_holds_up_the_other_tasks(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart of the server, the store asks where it is now: not in the thread of the event loop."""
    asked = list[threading.Thread]()
    identify = PostgresBackend.identify

    def noting(backend: PostgresBackend) -> Origin:
        asked.append(threading.current_thread())
        return identify(backend)

    async def main() -> None:
        async with await ms.open_async(postgres_url) as astore:
            held = await astore.metalakes.create("held")
            monkeypatch.setattr(PostgresBackend, "identify", noting)
            backend = astore._sync._session.backend  # type: ignore[attr-defined]
            backend.pool.run = "a run before"
            backend.pool.forget()
            assert (await astore.metalakes.alter(held, ms.SetComment("x"))).comment == "x"

    asyncio.run(main())
    assert asked
    assert threading.main_thread() not in asked


def test_the_past_and_pins_hold_up_no_other_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do consumers: all ports of a backend are asked in its threads."""
    asked = list[threading.Thread]()

    def noting(method: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **options: Any) -> Any:
            asked.append(threading.current_thread())
            return method(*arguments, **options)

        return noted

    for port in (MemoryPast, MemoryReaders):
        for name, method in inspect.getmembers(port, inspect.isfunction):
            if name[0] != "_":
                monkeypatch.setattr(port, name, noting(method))

    async def main() -> None:
        async with await ms.open_async("memory://") as astore:
            await astore.metalakes.create("m")
            await astore.pin("p")
            await (await astore.consumers.get("c")).lag()
            past = await astore.at(await astore.position())
            assert await past.metalakes.exists("m")
            assert await astore.unpin("p")

    asyncio.run(main())
    assert len(asked) > 4
    assert threading.main_thread() not in asked
