"""A section whose time is over commits nothing into the exclusive section above it, whatever waits in its queue."""

from __future__ import annotations

import pytest

import metastore as ms
from metastore import bridge
from tests.concurrency.checks import seed, violations
from tests.concurrency.raw import rows

SCHEMA = "lake.cat.s"


def test_a_dead_waiter_lets_no_late_commit_into_the_section_above(url: str) -> None:
    seed(url)
    with ms.open(url) as store, ms.open(url) as other:
        store.tables.create(f"{SCHEMA}.t")
        late = other.leases.acquire(f"tree:{SCHEMA}.t", ttl=60.0)
        other._session.backend.leases.enter((late.name,), "died while it waited")
        assert rows(url, "UPDATE lease SET expires_at = 1 RETURNING 1") == [(1,)]  # its own clock does not know it
        tree = bridge.Bridge(store, "bridged")
        with (
            pytest.raises(ms.DeadlineExceeded, match="did not end in time"),
            tree.tree_lock(SCHEMA, "write", timeout=0.05),
        ):
            other.tables.alter(f"{SCHEMA}.t", ms.SetComment("late"), lease=late)
        assert rows(url, "UPDATE lease_waiter SET alive_until = 1 RETURNING 1") == [(1,)]
        with tree.tree_lock(SCHEMA, "write"), pytest.raises(ms.LeaseLost):
            other.tables.alter(f"{SCHEMA}.t", ms.SetComment("late"), lease=late)
        assert store.tables.load(f"{SCHEMA}.t").comment is None
    assert violations(url) == []
