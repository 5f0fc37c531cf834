"""A lease belongs to the process that acquired it: what is forked from it, or given it, holds nothing."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest

import metastore as ms
from tests.leases.kinds_of_work import S, furnish
from tests.servers.process import wait_until

PATH = f"{S}.t"
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


def in_a_child(do: Callable[[], object]) -> None:
    """Fork, do it there, and let the child end as a program does."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(60)
            do()
            os.write(writing, b"done")
        except BaseException:  # noqa: BLE001  (the parent raises it)
            os.write(writing, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    assert said == "done", said


def test_a_forked_child_leaves_a_block_whatever_the_parent_was_doing(store: ms.Store) -> None:
    with store.leases.acquire("work", ttl=30.0) as lease, lease._guard, lease._heart._guard:
        in_a_child(lambda: lease.__exit__(None, None, None))


def test_a_forked_child_holds_nothing(store: ms.Store) -> None:
    furnish(store)
    told: list[ms.Lease] = []
    with store.leases.acquire("work", ttl=30.0, renew_every=0.05, owner="we", on_lost=told.append) as lease:

        def child() -> None:
            assert lease.lost.is_set()
            for use in (
                lease.check,
                lease.renew,
                lease.publish,
                lambda: lease.stage(store.tables.load(PATH), "k", "v"),
                lambda: store.tables.alter(PATH, ms.SetComment("child"), lease=lease),
                lambda: store.run(lambda tx: tx.tables.drop(PATH), lease=lease),
            ):
                with pytest.raises(ms.LeaseLost, match="not to its child"):
                    use()
            assert lease.release() is False
            lease.__exit__(None, None, None)
            assert told == []
            with pytest.raises(ms.LeaseHeld) as held:  # it is another holder, even of the same name
                store.leases.acquire("work", owner="we")
            assert held.value.owner == "we"
            with store.leases.acquire("the child's own", ttl=30.0) as own:
                assert own.token == 1
                assert own.incarnation != lease.incarnation
                store.tables.alter(PATH, ms.SetComment("child"), lease=own)
                view = store.bind(principal="child")
                assert view.leases.acquire("the child's own") is own  # views share what the child holds
            store.leases.acquire("left behind", ttl=1.0)
            joined = store.leases.join("work", lease.token or 0)
            store.tables.alter(PATH, ms.SetProperty("joined", "yes"), lease=joined)  # the way to work below a holder

        in_a_child(child)
        expires_at = lease.expires_at
        assert wait_until(lambda: lease.expires_at > expires_at, 5.0)  # the heartbeat goes on
        store.tables.alter(PATH, ms.SetComment("parent"), lease=lease)
        assert wait_until(lambda: store.leases.holder("left behind") is None, 5.0)
        holder = store.leases.holder("work")
        assert holder is not None
        assert (holder.token, holder.incarnation) == (lease.token, lease.incarnation)
    assert told == []
    assert store.tables.load(PATH).properties["joined"] == "yes"
    assert store.leases.holder("work") is None


def test_two_who_were_forked_from_one_exclude_each_other(store: ms.Store) -> None:
    """Also when the parent held nothing: each child is a holder of its own, with the same default owner or not."""
    store.leases.acquire("before").release()
    held = multiprocessing.get_context("fork").Event()
    over = multiprocessing.get_context("fork").Event()

    def first() -> None:
        with store.leases.acquire("work", owner="one"):
            held.set()
            assert over.wait(20)

    process = multiprocessing.get_context("fork").Process(target=first)
    process.start()
    assert held.wait(20)
    with pytest.raises(ms.LeaseHeld):
        store.leases.acquire("work", owner="one")
    over.set()
    process.join(20)
    assert process.exitcode == 0
    assert store.leases.acquire("work", owner="one").token == 3


def _try_it(url: str, name: str, token: int, pipe: Connection) -> None:
    with ms.open(url) as store:
        try:
            store.leases.acquire(name, owner="we")
            pipe.send("acquired")
        except ms.LeaseHeld:
            joined = store.leases.join(name, token)
            store.tables.alter(PATH, ms.SetComment("spawned"), lease=joined)
            pipe.send(f"held, joined, {joined.release()}")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(store: ms.Store, url: str, method: str) -> None:
    """A lease is not handed over: it cannot be pickled; who works below joins by its name and token."""
    furnish(store)
    context = multiprocessing.get_context(method)
    with store.leases.acquire("work", owner="we") as lease:
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(lease)
        ours, theirs = multiprocessing.Pipe()
        process = context.Process(target=_try_it, args=(url, "work", lease.token, theirs))  # type: ignore[attr-defined]
        process.start()
        assert ours.poll(30)
        assert ours.recv() == "held, joined, False"
        process.join(30)
        assert process.exitcode == 0
        store.tables.alter(PATH, ms.SetComment("parent"), lease=lease)
    with pytest.raises(ms.LeaseLost):
        store.leases.join("work", lease.token or 0)
