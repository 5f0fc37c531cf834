"""Changes of one line that no test found once: leases, gc beside readers of the feed, calls that are cut off."""

from __future__ import annotations

from tests.faults.fault import Fault

__all__ = ["IN_SURVIVORS"]

_TOKENS = "tests/contract/test_lease_tokens_contract.py"
_GC = "tests/contract/test_gc_contract.py"
_TIMES = "tests/cache/test_lease_times.py"

_LEASES = (
    Fault(
        "SQLite: an older token is renewed",
        "metastore/backends/sqlite/leases.py",
        "WHERE name = ? AND token = ? AND incarnation = ? RETURNING 1",
        "WHERE name = ? AND token >= ? AND incarnation = ? RETURNING 1",
        f"{_TOKENS} -k sqlite",
    ),
    Fault(
        "SQLite: another holder of the same number renews",
        "metastore/backends/sqlite/leases.py",
        "WHERE name = ? AND token = ? AND incarnation = ? RETURNING 1",
        "WHERE name = ? AND token = ? AND ? <> '' RETURNING 1",
        f"{_TOKENS} -k sqlite",
    ),
    Fault(
        "SQLite: another holder of the same number commits",
        "metastore/backends/sqlite/checks.py",
        "WHERE name = ? AND token = ? AND incarnation = ?",
        "WHERE name = ? AND token = ? AND ? <> ''",
        f"{_TOKENS} -k sqlite",
    ),
    Fault(
        "PostgreSQL: another holder of the same number renews",
        "metastore/backends/postgres/lease_sql.py",
        "    AND incarnation = (%(incarnations)s::text[])[array_position(%(names)s::text[], name)]",
        "",
        f"{_TOKENS} -k postgres",
    ),
    Fault(
        "a call that changes nothing does not look at its lease",
        "metastore/operation/operation.py",
        "        self._leases.check()\n",
        "",
        f"{_TOKENS} -k memory",
    ),
    Fault(
        "a cache's renewal counts from its answer",
        "metastore/cache/membership.py",
        "self.lease.last(now, self._ttl)",
        "self.lease.last(Instant.now(self._clock), self._ttl)",
        _TIMES,
    ),
    Fault(
        "a cache's registration counts from its answer",
        "metastore/cache/membership.py",
        "        lease.last(since, self._ttl)",
        "        lease.last(Instant.now(self._clock), self._ttl)",
        _TIMES,
    ),
    Fault(
        "a cache's renewal while it joins counts from its answer",
        "metastore/cache/membership.py",
        "since = now if renew else since",
        "since = Instant.now(self._clock) if renew else since",
        _TIMES,
    ),
)

_READERS = (
    Fault(
        "gc between two pages of the feed is not noticed",
        "metastore/feed/feed.py",
        "if _has_gap(rows, after) and (gone := backend.feed_start()[1]) > collected:",
        "if _has_gap(rows, after) and (gone := backend.feed_start()[1]) > 1 << 62:",
        f"{_GC} -k 'pages and memory'",
    ),
    *(
        Fault(
            f"{database}: gc stops one short of the horizon",
            where,
            before,
            after,
            f"{_GC} -k 'horizon and {database}'",
        )
        for database, where, before, after in (
            ("sqlite", "metastore/backends/sql/gc.py", "s.until <= :horizon", "s.until < :horizon"),
            ("memory", "metastore/backends/memory/gc.py", "gone_at <= limits.horizon", "gone_at < limits.horizon"),
        )
    ),
    *(
        Fault(
            f"{database}: gc goes one beyond what a consumer has read",
            where,
            before,
            after,
            f"{_GC} -k 'horizon and {database}'",
        )
        for database, where, before, after in (
            ("postgres", "metastore/backends/sql/gc.py", "s.seq <= :unread", "s.seq <= :unread + 1"),
            (
                "memory",
                "metastore/backends/memory/gc.py",
                "(step.seq or 0) > limits.unread",
                "(step.seq or 0) > limits.unread + 1",
            ),
        )
    ),
    *(
        Fault(
            f"{database}: nobody knows what gc is about to delete",
            "metastore/port/records.py",
            "all(s == LIVE for s in states), PURGING in states, DROPPING in states)",
            "all(s == LIVE for s in states), False, DROPPING in states)",
            f"{_GC} tests/contract/test_drops_contract.py -k '(doomed or purged) and {database}'",
        )
        for database in ("sqlite", "memory")
    ),
    Fault(
        "a user's feed names other ends that it does not see",
        "metastore/governance/seen.py",
        "return [i for i in (own, step.other_id) if i is not None]",
        "return [i for i in (own,) if i is not None]",
        "tests/contract/test_user_calls_contract.py -k 'feed and memory'",
    ),
)

_CALLS = (
    Fault(
        "a cut-off call says that what it announced was not applied",
        "metastore/operation/ending.py",
        "if row.pending_on is not None or row.look:\n                raise OutcomeUnknown(row.id)",
        "if row.look:\n                raise OutcomeUnknown(row.id)",
        "tests/operation/test_ending.py",
    ),
    Fault(
        "an interrupt after the answer leaves what was announced for others to apply",
        "metastore/operation/record.py",
        "if isinstance(outcome, Committed) and entry.action == PENDING:",
        "if False:",
        "tests/operation/test_ending.py -k interrupt",
    ),
    Fault(
        "store.run over a listing marks no scope",
        "metastore/transaction/line.py",
        "            self._barred = next((i for i in scopes if i != ROOT_ID), None)",
        "            pass",
        "tests/contract/test_transactions_contract.py -k 'over_a_listing and sqlite'",
    ),
)

IN_SURVIVORS = (*_LEASES, *_READERS, *_CALLS)
