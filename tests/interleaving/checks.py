"""What must hold when all processes have ended."""

from __future__ import annotations

from typing import NamedTuple

import metastore as ms
from metastore.backends.memory import MemoryBackend
from metastore.backends.memory_tables import Tables
from metastore.commit import LIVE
from metastore.retry.policy import RetryPolicy
from metastore.store import Store
from metastore.verifying import verify
from tests.interleaving.explore import Explorer, State
from tests.interleaving.oracle import Oracle, OracleClock, Seen, Which, applied, content
from tests.interleaving.process import URL, Effort, Outcome, outcome_of
from tests.interleaving.programs import T
from tests.interleaving.world import START

__all__ = ["Checks"]

_NOT_APPLIED = ("DeadlineExceeded", "ScopeFrozen", "RetriesExhausted")
_JANITOR = 14
_LONG = 100_000_000
"""Longer than any deadline and any ttl (µs)."""


class Checks:
    """The checks of one program, each answer found once."""

    def __init__(self, explorer: Explorer) -> None:
        self._explorer = explorer
        self._program = explorer.program
        self._oracle = Oracle(
            explorer.db, explorer.first_db, explorer.start, explorer.program.processes, explorer.given
        )
        self._explained: dict[Seen, bool] = {}
        self._sound: dict[tuple[int, int, bool], str | None] = {}
        self._first = explorer.db.tables(explorer.first_db)

    def check(self, explorer: Explorer, state: State) -> str | None:
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
        backend = self._explorer.db.show(state.db, state.now)
        found = [v for v in verify(backend) if "has no position in the feed" not in v.message]
        return f"verify: {found[0].message}" if found else None

    def _swept(self, state: State) -> str | None:
        """Whoever comes later, at once or long after, is not held up, and leaves nothing behind."""
        for later in (0, _LONG):
            explorer = self._explorer
            clock = OracleClock()
            backend = MemoryBackend(clock)
            fields = vars(explorer.db.show(state.db, state.now))
            backend.__dict__.update({k: v for k, v in fields.items() if k not in ("_clock", "_lock")})
            backend._tables = before = backend._tables.copy()
            clock.at, clock.process = state.now + later, _JANITOR
            store = Store(URL, backend, RetryPolicy(), f"p{_JANITOR}", clock)
            targets = [i for i in explorer.given.values() if i.kind == "table"]
            for number, table in enumerate(targets):
                change = ms.SetProperty("swept", str(number))
                outcome = outcome_of(lambda table=table, change=change: store.tables.alter(table, change))  # type: ignore[misc]
                if outcome.error not in (None, "EntityNotFound"):
                    return f"a later alter gets {outcome.error}"
            tables = backend._tables
            alive = [i.id for i in targets if (known := backend.by_id([i.id])[0]) is not None and known.live]
            if any(tables.pending(i) for i in alive):
                return "an intent stays pending after a later alter"
            marks = [s.id for s in tables.stands.values() if s.mark is not None and s.state == LIVE]
            if alive and later and marks:
                return f"the marks of {marks} stay after a later alter"
            if wrong := [v for v in verify(backend) if "has no position in the feed" not in v.message]:
                return f"verify after a later alter: {wrong[0].message}"
            mine = [row for row in applied(tables) if row[0] == f"p{_JANITOR}"]
            if len(mine) != len(alive):
                return "a later alter was not applied exactly once"
            if twice := _twice(tables, before):
                return twice
        return None

    # --- the bound

    def _unbounded(self, state: State) -> str | None:
        explored = self._explorer.explored
        tables = self._explorer.db.tables(state.db)
        stands = self._first.stands
        bumps = sum(s.scope_version - stands[i].scope_version for i, s in tables.stands.items() if i in stands)
        efforts = [e for p in range(len(state.nodes)) for e in self._explorer.local(state, p).efforts]
        extra = bumps + sum(e.cancels for e in efforts) + state.faults
        for effort in efforts:
            if effort.failed_after is not None:
                explored.most_failed = max(explored.most_failed, effort.failed)
                explored.most_after = max(explored.most_after, effort.failed_after)
                key = f"+{extra}: {effort.failed_after} of {effort.failed} " + ",".join(effort.causes)
                explored.causes[key] = explored.causes.get(key, 0) + 1
                if problem := _beyond(effort, extra):
                    return problem
        return None

    # --- the order

    def _unexplained(self, state: State) -> str | None:
        seen = self._seen(state)
        if seen is None or self._program.collected:
            return None
        key = seen._replace(
            outcomes=tuple(seen.outcomes.items()), before=tuple(seen.before.items())  # type: ignore[arg-type]
        )
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


def _beyond(effort: Effort, extra: int) -> str | None:
    assert effort.failed_after is not None
    if effort.failed_after > 2 + extra or effort.failed > 3 + extra:
        causes = ", ".join(effort.causes)
        return f"{effort.failed} attempts lost, {effort.failed_after} after the announcement (+{extra}): {causes}"
    return None


def _twice(after: Tables, before: Tables) -> str | None:
    ids = [s.operation_id for s in after.steps if s.seq is not None and s.action == "alter" and s.ordinal == 0]
    return "an operation was applied twice" if len(set(ids)) < len(ids) else None


_ = START
