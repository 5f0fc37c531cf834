"""What was staged: published once, in the order of staging; handed over to be cleaned up only if nobody sees it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore.backends.memory.leases import MemoryLeases
from tests.concurrency.raw import connect
from tests.leases.test_schedules import world_of

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

KEY, OLD, NEW = "metadata_location", "s3://b/v1.json", "s3://b/v2.json"


@pytest.fixture
def table(store: ms.Store) -> ms.Table:
    store.metalakes.create("lake")
    store.catalogs.create("lake.c", type="relational")
    return store.tables.create("lake.c.s.t", parents=True)


def left(store: ms.Store) -> list[str]:
    """Return what gc hands over."""
    found: list[str] = []
    store.gc(clean_up=lambda work: found.append(work.value))
    return found


def lost(store: ms.Store, table: ms.Table, value: str) -> None:
    """Stage something under a lease that is lost before it is published."""
    late = store.leases.acquire("job", owner="late")
    late.stage(table, KEY, value)
    store.leases.break_("job")
    with pytest.raises(ms.LeaseLost):
        late.publish()


def test_what_was_published_under_the_next_token_is_not_garbage(store: ms.Store, table: ms.Table) -> None:
    lost(store, table, OLD)
    with store.leases.acquire("job", owner="again") as lease:
        lease.stage(table, KEY, OLD)
        lease.publish()
    assert left(store) == []
    store.tables.alter(table, ms.SetProperty(KEY, "another"))  # not even when it is not shown any more
    assert left(store) == []


def test_what_is_staged_again_is_not_garbage_yet(store: ms.Store, table: ms.Table) -> None:
    lost(store, table, OLD)
    with store.leases.acquire("job", owner="again") as lease:
        lease.stage(table, KEY, OLD)
        assert left(store) == []
        lease.publish()
    assert left(store) == []
    lost(store, table, NEW)
    with store.leases.acquire("job", owner="again") as lease:
        lease.stage(table, KEY, NEW)
    assert left(store) == [NEW, NEW]  # nobody publishes it any more


def test_what_an_entity_shows_is_not_garbage(store: ms.Store, table: ms.Table) -> None:
    with store.leases.acquire("job") as lease:
        lease.stage(table, KEY, OLD)
        store.tables.alter(table, ms.SetProperty(KEY, OLD), lease=lease)
    assert left(store) == []
    store.tables.alter(table, ms.SetProperty(KEY, NEW))  # nor later: it was visible
    assert left(store) == []


def test_what_was_published_is_remembered_as_long_as_it_is_left_behind_too(store: ms.Store, table: ms.Table) -> None:
    lost(store, table, OLD)
    with store.leases.acquire("job", owner="again") as lease:
        lease.stage(table, KEY, OLD)
        lease.publish()
    store.tables.alter(table, ms.SetProperty(KEY, NEW))
    store._session.backend.leases.forget_published()
    assert left(store) == []


def test_one_value_for_several_things(store: ms.Store, table: ms.Table) -> None:
    with store.leases.acquire("job") as lease:
        for key, value in (("a", OLD), ("a", NEW), ("b", OLD)):
            lease.stage(table, key, value)
        (found,) = lease.publish()
        assert found.properties == {"a": NEW, "b": OLD}
        lease.stage(table, "a", NEW)
    assert left(store) == []


def test_what_no_entity_could_hold_is_not_staged(
    store: ms.Store, table: ms.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metastore.leases.staging.MAX_DOC", 10)
    with store.leases.acquire("job") as lease:
        for value in ("", "a\0b", "x" * 11):
            with pytest.raises(ms.InvalidArgument):
                lease.stage(table, "k", value)
        with pytest.raises(ms.InvalidArgument, match="an entity that was loaded"):
            lease.stage("m.c.s.t", KEY, OLD)  # type: ignore[arg-type]
        lease.stage(table, "k", "x" * 10)
        assert lease.publish()[0].properties["k"] == "x" * 10


def test_a_function_writes_in_the_commit_that_publishes(store: ms.Store, table: ms.Table) -> None:
    with store.leases.acquire("job") as lease:
        lease.stage(table, KEY, NEW)
        (found,) = lease.publish(lambda tx: tx.partitions.create(table, "p", values={}))
        assert found.properties[KEY] == NEW
        assert list(store.partitions.names(table)) == ["p"]
        assert len({change.operation_id for change in list(store.changes())[-2:]}) == 1
        lease.stage(table, KEY, OLD)
        with pytest.raises(ms.EntityAlreadyExists):
            lease.publish(lambda tx: tx.partitions.create(table, "p", values={}))
        assert store.tables.load(table).properties[KEY] == NEW, "nothing is published"


def test_what_is_being_cleaned_up_cannot_be_staged(store: ms.Store, table: ms.Table) -> None:
    """Else it would be published, and gone. What else was left behind still can."""
    lost(store, table, OLD)
    lost(store, table, NEW)
    lease = store.leases.acquire("job", owner="again")
    cleaned: list[str] = []

    def clean_up(work: ms.LeftBehind) -> None:
        cleaned.append(work.value)
        with pytest.raises(ms.InvalidArgument, match="is cleaning it up"):
            lease.stage(table, KEY, work.value)
        lease.stage(table, KEY, NEW if work.value == OLD else OLD)

    assert store.gc(clean_up=clean_up).staged == 1
    (found,) = lease.publish()
    assert {found.properties[KEY], *cleaned} == {OLD, NEW}


def test_a_clean_up_that_fails_comes_again(store: ms.Store, table: ms.Table) -> None:
    lost(store, table, OLD)

    def clean_up(work: ms.LeftBehind) -> None:
        raise OSError("the bucket does not answer")

    for _ in range(2):
        with pytest.raises(OSError, match="bucket"):
            store.gc(clean_up=clean_up)
    assert left(store) == [OLD]
    assert left(store) == []


def test_without_a_clean_up_it_waits(store: ms.Store, table: ms.Table) -> None:
    lost(store, table, OLD)
    assert store.gc().staged == 0
    assert left(store) == [OLD]


@pytest.mark.parametrize("gone", ["dropped", "purged"])
def test_what_is_gone_does_not_hold_up_the_rest(store: ms.Store, table: ms.Table, gone: str) -> None:
    other = store.tables.create("lake.c.s.u")
    with store.leases.acquire("job") as lease:
        lease.stage(table, KEY, OLD)
        lease.stage(other, KEY, NEW)
        pending = store.tables.begin_drop(table)
        with pytest.raises(ms.DropPending, match=r"is dropping .* in steps"):
            lease.publish()
        pending.roll_back()
        assert store.tables.drop(table) if gone == "dropped" else store.tables.purge(table)
        with pytest.raises(ms.EntityNotFound, match="publish the rest with only="):
            lease.publish()
        (found,) = lease.publish(only=[other])
        assert found.properties[KEY] == NEW
    assert left(store) == [OLD]


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
def test_the_order_is_that_of_staging_whatever_the_clock_says(backend: str) -> None:
    world = world_of(backend, 1)
    world.acquire(0)
    assert world.stage(0, OLD) == "done"
    for clock in (world.database, *world.clocks):
        clock.wall -= 3600.0
    assert world.stage(0, NEW) == "done"
    assert world.publish(0) == "1"
    assert world.store.metalakes.load("lake").properties["pointer"] == NEW


def test_a_published_value_stays_so_when_the_same_is_published_twice(store: ms.Store, table: ms.Table) -> None:
    lease = store.leases.acquire("job")
    child = store.leases.join("job", lease.token or 0)
    lease.stage(table, KEY, OLD)
    assert [e.version for e in child.publish()] == [2]
    assert lease.publish() == ()
    with pytest.raises(ms.InvalidArgument, match="this process joined it"):
        child.renew()
    assert child.release() is False
    lease.release()
    assert left(store) == []


# --- what a re-entrant acquire, a loss and a close come to


def test_acquired_again_it_is_renewed(store: ms.Store) -> None:
    told: list[str] = []
    first = store.leases.acquire("job", ttl=60.0)
    again = store.leases.acquire("job", ttl=600.0, renew_every=100.0, on_lost=lambda lease: told.append(lease.name))
    assert again is first
    holder = store.leases.holder("job")
    assert holder is not None
    assert (holder.expires_at - holder.acquired_at).total_seconds() > 500
    store.leases.break_("job")
    third = store.leases.acquire("job")
    assert (first.token, third.token) == (1, 3)
    assert told == ["job"]


def test_on_lost_may_acquire_anew(store: ms.Store) -> None:
    """It is what one does then; nobody may be kept waiting by it."""
    held: list[int | None] = []
    done = threading.Event()

    def anew(lease: ms.Lease) -> None:
        held.append(store.leases.acquire(lease.name, owner="anew", timeout=20.0).token)
        done.set()

    store.leases.acquire("job", ttl=1.0, on_lost=anew)
    assert done.wait(30)
    assert held == [2]
    assert store.leases.acquire("another").token == 1


def test_a_ttl_that_is_over_before_its_answer(store: ms.Store) -> None:
    with pytest.raises(ms.InvalidArgument, match="would end before the answer comes"):
        store.leases.acquire("job", ttl=0.001)
    assert list(store.changes()) == []


def test_an_expired_lease_cannot_be_joined(store: ms.Store) -> None:
    lease = store.leases.acquire("job", ttl=0.7)
    while store.leases.holder("job") is not None:
        lease.lost.wait(0.01)
    with pytest.raises(ms.LeaseLost):
        store.leases.join("job", 1)


@pytest.mark.parametrize("ending", [ms.Store.close, lambda store: store.__exit__(None, None, None)])
def test_46_close_gives_back_and_release_after_it_is_nothing(url: str, ending: Callable[[ms.Store], None]) -> None:
    store = ms.open(url)
    lease = store.leases.acquire("job", renew_every=5.0)
    ending(store)
    assert lease.release() is False
    with pytest.raises(ms.LeaseLost, match="released"):
        lease.check()
    with ms.open(url) as other:
        assert other.leases.acquire("job").token == 3
        assert other.verify() == []


def test_the_audit_shows_all_that_a_transaction_wrote(store: ms.Store, table: ms.Table) -> None:
    with store.leases.acquire("job") as lease, store.transaction(lease=lease) as tx:
        for n in range(3):
            tx.tables.create(f"lake.c.s.new{n}")
    assert [e.path for e in store.leases.audit("job") if e.action == "commit"] == [f"lake.c.s.new{n}" for n in range(3)]


def test_a_waiter_from_the_future_is_no_waiter(url: str) -> None:
    """A clock that was set back must not leave a lease that nobody can take."""
    with ms.open(url) as store:
        store.leases.acquire("job").release()
        with connect(url) as raw:
            raw.execute(
                "INSERT INTO lease_waiter (name, ticket, owner, alive_until) VALUES ('job', 1, 'x', 9000000000000000)"
            )
        assert store.leases.acquire("job").token == 3
        holder = store.leases.holder("job")
        assert holder is not None
        assert holder.waiting == 0


def test_staged_under_a_lease_that_is_kept_elsewhere(store: ms.Store, table: ms.Table, tmp_path: Path) -> None:
    with ms.ObjectStoreLeases(tmp_path, store=store) as leases:
        with leases.acquire("job") as lease:
            lease.stage(table, KEY, OLD)
            (found,) = lease.publish()
            assert found.properties[KEY] == OLD
        late = leases.acquire("job")
        late.stage(table, KEY, NEW)
        leases.break_("job")
        with pytest.raises(ms.LeaseLost):
            late.publish()
    assert left(store) == [NEW]
    assert store.tables.load(table).properties[KEY] == OLD


def test_nothing_stays_staged_for_the_entity_that_took_a_lost_one_s_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another server took over while the value was written. It lacks the entity, and gave the id to another one."""
    with ms.open("memory://", principal="tester") as store:
        store.metalakes.create("lake")
        taken = store.catalogs.create("lake.cat", type="relational")
        lost = type(taken)(taken.record._replace(created_at=1, modified_at=1), taken.origin)
        backend, stage = store._session.backend, MemoryLeases.stage

        def staged(*arguments: Any) -> Any:
            answer = stage(*arguments)
            monkeypatch.setattr(backend, "_origin", replace(backend.origin, run="of another server"))
            return answer

        monkeypatch.setattr(MemoryLeases, "stage", staged)
        with store.leases.acquire("work") as lease:
            with pytest.raises(ms.EntityNotFound):
                lease.stage(lost, "key", "value")
            assert lease.publish() == ()
            assert store.catalogs.load("lake.cat").properties == {}
