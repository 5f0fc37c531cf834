"""verify and leases: tokens that grow by one, and no commit under a token that the lease did not have (invariant 9)."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

import metastore as ms
from tests.verify.planting import damage, verified

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

JOB, LATE = "kind = 'lease' AND path_after = 'job'", "fences IS NOT NULL AND path_after = 'lake.second'"


@pytest.fixture
def leased(url: str) -> tuple[str, int]:
    """Give a database with commits under two holders of one lease; and the lease's id."""
    with ms.open(url) as store:
        first = store.leases.acquire("job", owner="first")
        store.metalakes.create("lake", lease=first)
        store.catalogs.create("lake.first", type="model", lease=first)
        store.leases.break_("job")
        second = store.leases.acquire("job", owner="second")
        both = store.leases.acquire_many(["other", "another"])
        with store.transaction(lease=second) as tx:
            tx.catalogs.create("lake.second", type="model")
            tx.catalogs.create("lake.third", type="model")
        store.catalogs.drop("lake.third", lease=both)
        both.release()
        store.leases.mirror("s3://b/kept/elsewhere", 7, "o", "i")
        store.leases.mirror("s3://b/kept/elsewhere", 12, "o", "j")
        assert store.verify() == []
        (lease_id,) = {c.entity_id for c in store.changes() if c.path_after == "job"}
    return url, lease_id


DAMAGE: dict[str, tuple[str, int, str]] = {
    "a commit of the one before": (
        f"UPDATE operation SET fences = replace(fences, ', 3]', ', 1]') WHERE {LATE}",
        9,
        "under token 1",
    ),
    "a commit of the future": (
        f"UPDATE operation SET fences = replace(fences, ', 3]', ', 4]') WHERE {LATE}",
        9,
        "under token 4",
    ),
    "a commit while nobody had it": (
        f"UPDATE operation SET fences = replace(fences, ', 3]', ', 2]') WHERE {LATE}",
        9,
        "nobody (token 3)|which token 3",
    ),
    "a commit that came later than its position": (
        "UPDATE operation SET seq = 1000 + seq WHERE action = 'create' AND path_after = 'lake.first'",
        9,
        "under token 1",
    ),
    "leases that cannot be read": (f"UPDATE operation SET fences = 'x' WHERE {LATE}", 9, "cannot be read"),
    "a token that goes back": ("UPDATE lease SET token = 2 WHERE name = 'job'", 1, "has token 2, its events end at 3"),
    "a holder without an event": ("UPDATE lease SET owner = NULL WHERE name = 'job'", 1, "held by nobody"),
    "an event that is missing": (f"DELETE FROM operation WHERE {JOB} AND version = 2", 1, "after token 1 comes 3"),
    "an event too early": (
        f"UPDATE operation SET seq = -seq WHERE {JOB} AND version = 2",
        8,
        "token 2 is at position",
    ),
    "two in a row": (
        f"UPDATE operation SET action = 'acquire' WHERE {JOB} AND version = 2",
        1,
        "after acquire .token 1. comes acquire",
    ),
    "something else": (f"UPDATE operation SET action = 'drop' WHERE {JOB} AND version = 2", 1, "the work of: drop"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_found(leased: tuple[str, int], case: str) -> None:
    url, lease_id = leased
    statement, invariant, says = DAMAGE[case]
    damage(url, statement)
    found = verified(url)
    assert any(
        v.invariant == invariant and re.search(says, v.message) and v.entity_id in (lease_id, None) for v in found
    ), "\n".join(map(str, found))


def test_after_gc_the_rest_is_still_checked(leased: tuple[str, int]) -> None:
    url, _ = leased
    with ms.open(url) as store:
        assert store.gc(retention=timedelta(0), keep_versions=1).operations > 0
        assert store.verify() == []
        lease = store.leases.acquire("another")
        store.metalakes.alter("lake", ms.SetComment("later"), lease=lease)
        assert store.verify() == []
    damage(url, "UPDATE operation SET fences = replace(fences, ', 3]', ', 9]') WHERE fences IS NOT NULL")
    assert 9 in {v.invariant for v in verified(url)}


def test_a_lease_that_no_operation_made(leased: tuple[str, int]) -> None:
    url, lease_id = leased
    damage(url, f"DELETE FROM operation WHERE {JOB}")
    assert (1, lease_id) in {(v.invariant, v.entity_id) for v in verified(url)}
