"""Leases on object storage that fence the commits of a store: its tokens are those of the lock file, or its own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore.clock import SYSTEM
from tests.concurrency.raw import connect
from tests.leases.worlds import Time, client, s3_options
from tests.servers.s3 import S3Server

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite


@pytest.fixture
def catalog(store: ms.Store) -> ms.Store:
    store.metalakes.create("lake")
    store.catalogs.create("lake.c", type="relational")
    store.tables.create("lake.c.s.t", parents=True)
    return store


@pytest.fixture(params=["metastore", "hudi"])
def opened(request: pytest.FixtureRequest, locks_server: S3Server, bucket: str, catalog: ms.Store) -> Any:
    """Open the same place again and again, each time as another holder."""
    time = Time([SYSTEM.monotonic()])  # deadlines hold for the store, too, whose clock is the machine's

    def another() -> ms.ObjectStoreLeases:
        options = s3_options(locks_server.url)
        return ms.ObjectStoreLeases(
            f"s3://{bucket}/l", store=catalog, format=request.param, clock=time, request_timeout=5.0, **options
        )

    another.time = time  # type: ignore[attr-defined]
    return another


def comment(store: ms.Store, lease: ms.Lease, text: str) -> None:
    store.tables.alter("lake.c.s.t", ms.SetComment(text), lease=lease)


def said(store: ms.Store) -> str | None:
    return store.tables.load("lake.c.s.t").comment


def test_a_commit_needs_the_token_that_was_noted(opened: Any, catalog: ms.Store) -> None:
    leases = opened()
    lease = leases.acquire("job", owner="ada")
    (fence,) = lease.tokens()
    assert fence.name == leases.name_in_store("job")
    comment(catalog, lease, "mine")
    lease.renew()
    comment(catalog, lease, "still mine")
    assert said(catalog) == "still mine"
    assert [event.action for event in catalog.leases.audit(fence.name)] == ["mirror", "commit", "commit"]


def test_52_a_holder_who_was_taken_over_changes_nothing(opened: Any, catalog: ms.Store) -> None:
    late = opened().acquire("job", owner="late", ttl=30.0)
    opened.time.go(40)
    now = opened().acquire("job", owner="now", ttl=30.0)
    opened.time.go(-40)  # its clock stood still: it believes that it holds
    late.check()
    with pytest.raises(ms.LeaseLost):
        comment(catalog, late, "late")
    comment(catalog, now, "now")
    assert said(catalog) == "now"


def test_a_broken_lease_commits_nothing(opened: Any, catalog: ms.Store) -> None:
    lease = opened().acquire("job")
    lease.check()
    assert opened().break_("job")
    with pytest.raises(ms.LeaseLost):
        comment(catalog, lease, "late")
    assert said(catalog) is None


def test_what_was_released_fences_also_those_who_were_told_its_token(opened: Any, catalog: ms.Store) -> None:
    leases = opened()
    lease = leases.acquire("job")
    if lease.token is None:
        return
    joined = leases.join("job", lease.token)
    comment(catalog, joined, "joined")
    lease.release()
    with pytest.raises(ms.LeaseLost):
        comment(catalog, joined, "late")
    assert said(catalog) == "joined"


def test_a_late_release_does_not_fence_the_next_holder(opened: Any, catalog: ms.Store) -> None:
    late = opened().acquire("job", owner="late", ttl=30.0)
    opened.time.go(40)
    now = opened().acquire("job", owner="now", ttl=30.0)
    assert not late.release()
    comment(catalog, now, "now")
    assert said(catalog) == "now"


def test_nobody_is_told_that_he_holds_before_the_store_knows(
    opened: Any, catalog: ms.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = opened()

    def down(*_: object) -> None:
        raise ms.BackendUnavailable("the database is down")

    with monkeypatch.context() as patched:
        patched.setattr(leases._notes, "note", down)
        with pytest.raises(ms.BackendUnavailable):
            leases.acquire("job")
    assert leases.holder("job") is None
    opened().acquire("job")


def test_a_lock_file_that_was_removed_gives_no_old_token(
    opened: Any, catalog: ms.Store, locks_server: S3Server, bucket: str
) -> None:
    """The next holder has a greater token at once; also one of the same process, whose number would be the same."""
    leases = opened()
    late = leases.acquire("job", owner="late")
    for owner in ("other", "late"):
        remove(locks_server, bucket, "job")
        lease = leases.acquire("job", owner=owner)
        assert lease.tokens()[0].token > late.tokens()[0].token
        assert lease.token in (None, lease.tokens()[0].token)
        with pytest.raises(ms.LeaseLost):
            comment(catalog, late, "late")
        comment(catalog, lease, owner)
        late = lease
    assert opened().holder("job").owner == "late"
    assert late.release()
    assert opened().acquire("job").release()


def remove(server: S3Server, bucket: str, name: str) -> None:
    s3 = client(server)
    for key in (f"l/{name}.json", f"l/{name}/.hoodie/.locks/table_lock.json"):
        s3.delete_object(Bucket=bucket, Key=key)


def test_who_was_broken_before_the_store_knew_gets_nothing(opened: Any, catalog: ms.Store) -> None:
    """The lock file names the next holder: that one has the lease, in the store as well."""
    leases, others = opened(), opened()
    note = leases._notes.note
    now: list[ms.Lease] = []

    def broken_first(*arguments: Any) -> Any:
        if not now:
            assert others.break_("job")
            now.append(others.acquire("job", owner="now"))
        return note(*arguments)

    leases._notes.note = broken_first
    with pytest.raises(ms.LeaseHeld):
        leases.acquire("job", owner="broken")
    comment(catalog, now[0], "now")
    assert others.holder("job").owner == "now"


def test_a_release_that_failed_half_way_can_be_repeated(opened: Any, catalog: ms.Store) -> None:
    leases = opened()
    lease = leases.acquire("job")
    (fence,) = lease.tokens()
    end = leases._notes.end
    failed: list[object] = []

    def fail_once(*arguments: Any) -> None:
        if not failed:
            failed.append(arguments)
            raise ms.BackendUnavailable("the database is down")
        end(*arguments)

    leases._notes.end = fail_once
    with pytest.raises(ms.BackendUnavailable):
        lease.release()
    assert opened().holder("job") is None
    assert catalog.leases.noted(fence.name) == fence.token
    assert lease.release()
    assert catalog.leases.noted(fence.name) == fence.token + 1
    assert not lease.release()


def test_a_token_that_a_fail_over_lost_is_noted_again(tmp_path: Path) -> None:
    url, backup = f"sqlite:///{tmp_path}/a.db", tmp_path / "backup.db"
    with ms.open(url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        store.tables.create("lake.c.s.t", parents=True)
        leases = ms.ObjectStoreLeases(str(tmp_path / "locks"), store=store)
        early = leases.acquire("job", owner="early")
        store.backup(backup)
        leases.break_("job")
        now = leases.acquire("job", owner="now")
        with connect(f"sqlite:///{backup}") as lost, connect(url) as there:
            lost.backup(there)
        with pytest.raises(ms.InvalidArgument, match="call again"):
            comment(store, now, "now")
        comment(store, now, "now")
        with pytest.raises(ms.LeaseLost):
            comment(store, early, "early")
        assert said(store) == "now"


def test_a_late_repetition_of_a_release_takes_nothing_from_the_next_holder(opened: Any, catalog: ms.Store) -> None:
    leases = opened()
    lease = leases.acquire("job", owner="late")
    grants, incarnation = lease._grants, lease.incarnation
    assert lease.release()
    now = opened().acquire("job", owner="now")
    leases._book.release(grants, incarnation)
    comment(catalog, now, "now")
    assert said(catalog) == "now"


def test_a_name_that_the_store_cannot_have_is_refused_before_anything_is_written(
    opened: Any, locks_server: S3Server, bucket: str
) -> None:
    if opened().name_in_store("x" * 9).endswith("table_lock"):
        return  # Hudi's lock files have one name in the store, whatever the table's is
    client(locks_server).delete_object(Bucket=bucket, Key="l/.metastore-place")
    with pytest.raises(ms.InvalidArgument, match="255"):
        opened().acquire("x" * 240)
    assert "Contents" not in client(locks_server).list_objects_v2(Bucket=bucket)


def test_an_async_store_is_refused() -> None:
    """Nobody would wait for its answers: the tokens would never be noted."""

    async def refused() -> None:
        async with await ms.open_async("memory://") as store:
            with pytest.raises(ms.InvalidArgument, match=r"a store that ms\.open returned"):
                ms.ObjectStoreLeases("memory://async", store=store)  # type: ignore[arg-type]

    asyncio.run(refused())
