"""Faults of the caches."""

from __future__ import annotations

from tests.faults.fault import Fault

__all__ = ["IN_CACHES"]

IN_CACHES: tuple[Fault, ...] = (
    Fault(
        "Cache: after a fail-over reads go on at the old leader",
        "metastore/backends/postgres/connect.py",
        "                self._pool.forget()  # the connections are dead",
        "                # the connections are dead",
        "tests/cache/test_two_leaders.py -m long",
    ),
    Fault(
        "Cache: a member goes on at one leader while its reads ask the other",
        "metastore/cache/leased.py",
        "        self._member.join_again()\n",
        "",
        "tests/cache/test_two_leaders.py -m long",
    ),
    Fault(
        "Cache: an announcement of a call that was under way stays when the store is closed",
        "metastore/backends/postgres/announcing.py",
        "        if self._stop.is_set():\n",
        "        if False:\n",
        "tests/cache/test_announcing.py -k closing",
    ),
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
    Fault(
        "Forks: a child uses the ids that its parent reserved",
        "metastore/port/reserved.py",
        "            if self._block.process != process_id():\n",
        "            if False:\n",
        "tests/concurrency/test_forks.py",
    ),
    Fault(
        "Forks: a field is computed under a lock of its class",
        "metastore/cached.py",
        "            return self if",
        "            with vars(self).setdefault('', __import__('threading').RLock()):\n                return self if",
        "tests/concurrency/test_forks.py -k field",
    ),
    Fault(
        "Forks: a child commits the transaction of its parent",
        "metastore/transaction/transaction.py",
        "        self.sent = self._id\n        if self._is_inherited:\n",
        "        self.sent = self._id\n        if False:\n",
        "tests/concurrency/test_forked_blocks.py -k transaction",
    ),
    Fault(
        "Forks: a child removes the mark of its parent's freeze",
        "metastore/transaction/freeze.py",
        "        if self._is_inherited:\n",
        "        if False:\n",
        "tests/concurrency/test_forked_blocks.py -k freeze",
    ),
    Fault(
        "Forks: a child counts what its parent did",
        "metastore/metrics.py",
        "begins_again(self, Metrics._reset)",
        "pass",
        "tests/concurrency/test_memories.py -k figures",
    ),
    Fault(
        "Feed: what was decided outlives the connection to the server",
        "metastore/backends/postgres/reads.py",
        "known = self._decided if self._decided.server is server else _Decided(server)",
        "known = self._decided._replace(server=server)",
        "tests/concurrency/test_feed.py",
    ),
)
