"""Works of several commits take a lease: revert, an import, the steps of a drop, many creates. Also one of none."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import NamedTuple

import pytest

import metastore as ms
from metastore.managers.drops.pending import PendingDrop
from tests.leases.fencing import late_commits
from tests.leases.kinds_of_work import S, furnish, picture
from tests.servers.process import wait_until

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

NAME = "work"


class Before(NamedTuple):
    """What the works are made from."""

    position: str
    export: bytes
    drop: PendingDrop
    left: PendingDrop
    """Of a process that died."""


def revert(store: ms.Store, before: Before, lease: ms.Lease) -> object:
    return store.revert(f"{S}.t", to=before.position, lease=lease)


def import_(store: ms.Store, before: Before, lease: ms.Lease) -> object:
    return store.import_from(io.BytesIO(before.export), if_exists="replace", lease=lease)


WORKS: dict[str, Callable[[ms.Store, Before, ms.Lease], object]] = {
    "revert": revert,
    "revert to what it is": lambda s, _, lease: s.revert(f"{S}.other", to=s.position(), lease=lease),
    "import": import_,
    "create none": lambda s, _, lease: s.tables.create_many(S, [], lease=lease),
    "attach none": lambda s, _, lease: s.tags.attach_many("lake.hot", [], lease=lease),
    "begin a drop": lambda s, _, lease: s.tables.begin_drop(f"{S}.other", lease=lease),
    "start": lambda _, before, lease: before.drop.started(lease=lease),
    "finish": lambda _, before, lease: before.drop.finish(lease=lease),
    "roll back": lambda _, before, lease: before.drop.roll_back(lease=lease),
    "take over": lambda _, before, lease: before.left.take_over(lease=lease),
    "resume": lambda s, _, lease: s.drops.resume(lambda drop: None, lease=lease),
}
WRITES = [work for work in WORKS if work not in ("revert to what it is", "create none", "attach none")]


@pytest.fixture
def before(store: ms.Store) -> Before:
    furnish(store)
    stream, position = io.BytesIO(), store.position()
    store.export_to(stream, f"{S}.t")
    store.tables.alter(f"{S}.t", ms.SetComment("later"), ms.AddColumn("c", "int"))
    store.tables.alter(f"{S}.other", ms.SetComment("later"))
    drop = store.tables.begin_drop(f"{S}.doomed", ttl=600)
    store.tables.begin_drop(f"{S}.purged", ttl=0.001)
    (left,) = [one for one in store.drops.pending() if one.path.endswith("purged")]
    assert wait_until(lambda: store._session.backend.now() / 1e6 > left.expires_at.timestamp(), 5.0)
    return Before(position, stream.getvalue(), drop, left)


@pytest.mark.parametrize("work", WORKS)
def test_who_lost_the_lease_changes_nothing(store: ms.Store, url: str, before: Before, work: str) -> None:
    with ms.open(url) as other:
        lease = store.leases.acquire(NAME, ttl=600)
        other.leases.break_(NAME)  # its own clocks do not know it
    seen = picture(url)
    with pytest.raises(ms.LeaseLost):
        WORKS[work](store, before, lease)
    assert picture(url) == seen


@pytest.mark.parametrize("work", WORKS)
def test_who_has_it_writes_under_its_token(store: ms.Store, url: str, before: Before, work: str) -> None:
    with store.leases.acquire(NAME, ttl=600) as lease:
        WORKS[work](store, before, lease)
    commits = [event for event in store.leases.audit(NAME) if event.action == "commit"]
    assert bool(commits) is (work in WRITES)
    assert late_commits(url) == []
    assert store.verify() == []


def test_a_file_with_ids_takes_no_lease(store: ms.Store, before: Before) -> None:
    stream = io.BytesIO()
    store.export_to(stream, ids=True)
    stream.seek(0)
    with store.leases.acquire(NAME) as lease, pytest.raises(ms.InvalidArgument, match="leave out into, if_exists"):
        store.import_from(stream, lease=lease)
