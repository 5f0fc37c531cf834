"""What a holder learns from its own clocks: in time, by each clock, in each thread and process."""

from __future__ import annotations

import gc
import math
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

import metastore as ms
from metastore import database
from metastore.clock import SYSTEM, Clock
from metastore.deadlines import remaining
from metastore.leases.database import DatabaseBook
from metastore.leases.heartbeat import Heartbeat
from metastore.store import opening
from tests.leases.kinds_of_work import S, furnish, picture
from tests.servers.process import wait_until

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

HOUR = 3600.0
PATH = f"{S}.t"


@dataclass(frozen=True)
class Moved(Clock):
    """The machine's clock, whose hands can be moved one by one (seconds)."""

    by: dict[str, float] = field(default_factory=lambda: {"monotonic": 0.0, "boottime": 0.0, "wall": 0.0})

    def monotonic(self) -> float:
        return super().monotonic() + self.by["monotonic"]

    def boottime(self) -> float:
        return super().boottime() + self.by["boottime"]

    def micros(self) -> int:
        return super().micros() + round(self.by["wall"] * 1_000_000)


def opened(url: str, clock: Clock) -> ms.Store:
    """Open a store that goes by a clock of its own."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (opening, database):
            patch.setattr(module, "SYSTEM", clock)
        return ms.open(url)


@pytest.fixture
def clock() -> Moved:
    return Moved()


@pytest.fixture
def furnished(url: str) -> str:
    with ms.open(url) as store:
        furnish(store)
    return url


@pytest.mark.parametrize("hand", ["wall", "boottime", "monotonic"])
def test_a_clock_that_jumps_ahead_ends_it(furnished: str, clock: Moved, hand: str) -> None:
    """The wall clock is set, the machine slept: it is over at once, and whatever is done under it says so."""
    told: list[ms.Lease] = []
    with opened(furnished, clock) as store:
        lease = store.leases.acquire("work", ttl=30.0, on_lost=told.append)
        table = store.tables.load(PATH)
        lease.stage(table, "k", "v")
        before = picture(furnished)
        clock.by[hand] += 2 * HOUR
        assert lease.lost.is_set()
        assert told == [lease]
        for late in (
            lease.check,
            lease.renew,
            lease.publish,
            lambda: lease.stage(table, "k", "w"),
            lambda: store.tables.alter(PATH, ms.SetComment("late"), lease=lease),
            lambda: store.run(lambda tx: tx.tables.drop(PATH), lease=lease),
        ):
            with pytest.raises(ms.LeaseLost, match="its time was over"):
                late()
        assert told == [lease]
        assert picture(furnished) == before
        assert lease.release() is True  # nobody has taken it over


@pytest.mark.parametrize("hand", ["wall", "boottime"])
def test_a_clock_that_is_set_back_makes_it_no_longer(furnished: str, clock: Moved, hand: str) -> None:
    with opened(furnished, clock) as store:
        lease = store.leases.acquire("work", ttl=30.0)
        clock.by[hand] -= 2 * HOUR
        store.tables.alter(PATH, ms.SetComment("in time"), lease=lease)
        assert lease._left() <= 30.0
        clock.by["monotonic"] += 31.0
        with pytest.raises(ms.LeaseLost):
            store.tables.alter(PATH, ms.SetComment("late"), lease=lease)


@pytest.mark.parametrize("late", [False, True], ids=["in time", "too late"])
def test_a_slow_answer_is_at_the_cost_of_the_holder(
    furnished: str, clock: Moved, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """Its time counts from before the request was sent: that of the acquisition, and that of each renewal."""
    with opened(furnished, clock) as store:
        seconds = 31.0 if late else 7.0
        for method in ("take", "renew"):
            with monkeypatch.context() as patch:
                if method == "renew":
                    lease = store.leases.acquire("work", ttl=30.0)
                _slow(patch, store, method, clock, seconds)
                if late:
                    with pytest.raises(ms.LeaseLost, match="its time was over"):
                        lease.renew() if method == "renew" else store.leases.acquire("work", ttl=30.0)
                    continue
                if method == "renew":
                    lease.renew()
                else:
                    lease = store.leases.acquire("work", ttl=30.0)
                assert 22.0 < lease.seconds_left() <= 23.0
                store.tables.alter(PATH, ms.SetComment("in time"), lease=lease)
                lease.release()
        assert late or store.leases.holder("work") is None


def _slow(patch: pytest.MonkeyPatch, store: ms.Store, method: str, clock: Moved, seconds: float) -> None:
    """Let the answer to this call come so much later."""
    owner = type(store._session.backend.leases)
    original = getattr(owner, method)

    def slow(*arguments: object) -> object:
        answer = original(*arguments)
        clock.by["monotonic"] += seconds
        return answer

    patch.setattr(owner, method, slow)


def test_the_database_decides_by_its_own_clock(postgres_url: str, clock: Moved) -> None:
    """A client whose wall clock is wrong takes nothing early, keeps nobody waiting, and shows the database's time."""
    with ms.open(postgres_url) as store, opened(postgres_url, clock) as wrong:
        for hours in (-3.0, 3.0):
            clock.by["wall"] = hours * HOUR
            held = store.leases.acquire("work", ttl=30.0)
            with pytest.raises(ms.LeaseHeld):
                wrong.leases.acquire("work")
            held.release()
            lease = wrong.leases.acquire("work", ttl=0.7)
            assert abs((lease.expires_at - held.expires_at).total_seconds()) < 60
            assert wait_until(lambda: store.leases.holder("work") is None, 5)
            assert store.leases.acquire("work").release()


def test_sqlite_goes_by_the_clock_of_whoever_asks(sqlite_url: str, clock: Moved) -> None:
    """There is no server with a clock. One who is ahead takes over early: the other's commits are refused all the same.

    One whose clock is behind waits for as long as the clock is wrong: by it, the lease lasts as long.
    """
    with ms.open(sqlite_url) as store, opened(sqlite_url, clock) as wrong:
        furnish(store)
        with store.leases.acquire("work", ttl=30.0) as lease:
            store.tables.alter(PATH, ms.SetComment("first"), lease=lease)
            clock.by["wall"] = 2 * HOUR
            ahead = wrong.leases.acquire("work", ttl=30.0)
            assert ahead.token == lease.token + 1  # type: ignore[operator]
            with pytest.raises(ms.LeaseLost):
                store.tables.alter(PATH, ms.SetComment("late"), lease=lease)
            wrong.tables.alter(PATH, ms.SetComment("second"), lease=ahead)
        with pytest.raises(ms.LeaseHeld) as held:  # the lease of one who was ahead
            store.leases.acquire("work")
        assert held.value.expires_at == ahead.expires_at
        ahead.release()
        clock.by["wall"] = -2 * HOUR
        behind = wrong.leases.acquire("work", ttl=30.0)
        lease = store.leases.acquire("work")  # to whom it looks long over
        with pytest.raises(ms.LeaseLost):
            wrong.tables.alter(PATH, ms.SetComment("late"), lease=behind)
        store.tables.alter(PATH, ms.SetComment("third"), lease=lease)
        assert store.verify() == []


def test_whoever_looks_finds_it_lost(store: ms.Store) -> None:
    """Without a heartbeat nobody runs who could set the event: looking at it, or waiting for it, is enough."""
    told: list[float] = []
    began = time.monotonic()
    lease = store.leases.acquire("work", ttl=1.0, on_lost=lambda _: told.append(time.monotonic()))
    assert not lease.lost.is_set()
    assert lease.lost.wait(0.01) is False
    assert lease.lost.wait(30.0)
    assert 1.0 <= time.monotonic() - began < 15
    assert len(told) == 1
    other = store.leases.acquire("other", ttl=30.0)
    other.release()
    assert not other.lost.is_set()  # it was given back
    assert other.lost.wait(0.01) is False


def test_it_is_told_of_a_lease_that_was_taken_away(store: ms.Store) -> None:
    """By its heartbeat, well before its time is over; and once, although many threads notice."""
    told: list[ms.Lease] = []
    with store.leases.acquire("work", ttl=30.0, renew_every=0.02, on_lost=told.append) as lease:
        assert store.leases.break_("work")
        assert lease.lost.wait(10.0)
        with ThreadPoolExecutor(8) as pool:
            errors = [done.exception() for done in [pool.submit(lease.check) for _ in range(8)]]
        assert all(isinstance(error, ms.LeaseLost) for error in errors)
        assert len(told) == 1
        assert "another caller has taken it over, or broke it" in str(errors[0])


def test_without_on_lost_a_loss_is_no_failure_of_it(store: ms.Store, caplog: pytest.LogCaptureFixture) -> None:
    with store.leases.acquire("work", ttl=30.0) as lease:
        store.leases.break_("work")
        with pytest.raises(ms.LeaseLost):
            lease.renew()
    assert "on_lost" not in caplog.text


def test_on_lost_that_raises_changes_nothing(store: ms.Store, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: ms.Lease) -> None:
        raise RuntimeError("of the caller's own")

    with store.leases.acquire("work", ttl=30.0, on_lost=fail) as lease:
        store.leases.break_("work")
        with pytest.raises(ms.LeaseLost):
            lease.renew()
    assert "on_lost of the lease 'work' raised" in caplog.text


def test_another_thread_does_not_inherit_it(store: ms.Store) -> None:
    """The number of a thread that has ended is given to the next one: that is another holder all the same."""
    found: list[tuple[int, object]] = []

    def acquire() -> None:
        try:
            lease: object = store.leases.acquire("work", ttl=30.0, owner="one")
        except ms.LeaseHeld as held:
            lease = held
        found.append((threading.get_ident(), lease))

    for _ in range(2):
        thread = threading.Thread(target=acquire)
        thread.start()
        thread.join()
        gc.collect()
    (first, lease), (second, refused) = found
    assert isinstance(lease, ms.Lease)
    if first == second:  # as it is on Linux
        assert isinstance(refused, ms.LeaseHeld)
    lease.release()


def heartbeats() -> Iterator[threading.Thread]:
    return (thread for thread in threading.enumerate() if thread.name.startswith("lease "))


def test_no_thread_stays(store: ms.Store) -> None:
    """After a release, a loss, and the end of the thread that acquired it."""
    for n in range(20):
        with store.leases.acquire("work", ttl=30.0, renew_every=0.001, on_lost=lambda _: None):
            assert len(list(heartbeats())) == 2, n
    lost = store.leases.acquire("work", ttl=30.0, renew_every=0.001)
    store.leases.break_("work")
    assert lost.lost.wait(10.0)

    def forget() -> None:
        store.leases.acquire("forgotten", ttl=1.0, renew_every=0.01, on_lost=lambda _: None)

    thread = threading.Thread(target=forget)
    thread.start()
    thread.join()
    assert wait_until(lambda: not list(heartbeats()), 5.0)
    assert wait_until(lambda: store.leases.holder("forgotten") is None, 5.0)


@pytest.mark.parametrize("nth", [1, 2], ids=["the heartbeat", "its watch"])
def test_a_heartbeat_that_cannot_start(store: ms.Store, monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
    """Field case 44, also where the second of its threads cannot be had."""
    start, started = threading.Thread.start, 0

    def fail(thread: threading.Thread) -> None:
        nonlocal started
        started += thread.name.startswith("lease ")
        if started == nth:
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError):
            store.leases.acquire("work", renew_every=1.0, on_lost=lambda _: None)
        assert store.leases.holder("work") is None
        started = 0
        with pytest.raises(RuntimeError), store.leases.acquire("work", on_lost=lambda _: None):
            raise AssertionError("the block must not run")
    assert store.leases.holder("work") is None
    assert wait_until(lambda: not list(heartbeats()), 5.0)
    assert store.leases.acquire("work").token == 5


def test_a_lease_of_a_closed_store_is_over_although_its_time_is_not() -> None:
    with ms.open("memory://") as store:
        lease = store.leases.acquire("work", ttl=HOUR)  # nobody renews it
    with pytest.raises(ms.LeaseLost, match="its store was closed"):
        lease.check()


def test_a_release_keeps_to_the_deadline_of_its_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not to the lease's ttl: a block would end an hour late while the database does not answer."""
    left: list[float] = []

    def release(*_: object) -> bool:
        left.append(remaining(SYSTEM, math.inf))
        return True

    monkeypatch.setattr(DatabaseBook, "release", release)
    with ms.open("memory://", deadline=2.0) as store:
        for leases in (store.leases, store.bind(deadline=1.0).leases):
            assert leases.acquire(f"job {leases._deadline}", ttl=HOUR).release()
    assert 1.5 < left[0] <= 2.0
    assert 0.5 < left[1] <= 1.0


def test_a_renewal_that_is_due_now_outlives_another_wake_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another server answers, and another block of the lease begins at the same moment."""
    heart, waits = Heartbeat(_Lost(), HOUR), list[float]()

    class Wake(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            return len(waits) < 3

    monkeypatch.setattr(heart, "_wake", Wake())
    monkeypatch.setattr(heart, "_keepers", [SYSTEM.runner()])
    heart.now()
    heart._beat()
    assert waits == [HOUR, 0.0, 0.0]


class _Lost:
    clock, names = SYSTEM, ("work",)

    def seconds_left(self) -> float:
        return 2 * HOUR

    def renew(self) -> None:
        raise ms.LeaseLost("work", 1)
