"""Mutants that no test can find, or need not: each with its reason.

A key is a mutant's name, which holds the changed text. ``make test`` checks that each is still made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["ARGUED"]

_NOTHING_BETWEEN = "between a position and itself nothing differs"
_TO_NOWHERE = "saves a look: a relation without a version at a position is not there, wherever it led"
_TWICE = "the ids are named twice for the plan"
_ONLY_A_PLAN = "what is counted only chooses the statement that searches"
_OWN_SERVER = "tests/unit/test_stats.py finds it, on a server where nobody else writes: make mutants shares one"
_AT_THE_BORDER = "both ways answer a path of that length alike"

ARGUED: Final[Mapping[str, str]] = {
    "metastore/backends/postgres/reads.py PostgresReads.resolve: len(w.names) > DEEP -> (len(w.names) >= DEEP)": (
        _AT_THE_BORDER
    ),
    "metastore/backends/postgres/relations.py RELATION_WRITES: without AND w.version > 0 (2)": (
        "a removal names the version that it has read"
    ),
    "metastore/backends/sql/questions.py Questions.resolve_rights: depth > DEEP -> (depth >= DEEP)": _AT_THE_BORDER,
    "metastore/backends/sql/gc.py POSTGRES_DELETE_ENTITIES: without owner_id = ANY(%(ids)s::bigint[]) AND": _TWICE,
    "metastore/backends/sql/gc.py POSTGRES_DELETE_ENTITIES: without id = ANY(%(ids)s::bigint[]) AND (2)": _TWICE,
    "metastore/backends/sql/gc.py POSTGRES_DELETE_ENTITIES: without id = ANY(%(ids)s::bigint[]) AND (3)": _TWICE,
    "metastore/backends/sql/find.py FindSql.sizes: without g.state = 0 AND": _ONLY_A_PLAN,
    "metastore/backends/sql/find.py FindSql.sizes: without g.state = 0 AND (2)": _ONLY_A_PLAN,
    "metastore/backends/sql/stats.py _POSTGRES: >= -> >": _OWN_SERVER,
    "metastore/backends/sql/stats.py _RUNNING: min( -> max(": _OWN_SERVER,
    "metastore/combine/reads.py below: lookup.start is not ROOT or len(names) > _DEEPEST -> (len(names) > _DEEPEST)": (
        "no call begins a path elsewhere than at the root; a batch could not follow one that did"
    ),
    "metastore/combine/lane.py Lane._candidates: first.ends <= now -> (first.ends < now)": (
        "at that very instant it is elected, finds its time over, and lets the next one lead"
    ),
    "metastore/combine/lane.py Lane._take_over: not term.end() -> False": (
        "another waiter may lead beside it too: nothing rests on one leader"
    ),
    "metastore/operation/seals.py Seal._is_guarded: self.mode is not _Mode.GUESSED -> (self.mode is _Mode.GUESSED)": (
        "a guard older than the settings fails at the commit: here it is only told sooner"
    ),
    (
        "metastore/cache/bounded.py Bounded._resized: self._policy.access([number for number, count in uses.items() "
        "if count and number in self. ... -> pass"
    ): ("costs a few hits: 0.892 instead of 0.902 of the hot reads in tests/cache/test_bounded.py"),
    "metastore/backends/sql/past_sql.py PastSql.by_id: without up.parent_id <> {ROOT_ID} AND": (
        "saves a look: the root has no steps"
    ),
    "metastore/backends/sql/pool.py Loan.end: pool.settle(place.connection, kind) -> False": (
        "costs a connection: it is closed, and the next call opens one"
    ),
    "metastore/past/diff.py differing: a > b -> (a >= b)": _NOTHING_BETWEEN,
    "metastore/past/diff.py differing: a > b -> (a >= b) (2)": _NOTHING_BETWEEN,
    'metastore/past/plan.py _fill: known and known._replace(record=known.record._replace(doc="")) -> known': (
        "saves memory: nothing reads the document again"
    ),
    "metastore/past/related.py connected: one.before is None -> False": _TO_NOWHERE,
    "metastore/past/related.py connected: one.after is None -> False": _TO_NOWHERE,
    "metastore/backends/sql/past_sql.py PastSql.related: without AND c.seq <= :at": (
        "saves rows: of a relation that came later, no version is joined"
    ),
    (
        "metastore/backends/memory/past.py MemoryPast.owned: sorted(page, key=lambda row: row.name)[:limit] -> "
        "sorted(page, key=lambda row: row.name)"
    ): "whoever reads a page cuts one that is too long",
    "metastore/operation/tickets.py Watch.wait: 0 -> 1 (2)": (
        "costs time: up to 0.1 s after a gap, which no notice ends"
    ),
    "metastore/combine/chain.py Chain.lead: lane.back(others) -> pass": (
        "costs time: at the end of the block, those without an answer go alone"
    ),
    (
        "metastore/combine/link.py fits: one.leases or one.evidence or one.publishes or one.carries or "
        "one.skip_existing or one.ove ... -> (one.leases or one.publishes or one.carries or one.skip_existing or "
        "one.overlook)"
    ): "only users' transactions have evidence, and they join no chain",
    "metastore/transaction/chained.py InChain.ended: self.leave() -> pass": (
        "costs time: the call leaves at its end; until then the leader waits for the run until it counts as slow"
    ),
    (
        "metastore/transaction/line.py InLine._bar: self._barred is not None and self._mark is not None -> "
        "(self._barred is not None)"
    ): "for the types: a run enters with its mark before it can bar a scope",
    "metastore/cache/membership.py Member._serve: not self.lease.holds() -> False": (
        "a lease that is over answers nothing, and a look that finds the row extends it, as it does after a long pause"
    ),
    "metastore/feed/tracked.py Tracked._below: False -> True": "costs time: it reads documents that nothing looks at",
    (
        "metastore/past/undo.py Undoing._put: not self._stands(goal) and not self._is_above_its_parent(goal) -> "
        "(not self._is_above_its_parent(goal))"
    ): "saves a look: a rename to the place where an entity is writes nothing",
    (
        "metastore/operation/operation.py Operation._send: withdrawn or (first and self._intent.hot(merge)) -> "
        "withdrawn"
    ): "costs an attempt: a change is announced after its first loss, as it is on an entity that is not hot",
    "metastore/backends/postgres/waking.py Waking.wait: now - before < _AGAIN -> (now - before <= _AGAIN)": (
        "at that very instant it opens its session one wait earlier"
    ),
    "metastore/backends/postgres/general_commit_sql.py _OWNED_WRITES: > -> >=": (
        "the INSERT of the same statement refuses a new row whose name is taken"
    ),
    "metastore/backends/postgres/by_name.py MOVE_NAMED: without AND g.id = (SELECT id FROM there)": (
        "the condition on the name says the same: the id is for the plan"
    ),
}
