"""Many tasks on one store: what they do is what as many threads would do."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest
import uvloop

import metastore as ms
from metastore.aio.core import current, run
from metastore.aio.surface import AsyncStore, AsyncTransaction
from metastore.aio.threads import Threads
from metastore.backends.sql.limits import Limits
from metastore.clock import SYSTEM
from metastore.deadlines import remaining, until
from tests.contract.intents import eventually

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

TASKS, TABLES, EACH = 256, 8, 3


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[AsyncStore]:
    async with await ms.open_async(url, principal="tester", **options) as astore:
        await astore.metalakes.create("m")
        await astore.catalogs.create("m.c", type="relational")
        await astore.schemas.create("m.c.s")
        yield astore


async def count(astore: AsyncStore, path: str) -> None:
    async def one_more(tx: AsyncTransaction) -> None:
        table = await tx.tables.load(path)
        await tx.tables.alter(table, ms.SetProperty("n", str(int(table.properties.get("n", "0")) + 1)))

    await astore.run(one_more)


async def busy(astore: AsyncStore, number: int, seed: int) -> int:
    """Do a mix of calls; return how many transactions counted."""
    chance, counted = random.Random(seed * 1000 + number), 0
    for step in range(EACH):
        path = f"m.c.s.t{chance.randrange(TABLES)}"
        what = chance.choice(["load", "alter", "alter", "create", "list", "count"])
        if what == "load":
            await astore.tables.load(path)
        elif what == "alter":
            await astore.tables.alter(path, ms.SetProperty(f"k{number}", str(step)))
        elif what == "create":
            await astore.tables.create(f"m.c.s.of_{number}_{step}")
        elif what == "list":
            names = [name async for name in astore.tables.names("m.c.s")]
            assert names == sorted(names)
        else:
            await count(astore, path)
            counted += 1
    return counted


def test_a_mix_of_256_tasks(url: str) -> None:
    async def main() -> None:
        async with opened(url, deadline=120) as astore:
            for n in range(TABLES):
                await astore.tables.create(f"m.c.s.t{n}")
            counted = sum(await asyncio.gather(*[busy(astore, number, 7) for number in range(TASKS)]))
            tables = [await astore.tables.load(f"m.c.s.t{n}") for n in range(TABLES)]
            assert sum(int(table.properties.get("n", "0")) for table in tables) == counted
            assert counted > 50
            events = Counter([(change.path_after, change.version) async for change in astore.changes()])
            assert set(events.values()) == {1}
            assert await astore.verify() == []

    asyncio.run(main())


def test_transactions_of_tasks_on_one_table_count_right(url: str) -> None:
    async def main() -> None:
        async with opened(url, deadline=120) as astore:
            await astore.tables.create("m.c.s.t")
            await asyncio.gather(*[count(astore, "m.c.s.t") for _ in range(24)])
            assert (await astore.tables.load("m.c.s.t")).properties["n"] == "24"
            assert await astore.verify() == []

    asyncio.run(main())


def test_tasks_in_one_transaction_take_turns(url: str) -> None:
    async def main() -> None:
        async with opened(url) as astore:
            async with astore.transaction() as tx:
                table = await tx.tables.create("m.c.s.t")
                alters = [tx.tables.alter(table, ms.SetProperty(f"k{n}", "v")) for n in range(8)]
                await asyncio.gather(*alters, *[tx.tables.create(f"m.c.s.t{n}") for n in range(8)])
            assert len((await astore.tables.load("m.c.s.t")).properties) == 8
            assert len([table async for table in astore.tables.list("m.c.s")]) == 9

    asyncio.run(main())


def test_two_tasks_are_two_holders_of_a_lease(url: str) -> None:
    """And one task is one: ``async with`` blocks nest."""

    async def main() -> None:
        async with opened(url) as astore:
            async with astore.leases.acquire("x", owner="me") as outer:
                async with astore.leases.acquire("x", owner="me") as inner:
                    assert inner.token == outer.token
                assert not outer.is_over()
                with pytest.raises(ms.LeaseHeld):
                    await asyncio.create_task(_acquired(astore))
                waiting = asyncio.create_task(_acquired(astore, timeout=20))
                await asyncio.sleep(0.05)
            lease = await waiting
            assert lease.token > (outer.token or 0)
            assert not await outer.lost.wait(0)
            await lease.release()

    async def _acquired(astore: AsyncStore, timeout: float = 0.0) -> Any:
        return await astore.leases.acquire("x", owner="me", timeout=timeout)

    asyncio.run(main())


def test_a_lease_is_renewed_while_its_task_works(url: str) -> None:
    async def main() -> None:
        async with opened(url) as astore:
            async with astore.leases.acquire("x", ttl=30.0, renew_every=0.2) as lease:
                first = lease.expires_at
                while lease.expires_at <= first + timedelta(seconds=0.3):
                    assert not lease.lost.is_set()
                    await asyncio.sleep(0.02)
                await astore.metalakes.alter("m", ms.SetComment("under it"), lease=lease)
            with pytest.raises(ms.LeaseLost):
                await astore.metalakes.alter("m", ms.SetComment("after it"), lease=lease)

    asyncio.run(main())


# --- the end, and deadlines


@pytest.mark.parametrize("url", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True)
def test_closing_removes_marks_and_withdraws_what_was_announced(url: str) -> None:
    """As a sync store does: else the schema stays frozen until its ttl, and the change is made after the end."""

    async def freeze() -> None:
        astore = await ms.open_async(url)
        frozen = astore.schemas.exclusive("m.c.s", ttl=60.0)
        tx = await frozen.__aenter__()
        await tx.tables.alter("m.c.s.t", ms.SetComment("never"))
        await astore.close()
        with pytest.raises(ms.StoreClosed):
            await frozen.__aexit__(None, None, None)

    async def announce() -> None:
        astore, loop = await ms.open_async(url), asyncio.get_running_loop()
        session = astore._sync._session  # type: ignore[attr-defined]
        table, port, closing = await astore.tables.load("m.c.s.t"), session.backend._port, []
        session.hot.note(table.id, ("table", table.names))
        write_down = port.write_down

        def announced(entry: object) -> object:
            outcome = write_down(entry)
            closing.append(asyncio.run_coroutine_threadsafe(astore.close(), loop))
            eventually(lambda: session.backend._threads._closed, 20.0)
            return outcome

        port.write_down = announced
        with pytest.raises(ms.StoreClosed):
            await astore.tables.alter("m.c.s.t", ms.SetComment("never"))
        await asyncio.wrap_future(closing[0])

    with ms.open(url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.tables.create("m.c.s.t", parents=True)
        for closes in (freeze, announce):
            asyncio.run(closes())
            store.tables.alter("m.c.s.t", ms.SetComment(closes.__name__), deadline=20.0)
        changes = [change for version in store.tables.history("m.c.s.t") for change in version.changes]
        assert changes == [ms.SetComment("freeze"), ms.SetComment("announce")]


def test_closing_while_tasks_are_busy(url: str) -> None:
    """Each call has happened, or raises StoreClosed; no thread stays; closing again is harmless."""

    async def main() -> None:
        astore = await ms.open_async(url, pool_size=2)
        await astore.metalakes.create("m")
        held = await astore.leases.acquire("x", owner="other")
        waiter = asyncio.create_task(_opened(astore))
        tasks = [asyncio.create_task(_altered(astore, n)) for n in range(32)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await astore.close()
        await astore.close()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert any(result is None for result in results)
        assert {type(r) for r in results if r is not None} <= {ms.StoreClosed, ms.OutcomeUnknown}
        with pytest.raises(ms.StoreClosed):
            await astore.ping()
        with pytest.raises(ms.MetastoreError):
            await waiter
        assert held.is_over() in (True, False)

    async def _altered(astore: AsyncStore, n: int) -> None:
        for _ in range(20):
            await astore.metalakes.alter("m", ms.SetProperty(f"k{n}", "v"))
            await astore.metalakes.load("m")

    async def _opened(astore: AsyncStore) -> None:
        await astore.leases.acquire("x", timeout=60)

    before = threading.active_count()
    asyncio.run(main())
    left = [t for t in threading.enumerate() if t.name.startswith("metastore") and t.is_alive()]
    for thread in left:
        thread.join(5)
    assert threading.active_count() <= before


def test_a_call_that_gets_no_thread_ends_with_its_deadline() -> None:
    async def main() -> None:
        async with opened("memory://") as astore, blocked(astore):
            began = SYSTEM.monotonic()
            with pytest.raises(ms.DeadlineExceeded):
                await astore.bind(deadline=0.1).metalakes.alter("m", ms.SetComment("late"))
            assert SYSTEM.monotonic() - began < 10

    asyncio.run(main())


def test_a_read_that_gets_no_thread_ends_with_the_stores_deadline() -> None:
    async def main() -> None:
        async with opened("memory://", deadline=1.0) as astore, blocked(astore):
            with pytest.raises(ms.DeadlineExceeded):
                await astore.metalakes.load("m")

    asyncio.run(main())


def test_what_a_call_has_begun_goes_on_before_others_begin() -> None:
    async def main() -> None:
        threads, free, order = Threads(Limits(size=1)), threading.Event(), []
        jobs = [threads.submit(free.wait), threads.submit(lambda: order.append("a new call"))]
        jobs.append(threads.submit(lambda: order.append("one that has begun"), urgent=True))
        free.set()
        await asyncio.gather(*[job.done for job in jobs])
        await asyncio.to_thread(threads.close)
        assert order == ["one that has begun", "a new call"]

    asyncio.run(main())


def test_a_call_whose_time_is_over_is_not_begun() -> None:
    async def main() -> None:
        threads, free, passed, made = Threads(Limits(size=1)), threading.Event(), threading.Event(), list[None]()
        threads.submit(free.wait)
        with until(SYSTEM.monotonic()):
            late = threads.submit(lambda: made.append(None))
        threads.submit(passed.set)
        free.set()
        assert passed.wait(20)  # the loop is busy: no timer withdraws a call
        await late.done
        with pytest.raises(ms.DeadlineExceeded):
            late.result()
        assert not made
        await asyncio.to_thread(threads.close)

    asyncio.run(main())


@pytest.mark.parametrize("hot", [False, True])
def test_no_other_task_comes_between_a_read_and_its_commit(sqlite_url: str, hot: bool) -> None:
    """Between any two calls of the backend, thousands of tasks may run. Here, another process swaps two catalogs."""

    async def main(other: ms.Store) -> None:
        async with opened(sqlite_url, deadline=600) as astore:
            await astore.catalogs.create("m.d", type="relational")
            await astore.schemas.create("m.d.s")
            table, _ = [await astore.tables.create(f"m.{catalog}.s.t") for catalog in "cd"]
            threads: Threads = astore._room.threads  # type: ignore[attr-defined]
            submit, swaps = threads.submit, list[None]()

            def swapped(call: Callable[[], Any]) -> Any:
                if len(swaps) < 50:
                    swaps.append(None)
                    for name, to in (("m.c", "x"), ("m.d", "c"), ("m.x", "d")):
                        other.catalogs.rename(name, to)
                return call()

            if hot:
                astore._sync._session.hot.note(table.id, ("table", table.names))  # type: ignore[attr-defined]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(threads, "submit", lambda call, **how: submit(partial(swapped, call), **how))
                await astore.tables.alter("m.c.s.t", ms.SetProperty("k", "v"))
            assert len(swaps) <= (6 if hot else 2)

    with ms.open(sqlite_url) as other:
        asyncio.run(main(other))


def test_calls_of_many_steps_keep_no_other_from_beginning() -> None:
    """Two long searches of a store with one thread: one of them waits whenever the other one is served."""

    async def main() -> None:
        threads, free, order = Threads(Limits(size=1)), threading.Event(), list[str]()
        jobs = [threads.submit(free.wait), threads.submit(lambda: order.append("a new call"))]
        jobs += [threads.submit(lambda: order.append("a step"), urgent=True) for _ in range(40)]
        free.set()
        await asyncio.gather(*[job.done for job in jobs])
        await asyncio.to_thread(threads.close)
        assert len(order) == 41
        assert order.index("a new call") < 10

    asyncio.run(main())


def test_a_call_waits_for_a_thread_as_long_as_it_may_for_a_connection(postgres_url: str) -> None:
    async def main() -> None:
        async with opened(postgres_url, pool_size=1, max_wait=0.5) as astore, blocked(astore):
            with pytest.raises(ms.PoolExhausted):
                await astore.metalakes.alter("m", ms.SetComment("late"))

    asyncio.run(main())


@asynccontextmanager
async def blocked(astore: AsyncStore) -> AsyncIterator[None]:
    """Keep the store's one thread busy."""
    free = threading.Event()
    job = astore._room.threads.submit(lambda: free.wait(30))  # type: ignore[attr-defined]
    try:
        yield
    finally:
        free.set()
        await job.done


def test_the_deadline_of_run_holds_in_its_function(url: str) -> None:
    async def main() -> None:
        async with opened(url) as astore:

            async def look(tx: AsyncTransaction) -> float:
                await tx.metalakes.load("m")
                inner = asyncio.create_task(_remaining())
                return max(remaining(SYSTEM, 1e9), await inner)

            assert await astore.run(look, deadline=5) <= 5
            assert remaining(SYSTEM, 1e9) == 1e9

    async def _remaining() -> float:
        return remaining(SYSTEM, 1e9)

    asyncio.run(main())


def test_a_tasks_context_is_that_of_what_it_calls() -> None:
    """Telemetry finds the current span, in the task's code and in the sync code that runs for it."""
    variable: ContextVar[str] = ContextVar("variable")
    seen: list[str] = []

    async def task(astore: AsyncStore, name: str) -> None:
        variable.set(name)
        await astore.metalakes.create(name)
        assert variable.get() == name

    async def main() -> None:
        async with await ms.open_async("memory://", hooks=[lambda _: seen.append(variable.get())]) as astore:
            await asyncio.gather(*[task(astore, f"m{n}") for n in range(8)])

    asyncio.run(main())
    assert sorted(seen) == [f"m{n}" for n in range(8)]


# --- streams, callbacks


def test_a_stream_reads_nothing_before_its_first_item(url: str) -> None:
    async def main() -> None:
        async with opened(url) as astore:
            for stream in (astore.tables.list("m.c.none"), astore.find("m.c.none")):
                with pytest.raises(ms.EntityNotFound):
                    await anext(stream)
            await astore.tables.create("m.c.s.t")
            stream = astore.tables.list("m.c.s", page_size=1)
            assert [table.name async for table in stream] == ["t"]
            assert [table async for table in stream] == []
            stream = astore.tables.list("m.c.s")
            await stream.aclose()
            assert [table async for table in stream] == []

    asyncio.run(main())


def test_a_function_that_is_given_may_be_a_coroutine_function(url: str) -> None:
    async def main() -> None:
        async with opened(url) as astore:
            lease = await astore.leases.acquire("x")
            table = await astore.tables.create("m.c.s.t")
            await lease.stage(table, "location", "s3://v7")
            await lease.release()
            found = []

            async def clean(left: ms.LeftBehind) -> None:
                await asyncio.sleep(0)
                found.append(left.value)

            await astore.gc(clean_up=clean)  # type: ignore[arg-type]
            assert found == ["s3://v7"]

    asyncio.run(main())


def test_an_error_of_runs_function_is_the_callers(url: str) -> None:
    async def main() -> None:
        async with opened(url) as astore:

            async def fails(tx: AsyncTransaction) -> None:
                await tx.tables.create("m.c.s.t")
                raise ValueError("mine")

            with pytest.raises(ValueError, match="mine"):
                await astore.run(fails)
            assert not await astore.tables.exists("m.c.s.t")

    asyncio.run(main())


def test_greenlets_are_used_again() -> None:
    async def main() -> set[int]:
        return {await run(lambda: id(current())) for _ in range(50)}

    assert len(asyncio.run(main())) == 1


def test_a_coroutine_that_is_closed_unwinds_its_sync_code() -> None:
    """As a loop that ends does with what is pending: the sync code gets GeneratorExit, and awaits nothing more."""
    seen: list[str] = []

    def code() -> None:
        core = current()
        assert core is not None
        try:
            core.wait(asyncio.sleep(60))
        finally:
            seen.append("unwound")

    async def main() -> None:
        coroutine: Coroutine[Any, Any, None] = run(code)
        coroutine.send(None)
        coroutine.close()

    asyncio.run(main())
    assert seen == ["unwound"]


def test_on_uvloop(url: str) -> None:
    async def main() -> None:
        async with opened(url) as astore:
            await astore.tables.create("m.c.s.t")
            await asyncio.gather(*[count(astore, "m.c.s.t") for _ in range(4)])
            task = asyncio.create_task(count(astore, "m.c.s.t"))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert await astore.verify() == []

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_relations(url: str) -> None:
    """A tag's manager hands its relation's methods on; they are coroutines as well."""

    async def main() -> None:
        async with opened(url) as astore:
            table = await astore.tables.create("m.c.s.t")
            await astore.tags.create("m.pii")
            await astore.tags.attach(table, "m.pii")
            assert [one.name for one in await astore.tags.on(table)] == ["pii"]
            assert [one.target_path async for one in astore.tags.targets("m.pii")] == ["m.c.s.t"]
            assert [one.target_path async for one in astore.relations("tag_on").targets("m.pii")] == ["m.c.s.t"]
            await astore.users.create(("m", "ann"))
            await astore.owners.set(table, ("m", "ann"))
            assert [one.name async for one in astore.owners.owned_by(("m", "ann"))] == ["t"]
            assert await astore.tags.detach(table, "m.pii")

    asyncio.run(main())


# --- a store outlives what fails around it


def _no_thread(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Let the system start no thread of the store, so many times."""
    start, left = threading.Thread.start, iter(range(times))

    def fails(thread: threading.Thread) -> None:
        if thread.name.startswith("metastore-async") and next(left, None) is not None:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fails)


def test_a_thread_that_cannot_be_started_is_missing_for_that_call_only(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        astore = await ms.open_async(url)
        threads = cast(Any, astore)._room.threads
        threads._be_new()  # as after a fork: the store has begun no thread yet
        _no_thread(monkeypatch, 1)
        with pytest.raises(ms.BackendUnavailable, match="starts no thread"):
            threads.submit(lambda: None)
        await asyncio.gather(*[astore.metalakes.create(f"m{n}") for n in range(8)])
        assert len([lake async for lake in astore.metalakes.list()]) == 8
        assert threads._under_way == 0
        assert all(thread.is_alive() for thread in threads._workers)
        await astore.close()

    asyncio.run(main())


@pytest.mark.only_whole
@pytest.mark.each_run_on("postgres")
@pytest.mark.parametrize("ends", ["cancelled", "dropped"])
def test_a_second_event_loop_may_use_the_store(url: str, ends: str) -> None:
    """The first one is closed while tasks of it write, with or without their end."""
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    kept = list[asyncio.Task[None]]()

    async def begin() -> AsyncStore:
        astore = await ms.open_async(url)
        await astore.metalakes.create("m")
        await astore.catalogs.create("m.c", type="relational")
        await astore.tables.create("m.c.s.t", parents=True)
        kept.extend([asyncio.create_task(_writes_on(astore, n)) for n in range(64)])
        await asyncio.sleep(0.1)
        if ends == "cancelled":
            for task in kept:
                task.cancel()
            await asyncio.gather(*kept, return_exceptions=True)
        return astore

    async def go_on(astore: AsyncStore) -> None:
        await asyncio.gather(*[astore.tables.alter("m.c.s.t", ms.SetProperty(f"k{n}", "v")) for n in range(8)])
        assert len((await astore.tables.load("m.c.s.t")).properties) >= 8
        await astore.close()

    astore = first.run_until_complete(begin())
    first.close()
    second.run_until_complete(asyncio.wait_for(go_on(astore), 30))
    second.close()


async def _writes_on(astore: AsyncStore, n: int) -> None:
    for m in range(10_000):
        await astore.tables.alter("m.c.s.t", ms.SetProperty(f"k{n}", str(m)))


def test_a_lease_is_checked_without_an_await(url: str) -> None:
    """It sends nothing. A coroutine that nobody awaits would check nothing."""
    lost = list[str]()

    async def note(lease: Any) -> None:
        lost.append(lease.name)

    async def main() -> None:
        async with opened(url) as astore:
            lease = await astore.leases.acquire("x", ttl=1.5, on_lost=cast(Any, note))
            lease.check()
            assert not lease.is_over()
            assert 0 < lease.seconds_left() <= 1.5
            while lease.seconds_left() > 0:
                await asyncio.sleep(0.05)
            assert lease.is_over()
            with pytest.raises(ms.LeaseLost):
                lease.check()
            await asyncio.sleep(0)
            assert lost == ["x"]

    asyncio.run(asyncio.wait_for(main(), 20))
