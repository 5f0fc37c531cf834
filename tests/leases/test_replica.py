"""Field case 57: who reaches only a replica is granted nothing. And a replica that takes the primary's place."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

import pytest

import metastore as ms
from metastore.port.leases import PER_TIMELINE
from tests.concurrency.checks import violations
from tests.leases.fencing import late_commits
from tests.leases.kinds_of_work import S, furnish
from tests.progress.replica import Replica, primary

pytestmark = pytest.mark.postgres
PATH = f"{S}.t"
NOTHING = (ms.BackendUnavailable, ms.DeadlineExceeded)


def test_a_replica_grants_nothing_until_it_is_the_primary(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Then nothing that was granted is forgotten, and no old token passes; new ones are far above."""
    with primary() as leader:
        name = urlsplit(leader.create_database()).path.lstrip("/")
        ms.migrate(leader.url(name))
        with Replica(leader) as replica:
            both = (
                f"postgresql+psycopg://postgres@/{name}?host=127.0.0.1,127.0.0.1"
                f"&port={leader.port},{replica.port}&target_session_attrs=read-write"
            )
            with ms.open(both, deadline=10.0) as store, ms.open(replica.url(name), deadline=1.0) as cut_off:
                furnish(store)
                for _ in range(3):
                    store.leases.acquire("work").release()
                old = store.leases.acquire("work", ttl=300.0, owner="the old holder")
                kept = store.leases.acquire("kept", ttl=300.0)
                old.stage(store.tables.load(PATH), "location", "s3://old")
                _grants_nothing(cut_off, old)
                assert store.leases.break_("work")
                new = store.leases.acquire("work", ttl=300.0, owner="the new holder")
                assert (old.token, new.token) == (7, 9)
                leader.kill()
                _grants_nothing(cut_off, new)
                replica.promote()
                _goes_on(store, old, new, kept)
            assert late_commits(replica.url(name)) == []
            assert violations(replica.url(name)) == []


def _grants_nothing(cut_off: ms.Store, holder: ms.Lease) -> None:
    """It can be looked at: that is all."""
    found = cut_off.leases.holder("work")
    assert found is not None
    assert (found.owner, found.token) == (holder.owner, holder.token)
    began = time.monotonic()
    for name in ("never held", "free"):
        with pytest.raises(NOTHING):
            cut_off.leases.acquire(name, ttl=1.0)
    with pytest.raises(NOTHING):
        cut_off.leases.acquire("free", ttl=1.0, timeout=0.5)
    with pytest.raises((*NOTHING, ms.LeaseHeld)):
        cut_off.leases.acquire("work", ttl=1.0, timeout=0.5)
    with pytest.raises(NOTHING):
        cut_off.leases.break_("work")
    joined = cut_off.leases.join("work", holder.token or 0)
    with pytest.raises(NOTHING):
        cut_off.tables.alter(PATH, ms.SetComment("on the replica"), lease=joined)
    assert time.monotonic() - began < 30


def _goes_on(store: ms.Store, old: ms.Lease, new: ms.Lease, kept: ms.Lease) -> None:
    new.renew()
    kept.renew()
    store.tables.alter(PATH, ms.SetComment("after"), lease=new)
    store.tables.alter(PATH, ms.SetProperty("kept", "yes"), lease=kept)
    for late in (lambda: store.tables.alter(PATH, ms.SetComment("late"), lease=old), old.renew, old.publish):
        with pytest.raises(ms.LeaseLost):
            late()
    assert new.release()
    assert store.leases.acquire("work").token == PER_TIMELINE + 2
    assert store.tables.load(PATH).comment == "after"
