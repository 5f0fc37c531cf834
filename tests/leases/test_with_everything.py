"""Commits under a lease meet all the rest: intents, marks, freezes, operation ids, transactions, gc, other stores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

import metastore as ms
from metastore.transaction.transaction import Transaction
from tests.concurrency.checks import violations
from tests.concurrency.raw import rows
from tests.leases.fencing import late_commits
from tests.leases.kinds_of_work import S, furnish
from tests.leases.test_races import ENTITY, GUARD, in_the_middle
from tests.progress.hooks import announces, before
from tests.progress.parked import Parked
from tests.servers.process import wait_until

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

PATH = f"{S}.t"


@pytest.fixture
def ready(store: ms.Store, url: str) -> Iterator[ms.Store]:
    furnish(store)
    yield store
    assert late_commits(url) == []
    assert violations(url) == []


def intents(url: str) -> int:
    sql = "SELECT count(*) FROM operation WHERE action IN ('pending', 'expired', 'cancelled') OR deadline IS NOT NULL"
    return int(rows(url, sql)[0][0])


def test_it_is_never_announced(ready: ms.Store, url: str) -> None:
    """On a hot entity, and against an adversary: a helper would not hold the lease."""
    with ready.leases.acquire("work") as lease, ms.open(url) as other:
        announces(ready, ready.tables.load(PATH))
        ready.tables.alter(PATH, ms.SetComment("hot"), lease=lease)
        assert intents(url) == 0
        numbers = iter(range(100))

        def adversary() -> None:
            other.tables.alter(PATH, ms.SetProperty("n", str(next(numbers))))

        with before(ready, adversary, times=3) as seen:
            found = ready.tables.alter(PATH, ms.SetProperty("mine", "yes"), lease=lease)
        assert seen == ["commit"] * 3
        assert found.properties["n"] == "2"
        assert intents(url) == 0
        announces(ready, found)  # the control
        ready.tables.alter(PATH, ms.SetComment("without a lease"))
        assert intents(url) == 1


def _announce(store: ms.Store) -> None:
    announces(store, store.tables.load(PATH))
    store.tables.alter(PATH, ms.SetProperty("parked", "yes"))


def test_it_brings_along_what_others_have_announced(ready: ms.Store, url: str) -> None:
    """Their operation is applied without the lease's token, ours with it."""
    with ready.leases.acquire("work") as lease, Parked(url, "pending", _announce) as parked:
        ready.tables.alter(PATH, ms.SetProperty("mine", "yes"), lease=lease)
        assert ready.tables.load(PATH).properties == {"k": "v", "parked": "yes", "mine": "yes"}
        assert [event.principal for event in ready.leases.audit("work") if event.action == "commit"] == ["tester"]
        assert parked.go_on()[0] == "returned"


def test_a_late_holder_may_help_and_changes_nothing_himself(ready: ms.Store, url: str) -> None:
    lease = ready.leases.acquire("work")
    with Parked(url, "pending", _announce) as parked, ms.open(url) as other:
        with before(ready, lambda: other.leases.break_("work"), times=1), pytest.raises(ms.LeaseLost):
            ready.tables.alter(PATH, ms.SetProperty("mine", "yes"), lease=lease)
        assert "mine" not in ready.tables.load(PATH).properties
        parked.go_on()
        assert ready.tables.load(PATH).properties["parked"] == "yes"


def test_it_steps_aside_for_a_freeze(ready: ms.Store, url: str) -> None:
    with ready.leases.acquire("work") as lease, ms.open(url) as other, ThreadPoolExecutor(1) as pool:
        with other.schemas.exclusive(S) as tx:
            with pytest.raises(ms.ScopeFrozen):
                ready.tables.alter(PATH, ms.SetComment("frozen"), lease=lease, deadline=1.0)
            assert not lease.lost.is_set()
            waiting = pool.submit(ready.tables.alter, PATH, ms.SetComment("later"), lease=lease)
            tx.tables.alter(PATH, ms.SetProperty("frozen", "yes"))
        assert waiting.result(20).properties["frozen"] == "yes"


@pytest.mark.parametrize("how", ["rename", "drop"])
def test_an_exclusive_operation_that_loses_its_lease_leaves_no_mark(postgres_url: str, how: str) -> None:
    """Its first attempt met a sharer, so that it has marked the scope; then the lease is taken over."""
    with ms.open(postgres_url) as store, ms.open(postgres_url) as other:
        furnish(store)
        lease = store.leases.acquire("work")
        calls = 0

        def taken() -> None:
            nonlocal calls
            calls += 1
            if calls == 2:
                assert rows(postgres_url, "SELECT count(*) FROM guard WHERE mark IS NOT NULL") == [(1,)]
                blocked.__exit__(None, None, None)
                other.leases.break_("work")

        blocked = in_the_middle(postgres_url, GUARD)
        blocked.__enter__()
        acts: dict[str, Callable[[], object]] = {
            "rename": lambda: store.tables.rename(PATH, "renamed", lease=lease),
            "drop": lambda: store.tables.drop(PATH, lease=lease),
        }
        with before(store, taken, calls=("commit",)), pytest.raises(ms.LeaseLost):
            acts[how]()
        assert calls == 2
        assert rows(postgres_url, "SELECT id FROM guard WHERE mark IS NOT NULL") == []
        other.tables.alter(PATH, ms.SetComment("nobody is in the way"), deadline=2.0)
    assert violations(postgres_url) == []


@pytest.mark.parametrize("first", ["applied", "never"])
def test_a_repeat_after_the_loss_returns_what_was_applied(ready: ms.Store, url: str, first: str) -> None:
    """Else it says that the lease is lost, and applies nothing. Whether the database finds the loss, or it is known."""
    lease = ready.leases.acquire("work")
    ids = {"applied": ms.new_operation_id(), "never": ms.new_operation_id()}

    def act(which: str) -> ms.Table:
        return ready.tables.alter(PATH, ms.SetComment(which), operation_id=ids[which], lease=lease)

    found = act("applied")
    with ms.open(url) as other:
        other.leases.break_("work")
        for which in (first, "applied", "never", "applied"):
            if which == "applied":
                assert act(which) == found
                continue
            with pytest.raises(ms.LeaseLost):
                act(which)
        assert lease.lost.is_set()
        assert [other.outcome(ids[which]).state for which in ids] == ["committed", "unknown"]
    assert ready.tables.alter(PATH, ms.SetComment("never"), operation_id=ids["never"]).comment == "never"  # it may yet


def test_a_transaction_takes_its_lease_as_a_whole(ready: ms.Store) -> None:
    with ready.leases.acquire("work") as lease, ready.transaction() as tx:
        with pytest.raises(ms.InvalidArgument, match="give the lease to it"):
            tx.tables.alter(PATH, ms.SetComment("x"), lease=lease)
        with pytest.raises(ms.InvalidArgument):
            tx.tables.create(f"{S}.n", lease=lease)


def test_a_transaction_that_only_reads_is_fenced_too(ready: ms.Store, url: str) -> None:
    """What it read was read while the lease held."""
    lease = ready.leases.acquire("work")
    with ms.open(url) as other:

        def read(tx: Transaction) -> None:
            tx.tables.load(PATH)
            other.leases.break_("work")

        with pytest.raises(ms.LeaseLost):
            ready.run(read, lease=lease)


def _note_the_comment(tx: Transaction) -> None:
    tx.tables.alter(PATH, ms.SetProperty("n", tx.tables.load(PATH).comment or ""))


def test_conflicts_are_retried_under_the_lease(ready: ms.Store, url: str) -> None:
    with ready.leases.acquire("work") as lease, ms.open(url) as other:
        with before(ready, lambda: other.tables.alter(PATH, ms.SetComment(str(time.monotonic_ns()))), times=2):
            ready.run(_note_the_comment, lease=lease)
        found = ready.tables.load(PATH)
        assert found.properties["n"] == found.comment
        with pytest.raises(ms.VersionConflict):
            ready.tables.alter(PATH, ms.SetComment("x"), expected_version=1, lease=lease)
        with pytest.raises(ms.EntityAlreadyExists):
            ready.tables.create(PATH, lease=lease)
        assert not lease.lost.is_set()


def test_several_leases_in_one_commit(ready: ms.Store, url: str) -> None:
    """All of them must hold; the trail of each has the commit."""
    leases = ready.leases.acquire_many(["one", "two", "three"])
    ready.tables.alter(PATH, ms.SetComment("all"), lease=leases)
    assert [[e.action for e in ready.leases.audit(name)] for name in leases] == [["acquire", "commit"]] * 3
    with ms.open(url) as other:
        other.leases.break_("two")
    for act in (
        lambda: ready.tables.alter(PATH, ms.SetComment("two of them"), lease=leases),
        lambda: ready.run(lambda tx: tx.tables.drop(PATH), lease=leases),
        leases.renew,
    ):
        with pytest.raises(ms.LeaseLost):
            act()
    assert ready.tables.load(PATH).comment == "all"
    assert leases.release()  # what is still ours
    assert list(ready.leases.list()) == []


def test_history_that_gc_has_taken_leaves_the_lease_as_it_is(store: ms.Store) -> None:
    """Tokens go on growing, even after their holders are forgotten; a holder keeps its lease."""
    furnish(store)
    ready, held = store, store.leases.acquire("held")
    for n in range(5):
        with ready.leases.acquire("work") as lease:
            ready.tables.alter(PATH, ms.SetComment(str(n)), lease=lease)
    ready.gc(retention=timedelta(0), keep_versions=1)
    assert ready.leases.acquire("work").token == 11
    ready.tables.alter(PATH, ms.SetComment("still"), lease=held)
    assert ready.verify() == []


def test_a_token_of_another_database_never_passes(ready: ms.Store, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same name and the same number: but not the same holder."""
    with ms.open(f"sqlite:///{tmp_path_factory.mktemp('other') / 'other.db'}") as other:
        foreign = other.leases.acquire("work")
        more = other.leases.acquire_many(["more", "of them"])
        ready.leases.acquire_many(["work", "more", "of them"])
        assert foreign.token == 1
        with pytest.raises(ms.InvalidArgument, match="kept elsewhere"):
            ready.tables.alter(PATH, ms.SetComment("foreign"), lease=foreign)
        with pytest.raises(ms.InvalidArgument, match="kept elsewhere"):
            ready.run(lambda tx: tx.tables.drop(PATH), lease=more)
        foreign.check()  # where it is kept, it holds
        assert ready.tables.load(PATH).comment is None


def test_a_commit_keeps_nobody_from_renewing(postgres_url: str) -> None:
    """And a renewal in the middle keeps no commit waiting: they touch different things of one row."""
    with ms.open(postgres_url) as store, ThreadPoolExecutor(1) as pool:
        furnish(store)
        with store.leases.acquire("work") as lease:
            with in_the_middle(postgres_url, ENTITY):
                committing = pool.submit(store.tables.alter, PATH, ms.SetComment("slow"), lease=lease)
                waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                assert wait_until(lambda: rows(postgres_url, waits) == [(1,)], 10)
                before_it = lease.expires_at
                lease.renew()
                assert lease.expires_at > before_it
            assert committing.result(10).comment == "slow"
            renewing = "UPDATE lease SET expires_at = expires_at + 1 WHERE name = 'work'"
            with in_the_middle(postgres_url, renewing):
                store.tables.alter(PATH, ms.SetComment("fast"), lease=lease, deadline=2.0)
    assert violations(postgres_url) == []
