"""Faults of the caches."""

from __future__ import annotations

from tests.faults.fault import Fault

__all__ = ["IN_CACHES"]

IN_CACHES: tuple[Fault, ...] = (
    Fault(
        "Cache: positions are noted before what they change is evicted",
        "metastore/cache/validated.py",
        "        for change in answer.rows:\n            self.entries.evict(change)\n",
        "        positions.apply(answer, after)\n"
        "        for change in answer.rows:\n            self.entries.evict(change)\n",
        "tests/cache/test_interrupts.py",
    ),
    Fault(
        "Cache: announcements live as long as the default ttl, whatever the ttl of other members",
        "metastore/backends/postgres/members.py",
        "greatest({_ABANDONED}, (SELECT 3 * max(ttl) FROM cache_member))",
        "{_ABANDONED}",
        "tests/cache/test_announcing.py",
    ),
    Fault(
        "Cache: a forked worker that ends leaves its membership behind",
        "metastore/cache/leased.py",
        "        _leave_at_the_end()\n",
        "",
        "tests/cache/test_lease_ends.py",
    ),
)
