"""The next call of a process, as a function of the answers to its calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from threading import get_ident
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast
from uuid import UUID

from greenlet import GreenletExit, getcurrent, greenlet

from metastore.clock import Clock
from metastore.combine.chain import chain_at
from metastore.combine.combiner import Combiner
from metastore.combine.lane import Lane
from metastore.errors import MetastoreError
from metastore.kinds.entity import Entity
from metastore.kinds.registry import kind_named
from metastore.operation.guards import lookup
from metastore.port.backend import Backend
from metastore.port.commit import Committed, Conflicted
from metastore.port.tickets import Line
from metastore.retry.policy import Attempt, RetryPolicy
from metastore.store import Store
from metastore.urls import parse_url
from tests.interleaving.tasks import Tasks
from tests.interleaving.world import ORIGIN, START, Answer, Call, Raised, frozen

__all__ = [
    "Effort",
    "Foreign",
    "Hand",
    "Local",
    "Nap",
    "Op",
    "Outcome",
    "Process",
    "Wrap",
    "first_of",
    "operation_id",
    "outcome_of",
]

URL: Final = parse_url("memory://")
Wrap = Callable[[Backend], Backend]
"""What is put between a process and the database: a mutant."""

T = TypeVar("T")


class Hand(NamedTuple):
    """What an operation works with."""

    store: Any
    """A store, or a transaction."""
    given: dict[str, Any]
    """What the process has in hand. An operation leaves in it what the next ones of the same process use."""


class Foreign(NamedTuple):
    """An entity of another database, among what is given."""

    entity: Entity


@dataclass(frozen=True)
class Op:
    """One operation of a process."""

    name: str
    run: Callable[[Hand], object]
    hot: str | None = None
    """The key in ``given`` of a table that counts as hot when it begins: the change is announced at once."""
    counts: bool = False
    """It is a transaction that runs again until it commits: its attempts have a bound."""
    may_fail: bool = False
    """A VersionConflict says only that something else was written meanwhile."""
    with_next: bool = False
    """It waits together with the process's next operation: the two travel in one batch, if they can; in one chain, if
    they are ``hot``.
    """


class Outcome(NamedTuple):
    """What an operation came to: ``value`` is comparable; ``error`` the name of a class."""

    value: Any
    error: str | None = None


class Effort(NamedTuple):
    """How hard it was."""

    failed: int
    """Attempts that lost."""
    failed_after: int | None
    """Those after the first announcement; None: it was not announced."""
    cancels: int
    causes: tuple[str, ...]


class Nap(NamedTuple):
    """The process sleeps."""

    seconds: float
    look: Call | None = None
    """What it waits for: nothing changes for it before this call answers something else than ``seen``."""
    seen: Any = None
    until: int | None = None
    """When it stops waiting all the same; None: never."""


class Local(NamedTuple):
    """Where a process is."""

    action: Call | Nap | None
    """What it does next; None: it has ended."""
    results: tuple[Outcome, ...]
    """Of the operations that have ended."""
    efforts: tuple[Effort, ...]
    begins: int
    """How many operations begin with the next call."""
    claims: int
    """How often that one has claimed its row."""
    defect: str | None


class _Paused(BaseException):
    """The answers are used up: this is where the process is."""


class Waiting(Protocol):
    """An operation of a process, as far as it says which ones wait together."""

    @property
    def with_next(self) -> bool: ...


def first_of(ops: Sequence[Waiting], number: int) -> int:
    """Return the first of the operations that wait together with this one."""
    while number and ops[number - 1].with_next:
        number -= 1
    return number


def operation_id(process: int, number: int) -> UUID:
    return UUID(int=(START // 1000) << 80 | 0x7 << 76 | 0b10 << 62 | process << 32 | number)


def outcome_of(run: Callable[[], object]) -> Outcome:
    """Return what ``run`` returns or raises, as a value."""
    try:
        return Outcome(_shown(run()))
    except MetastoreError as error:
        return Outcome(None, type(error).__name__)


def _shown(value: object) -> object:
    if isinstance(value, Entity):
        return value.path, value.version, value.comment, tuple(sorted(value.properties.items()))
    return value


class _Clock(Clock):
    def __init__(self, run: _Run) -> None:
        self._run = run

    def monotonic(self) -> float:
        return (self._run.now - START) / 1_000_000

    def micros(self) -> int:
        return self._run.now

    def sleep(self, seconds: float) -> None:
        self._run.sleep(seconds)

    def uniform(self, low: float, high: float) -> float:
        return 0.0  # a process that waits for a short while goes on when the scheduler lets it

    def operation_id(self) -> UUID:
        self._run.drawn += 1
        drawn = operation_id(self._run.number, self._run.drawn)
        self._run.tallies[drawn] = self._run.tally
        return drawn

    def waker(self) -> Any:
        return self._run.tasks.waker() if self._run.tasks.running else super().waker()

    def runner(self) -> Any:
        return getcurrent()


class _Proxy:
    """A backend whose answers are those that were given so far."""

    origin = ORIGIN
    notices = None

    def __init__(self, run: _Run, part: str = "") -> None:
        self._run, self._part = run, part

    @property
    def leases(self) -> _Proxy:
        return _Proxy(self._run, "leases.")

    @property
    def past(self) -> _Proxy:
        return _Proxy(self._run, "past.")

    @property
    def secret_keys(self) -> _Proxy:
        return _Proxy(self._run, "secret_keys.")

    @property
    def readers(self) -> _Proxy:
        return _Proxy(self._run, "readers.")

    def in_one_go(self, work: Callable[[], T], *, for_many: bool = False) -> T:
        """Call it: other processes come between two calls all the same."""
        return work()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name == "when_started":
            raise AttributeError(name)  # memory is never started again

        def call(*args: Any, **kwargs: Any) -> Any:
            values = tuple([tuple(value) if isinstance(value, list) else value for value in args])  # it may be late
            return self._run.call(Call(f"{self._part}{name}", values, tuple(kwargs.items())))

        return call


@dataclass
class _Tally:
    """Of one operation, while it runs."""

    failed: int = 0
    lost_before: bool = False
    base: int | None = None
    cancels: int = 0
    claims: int = 0
    causes: list[str] = field(default_factory=list)

    def effort(self) -> Effort:
        after = None if self.base is None else max(0, self.failed - self.base)
        return Effort(self.failed, after, self.cancels, tuple(self.causes))


class _Run:
    """One execution from the start; between two answers it stands still."""

    def __init__(self, number: int, answers: list[tuple[Answer, int]], wrap: Wrap | None) -> None:
        self.number, self.drawn = number, 0
        self.now = answers[0][1]
        self._answers, self._at = answers, 1
        self.action: Call | Nap | None = None
        self._here: greenlet | None = None
        self._explorer: greenlet | None = None
        self._thread = get_ident()
        self.given_up = False
        """It cannot go on: who needs another answer begins from the start."""
        self.begins = self.claims = 0
        self._by_task: dict[greenlet, _Tally] = {}
        self.tally = _Tally()
        self.tallies: dict[UUID, _Tally] = {}
        """By operation id: a batch counts for each of its members."""
        self.tasks = Tasks()
        self._aside: tuple[Call, Any] | None = None
        self._line: tuple[Call, Any, int] | None = None
        backend = cast(Backend, _Proxy(self))
        policy = RetryPolicy(hooks=(self._hook,))
        self.store = Store(URL, backend if wrap is None else wrap(backend), policy, f"p{number}", _Clock(self))

    def _next(self, action: Call | Nap) -> Answer:
        if self._at == len(self._answers):
            self._pause(action)
        answer, self.now = self._answers[self._at]
        self._at += 1
        return answer

    def _pause(self, action: Call | Nap) -> None:
        """Let the explorer go on until it has an answer to this."""
        if self.given_up:
            raise _Paused
        self.action, self.claims = action, self.tally.claims
        if get_ident() != self._thread:  # a thread that the operation has started cannot be left in the middle
            self.given_up = True
            raise _Paused
        self._here, explorer = getcurrent(), self._explorer
        assert explorer is not None
        try:
            explorer.switch()
        except GreenletExit:  # nobody holds it any more
            self.given_up = True
            raise
        self.action = None

    def go_on(self, body: Callable[[], None]) -> None:
        """Run ``body``, or what is left of it, up to the next call that has no answer yet."""
        self._explorer = getcurrent()
        if self._here is None:
            self._here = greenlet(body)
            self._here.gr_context = copy_context()
        self._here.switch()

    def answered(self, answer: Answer, now: int) -> None:
        """Take the answer to what it has stopped at."""
        self._answers.append((answer, now))

    def call(self, call: Call) -> Answer:
        answer = self._next(call)
        self._note(call, answer)
        if isinstance(answer, Raised):
            raise answer.error.with_traceback(None)
        return list(answer) if isinstance(answer, list) else answer  # whose it is now: the next replay gets another

    def _note(self, call: Call, answer: Answer) -> None:
        tally = self.tally
        self.begins = 0
        self._line = None
        if isinstance(answer, Raised):
            return
        if call.name == "marked":
            others = [m for m in answer if m.mark is not None and m.mark.int >> 32 & 0xFF != self.number]
            self._aside = (Call("marked", (tuple(call.args[0]),)), frozen(answer)) if others else None
        elif call.name in ("line", "turn"):
            self._stands(call, answer, answer if call.name == "line" else answer.line)
        elif call.name == "pending" and len(call.args) > 3:
            self._stands(Call("line", ((call.args[0],), call.args[3])), answer.line, answer.line)
        elif call.name == "cancel":
            tally.cancels += 1
        elif call.name == "forbid":
            tally.claims += 1
        elif call.name in ("commit", "help") and isinstance(answer, Conflicted):
            tally.lost_before = True
        elif call.name == "write_down" and isinstance(answer, Committed) and call.args[0].action == "pending":
            tally.base = tally.failed + tally.lost_before if tally.base is None else tally.base

    def _stands(self, look: Call, answer: Answer, line: Line) -> None:
        """Note that the process waits in line, and what it must see before it continues."""
        until = self.now + round(min(max(0.25, line.patience), 5.0) * 1_000_000) + 1
        self._line = (look, frozen(answer), until) if line.head is not None else None

    def sleep(self, seconds: float) -> None:
        aside = self._line or (self._aside if self.tally.causes[-1:] == ["marked"] else None)
        self._next(Nap(seconds, *aside) if aside and seconds == 0 else Nap(seconds))
        self._aside = self._line = None

    def _hook(self, attempt: Attempt) -> None:
        tally = self.tally if attempt.operation_id is None else self.tallies.get(attempt.operation_id, self.tally)
        if attempt.cause is not None:
            tally.failed += 1
            tally.causes.append(attempt.cause)
        tally.lost_before = False

    @property
    def tally(self) -> _Tally:
        """The tally of the operation whose task runs; a thread of an operation has none of its own."""
        return self._by_task.get(getcurrent(), self._last)

    @tally.setter
    def tally(self, tally: _Tally) -> None:
        self._by_task[getcurrent()] = self._last = tally

    def together(self, bodies: Sequence[Callable[[], None]], given: Mapping[str, Any], hot: str | None) -> None:
        """Run operations that wait until all of them do, and travel together then: in a batch, or in a table's chain.

        ``hot``: the key of that table in ``given``.
        """
        session = self.store._session
        assert isinstance(session.combiner, Combiner)
        for entity in given.values():  # the process was there before
            if isinstance(entity, Entity):
                session.recent.note_parents(lookup(kind_named(entity.kind), entity.names), entity.record.chain)
        lane: Lane[Any, Any] = session.combiner.writes._lane
        if hot is not None:
            lane = chain_at(session, given[hot].id).lane
            assert session.seals is not None
            session.seals.validated(given["cat"].record)  # another read in the first function would cut the chain
        term = lane.lead()
        assert term is not None
        self.tasks.run(bodies, lambda: lane.leave(term))


class Process:
    """One process and all that was found out about it."""

    def __init__(self, number: int, ops: tuple[Op, ...], given: Mapping[str, Any], wrap: Wrap | None) -> None:
        self.number = number
        self.ops = ops
        self.given = given
        self.wrap = wrap
        self._nodes: list[tuple[int, Answer, int]] = []
        self._children: dict[Any, int] = {}
        self._locals: list[Local] = []
        self._stopped: dict[int, _Execution] = {}

    def begin(self, now: int) -> int:
        """Return the node of a process that begins."""
        return self.child(-1, None, now)

    def child(self, node: int, answer: Answer, now: int) -> int:
        """Return the node after ``answer``, which came at ``now``."""
        key = (node, frozen(answer), now)
        found = self._children.get(key)
        if found is None:
            found = self._children[key] = len(self._nodes)
            self._nodes.append((node, answer, now))
            self._locals.append(self._after(found))
        return found

    def local(self, node: int) -> Local:
        return self._locals[node]

    def __len__(self) -> int:
        return len(self._nodes)

    def _after(self, node: int) -> Local:
        """Go on from the node before, if that has stopped there; a second answer there has to begin from the start."""
        before, answer, now = self._nodes[node]
        execution = self._stopped.pop(before, None)
        if execution is None:
            execution = _Execution(self, self._answers_to(node))
        else:
            execution.run.answered(answer, now)
        local = execution.go_on()
        if local.action is not None and not execution.run.given_up:
            self._stopped[node] = execution
        return local

    def _answers_to(self, node: int) -> list[tuple[Answer, int]]:
        answers: list[tuple[Answer, int]] = []
        while node >= 0:
            node, answer, now = self._nodes[node]
            answers.append((answer, now))
        return answers[::-1]


class _Execution:
    """A process's operations, up to a call that has no answer yet."""

    def __init__(self, process: Process, answers: list[tuple[Answer, int]]) -> None:
        self.run = _Run(process.number, answers, process.wrap)
        self._ops, self._given = process.ops, process.given
        self._hand = Hand(
            self.run.store, {k: v.entity if isinstance(v, Foreign) else v for k, v in self._given.items()}
        )
        self._ended: dict[int, tuple[Outcome, Effort]] = {}
        self._defect: str | None = None

    def go_on(self) -> Local:
        """Do what can be done with the answers that are there."""
        self.run.go_on(self._all)
        told = [self._ended[n] for n in takewhile(self._ended.__contains__, range(len(self._ops)))]
        results, efforts = tuple([one for one, _ in told]), tuple([one for _, one in told])
        action = self.run.action if self._defect is None else None
        return Local(action, results, efforts, self.run.begins, self.run.claims, self._defect)

    def _all(self) -> None:
        try:
            for number in range(len(self._ops)):
                if first_of(self._ops, number) == number:
                    together = [n for n in range(number, len(self._ops)) if first_of(self._ops, n) == number]
                    self._begin(together)
                    bodies = [partial(self._do, n) for n in together]
                    if len(together) > 1:
                        self.run.together(bodies, self._hand.given, self._ops[number].hot)
                    else:
                        bodies[0]()
        except _Paused:
            pass
        except Exception as error:  # noqa: BLE001  (it is what is looked for)
            self._defect = f"{type(error).__name__}: {error}"

    def _do(self, number: int) -> None:
        self.run.tally = _Tally()
        outcome = outcome_of(lambda: self._ops[number].run(self._hand))
        self._ended[number] = (outcome, self.run.tally.effort())

    def _begin(self, numbers: Sequence[int]) -> None:
        self.run.begins = len(numbers)
        for op in (self._ops[n] for n in numbers):
            if op.hot is not None:
                table = self._given[op.hot]
                self.run.store._session.hot.note(table.id, ("table", table.names))
