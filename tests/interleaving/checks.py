"""The conditions that must hold when all processes have ended."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch
from uuid import UUID

import metastore as ms
from metastore.backends.memory.backend import MemoryBackend
from metastore.backends.memory.tables import Tables
from metastore.combine import waiting
from metastore.port.conditions import LIVE
from metastore.retry.policy import RetryPolicy
from metastore.store import Store
from metastore.verify.verify import verify
from tests.interleaving.explore import Explored, Explorer, State
from tests.interleaving.oracle import Oracle, OracleClock, Seen, Which, applied, content
from tests.interleaving.process import URL, Effort, Outcome, outcome_of
from tests.interleaving.programs import Program

__all__ = ["Checks", "explore"]

_NOT_APPLIED = ("BackendUnavailable", "DeadlineExceeded", "ScopeFrozen", "RetriesExhausted")
_JANITOR = 14

_LONG = 100_000_000
"""Longer than any deadline and any ttl (µs), and than the clocks of two machines may be apart."""


class _SweeperClock(OracleClock):
    """Draws ids that are made now."""

    def operation_id(self) -> UUID:
        return UUID(int=(self.at // 1000) << 80 | super().operation_id().int & (1 << 80) - 1)


def explore(program: Program, limit: int) -> Explored:
    """Explore a program to the end. Raises Found, or Truncated beyond ``limit`` states."""
    explorer = Explorer(program, Checks)  # what it begins with is as it should be
    with program.broken(), patch.object(waiting, "ROUNDS", program.before):
        return explorer.run(limit)


class Checks:
    """The checks of one program, each answer found once."""

    def __init__(self, explorer: Explorer) -> None:
        self._explorer = explorer
        self._program = explorer.program
        self._oracle = Oracle(
            explorer.db, explorer.first_db, explorer.start, explorer.program.processes, explorer.given
        )
        self._explained: dict[Any, bool] = {}
        self._sound: dict[tuple[int, int, bool], str | None] = {}
        self._first = explorer.db.tables(explorer.first_db)

    def check(self, state: State) -> str | None:
        """Return what is wrong in a final state."""
        return self._unsound(state) or self._unbounded(state) or self._unexplained(state)

    # --- the content

    def _unsound(self, state: State) -> str | None:
        key = (state.db, state.now, state.faults == 0)
        if key not in self._sound:
            tables = self._explorer.db.tables(state.db)
            self._sound[key] = self._left(tables, state) or self._broken(state) or self._swept(state)
        return self._sound[key]

    def _left(self, tables: Tables, state: State) -> str | None:
        if state.faults:
            return None
        for entity_id, stand in tables.stands.items():
            if tables.pending(entity_id):
                return f"an intent of entity {entity_id} is left pending"
            if stand.mark is not None:
                return f"a mark of entity {entity_id} is left"
        return None

    def _broken(self, state: State) -> str | None:
        found = verify(self._explorer.db.show(state.db, state.now))
        return f"verify: {found[0].message}" if found else None

    def _swept(self, state: State) -> str | None:
        """Later operations, at once or long after, are not held up, and leave nothing behind."""
        return self._swept_after(state, 0) or self._swept_after(state, _LONG)

    def _swept_after(self, state: State, pause: int) -> str | None:
        clock = _SweeperClock()
        backend = MemoryBackend(clock)
        fields = vars(self._explorer.db.show(state.db, state.now))
        backend.__dict__.update({k: v for k, v in fields.items() if k not in ("_clock", "_lock")})
        backend._tables = backend._tables.copy()
        clock.at, clock.process = state.now + pause, _JANITOR
        store = Store(URL, backend, RetryPolicy(), f"p{_JANITOR}", clock)
        table = self._explorer.given["t"]
        made_now = clock.operation_id() if pause else None
        outcome = outcome_of(lambda: store.tables.alter(table, ms.SetProperty("swept", "1"), operation_id=made_now))
        (known,) = backend.by_id([table.id])
        alive = known is not None and known.live
        if outcome.error not in (None, "EntityNotFound", "DropPending") or (outcome.error is None) != alive:
            return f"a later alter gets {outcome.error}"
        if problem := self._left_behind(backend._tables, table.id if alive else None, pause):
            return f"{problem} after a later alter"
        if found := verify(backend):
            return f"verify after a later alter: {found[0].message}"
        schema = outcome_of(lambda: store.schemas.rename(self._explorer.given["s"], "swept"))
        return None if schema.error in (None, "EntityNotFound") else f"a later rename gets {schema.error}"

    def _left_behind(self, tables: Tables, table_id: int | None, pause: int) -> str | None:
        if table_id is not None and tables.pending(table_id):
            return "an intent stays pending"
        if table_id is not None and pause and any(s.mark and s.state == LIVE for s in tables.stands.values()):
            return "a mark stays"
        ids = [s.operation_id for s in tables.steps if s.seq is not None and s.action == "alter" and s.ordinal == 0]
        if len(set(ids)) < len(ids):
            return "an operation was applied twice"
        if len([row for row in applied(tables) if row[0] == f"p{_JANITOR}"]) != (table_id is not None):
            return "that was not applied exactly once"
        return None

    # --- the bound

    def _unbounded(self, state: State) -> str | None:
        explored = self._explorer.explored
        tables = self._explorer.db.tables(state.db)
        stands = self._first.stands
        bumps = sum(s.scope_version - stands[i].scope_version for i, s in tables.stands.items() if i in stands)
        efforts = [e for p in range(len(state.nodes)) for e in self._explorer.local(state, p).efforts]
        extra = bumps + sum(e.cancels for e in efforts) + 2 * state.faults
        for p, ops in enumerate(self._program.processes):
            for op, effort in zip(ops, self._explorer.local(state, p).efforts, strict=False):
                if op.counts:
                    explored.most_of_a_run = max(explored.most_of_a_run, effort.failed)
                    if effort.failed > self._program.most_lost + extra:
                        return f"{effort.failed} attempts of a transaction lost (+{extra}): {', '.join(effort.causes)}"
        for effort in efforts:
            if effort.failed_after is not None:
                explored.most_failed = max(explored.most_failed, effort.failed)
                explored.most_after = max(explored.most_after, effort.failed_after)
                if not extra:
                    explored.most_undisturbed = max(explored.most_undisturbed, effort.failed_after)
                if problem := _beyond(effort, self._program.before, extra):
                    return problem
        return None

    # --- the order

    def _unexplained(self, state: State) -> str | None:
        seen = self._seen(state)
        if self._program.collected:
            again = [row for row in seen.history if row[0] != "setup"]
            return f"it was applied again: {again[0]}" if again else None
        key = (tuple(seen.outcomes.items()), seen.optional, tuple(seen.before.items()), seen.history, seen.content)
        if key not in self._explained:
            self._explained[key] = self._oracle.explains(seen) is not None
        if self._explained[key]:
            return None
        told = ", ".join(f"p{p}.{n} {'?' if o is None else o.error or o.value}" for (p, n), o in seen.outcomes.items())
        rows = "; ".join(f"{r[0]} {r[4]} {r[5] or r[6]} v{r[2]}" for r in seen.history[4:])
        return f"no order explains what was told ({told}) and written ({rows})"

    def _seen(self, state: State) -> Seen:
        outcomes: dict[Which, Outcome | None] = {}
        optional: set[Which] = set()
        before: dict[Which, frozenset[Which]] = {}
        for p, begun in enumerate(state.begun):
            results = self._explorer.local(state, p).results
            for n, done in enumerate(begun):
                outcome = results[n] if n < len(results) else None
                op = self._program.processes[p][n]
                if outcome is not None and outcome.error is not None:
                    if outcome.error in _NOT_APPLIED or (op.may_fail and outcome.error == "VersionConflict"):
                        continue
                    if outcome.error == "OutcomeUnknown":
                        outcome = None
                outcomes[p, n] = outcome
                if outcome is None:
                    optional.add((p, n))
                before[p, n] = frozenset((q, m) for q, count in enumerate(done) for m in range(count))
        tables = self._explorer.db.tables(state.db)
        return Seen(outcomes, frozenset(optional), before, applied(tables), content(tables))


def _beyond(effort: Effort, before: int, extra: int) -> str | None:
    """Say where an effort lost more than docs/progress.md allows.

    One that left its batches because of a mark makes one attempt more, which is not announced.
    """
    assert effort.failed_after is not None
    left = before > 1 and "ancestor" in effort.causes
    if effort.failed_after > 2 + extra or effort.failed > before + left + 2 + extra:
        causes = ", ".join(effort.causes)
        return f"{effort.failed} attempts lost, {effort.failed_after} after the announcement (+{extra}): {causes}"
    return None
