"""Renewal belongs to the lease: it goes on while one of its blocks does, whoever began or ended the others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import count, permutations
from typing import Any

import pytest

import metastore as ms
import metastore.leases.heartbeat as heartbeats
import metastore.leases.hold as holds
from metastore.leases.database import DatabaseBook
from metastore.leases.validity import Instant, Validity
from tests.interrupts.raising import Raising
from tests.servers.process import wait_until


@pytest.fixture
def store() -> ms.Store:
    return ms.open("memory://")


def elsewhere(work: Callable[[], object]) -> None:
    """Do it in a thread that ends."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def renewed(lease: ms.Lease) -> bool:
    """Whether its heartbeat renews it."""
    before = lease.expires_at
    return wait_until(lambda: lease.expires_at > before, 5.0)


def block(lease: ms.Lease) -> None:
    with lease:
        pass


def test_a_block_inside_does_not_shorten_it(store: ms.Store) -> None:
    with store.leases.acquire("work", ttl=60.0) as lease:
        with store.leases.acquire("work", ttl=0.5) as inner:
            assert inner is lease
            assert lease.seconds_left() > 50
        assert lease.seconds_left() > 50


def test_a_renewal_on_its_way_does_not_shorten_a_longer_acquisition(
    store: ms.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was sent with the shorter ttl, and arrives after the renewal for the longer one."""
    book, sent, arrives = DatabaseBook.renew, threading.Event(), threading.Event()

    def late(self: DatabaseBook, grants: Any, incarnation: str, ttl: float) -> Any:
        if ttl == 30.0:
            sent.set()
            assert arrives.wait(10)
        return book(self, grants, incarnation, ttl)

    monkeypatch.setattr(DatabaseBook, "renew", late)
    lease = store.leases.acquire("work", ttl=30.0)
    renewal = threading.Thread(target=lease.renew)
    renewal.start()
    assert sent.wait(10)
    assert store.leases.acquire("work", ttl=600.0) is lease
    arrives.set()
    renewal.join()
    holder = store.leases.holder("work")
    assert holder is not None
    assert (holder.expires_at - holder.acquired_at).total_seconds() > 500


@pytest.mark.parametrize("arrives", ["before", "after"])
def test_the_late_answer_of_a_renewal_takes_nothing_from_a_later_one(
    store: ms.Store, monkeypatch: pytest.MonkeyPatch, arrives: str
) -> None:
    """Unless the renewal itself was late: then the database has its end, and others may have the lease after it."""
    book, sent, comes = DatabaseBook.renew, threading.Event(), threading.Event()

    def late(self: DatabaseBook, grants: Any, incarnation: str, ttl: float) -> Any:
        if comes.is_set():
            raise ms.BackendUnavailable("down")  # so that no further renewal helps
        answer = book(self, grants, incarnation, ttl) if arrives == "before" or ttl != 30.0 else None
        if ttl == 30.0:
            sent.set()
            assert comes.wait(10)
        return answer or book(self, grants, incarnation, ttl)

    monkeypatch.setattr(DatabaseBook, "renew", late)
    lease = store.leases.acquire("work", ttl=30.0)
    with ThreadPoolExecutor(1) as pool:
        renewal = pool.submit(lease.renew)
        assert sent.wait(10)
        assert store.leases.acquire("work", ttl=600.0) is lease
        comes.set()
        with pytest.raises(ms.BackendUnavailable):
            renewal.result()
    assert (lease.seconds_left() > 500) == (arrives == "before")
    (holder,) = store.leases.list()
    assert abs(holder.expires_at - lease.expires_at).total_seconds() < 1


def test_the_late_answer_of_a_longer_renewal_promises_nothing_that_a_later_one_took(
    store: ms.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database does the longer one first, then the shorter one, which is answered first."""
    book, sent, done = DatabaseBook.renew, threading.Event(), threading.Event()

    def crossed(self: DatabaseBook, grants: Any, incarnation: str, ttl: float) -> Any:
        if ttl == 30.0:
            sent.set()
            assert done.wait(10)
        elif done.is_set() and threading.current_thread() is renewal:
            raise ms.BackendUnavailable("down")  # so that this thread renews it no further
        answer = book(self, grants, incarnation, ttl)
        if ttl != 30.0:
            done.set()
            renewal.join(10)
        return answer

    def renew() -> None:
        with pytest.raises(ms.BackendUnavailable):
            lease.renew()

    monkeypatch.setattr(DatabaseBook, "renew", crossed)
    lease = store.leases.acquire("work", ttl=30.0)
    renewal = threading.Thread(target=renew)
    renewal.start()
    assert sent.wait(10)
    assert store.leases.acquire("work", ttl=600.0) is lease
    (holder,) = store.leases.list()
    assert lease.seconds_left() > 500
    assert abs(holder.expires_at - lease.expires_at).total_seconds() < 1


class _Clock:
    """A clock that a test moves."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    boottime = monotonic

    def micros(self) -> int:
        return int(self.now * 1_000_000)


@pytest.mark.parametrize("ttls", [(30.0, 30.0, 600.0), (30.0, 600.0, 600.0)])
def test_of_renewals_in_any_order_it_believes_in_no_later_end_than_the_database(ttls: tuple[float, ...]) -> None:
    """Each renewal is sent, done by the database, and answered. They are sent in the order of their ttls."""
    clock: Any = _Clock()
    with ms.open("memory://") as store:
        lease = store.leases.acquire("work", ttl=30.0)
        lease.clock, zero = clock, lease.expires_at - timedelta(seconds=30.0)
        orders = {one for one in permutations((0, 1, 2) * 3) if list(dict.fromkeys(one)) == [0, 1, 2]}
        for order in orders:
            clock.now = lease._answered = 0.0
            lease._last, lease._expires_at = 30.0, zero + timedelta(seconds=30.0)
            lease._validity = Validity(clock, 30.0, Instant.now(clock))
            sent, ends = dict[int, Instant](), dict[int, float]()
            for one in order:
                clock.now += 1.0
                if one not in sent:
                    sent[one] = Instant.now(clock)
                elif one not in ends:
                    ends[one] = clock.now + ttls[one]
                else:
                    answer = zero + timedelta(seconds=ends[one])
                    lease._note(answer, Validity(clock, ttls[one], sent[one]))
            assert clock.now + lease.seconds_left() <= [*ends.values()][-1], order
        assert len(orders) == 280


def test_a_block_inside_that_renews_more_often_is_heard_at_once(store: ms.Store) -> None:
    with store.leases.acquire("work", ttl=60.0) as lease, store.leases.acquire("work", ttl=60.0, renew_every=0.01):
        assert renewed(lease)


def test_the_block_of_another_thread_does_not_end_renewal(store: ms.Store) -> None:
    with store.leases.acquire("work", ttl=30.0, renew_every=0.01) as lease:
        elsewhere(lambda: block(lease))
        assert renewed(lease)
        elsewhere(lease.keep)
        assert renewed(lease)
        assert renewed(lease)


def test_a_block_goes_on_where_the_thread_that_acquired_it_ended(store: ms.Store) -> None:
    """Its heartbeat had ended by then: the block starts another one."""
    leases: list[ms.Lease] = []
    elsewhere(lambda: leases.append(store.leases.acquire("work", ttl=30.0, renew_every=0.01)))
    (lease,) = leases
    assert lease._heart.beating is not None
    lease._heart.beating.join(10)
    with lease:
        assert renewed(lease)
    assert store.leases.holder("work") is None


def test_renewal_ends_with_the_last_block(store: ms.Store) -> None:
    """One that was acquired twice, and released by one block, is left to whoever acquired it without a block."""
    lease = store.leases.acquire("work", ttl=30.0)
    with store.leases.acquire("work", ttl=30.0):
        lease._heart.sooner(0.01)
        assert renewed(lease)
    assert lease._heart.beating is not None
    lease._heart.beating.join(10)
    assert not lease._heart.beating.is_alive()
    assert store.leases.holder("work") is not None
    assert lease.release()


def test_a_lease_whose_last_block_ends_is_not_acquired_again(store: ms.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The block of another thread ends while the holder acquires it again, and releases it after that."""
    lease = store.leases.acquire("work")
    release, go_on, ends, again = lease.release, threading.Event(), threading.Event(), threading.Event()

    def last() -> bool:
        ends.set()
        assert again.wait(10)
        return release()

    def other() -> None:
        with lease:
            assert go_on.wait(10)

    def renew(*arguments: Any) -> Any:
        go_on.set()
        assert ends.wait(10)
        return book(*arguments)

    book, thread = DatabaseBook.renew, threading.Thread(target=other)
    monkeypatch.setattr(lease, "release", last)
    thread.start()
    assert wait_until(lambda: bool(lease._blocks), 10)
    monkeypatch.setattr(DatabaseBook, "renew", renew)
    assert not lease.again(30.0, None, None)
    again.set()
    thread.join()
    assert store.leases.acquire("work") is not lease


def test_an_interrupt_of_the_release_leaves_no_lease_held(store: ms.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of a block; a task that is cancelled there, too. Others would wait for the ttl."""
    lease = store.leases.acquire("work", ttl=60.0)
    release, times = lease._book.release, iter([True])

    def interrupted(*arguments: Any) -> bool:
        if next(times, False):
            raise KeyboardInterrupt
        return release(*arguments)

    monkeypatch.setattr(lease._book, "release", interrupted)
    with pytest.raises(KeyboardInterrupt):
        block(lease)
    assert store.leases.holder("work", expired=True) is None


def test_an_interrupt_at_any_line_of_a_block_leaves_no_lease_that_is_renewed(store: ms.Store) -> None:
    """Others would wait for as long as the thread lives. Two lines remain: the last to begin, the first to end."""
    left = 0
    for at in count(1):
        lease = store.leases.acquire(f"work {at}", ttl=60.0)
        raising = Raising({holds.__file__, heartbeats.__file__}, at, KeyboardInterrupt)
        with suppress(KeyboardInterrupt):
            raising.run(partial(block, lease))
        left += store.leases.holder(lease.name) is not None and lease._heart._beats
        lease.end()
        if raising.left:
            break
    assert at > 40
    assert left <= 2
