"""Siblings do not conflict: what happens to one child of a schema never makes another retry."""

from __future__ import annotations

import metastore as ms
from tests.concurrency.checks import seed, violations
from tests.concurrency.workers import Job, Team, Turn

PROCESSES, TABLES = 8, 12


def use_children(turn: Turn, number: int) -> tuple[int, int]:
    """Create, alter, rename and drop children of lake.cat.s; return (commits, conflicts)."""
    tables, parent = turn.store.tables, turn.store.schemas.load("lake.cat.s")
    turn.meet()
    for n in range(TABLES):
        table = tables.create(f"t{number}_{n}", parent=parent)
        table = tables.alter(table, ms.SetProperty("k", str(n)))
        table = tables.alter(f"lake.cat.s.t{number}_{n}", ms.SetComment("by path"))
        table = tables.rename(table, f"u{number}_{n}")
        if n % 2:
            tables.drop(table)
    counters = turn.store.counters
    return counters["commits"], sum(v for k, v in counters.items() if k.startswith("conflicts"))


def test_siblings_do_not_conflict(url: str, team: Team) -> None:
    seed(url)
    with ms.open(url) as store:
        before = store.schemas.load("lake.cat.s")
        results = team.run(url, [Job(use_children, n) for n in range(PROCESSES)])
        assert results == [(TABLES * 4 + TABLES // 2, 0)] * PROCESSES
        after = store.schemas.load("lake.cat.s")
        assert (after.version, after.scope_version) == (before.version, before.scope_version)
        assert len(list(store.tables.names(after))) == PROCESSES * TABLES // 2
    assert violations(url) == []
