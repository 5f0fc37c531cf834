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
    "metastore/backends/postgres/general_commit_sql.py _OWNED_WRITES: > -> >=": (
        "a row that is written for the first time is not there: if it is, the insert fails, and with it the statement"
    ),
    "metastore/backends/postgres/by_name.py MOVE_NAMED: without AND g.id = (SELECT id FROM there)": (
        "one entity has the name in the snapshot; looking it up first only chooses the plan"
    ),
    "metastore/backends/sql/past_sql.py PastSql.related: without AND c.seq <= :at": _TO_NOWHERE,
    (
        "metastore/backends/memory/past.py MemoryPast.owned: sorted(page, key=lambda row: row.name)[:limit] -> "
        "sorted(page, key=lambda row: row.name)"
    ): "saves memory: who reads in pages goes on behind the last row that it got",
    "metastore/operation/tickets.py Watch.wait: 0 -> 1 (2)": (
        "costs time: a waiter looks up to a tenth of a second later while a gap ends"
    ),
    "metastore/operation/request.py is_same: record.created_at <= latest -> (record.created_at < latest)": (
        "no backup is put back within the microsecond in which an entity was changed"
    ),
}
