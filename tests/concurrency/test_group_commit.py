"""Threads that write to SQLite at the same time share a transaction; what fails in it hurts no other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext, suppress
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

import metastore as ms
from metastore.backends.sqlite import group
from metastore.backends.sqlite.connect import DRIVER
from metastore.backends.sqlite.group import MOST
from metastore.clock import ThreadWaker
from metastore.deadlines import until
from metastore.retry.classify import Consequence, of_sqlite
from tests.contract.intents import eventually
from tests.interrupts.raising import Raising

pytestmark = pytest.mark.one_in(3)

Change = Callable[[Any, int], Any]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ms.Store]:
    with ms.open(f"sqlite:///{tmp_path}/x.db") as opened:
        opened.metalakes.create("m")
        opened.catalogs.create("m.c", type="relational")
        yield opened


class Crowd:
    """Threads that wait in the queue behind one that writes."""

    def __init__(self, store: ms.Store) -> None:
        self.store = store
        backend: Any = store._session.backend
        self.group, self.pool = backend._group, backend.pool
        self.begun = 0
        begin = self.pool.begin

        def counted(connection: Any) -> None:
            self.begun += 1
            begin(connection)

        self.pool.begin = counted

    @contextmanager
    def behind(self, threads: ThreadPoolExecutor) -> Iterator[None]:
        """Let a thread write until the block ends; then count from 0 how often a transaction begins."""
        go, inside = threading.Event(), threading.Event()

        def change(connection: Any, _: int) -> None:
            inside.set()
            assert go.wait(20.0)

        first = threads.submit(self.group.run, change)
        assert inside.wait(20.0)
        self.begun = 0
        try:
            yield
        finally:
            go.set()
            first.result(20.0)

    def waiting(self, count: int) -> None:
        """Wait until so many threads are in the queue."""
        eventually(lambda: len(self.group._queue) == count)


@pytest.fixture
def crowd(store: ms.Store) -> Crowd:
    return Crowd(store)


def inserted(name: str, error: Exception | None = None) -> Change:
    """Return a change that writes a row, and then perhaps fails."""

    def change(connection: Any, _: int) -> str:
        connection.execute("INSERT INTO pin (name, seq, created_at) VALUES (?, 1, 1)", (name,))
        if error is not None:
            raise error
        return name

    return change


def names(store: ms.Store) -> set[str]:
    return {pin.name for pin in store.pins()}


def test_those_that_wait_share_a_transaction_and_one_that_fails_hurts_no_other(crowd: Crowd) -> None:
    with ThreadPoolExecutor(10) as threads:
        with crowd.behind(threads):
            good = [threads.submit(crowd.group.run, inserted(f"n{n}")) for n in range(4)]
            crowd.waiting(4)
            bad = [threads.submit(crowd.group.run, inserted("own", ValueError("mine")))]
            bad += [threads.submit(crowd.group.run, inserted("n0"))]  # its own primary key is taken in the group
            crowd.waiting(6)
        assert [one.result(20.0) for one in good] == [f"n{n}" for n in range(4)]
        with pytest.raises(ValueError, match="mine"):
            bad[0].result(20.0)
        with pytest.raises(DRIVER.IntegrityError):
            bad[1].result(20.0)
    assert crowd.begun == 1
    assert names(crowd.store) == {"n0", "n1", "n2", "n3"}


def test_more_than_fit_make_another_transaction(crowd: Crowd) -> None:
    with ThreadPoolExecutor(MOST + 3) as threads:
        with crowd.behind(threads):
            done = [threads.submit(crowd.group.run, inserted(f"n{n}")) for n in range(MOST + 1)]
            crowd.waiting(MOST + 1)
        assert len({one.result(20.0) for one in done}) == MOST + 1
    assert crowd.begun == 2


def test_a_large_change_has_a_transaction_for_itself(crowd: Crowd) -> None:
    done = list[str]()

    def noted(name: str) -> Change:
        def change(connection: Any, now: int) -> Any:
            done.append(name)
            with closing(DRIVER.connect(crowd.pool._database)) as reader:
                assert {row[0] for row in reader.execute("SELECT name FROM pin")} == committed[name]
            return inserted(name)(connection, now)

        return change

    committed = {"a": set[str](), "b": set[str](), "large": {"a", "b"}, "c": {"a", "b", "large"}}
    with ThreadPoolExecutor(5) as threads:
        with crowd.behind(threads):
            futures = []
            for n, name in enumerate(committed, 1):
                futures.append(threads.submit(crowd.group.run, noted(name), large=name == "large"))
                crowd.waiting(n)
        assert [one.result(20.0) for one in futures] == list(committed) == done
    assert crowd.begun == 3


def test_nobody_is_told_before_the_commit_and_its_error_is_told_to_all(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is taken away from SQLite while the group is made: a deferred constraint fails at the COMMIT."""

    def breaks(connection: Any, _: int) -> None:
        connection.execute("CREATE TABLE IF NOT EXISTS up (id INTEGER PRIMARY KEY)")
        connection.execute("CREATE TABLE down (up INTEGER REFERENCES up (id) DEFERRABLE INITIALLY DEFERRED)")
        connection.execute("INSERT INTO down VALUES (7)")

    with ThreadPoolExecutor(5) as threads:
        with crowd.behind(threads):
            done: list[Future[Any]] = [threads.submit(crowd.group.run, inserted("a"))]
            crowd.waiting(1)
            done.append(threads.submit(crowd.group.run, breaks))
            crowd.waiting(2)
        for one in done:
            with pytest.raises(DRIVER.IntegrityError):
                one.result(20.0)
    assert names(crowd.store) == set()


def test_a_transaction_that_is_lost_as_a_whole_is_made_again_one_by_one(crowd: Crowd) -> None:
    def rolls_back(connection: Any, _: int) -> None:
        connection.execute("ROLLBACK")  # as SQLite does by itself when the disk is full
        raise DRIVER.OperationalError("full")

    with ThreadPoolExecutor(5) as threads:
        with crowd.behind(threads):
            first = threads.submit(crowd.group.run, inserted("a"))
            crowd.waiting(1)
            lost = threads.submit(crowd.group.run, rolls_back)
            crowd.waiting(2)
        assert first.result(20.0) == "a"
        with pytest.raises(DRIVER.OperationalError, match="full"):
            lost.result(20.0)
    assert names(crowd.store) == {"a"}


def test_an_interrupt_of_the_leader_leaves_the_others_alone(crowd: Crowd) -> None:
    def interrupted(connection: Any, _: int) -> None:
        raise KeyboardInterrupt

    with ThreadPoolExecutor(5) as threads:
        with crowd.behind(threads):
            leader = threads.submit(crowd.group.run, interrupted)
            crowd.waiting(1)
            other = threads.submit(crowd.group.run, inserted("a"))
            crowd.waiting(2)
        with suppress(KeyboardInterrupt):
            leader.result(20.0)
        assert other.result(20.0) == "a"
    assert names(crowd.store) == {"a"}


class _Interrupted:
    """A connection whose COMMIT is interrupted before SQLite sees it."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, text: str, *parameters: Any) -> Any:
        if text == "COMMIT":
            raise KeyboardInterrupt
        return self._connection.execute(text, *parameters)


def test_an_interrupt_before_the_commit_leaves_nobody_with_an_answer(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    lend, lent = crowd.pool.connection, list[Any]()

    @contextmanager
    def connection() -> Iterator[Any]:
        with lend() as one:
            lent.append(_Interrupted(one) if not lent else one)
            yield lent[-1]

    with ThreadPoolExecutor(5) as threads:
        with crowd.behind(threads):
            monkeypatch.setattr(crowd.pool, "connection", connection)
            leader = threads.submit(crowd.group.run, inserted("leader"))
            crowd.waiting(1)
            other = threads.submit(crowd.group.run, inserted("a"))
            crowd.waiting(2)
        with suppress(KeyboardInterrupt):
            leader.result(20.0)
        assert other.result(20.0) == "a"
    assert names(crowd.store) == {"a"}


@pytest.mark.parametrize("line", range(1, 5))
def test_a_second_interrupt_acknowledges_nothing_that_is_not_committed(crowd: Crowd, line: int) -> None:
    """It meets the leader at a line at which that handles the first one."""
    raising, lefts = Raising([group.__file__], 0, KeyboardInterrupt), [line]

    def interrupted(connection: Any, _: int) -> None:
        if lefts:
            raising.left = lefts.pop()
        raise KeyboardInterrupt

    with ThreadPoolExecutor(5) as threads:
        with crowd.behind(threads):
            leader = threads.submit(lambda: raising.run(lambda: crowd.group.run(inserted("leader"))))
            crowd.waiting(1)
            others = [threads.submit(crowd.group.run, inserted(name)) for name in "ab"]
            crowd.waiting(3)
            last = threads.submit(crowd.group.run, interrupted)
            crowd.waiting(4)
        for one in (leader, last):
            with suppress(KeyboardInterrupt):
                one.result(20.0)
        assert [other.result(20.0) for other in others] == ["a", "b"]
    assert raising.left == 0
    assert names(crowd.store) == {"a", "b"}


def test_a_commit_that_two_interrupts_met_is_in_doubt(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its changes are looked up, as after a lost answer."""
    raising, execute = Raising([group.__file__], 0, KeyboardInterrupt), _Interrupted.execute

    def twice(self: _Interrupted, text: str, *parameters: Any) -> Any:
        if text == "COMMIT":
            raising.left = 1
        return execute(self, text, *parameters)

    monkeypatch.setattr(_Interrupted, "execute", twice)
    lend = crowd.pool.connection

    @contextmanager
    def connection() -> Iterator[Any]:
        with lend() as one:
            yield _Interrupted(one)

    with ThreadPoolExecutor(5) as threads:
        with crowd.behind(threads):
            monkeypatch.setattr(crowd.pool, "connection", connection)
            leader = threads.submit(lambda: raising.run(lambda: crowd.group.run(inserted("leader"))))
            crowd.waiting(1)
            other = threads.submit(crowd.group.run, inserted("a"))
            crowd.waiting(2)
        assert isinstance(leader.exception(20.0), KeyboardInterrupt)
        error: Any = other.exception(20.0)
    assert of_sqlite(error.sqlite_errorcode) is Consequence.UNKNOWN


class _CutWait(ThreadWaker):
    """Interrupts the thread that waits."""

    def wait(self, seconds: float) -> bool:
        raise KeyboardInterrupt


def test_a_change_whose_thread_was_interrupted_in_the_queue_is_not_made(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor(5) as threads:
        with crowd.behind(threads):
            leader = threads.submit(crowd.group.run, inserted("leader"))
            crowd.waiting(1)
            with monkeypatch.context() as patch:
                patch.setattr(group, "ThreadWaker", _CutWait)
                gone = threads.submit(crowd.group.run, inserted("gone"))
                assert isinstance(gone.exception(20.0), KeyboardInterrupt)
            other = threads.submit(crowd.group.run, inserted("a"))
            crowd.waiting(3)
        assert [leader.result(20.0), other.result(20.0)] == ["leader", "a"]
    assert names(crowd.store) == {"leader", "a"}


def test_a_deadline_in_the_queue_is_the_callers_own(crowd: Crowd) -> None:
    def impatient() -> Any:
        with until(crowd.store._session.clock.monotonic() + 0.2):
            return crowd.group.run(inserted("late"))

    with ThreadPoolExecutor(5) as threads:
        with crowd.behind(threads):
            late = threads.submit(impatient)
            with pytest.raises(DRIVER.OperationalError):
                late.result(20.0)
            patient = threads.submit(crowd.group.run, inserted("a"))
            crowd.waiting(1)
        assert patient.result(20.0) == "a"
    assert names(crowd.store) == {"a"}


def test_a_change_that_is_made_after_its_deadline_waits_quietly(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread asked again and again for the answer, and so kept the interpreter from the leader."""
    waits, go, inside = list[float](), threading.Event(), threading.Event()

    class Counting(ThreadWaker):
        def wait(self, seconds: float) -> bool:
            waits.append(seconds)
            return super().wait(seconds)

    monkeypatch.setattr(group, "ThreadWaker", Counting)

    def slow(connection: Any, _: int) -> None:
        inside.set()
        assert go.wait(20.0)

    def impatient() -> Any:
        with until(crowd.store._session.clock.monotonic() + 0.5):
            return crowd.group.run(inserted("late"))

    with ThreadPoolExecutor(5) as threads:
        with crowd.behind(threads):
            leader = threads.submit(crowd.group.run, slow)
            crowd.waiting(1)
            late = threads.submit(impatient)
            crowd.waiting(2)
        assert inside.wait(20.0)
        with suppress(TimeoutError):
            late.result(1.5)  # three times its deadline
        assert len(waits) < 20
        go.set()
        leader.result(20.0)
        with suppress(DRIVER.OperationalError):  # its time was over before it was made
            assert late.result(20.0) == "late"


class _Cut(ThreadWaker):
    """Raises an interrupt in the thread that wakes the first one."""

    cuts = 0

    def wake(self) -> None:
        _Cut.cuts += 1
        if _Cut.cuts == 1:
            raise KeyboardInterrupt
        super().wake()


def test_an_interrupt_of_the_leader_at_its_end_lets_nobody_wait(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadPoolExecutor(8) as threads:
        with crowd.behind(threads):
            futures = [threads.submit(crowd.group.run, inserted("0"))]
            crowd.waiting(1)
            monkeypatch.setattr(group, "ThreadWaker", _Cut)
            futures += [threads.submit(crowd.group.run, inserted(str(n))) for n in range(1, 5)]
            crowd.waiting(5)
        for future in futures:
            with suppress(KeyboardInterrupt):
                future.result(20.0)
    assert names(crowd.store) == {str(n) for n in range(5)}
    assert _Cut.cuts > 1


@pytest.mark.parametrize("first", [True, False])
def test_an_interrupt_at_any_line_of_the_leader_lets_nobody_wait(crowd: Crowd, first: bool) -> None:
    """The leader comes first, or waits with the others; each of these is made once."""
    for at in count(1):
        raising, wanted = Raising([group.__file__], at, KeyboardInterrupt), [f"{at}-{n}" for n in range(3)]

        def lead(raising: Raising = raising, at: int = at) -> Any:
            with suppress(KeyboardInterrupt):
                return raising.run(lambda: crowd.group.run(inserted(f"{at}-leader")))

        with ThreadPoolExecutor(8) as threads:
            with nullcontext() if first else crowd.behind(threads):
                leader = threads.submit(lead)
                if not first and raising.left:
                    eventually(lambda one=leader: len(crowd.group._queue) == 1 or one.done())  # type: ignore[misc]
                others = [threads.submit(crowd.group.run, inserted(name)) for name in wanted]
            began = monotonic()
            assert [other.result(20.0) for other in others] == wanted
            leader.result(20.0)
            assert monotonic() - began < 0.9  # before anybody's patience is over
        assert names(crowd.store) - {f"{at}-leader"} == set(wanted)
        for pin in crowd.store.pins():
            crowd.store.unpin(pin.name)
        if raising.left:
            break
    assert at > 20


def test_many_threads_alter_and_all_of_it_is_there(store: ms.Store) -> None:
    store.schemas.create("m.c.s")
    tables = [store.tables.create(f"m.c.s.t{n}") for n in range(8)]

    def work(n: int) -> None:
        for number in range(20):
            store.tables.alter(tables[n].path, ms.SetProperty("x", str(number)))
            store.metalakes.alter("m", ms.SetProperty(f"k{n}", str(number)))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert {store.tables.load(t.path).version for t in tables} == {21}
    assert store.metalakes.load("m").version == 161
    assert store.verify() == []


def test_who_waits_for_the_writer_until_its_deadline_is_told_so(crowd: Crowd) -> None:
    """The file needs no look: whatever the call writes, its time was over."""
    with crowd.pool.connection() as connection:
        crowd.pool.begin(connection)
        for write in (crowd.store.leases.acquire, crowd.store.metalakes.create):
            with pytest.raises(ms.DeadlineExceeded), until(monotonic() + 0.05):
                write("a")
    assert crowd.store.leases.acquire("a", ttl=5.0).release()
