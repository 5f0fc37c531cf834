"""All schedules of a program: depth first, each one run from its start.

Two schedules that differ only in the order of independent steps are one (*sleep sets*: Godefroid, 1996). Three pairs of
steps are independent: reads of different processes; a read and a statement that is not committed yet; a statement
inside of SQLite's one write transaction and any other step. The order matters if it shows that one operation had
returned before another began.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from metastore.retry.policy import RetryPolicy
from metastore.store import Store
from metastore.urls import parse_url
from tests.interleaving.oracle import Which
from tests.statements.gate import WorkerClock
from tests.statements.operations import Operation, prepare
from tests.statements.oracle import Oracle, Prepare
from tests.statements.schedule import Choice, Database, Ended, Run, Workers

__all__ = ["Explored", "Program", "Violated", "explore"]

_LONGEST = 400
"""How many steps a schedule may have before it is cut off."""
_SETUP = 15


@dataclass(frozen=True)
class Program:
    """What two or three processes do at the same time."""

    name: str
    processes: tuple[tuple[Operation, ...], ...]
    prepare: Prepare = prepare
    ordered: bool = True
    """The feed's order is the order that explains the results: so it is where at most one process only reads."""


class Violated(AssertionError):
    """A schedule that no sequential order explains, or after which something is broken."""


@dataclass
class Explored:
    """How much there was."""

    schedules: int = 0
    redundant: int = 0
    """Begun, and found to be equal to others."""
    cut_off: int = 0
    diverged: int = 0
    """The same choices led elsewhere: the schedule counts as one more."""
    held_back: int = 0
    """Schedules in which a process that had lost often enough did not look again before the others stood still: those
    in which it does are left out.
    """
    longest: int = 0
    verified: int = 0
    """Different contents, on each of which ``verify`` was run."""
    different: set[Any] = field(default_factory=set)
    """The results, and what was there in the end."""
    retried: dict[Which, Counter[tuple[str, ...]]] = field(default_factory=dict)
    """By the causes of the attempts that it lost, in how many schedules each operation did so."""


@dataclass
class _Node:
    """A place in the tree of schedules."""

    choices: list[Choice]
    asleep: list[Choice]
    """What leads to schedules that were seen."""
    taken: Choice
    left: list[Choice]
    done: list[Choice] = field(default_factory=list)


def explore(
    program: Program, database: Database, threads: Workers, limit: int = 1_000_000, *, every: bool = False
) -> Explored:
    """Explore a program to the end. Raises Violated. ``every``: also what differs in nothing that matters."""
    return _Explorer(program, database, threads, every).run(limit)


_PREPARED: WeakKeyDictionary[Database, tuple[Prepare, Mapping[str, Any]]] = WeakKeyDictionary()
"""What each database starts from, and what is in hand then."""


def _prepared(database: Database, prepare: Prepare) -> Mapping[str, Any]:
    """Let each schedule start from what ``prepare`` makes; return what is in hand."""
    known = _PREPARED.get(database)
    if known is None or known[0] is not prepare:
        database.clear()
        clock = WorkerClock(database.time, _SETUP)
        given = prepare(Store(parse_url("memory://"), database.backend(0), RetryPolicy(), "setup", clock))
        database.keep()
        known = _PREPARED[database] = (prepare, given)
    return known[1]


class _Explorer:
    def __init__(self, program: Program, database: Database, threads: Workers, every: bool) -> None:
        self._program, self._database, self._threads, self._every = program, database, threads, every
        self._oracle = Oracle(program.processes, program.prepare, program.ordered)
        self._given = _prepared(database, program.prepare)
        database.reset()
        assert self._oracle.first == (database.content() if program.ordered else database.content().unordered())
        self.explored = Explored()
        self._verified: set[Any] = set()
        self._stack: list[_Node] = []

    def run(self, limit: int) -> Explored:
        while True:
            self._one()
            if self.explored.schedules > limit:
                self.explored.cut_off += 1
                return self.explored
            while self._stack and not self._stack[-1].left:
                self._stack.pop()
            if not self._stack:
                return self.explored
            node = self._stack[-1]
            node.done.append(node.taken)
            node.taken = node.left.pop(0)

    def _one(self) -> None:
        """Run one schedule: the choices on the stack, then the first ones."""
        run = Run(self._database, self._threads, self._program.processes, self._given)
        run.start()
        depth, explored = 0, self.explored
        while choices := run.choices():
            if depth < len(self._stack) and self._stack[depth].choices != choices:
                explored.diverged += 1
                del self._stack[depth:]
            if depth == len(self._stack):
                node = self._node(choices)
                if node is None or depth > _LONGEST:
                    run.abandon()
                    explored.redundant += node is None
                    explored.cut_off += node is not None
                    return
                self._stack.append(node)
            run.take(self._stack[depth].taken)
            depth += 1
        explored.schedules += 1
        explored.held_back += run.held_back
        explored.longest = max(explored.longest, depth)
        self._check(run, run.ended())

    def _node(self, choices: list[Choice]) -> _Node | None:
        asleep: list[Choice] = []
        if self._stack and not self._every:
            above = self._stack[-1]
            asleep = [c for c in (*above.asleep, *above.done) if c.commutes(above.taken)]
        left = [c for c in choices if c not in asleep]
        return _Node(choices, asleep, left[0], left[1:]) if left else None

    def _check(self, run: Run, ended: Ended) -> None:
        for which, causes in ended.causes.items():
            self.explored.retried.setdefault(which, Counter())[causes] += 1
        content = self._database.content()
        self.explored.different.add((tuple(sorted(ended.outcomes.items())), content.unordered()))
        problem = content.left[0] if content.left else None
        if problem is None and content not in self._verified:
            self._verified.add(content)
            self.explored.verified += 1
            problem = "; ".join(self._database.problems()[:1]) or None
        if problem is None:
            told = {w: o for w, o in ended.outcomes.items() if not self._conflicted(w, ended)}
            if not self._oracle.explains(told, ended.before, content):
                results = ", ".join(f"p{p}.{n}: {o.error or o.value}" for (p, n), o in ended.outcomes.items())
                rows = "; ".join(f"{s[5]} {s[4]} {s[7] or s[6]} v{s[2]}" for s in content.history if s[5] != "setup")
                problem = f"no order explains what was told ({results}) and written ({rows})"
        if problem is not None:
            steps = "\n  ".join(map(str, run.trace))
            raise Violated(f"{self._program.name} on {self._database.name}: {problem}\n  {steps}")

    def _conflicted(self, which: Which, ended: Ended) -> bool:
        operation = self._program.processes[which[0]][which[1]]
        return operation.may_conflict and ended.outcomes[which].error == "VersionConflict"
