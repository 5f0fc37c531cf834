"""The graph of all schedules of a program, breadth first: the first violation found has the shortest schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol

from metastore.errors import BackendUnavailable
from metastore.port.batches import Written
from metastore.port.commit import Committed, Unknown
from metastore.port.writes import Result, Update
from tests.interleaving.process import Local, Nap, Process
from tests.interleaving.programs import Program
from tests.interleaving.world import START, WRITES, Answer, Call, Database, Raised, frozen

__all__ = ["Explored", "Explorer", "Found", "State", "Truncated"]

_ERROR = BackendUnavailable("the connection was lost")
_ERROR.transient = True
UNAVAILABLE = Raised(_ERROR)
CLAIMS = 3
"""How often a process claims its row before it lets those with a lower number pass."""
Precedence = tuple[tuple[tuple[int, ...], ...], ...]


class State(NamedTuple):
    """All that the future depends on."""

    db: int
    now: int
    nodes: tuple[int, ...]
    begun: Precedence
    """For each operation that has begun: how many of each process's operations had returned before."""
    crashed: int | None = None
    faults: int = 0
    flying: tuple[Call, ...] = ()
    """Calls whose process was told that the answer is lost, and which may still be applied."""
    jumps: int = 0
    kept: int = -1
    """What a crash of the database leaves of it; -1: all."""


class Move(NamedTuple):
    """One choice of the scheduler."""

    what: str
    process: int | None = None
    call: Call | None = None
    answer: Answer = None

    def __str__(self) -> str:
        who = "" if self.process is None else f"p{self.process}: "
        return f"{who}{self.what} {_short(self.call)} -> {_short(self.answer)}"


class Found(Exception):
    """Something that must not be, and the schedule that leads there."""

    def __init__(self, message: str, schedule: list[Move]) -> None:
        super().__init__(message)
        self.message = message
        self.schedule = schedule

    def __str__(self) -> str:
        return "\n  ".join([self.message, *map(str, self.schedule)])


class Truncated(Exception):
    """There is more than was allowed for."""


@dataclass
class Explored:
    """How much there was."""

    states: int = 0
    schedules: int = 0
    finals: int = 0
    longest: int = 0
    histories: int = 0
    """Different sequences of answers that a process got, of all processes."""
    databases: int = 0
    most_failed: int = 0
    """The most attempts of one alter that lost."""
    most_after: int = 0
    """The most that lost after it was announced."""
    most_undisturbed: int = 0
    """The most that lost after it was announced where there was neither fault nor exclusive operation."""
    most_of_a_run: int = 0
    """The most attempts of a transaction that lost, which runs again until it commits."""

    def with_more(self, other: Explored) -> Explored:
        """Return both together: sums, and the greater of what is the most."""
        summed = ("states", "schedules", "finals", "histories", "databases")
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return Explored(**{name: sum(pair) if name in summed else max(pair) for name, pair in pairs.items()})


class Check(Protocol):
    """What must hold."""

    def check(self, state: State) -> str | None:
        """Return what is wrong in a final state."""
        ...


class Explorer:
    """All schedules of one program on one backend."""

    def __init__(self, program: Program, checks: Callable[[Explorer], Check]) -> None:
        self.program = program
        self.db = Database(program.make)
        self.given = program.prepare(self.db)
        self.start = START + round(program.after * 1_000_000)
        self.first_db = self.db.keep()
        self.processes = [Process(n, ops, self.given, program.wrap) for n, ops in enumerate(program.processes)]
        self._answers: dict[tuple[int, int, Call], tuple[int, Answer]] = {}
        self._parents: list[dict[State, tuple[State, Move]]] = []
        self.explored = Explored()
        self._checks = checks(self)

    def run(self, limit: int) -> Explored:
        """Explore everything. Raises Found, or Truncated beyond ``limit`` states."""
        explored = self.explored
        frontier = {self._first(): 1}
        self._parents.append({})
        while frontier:
            later: dict[State, int] = {}
            parents: dict[State, tuple[State, Move]] = {}
            self._parents.append(parents)
            for state, ways in frontier.items():
                explored.states += 1
                if explored.states > limit:
                    raise Truncated(f"{self.program.name}: more than {limit} states")
                if self._ended(state):
                    explored.finals += 1
                    explored.schedules += ways
                    self._judge(state)
                stuck = True
                for move, after in self._moves(state):
                    stuck = False
                    if after not in later:
                        parents[after] = (state, move)
                        later[after] = 0
                    later[after] += ways
                    self._judge_step(state, move, after)
                if stuck and not self._ended(state):
                    self._found("nobody can go on", state)
            explored.longest += bool(later)
            frontier = later
        explored.histories = sum(map(len, self.processes))
        explored.databases = len(self.db)
        return explored

    def local(self, state: State, process: int) -> Local:
        return self.processes[process].local(state.nodes[process])

    # --- moves

    def _first(self) -> State:
        nodes = tuple([p.begin(self.start) for p in self.processes])
        return State(self.first_db, self.start, nodes, ((),) * len(nodes))

    def _ended(self, state: State) -> bool:
        return all(p == state.crashed or self.local(state, p).action is None for p in range(len(state.nodes)))

    def _moves(self, state: State) -> Iterator[tuple[Move, State]]:
        able, waits = False, False
        for p in range(len(state.nodes)):
            action = self.local(state, p).action
            if p == state.crashed or action is None:
                continue
            if self._blocked(state, action) or self._yields(state, p):
                waits = True
            else:
                able = True
                yield from self._run(state, p)
            if p in self.program.crash and state.crashed is None and self._may_fail(state):
                yield Move("crash", p), state._replace(crashed=p, faults=state.faults + 1)
        for n, call in enumerate(state.flying):
            db, answer = self._call(state.db, state.now, call)
            flying = state.flying[:n] + state.flying[n + 1 :]
            yield Move("late", None, call, answer), state._replace(db=db, flying=flying)
        if state.kept >= 0 and self._may_fail(state):
            yield Move("the database crashes"), state._replace(db=state.kept, kept=-1, faults=state.faults + 1)
        if state.jumps < len(self.program.jumps) and not self._ended(state):
            now = state.now + round(self.program.jumps[state.jumps] * 1_000_000)
            yield Move("time passes"), state._replace(now=now, jumps=state.jumps + 1)
        elif waits and not able:
            yield Move("time passes"), state._replace(now=self._next_event(state))

    def _blocked(self, state: State, action: Call | Nap) -> bool:
        """Whether a process waits for another's mark, or in line, and would find what it found."""
        if not isinstance(action, Nap) or action.look is None:
            return False
        if action.until is not None and self._clock(state.now) >= action.until:
            return False
        _, answer = self._call(state.db, state.now, action.look)
        return bool(frozen(answer) == action.seen)

    def _yields(self, state: State, p: int) -> bool:
        """Whether a process has fought for its row with another one long enough, and lets it pass.

        Two that repeat one operation may take the claim away from each other for ever.
        """
        if self.local(state, p).claims < CLAIMS:
            return False
        return any(q != state.crashed and self.local(state, q).action is not None for q in range(p))

    def _next_event(self, state: State) -> int:
        ends = [t for s in self.db.tables(state.db).stands.values() for t in (s.marked_until, s.quiet_until) if t]
        for p in range(len(state.nodes)):
            action = self.local(state, p).action
            if p != state.crashed and isinstance(action, Nap) and action.until is not None:
                ends.append(action.until - 1)
        later = [t for t in ends if t >= state.now]
        if not later:
            self._found("everybody waits for nothing", state)
        return min(later) + 1

    def _run(self, state: State, p: int) -> Iterator[tuple[Move, State]]:
        process, node, now = self.processes[p], state.nodes[p], state.now
        action = process.local(node).action
        if isinstance(action, Nap):
            now += round(action.seconds * 1_000_000)
            node = process.child(node, None, self._clock(now))
            action = process.local(node).action
            state = self._with(state._replace(now=now), p, node)
        if not isinstance(action, Call):
            yield Move("wakes", p), state
            return
        state = self._begin(state, p)
        db, answer = self._call(state.db, now, action)
        now += self.program.tick if action.name == "write_down" and isinstance(answer, Committed) else 0
        ran = state._replace(db=db, now=now, kept=self._kept(state, db, action))
        yield Move("calls", p, action, answer), self._with(ran, p, process.child(node, answer, self._clock(now)))
        if not self._may_fail(state):
            return
        state = state._replace(faults=state.faults + 1)
        clock = self._clock(state.now)
        if p in self.program.lose and action.name in self.program.losable:
            lost = self._with(state, p, process.child(node, Unknown("lost"), clock))
            yield Move("is not answered, applied:", p, action, answer), lost._replace(db=db)
            yield Move("is not answered, late:", p, action), lost._replace(flying=(*state.flying, _hashable(action)))
        if p in self.program.fail:
            failed = self._with(state, p, process.child(node, UNAVAILABLE, clock))
            yield Move("fails:", p, action, answer), failed
            if db != state.db and action.name not in WRITES:
                yield Move("fails, applied:", p, action, answer), failed._replace(db=db)

    def _kept(self, state: State, db: int, call: Call) -> int:
        """Return what a crash after ``call``, which made ``db`` of the database, leaves of it."""
        if db == state.db:
            return state.kept
        if call.name not in self.program.forgets:
            return -1
        return state.db if state.kept < 0 else state.kept

    def _may_fail(self, state: State) -> bool:
        return state.faults < self.program.most_faults

    def _clock(self, now: int) -> int:
        """Return the time that processes see."""
        return self.start if self.program.still else now

    def _begin(self, state: State, p: int) -> State:
        """Note what had returned when an operation makes its first call."""
        begins = self.local(state, p).begins
        if not begins:
            return state
        done = tuple([len(self.local(state, q).results) for q in range(len(state.nodes))])
        begun = (*state.begun[p], *(done,) * begins)
        return state._replace(begun=(*state.begun[:p], begun, *state.begun[p + 1 :]))

    def _with(self, state: State, p: int, node: int) -> State:
        return state._replace(nodes=(*state.nodes[:p], node, *state.nodes[p + 1 :]))

    def _call(self, db: int, now: int, call: Call) -> tuple[int, Answer]:
        key = (db, now, _hashable(call))
        if key not in self._answers:
            self._answers[key] = self.db.call(db, now, call)
        return self._answers[key]

    # --- what must not be

    def _judge(self, state: State) -> None:
        for p in range(len(state.nodes)):
            local = self.local(state, p)
            if local.defect is not None:
                self._found(f"p{p} died of {local.defect}", state)
        message = self._checks.check(state)
        if message is not None:
            self._found(message, state)

    def _judge_step(self, before: State, move: Move, after: State) -> None:
        """Check what an exclusive commit leaves behind."""
        call, answer = move.call, move.answer
        if call is None or before.db == after.db:
            return
        tables = self.db.tables(after.db)
        writes = call.args[0].writes if call.name == "commit" and isinstance(answer, Committed) else []
        if call.name == "write_together" and isinstance(answer, Written):
            ended = zip(call.args[0].updates, answer.updates, strict=True)
            writes = [one.write for one, result in ended if isinstance(result, Result)]
        if writes:
            for write in writes:
                if isinstance(write, Update) and write.scope_version is not None and tables.pending(write.id):
                    self._found(f"an exclusive commit of entity {write.id} leaves its intents pending", before, move)

    def _found(self, message: str, state: State, *more: Move) -> None:
        schedule: list[Move] = list(more)
        for parents in reversed(self._parents):
            if state in parents:
                state, move = parents[state]
                schedule.insert(0, move)
        raise Found(f"{self.program.name}: {message}", schedule)


def _hashable(call: Call) -> Call:
    return Call(call.name, frozen(call.args), frozen(call.kwargs))


def _short(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) < 500 else text[:500] + "…"
