"""Mutants that no test can find, or need not: each with its reason.

A key is a mutant's name, which holds the changed text. ``make test`` checks that each is still made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["ARGUED"]

_CONTAINERS = "a path of a length leads through one family of containers: what is below one has its families"
_NOTHING_BETWEEN = "between a position and itself nothing differs"
_TO_NOWHERE = "saves a look: a relation without a version at a position is not there, wherever it led"
_TWICE = "the ids are named twice for the plan"
_ONLY_A_PLAN = "what is counted only chooses the statement that searches"
_AT_THE_BORDER = "both ways answer a path of that length alike"

ARGUED: Final[Mapping[str, str]] = {
    "metastore/backends/postgres/reads.py PostgresReads.resolve: len(w.names) > DEEP -> (len(w.names) >= DEEP)": (
        _AT_THE_BORDER
    ),
    "metastore/backends/sql/questions.py Questions.resolve_rights: depth > DEEP -> (depth >= DEEP)": _AT_THE_BORDER,
    "metastore/backends/sql/gc.py POSTGRES_DELETE_ENTITIES: without owner_id = ANY(%(ids)s::bigint[]) AND": _TWICE,
    "metastore/backends/sql/gc.py POSTGRES_DELETE_ENTITIES: without id = ANY(%(ids)s::bigint[]) AND (2)": _TWICE,
    "metastore/backends/sql/gc.py POSTGRES_DELETE_ENTITIES: without id = ANY(%(ids)s::bigint[]) AND (3)": _TWICE,
    "metastore/backends/sql/find.py FindSql.sizes: without g.state = 0 AND": _ONLY_A_PLAN,
    "metastore/backends/sql/find.py FindSql.sizes: without g.state = 0 AND (2)": _ONLY_A_PLAN,
    "metastore/backends/sql/past.py PastSql.by_id: without up.parent_id <> {ROOT_ID} AND": (
        "saves a look: the root has no steps"
    ),
    "metastore/backends/sql/pool.py Loan.end: pool.settle(place.connection, kind) -> False": (
        "costs a connection: it is closed, and the next call opens one"
    ),
    "metastore/feed/standing.py Standing.holds: kind is None -> (kind is not None)": _CONTAINERS,
    "metastore/past/diff.py differing: a > b -> (a >= b)": _NOTHING_BETWEEN,
    "metastore/past/diff.py differing: a > b -> (a >= b) (2)": _NOTHING_BETWEEN,
    'metastore/past/plan.py _fill: known and known._replace(record=known.record._replace(doc="")) -> known': (
        "saves memory: nothing reads the document again"
    ),
    "metastore/past/related.py connected: one.before is None -> False": _TO_NOWHERE,
    "metastore/past/related.py connected: one.after is None -> False": _TO_NOWHERE,
}
