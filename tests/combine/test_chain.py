"""A chain: callers of one process on one entity commit together, and each is told what became of its own call."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

import metastore as ms
from metastore import Store
from metastore.clock import SYSTEM
from metastore.combine import chain, link
from metastore.combine.chain import Chain, chain_at
from metastore.combine.decided import commit
from metastore.operation import tickets
from metastore.operation.helping import BATCH
from metastore.port.batches import Batch, Written
from metastore.port.commit import Commit, Conflicted, Unknown
from metastore.retry.policy import Attempt
from metastore.transaction import chained
from metastore.transaction.chained import code_of
from tests.combine.conftest import SCHEMA
from tests.combine.gate import LONGEST, announced, held, setting, until_waiting, waiting
from tests.interrupts.raising import Raising
from tests.operation.test_waking import heard
from tests.servers.process import wait_until

pytestmark = pytest.mark.one_in(3)

T0 = f"{SCHEMA}.t0"
Sent = Callable[[Batch, Callable[[], Any]], Any]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no function, and no turn, count as long on a busy machine."""
    _take_for_slow(monkeypatch, 10.0)
    monkeypatch.setattr(tickets, "_LONG", 10.0)


def _take_for_slow(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    for module in (link, chain, chained):
        monkeypatch.setattr(module, "SLOW", seconds)


def count(store: Store, path: str = T0, meanwhile: Callable[[int], object] = lambda _: None) -> int:
    """Count one up in a transaction; return the number."""

    def fn(tx: Any) -> int:
        table = tx.tables.load(path)
        value = int(table.properties.get("counter", "0")) + 1
        tx.tables.alter(table, ms.SetProperty("counter", str(value)))
        meanwhile(value)
        return value

    return store.run(fn)


def alter(store: Store, key: str) -> int:
    """Give a property another value; return the version that this makes."""
    return store.tables.alter(T0, ms.SetProperty(key, str(uuid4()))).version


def chain_of(store: Store) -> Chain:
    """Return the chain of the table, on which others have just met."""
    table, session = store.tables.load(T0), store._session
    count(store)  # from here on the settings of the catalog are known
    session.hot.note(table.id, ("table", table.names))
    return chain_at(session, table.id)


def started(
    pool: ThreadPoolExecutor, one: Chain, calls: Sequence[Callable[[], Any]], longest: float = LONGEST
) -> list[Future[Any]]:
    """Let all calls wait for the chain, in this order; then let the first one lead."""
    futures: list[Future[Any]] = []
    with held(one.lane):
        one.lane._patience = 0.02
        one.lane.move(LONGEST)
        for number, call in enumerate(calls, 1):
            futures.append(pool.submit(call))
            if longest == LONGEST:
                until_waiting(one.lane, number, futures)
            else:  # one is interrupted: perhaps it does not wait any more
                wait_until(lambda n=number: futures[-1].done() or waiting(one.lane) >= n, longest)  # type: ignore[misc]
    return futures


def begin_without_a_ticket(store: Store, one: Chain) -> None:
    """Let the next chain begin with what is there: a ticket would keep other processes out."""
    one._kept, one._until = (store.tables.load(T0).record, store._session.backend.origin.run), math.inf


@contextmanager
def sending(store: Store, sent: Sent) -> Iterator[list[Batch]]:
    """Let ``sent`` stand between a store and its batches; give the batches of chains."""
    backend: Any = store._session.backend
    original, batches = backend.write_together, list[Batch]()

    def write_together(batch: Batch, patience: int) -> Any:
        batches.append(batch)
        return sent(batch, lambda: original(batch, patience))

    backend.write_together = write_together
    try:
        yield batches
    finally:
        del backend.write_together


def results(futures: Sequence[Future[Any]]) -> list[Any]:
    return [one.exception(LONGEST) or one.result() for one in futures]


@pytest.mark.parametrize("paths", [[T0], [T0, f"{SCHEMA}.t1"]])
def test_another_thread_may_make_the_first_read(store: Store, paths: list[str]) -> None:
    """The function takes part in the chain, or stands in the door: nothing of that thread stays there."""
    one, session = chain_of(store), store._session
    for path in paths:
        table = store.tables.load(path)
        session.hot.note(table.id, ("table", table.names))

    def fn(tx: Any) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(tx.tables.load_many, paths).result(LONGEST)
        tx.tables.alter(T0, ms.SetComment("x"))

    store.run(fn)
    places = [one, *session.doors.values()]
    assert len(places) == len(paths), "two entities have a door"
    assert [place._inside for place in places] == [[]] * len(places)


def test_functions_and_alters_are_one_commit(store: Store) -> None:
    """Each has its own version, operation and principal; the ticket is taken once, and leaves with the commit."""
    one, before = chain_of(store), store.tables.load(T0)
    calls = [lambda: count(store), lambda: alter(store, "a"), lambda: count(store), lambda: alter(store, "b")]
    with sending(store, lambda _, send: send()) as batches, ThreadPoolExecutor(4) as pool:
        found = results(started(pool, one, calls))
    assert [len(batch.alters[0].steps) for batch in batches] == [4]
    assert batches[0].alters[0].leaves
    assert found == [2, before.version + 3, 3, before.version + 4], "functions go first"
    table = store.tables.load(T0)
    assert (table.version, table.properties["counter"]) == (before.version + 4, "3")
    history = [one for one in store.tables.history(table) if one.version > before.version]
    assert len({one.operation_id for one in history}) == len({one.version for one in history}) == 4
    assert not store.verify()


def test_functions_and_alters_of_a_schema_are_one_commit(store: Store) -> None:
    """A schema can be frozen by itself: both are guarded by its own scope, too."""
    schema = store.schemas.load(SCHEMA)

    def comment(tx: Any) -> int:
        version: int = tx.schemas.alter(SCHEMA, ms.SetComment(str(uuid4()))).version
        return version

    store.run(comment)
    store._session.hot.note(schema.id, ("schema", schema.names))
    one, other = chain_at(store._session, schema.id), ms.SetProperty("other", "1")
    calls = [lambda: store.run(comment), lambda: store.schemas.alter(SCHEMA, other).version]
    with sending(store, lambda _, send: send()) as batches, ThreadPoolExecutor(2) as pool:
        found = results(started(pool, one, calls))
    assert [len(batch.alters[0].steps) for batch in batches] == [2]
    assert found == [3, 4]


def test_nothing_is_told_before_the_commit(store: Store) -> None:
    """Neither results nor a value without a write, nor an error that rests on what is not committed."""
    one, told, sent = chain_of(store), threading.Event(), threading.Event()

    def gate(batch: Batch, send: Callable[[], Any]) -> Any:
        sent.set()
        assert told.wait(LONGEST)
        return send()

    def fails(value: int) -> None:
        raise ValueError(value)

    def reads(tx: Any) -> str:
        return str(tx.tables.load(T0).properties["counter"])

    calls = [
        lambda: count(store),
        lambda: store.run(reads),
        lambda: count(store, meanwhile=fails),
        lambda: alter(store, "a"),
        lambda: store.tables.alter(T0, ms.RemoveProperty("counter"), ms.SetProperty("counter", "x")).version,
    ]
    with sending(store, gate), ThreadPoolExecutor(5) as pool:
        futures = started(pool, one, calls)
        assert sent.wait(LONGEST)
        assert not any(future.done() for future in futures)
        told.set()
        found = results(futures)
    assert found[:2] == [2, "2"]
    assert isinstance(found[2], ValueError)
    assert found[2].args == (3,)
    assert found[4] == found[3] + 1


def test_an_error_on_what_was_never_committed_is_not_told(store: Store, url: str) -> None:
    """The chain loses to another process. The function runs again, and on what is there it does not fail."""
    one, first = chain_of(store), [True]
    with ms.open(url) as other:

        def gate(_: Batch, send: Callable[[], Any]) -> Any:
            if first:
                first.clear()
                other.tables.alter(T0, ms.SetProperty("counter", "100"))
            return send()

        def fails(value: int) -> None:
            if value == 3:
                raise ValueError(value)

        begin_without_a_ticket(store, one)
        with sending(store, gate), ThreadPoolExecutor(2) as pool:
            found = results(started(pool, one, [lambda: count(store), lambda: count(store, meanwhile=fails)]))
    assert sorted(found) == [101, 102]
    assert store.tables.load(T0).properties["counter"] == "102"


def test_a_function_that_does_more_cuts_the_chain(store: Store) -> None:
    """What was done before it is committed first, then it commits alone on that; the rest goes in the next chain."""
    one = chain_of(store)

    def more(tx: Any) -> int:
        value = int(tx.tables.load(T0).properties["counter"]) + 1
        tx.tables.alter(T0, ms.SetProperty("counter", str(value)))
        tx.tables.alter(f"{SCHEMA}.t1", ms.SetProperty("more", "2"))
        return value

    with sending(store, lambda _, send: send()) as batches, ThreadPoolExecutor(3) as pool:
        calls = [lambda: count(store), lambda: store.run(more), lambda: count(store)]
        found = results(started(pool, one, calls))
    assert sorted(found) == [2, 3, 4]
    assert len(batches[0].alters[0].steps) == 1, "that of the first one"
    assert store.tables.load(T0).properties["counter"] == "4"
    assert not store.verify()


def test_alters_travel_although_a_function_cuts_their_chain(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each function that waits with them would cost them a turn among the processes, and a ticket."""
    one, before, led, together = chain_of(store), store.tables.load(T0), list[int](), Chain.together

    def noted(chain: Chain, handles: Sequence[Any]) -> Any:
        led.append(len(handles))
        return together(chain, handles)

    monkeypatch.setattr(Chain, "together", noted)

    def more(tx: Any) -> str:
        tx.tables.load(T0), tx.tables.load(f"{SCHEMA}.t1")
        return str(tx.tables.alter(T0, ms.SetProperty("more", "1")).properties["more"])

    calls = [lambda: alter(store, "a"), lambda: store.run(more), lambda: alter(store, "b")]
    with ThreadPoolExecutor(3) as pool:
        found = results(started(pool, one, calls))
    assert led == [3]
    assert found == [before.version + 1, "1", before.version + 2]
    assert store.tables.load(T0).version == before.version + 3


def test_functions_that_wait_behind_one_that_cut_do_not_lead(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait in line together, with one ticket: alters would wait for each one that leads."""
    monkeypatch.setattr(chained, "_UNFIT", LONGEST)
    one, led, goes_alone = chain_of(store), list[object](), Chain.let_go_alone

    def noted(chain: Chain, seat: Any) -> Any:
        led.append(seat)
        return goes_alone(chain, seat)

    monkeypatch.setattr(Chain, "let_go_alone", noted)

    def more(tx: Any) -> None:
        table = tx.tables.load(T0)
        tx.tables.load(f"{SCHEMA}.t1")
        tx.tables.alter(table, ms.SetProperty("counter", str(int(table.properties["counter"]) + 1)))

    calls = [lambda: count(store), *[lambda: store.run(more)] * 3]
    with ThreadPoolExecutor(4) as pool:
        results(started(pool, one, calls))
    assert not led
    assert store.tables.load(T0).properties["counter"] == "5"


def test_no_function_begins_in_a_chain_that_has_taken_long(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many short functions would hold up the first caller. Alters take no time, and join the same commit."""
    monkeypatch.setattr(chain, "SLOW", -1.0)
    one, before = chain_of(store), store.tables.load(T0).version
    calls = [lambda: count(store), lambda: count(store), lambda: alter(store, "a")]
    with sending(store, lambda _, send: send()) as batches, ThreadPoolExecutor(3) as pool:
        found = results(started(pool, one, calls))
    assert [len(batch.alters[0].steps) for batch in batches] == [2]
    assert found == [2, 3, before + 2]


def test_a_slow_function_holds_up_nobody(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its callers go alone only after the second time: its thread may have had no processor."""
    _take_for_slow(monkeypatch, 0.3)
    monkeypatch.setattr(chained, "_UNFIT", LONGEST)
    waits, held_up = threading.Event(), list[int]()

    def slow(value: int) -> None:
        if not waits.wait(5):
            held_up.append(value)

    with ThreadPoolExecutor(4) as pool:
        for turn in range(2):
            one = chain_of(store)
            before = int(store.tables.load(T0).properties["counter"])
            calls = [lambda: count(store), lambda: count(store, meanwhile=slow), lambda: alter(store, "a")]
            futures = started(pool, one, calls)
            others = results([futures[0], futures[2]])
            assert others[0] == before + 1
            assert not held_up
            waits.set()
            assert results(futures)[1] == before + 2
            until = max(one.unfit.values())
            assert (until > store._session.clock.monotonic()) is (turn == 1)
            waits.clear()


@pytest.mark.parametrize("guesses", [False, True], ids=["at once", "behind a lost run"])
def test_one_that_leads_may_wait_in_line(store: Store, monkeypatch: pytest.MonkeyPatch, guesses: bool) -> None:
    """And for its commit. Meanwhile no other one leads, and takes a ticket beside it: it is not slow."""
    one, table, backend, stuck = chain_of(store), store.tables.load(T0), store._session.backend, list[bool]()
    commit = backend.commit

    def watched(sent: Commit) -> Any:
        stuck.append(one.lane.is_stuck)
        return commit(sent)

    monkeypatch.setattr(backend, "commit", watched)
    if guesses:
        begin_without_a_ticket(store, one)
    monkeypatch.setattr(chained, "SLOW", 0.0)
    of_another = backend.queue([table.id], LONGEST)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(count, store)
        wait_until(lambda: backend.line([table.id], None).ahead > 1 or future.done(), LONGEST)
        assert one.lane.is_led
        assert not one.lane.is_stuck
        backend.leave([table.id], of_another, 0.0)
        assert results([future]) == [2]
    assert stuck
    assert not any(stuck)


def test_a_chain_that_carries_much_has_steps_of_its_own(store: Store) -> None:
    """Otherwise it would send nothing, take another ticket, and let nobody else help."""
    one, before = chain_of(store), store.tables.load(T0).version
    for n in range(BATCH):
        announced(store, T0, setting(f"announced-{n}", "1"))
    with sending(store, lambda _, send: send()) as batches, ThreadPoolExecutor(2) as pool:
        found = results(started(pool, one, [lambda: alter(store, "a"), lambda: alter(store, "b")]))
    assert [len(batch.alters[0].steps) for batch in batches] == [BATCH + 2]
    assert sorted(found) == [before + BATCH + 1, before + BATCH + 2]


@pytest.mark.parametrize("applied", [True, False])
def test_a_lost_answer_is_told_once(store: Store, applied: bool) -> None:
    """Each asks by its own operation id what became of it."""
    one, first = chain_of(store), [True]

    def gate(_: Batch, send: Callable[[], Any]) -> Any:
        if not first:
            return send()
        first.clear()
        if applied:
            assert isinstance(send(), Written)
        return Unknown("cut")

    calls = [lambda: count(store), lambda: alter(store, "a"), lambda: count(store), lambda: count(store)]
    with sending(store, gate), ThreadPoolExecutor(4) as pool:
        found = results(started(pool, one, calls))
    assert sorted([found[0], *found[2:]]) == [2, 3, 4]
    assert store.tables.load(T0).properties["counter"] == "4"


@pytest.mark.parametrize("applied", [True, False])
def test_the_time_of_a_function_ends_while_its_chain_is_under_way(store: Store, applied: bool) -> None:
    """Then it has half a second to ask: whether it was applied is not unknown while the database answers."""
    one, ended, sent = chain_of(store), threading.Event(), [True]

    def gate(_: Batch, send: Callable[[], Any]) -> Any:
        if not sent:
            return send()
        sent.clear()
        found = send() if applied else None
        assert ended.wait(LONGEST)
        return found or send()

    def short() -> Any:
        try:
            return store.run(lambda tx: tx.tables.alter(T0, ms.SetComment("short")).version, deadline=2.0)
        finally:
            ended.set()

    with sending(store, gate), ThreadPoolExecutor(2) as pool:
        found = results(started(pool, one, [lambda: count(store), short]))
    assert found[0] == 2
    assert (found[1] == store.tables.load(T0).version) if applied else isinstance(found[1], ms.DeadlineExceeded)
    assert (store.tables.load(T0).comment == "short") is applied


def test_those_that_lost_ask_nobody(store: Store, url: str) -> None:
    """The answer says that nothing was applied, so no operation id is forbidden, which would cost each a commit."""
    one, first, asked = chain_of(store), [True], list[object]()
    backend: Any = store._session.backend
    forbid = backend.forbid
    with ms.open(url) as other:

        def gate(_: Batch, send: Callable[[], Any]) -> Any:
            if first:
                first.clear()
                other.tables.alter(T0, ms.SetProperty("other", "1"))
            return send()

        begin_without_a_ticket(store, one)

        def asks(*more: Any) -> Any:
            asked.append(more)
            return forbid(*more)

        backend.forbid = asks
        try:
            with sending(store, gate), ThreadPoolExecutor(4) as pool:
                found = results(started(pool, one, [lambda: count(store) for _ in range(4)]))
        finally:
            del backend.forbid
    assert sorted(found) == [2, 3, 4, 5]
    assert not asked


def test_the_oldest_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader may go alone, and those that came later have more time left: the oldest would wait for all of them.

    One that has hardly any time leads last: the others may take it along.
    """
    monkeypatch.setattr(link, "_ENOUGH", 2 * LONGEST)
    lane, now = link.ChainLane(SYSTEM), SYSTEM.monotonic()
    term = lane.lead()
    handles: list[Any] = [lane.submit(link.Link(SYSTEM), now + LONGEST)]
    handles += [lane.submit(link.Link(SYSTEM), now + LONGEST * n) for n in range(3, 8)]
    elected = list[int]()
    while term is not None:
        lane.leave(term)
        new = [one for one in handles if one.leads and one.number not in elected]
        elected += [one.number for one in new]
        term = new[0].stay.term if new else None
    assert elected == [*range(1, 6), 0]


def test_a_hook_of_a_lost_alter_may_alter_the_entity(url: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader calls it. The chain that it leads must not be waited for there."""
    monkeypatch.setattr(chain, "_PATIENCE", LONGEST)
    told, versions = threading.Event(), list[int]()

    def hook(attempt: Attempt) -> None:
        if attempt.cause is not None and not told.is_set():
            told.set()
            versions.append(alter(opened, "by-hook"))

    def gate(_: Batch, send: Callable[[], Any]) -> Any:
        if not told.is_set():
            alter(store, "other")
        return send()

    with ms.open(url, hooks=[hook]) as opened, sending(opened, gate), ThreadPoolExecutor(2) as pool:
        one = chain_of(opened)
        begin_without_a_ticket(opened, one)
        before = opened.tables.load(T0).version
        found = results(started(pool, one, [lambda: alter(opened, "a"), lambda: alter(opened, "b")]))
    assert versions
    assert sorted([*found, *versions]) == [before + 2, before + 3, before + 4]


def test_history_that_a_function_reads_has_the_state_that_it_sees(store: Store) -> None:
    """It is read from the database, which lacks the steps before: such a function runs again, behind these."""
    one = chain_of(store)

    def past(tx: Any) -> tuple[int, int]:
        version = tx.tables.load(T0).version
        return version, list(tx.tables.history(T0))[-1].version

    def again(tx: Any) -> int:
        return int(tx.tables.load(T0, version=tx.tables.load(T0).version).properties["counter"])

    def writes(tx: Any) -> int:
        newest = list(tx.tables.history(T0))[-1].entity
        tx.tables.alter(T0, ms.SetProperty("seen", newest.properties["counter"]))
        return int(newest.properties["counter"])

    calls = [lambda: count(store), lambda: store.run(past), lambda: store.run(again), lambda: store.run(writes)]
    with ThreadPoolExecutor(4) as pool:
        found = results(started(pool, one, calls))
    assert found[0] == found[2] == found[3] == 2
    assert found[1][0] == found[1][1]


def test_the_time_of_what_is_not_committed_is_not_that_of_an_older_commit(store: Store) -> None:
    one, before = chain_of(store), store.tables.load(T0)
    with ThreadPoolExecutor(2) as pool:
        _, seen = results(started(pool, one, [lambda: count(store), lambda: store.run(lambda tx: tx.tables.load(T0))]))
    assert seen.version == before.version + 1
    assert seen.modified_at > before.modified_at


def test_a_state_that_was_never_committed_is_not_written(store: Store, url: str) -> None:
    """The answer is lost, nothing was applied, and another process has made the version that the second one expects."""
    one, first, told = chain_of(store), [True], threading.Event()
    backend: Any = store._session.backend
    forbid, leader = backend.forbid, set[int]()

    def leads(_: int) -> None:
        leader.add(threading.get_ident())

    def asks(*more: Any) -> Any:
        if threading.get_ident() in leader:
            told.wait(10)  # the second one goes on first; the ticket of the first one would hinder it
        return forbid(*more)

    def second() -> int:
        try:
            return count(store)
        finally:
            told.set()

    with ms.open(url) as other:

        def gate(_: Batch, send: Callable[[], Any]) -> Any:
            if not first:
                return send()
            first.clear()
            other.tables.alter(T0, ms.SetProperty("other", "1"))
            return Unknown("cut")

        begin_without_a_ticket(store, one)
        backend.forbid = asks
        try:
            with sending(store, gate), ThreadPoolExecutor(2) as pool:
                found = results(started(pool, one, [lambda: count(store, meanwhile=leads), second]))
        finally:
            del backend.forbid
    assert sorted(found) == [2, 3]
    assert {**store.tables.load(T0).properties}.items() >= {("counter", "3"), ("other", "1")}


def test_a_chain_that_the_database_refuses_costs_each_one_run(store: Store) -> None:
    one, refused = chain_of(store), [True, True]

    def gate(_: Batch, send: Callable[[], Any]) -> Any:
        return Conflicted("serialization") if refused and refused.pop() else send()

    with sending(store, gate), ThreadPoolExecutor(3) as pool:
        found = results(started(pool, one, [lambda: count(store) for _ in range(3)]))
    assert sorted(found) == [2, 3, 4]


def test_a_run_inside_of_a_run_goes_alone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for nobody who waits for it: the chain ends before the function in which it is."""
    _take_for_slow(monkeypatch, 0.3)
    one, first = chain_of(store), [True]

    def outer(_: int) -> None:
        if first:
            first.clear()  # the run loses to that
            alter(store, "inside")

    with ThreadPoolExecutor(2) as pool:
        found = results(started(pool, one, [lambda: count(store), lambda: count(store, meanwhile=outer)]))
    assert sorted(found) == [2, 3]
    assert store.tables.load(T0).properties["counter"] == "3"


def test_callers_of_one_process_lose_no_update(store: Store) -> None:
    """Each count is told once, and each version is one answer's."""
    counted, versions, errors = list[int](), list[int](), list[BaseException]()

    def client(number: int) -> None:
        try:
            for n in range(12):
                if n % 3:
                    versions.append(store.tables.alter(T0, ms.SetProperty(f"k{number}", str(n))).version)
                else:
                    counted.append(count(store))
        except BaseException as error:  # noqa: BLE001  (it is looked at)
            errors.append(error)

    before = store.tables.load(T0).version
    threads = [threading.Thread(target=client, args=(n,)) for n in range(12)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not errors
    assert sorted(counted) == list(range(1, 49))
    assert max(Counter(versions).values()) == 1
    table = store.tables.load(T0)
    assert (table.properties["counter"], table.version) == ("48", before + 12 * 12)


def test_tasks_of_one_process_lose_no_update(store: Store, url: str) -> None:
    """As threads: each function runs in its own task, which may wait in it."""
    counted, chains = list[int](), list[int]()
    count(store)
    original = Chain._commit

    async def client(astore: Any, number: int) -> None:
        async def fn(tx: Any) -> int:
            table = await tx.tables.load(T0)
            value = int(table.properties.get("counter", "0")) + 1
            await asyncio.sleep(0)
            await tx.tables.alter(table, ms.SetProperty("counter", str(value)))
            return value

        for n in range(6):
            if n % 3:
                await astore.tables.alter(T0, ms.SetProperty(f"k{number}", str(n)))
            else:
                counted.append(await astore.run(fn))

    def noted(self: Chain, group: Any, *more: Any) -> Any:
        chains.append(len(group.steps))
        return original(self, group, *more)

    async def main() -> None:
        async with await ms.open_async(url) as astore:
            await asyncio.gather(*[client(astore, n) for n in range(12)])

    Chain._commit = noted  # type: ignore[method-assign, assignment]
    try:
        asyncio.run(main())
    finally:
        Chain._commit = original  # type: ignore[method-assign]
    assert sorted(counted) == list(range(2, 26))
    assert max(chains) > 1, "they have travelled together"


def test_one_function_that_cuts_leaves_the_others_in_the_chain() -> None:
    """Of tasks, too, whose functions are arguments of one partial."""

    def called(function: Callable[[], Any]) -> Any:
        return function()

    class Computed:
        """Such as an object that a framework loads at its first use: its attributes may be anything."""

        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

    one, other = (lambda: 1), (lambda: 2)
    assert code_of(one) != code_of(other)
    assert code_of(partial(called, one)) == code_of(partial(called, one))
    assert code_of(partial(called, one)) != code_of(partial(called, other))
    assert code_of(partial(print, Computed())) == code_of(partial(print, Computed())), "nothing is computed"


def test_an_alter_whose_time_ends_before_its_chain_is_sent_is_not_applied(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is decided already, and told that it was not applied: so the message that comes later must not apply it."""
    one, ended, send = chain_of(store), threading.Event(), commit

    def late(*more: Any) -> Any:
        assert ended.wait(LONGEST)
        return send(*more)

    def short() -> Any:
        try:
            return store.tables.alter(T0, ms.SetComment("short"), deadline=2.0)
        finally:
            ended.set()

    monkeypatch.setattr(chain, "commit", late)
    with ThreadPoolExecutor(2) as pool:
        found = results(started(pool, one, [lambda: count(store), short]))
    assert isinstance(found[1], ms.DeadlineExceeded)
    assert (found[0], store.tables.load(T0).comment) == (2, None)


def test_a_function_at_a_path_that_leads_elsewhere_now_sees_what_is_there(store: Store, url: str) -> None:
    """Its chain is that of the entity to which the path led before; another caller of that chain knows the new path."""
    one, t0, t1 = chain_of(store), store.tables.load(T0), store.tables.load(f"{SCHEMA}.t1")
    with ms.open(url) as other:
        moved = other.tables.rename(t0, "moved")
        other.tables.rename(t1, "t0")
    store._session.hot.note(t0.id, ("table", moved.names))
    calls = [lambda: count(store, moved.path), lambda: store.run(lambda tx: tx.tables.load(T0).id)]
    with ThreadPoolExecutor(2) as pool:
        found = results(started(pool, one, calls))
    assert found == [2, t1.id]


@pytest.mark.parametrize("writes", [True, False])
def test_what_else_a_function_reads_is_validated(store: Store, url: str, writes: bool) -> None:
    """The chain validates only its own entity. Another process changes the other one while the chain is sent."""
    one, first = chain_of(store), [True]
    with ms.open(url) as other:

        def gate(_: Batch, send: Callable[[], Any]) -> Any:
            if first:
                first.clear()
                other.tables.alter(f"{SCHEMA}.t1", ms.SetComment("new"))
            return send()

        def both(tx: Any) -> str | None:
            tx.tables.load(T0)
            comment: str | None = tx.tables.load(f"{SCHEMA}.t1").comment
            if writes:
                tx.tables.alter(T0, ms.SetComment(f"of t1: {comment}"))
            return comment

        with sending(store, gate), ThreadPoolExecutor(3) as pool:
            calls = [lambda: count(store), lambda: store.run(both), lambda: alter(store, "a")]
            found = results(started(pool, one, calls))
    assert found[1] == "new"
    assert store.tables.load(T0).comment == ("of t1: new" if writes else None)


def test_a_chain_does_not_begin_with_what_was_left_before_a_restart(store: Store) -> None:
    """The server may have lost it."""
    one = chain_of(store)
    begin_without_a_ticket(store, one)
    assert one.kept() is not None
    one.keep(store.tables.load(T0).record, "an earlier run of the server")
    assert one.kept() is None


def test_a_chain_has_at_most_so_many_steps(store: Store) -> None:
    """A leading alter takes waiting callers twice."""
    one = chain_of(store)
    calls = [partial(alter, store, f"k{n}") for n in range(link.STEPS + 6)]
    with sending(store, lambda _, send: send()) as batches, ThreadPoolExecutor(len(calls)) as pool:
        found = results(started(pool, one, calls))
    assert [len(batch.alters[0].steps) for batch in batches] == [link.STEPS, 6]
    assert len(set(found)) == len(calls)


@pytest.mark.parametrize("to", ["a commit", "a ticket"])
def test_while_others_compete_each_chain_takes_a_ticket(
    store: Store, url: str, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise every second chain could lose to them."""
    for times in ("_COMPETES", "_STAYS"):
        monkeypatch.setattr(chain, times, LONGEST)
    one, table, backend = chain_of(store), store.tables.load(T0), store._session.backend
    calls, lost = [lambda: alter(store, "a"), lambda: alter(store, "b")], [to == "a commit"]

    def gate(_: Batch, send: Callable[[], Any]) -> Any:
        if lost and lost.pop():
            other.tables.alter(table, ms.SetProperty("other", "1"))
        return send()

    if to == "a ticket":
        older, wait = backend.queue([table.id], LONGEST), tickets.Watch.wait

        def ends(*more: Any) -> None:
            backend.leave([table.id], older, 0.0)
            wait(*more)

        monkeypatch.setattr(tickets.Watch, "wait", ends)
    else:
        begin_without_a_ticket(store, one)
    with ms.open(url) as other, sending(store, gate) as batches, ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            results(started(pool, one, calls))
    with_ticket = [batch.alters[0].ticket is not None for batch in batches]
    assert with_ticket == ([False, True, True] if to == "a commit" else [True, True])


def test_an_older_ticket_refuses_a_chain(store: Store) -> None:
    one, table, refused = chain_of(store), store.tables.load(T0), list[bool | None]()
    backend: Any = store._session.backend

    def gate(batch: Batch, send: Callable[[], Any]) -> Any:
        if not refused:
            (alters,) = batch.alters
            younger = backend.queue([table.id], LONGEST)
            found = type(backend).write_together(backend, batch._replace(alters=[alters._replace(ticket=younger)]), 50)
            refused.append(found.alters[0].queued)
            backend.leave([table.id], younger, 0.0)
        return send()

    with sending(store, gate), ThreadPoolExecutor(2) as pool:
        assert results(started(pool, one, [lambda: count(store), lambda: alter(store, "a")])) == [2, table.version + 2]
    assert refused == [True]


def test_a_long_turn_of_a_chain_leaves_a_gap(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tickets, "_LONG", 0.0)
    one = chain_of(store)
    with sending(store, lambda _, send: send()) as batches, ThreadPoolExecutor(2) as pool:
        results(started(pool, one, [lambda: count(store), lambda: alter(store, "a")]))
    assert [batch.alters[0].leaves for batch in batches] == [False], "the ticket leaves after it, with the gap"


@pytest.mark.parametrize("carries", [0, 2])
def test_a_chain_tells_the_next_in_line_and_the_owners_of_what_it_carries(store: Store, url: str, carries: int) -> None:
    one, table, next_ = chain_of(store), store.tables.load(T0), list[int]()
    owners = [announced(store, T0, setting(f"announced-{n}", "1")) for n in range(carries)]

    def gate(_: Batch, send: Callable[[], Any]) -> Any:
        next_.append(store._session.backend.queue([table.id], LONGEST))
        return send()

    with heard(url) as payloads, sending(store, gate), ThreadPoolExecutor(2) as pool:
        results(started(pool, one, [lambda: count(store), lambda: alter(store, "a")]))
        told = [{*payload.split()} for payload in payloads()]
    assert told == [{str(name) for name in (*next_, *owners)}]


_CODE = {chain.__file__, link.__file__, chained.__file__}


@pytest.mark.parametrize("role", ["leads", "follows", "alters"])
def test_an_interrupt_between_any_two_lines_is_its_own_threads(
    store: Store, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No update is lost, none is told that was not made, and nobody waits for the one that was interrupted."""
    _take_for_slow(monkeypatch, 0.3)
    counted, versions = list[int](), list[int]()
    for at in range(1, 2_000, 7):
        one, raising = chain_of(store), Raising(_CODE, at, KeyboardInterrupt)
        own: Callable[[], Any] = (lambda: alter(store, "own")) if role == "alters" else (lambda: count(store))

        def hurt(raising: Raising = raising, own: Callable[[], Any] = own) -> Any:
            return raising.run(own)

        others: list[Callable[[], Any]] = [lambda: count(store), lambda: alter(store, "a")]
        calls = [*others, hurt] if role == "follows" else [hurt, *others]
        before = int(store.tables.load(T0).properties["counter"])
        with ThreadPoolExecutor(3) as pool:
            futures = started(pool, one, calls, 0.05)
            told = [one.exception(LONGEST) or one.result() for one in futures if one is not futures[calls.index(hurt)]]
            mine = futures[calls.index(hurt)].exception(LONGEST)
        after = int(store.tables.load(T0).properties["counter"])
        assert all(isinstance(value, int) for value in told), told
        assert mine is None or isinstance(mine, KeyboardInterrupt)
        least = 1 + (mine is None and role != "alters")
        assert least <= after - before <= 1 + (role != "alters")
        for value, kind in zip(told, (counted, versions), strict=True):
            assert isinstance(value, int)
            kind.append(value)
        if mine is None:
            own_answer: Any = futures[calls.index(hurt)].result()
            (versions if role == "alters" else counted).append(own_answer)
        if raising.left:
            break
    assert raising.left, "it has no end"
    made = [one.version for one in store.tables.history(T0)]
    assert len(set(made)) == len(made) == store.tables.load(T0).version
    assert max(Counter(counted).values()) == max(Counter(versions).values()) == 1, "none is told twice"
    assert set(versions) <= set(made)
    assert not store.verify()
