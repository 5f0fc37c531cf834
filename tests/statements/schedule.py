"""One schedule: release one process after the other, until all processes are done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Literal, NamedTuple, Protocol, Self

from metastore.port.backend import Backend
from metastore.retry.policy import Attempt, RetryPolicy
from metastore.store import Store
from metastore.urls import parse_url
from tests.interleaving.oracle import Which
from tests.interleaving.process import Hand, Outcome, first_of
from tests.interleaving.tasks import Tasks
from tests.statements.batched import together
from tests.statements.content import Content
from tests.statements.gate import Time, Touched, Worker, WorkerClock
from tests.statements.operations import Operation, outcome_of

__all__ = ["Choice", "Database", "Diverged", "Ended", "Run", "Workers"]

_URL = parse_url("memory://")
_LOOK = 0.001
"""After how long it is asked whether a statement waits for a lock (seconds)."""
_STUCK = 20.0


class Database(Protocol):
    """What the scheduler needs of a database."""

    name: str
    naps: int
    """So often a process that waits for a while may look again at any moment; after that only when nobody else goes on.

    (Who tries again at once is not bound.)
    """
    time: Time

    def backend(self, number: int) -> Backend: ...
    def change(self, text: str) -> None: ...
    def clear(self) -> None: ...
    def keep(self) -> None: ...
    def reset(self) -> None: ...
    def pass_time(self, until: int) -> None: ...
    def content(self) -> Content: ...
    def problems(self) -> list[str]: ...
    def waiting(self, asked: Sequence[Worker], among: Sequence[Worker]) -> set[Worker]: ...
    def cancel(self, worker: Worker, *, deadlock: bool) -> None: ...


class Choice(NamedTuple):
    """What may happen next: a statement is sent, a wait is over, or the server ends one."""

    what: Literal["go", "wake", "timeout", "victim"]
    worker: int
    kind: str = ""
    first: bool = False
    """It is the operation's first: what has returned before is before it in real time."""
    touched: Touched | None = None

    def commutes(self, other: Choice) -> bool:
        """Whether it does not matter which of the two comes first."""
        if self.what != "go" or other.what != "go" or self.first or other.first:
            return False
        kinds = {self.kind, other.kind}
        if "inner" in kinds or ("read" in kinds and "commit" not in kinds):
            return True
        return self.touched is not None and other.touched is not None and not self.touched.meets(other.touched)


class Step(NamedTuple):
    """What a worker did."""

    worker: int
    what: str
    text: str

    def __str__(self) -> str:
        text = " ".join(self.text.split())
        return f"p{self.worker} {self.what}{': ' + text[:120] if text else ''}"


class Diverged(Exception):
    """The same choices led elsewhere."""


class Ended(NamedTuple):
    """What came out of a schedule."""

    outcomes: Mapping[Which, Outcome]
    before: Mapping[Which, frozenset[Which]]
    """Which operations had returned before one began."""
    causes: Mapping[Which, tuple[str, ...]]
    """Of the attempts that lost."""


class Workers:
    """The threads, which serve one schedule after the other."""

    def __init__(self, count: int) -> None:
        self.arrivals: SimpleQueue[Worker] = SimpleQueue()
        self.all = [Worker(n, self.arrivals) for n in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.all:
            worker.end()


@dataclass
class Run:
    """One run of a program's processes on a database that was put back."""

    database: Database
    threads: Workers
    processes: tuple[tuple[Operation, ...], ...]
    given: Mapping[str, Any]
    trace: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.workers = self.threads.all[: len(self.processes)]
        self._under_way: set[Worker] = set()
        self._blocked: set[Worker] = set()
        self._asleep: dict[Worker, bool] = {}  # whether others have committed something since
        self._naps: Counter[Worker] = Counter()
        self.held_back = False
        self._outcomes: dict[Which, Outcome] = {}
        self._before: dict[Which, frozenset[Which]] = {}
        self._causes: dict[Which, list[str]] = {}

    def start(self) -> None:
        self.database.reset()
        for worker in self.workers:
            self._under_way.add(worker)
            worker.start(self._job(worker))
        self._settle()

    def _job(self, worker: Worker) -> Callable[[], None]:
        number = worker.number

        def hook(attempt: Attempt) -> None:
            if attempt.cause is not None:
                self._causes.setdefault((number, worker.finished), []).append(attempt.cause)

        tasks = Tasks()
        clock = WorkerClock(self.database.time, number, tasks)
        backend = self.database.backend(number)
        store = Store(_URL, backend, RetryPolicy(hooks=(hook,)), f"p{number}", clock)
        hand = Hand(store, dict(self.given))

        def one(n: int) -> None:
            self._outcomes[number, n] = outcome_of(lambda: self.processes[number][n].run(hand))

        def job() -> None:
            while worker.finished < len(self.processes[number]):
                mates = self._mates(worker)
                if len(mates) == 1:
                    one(mates[0])
                else:
                    together(tasks, hand, [partial(one, n) for n in mates])
                if worker.fresh:
                    self._began(worker)
                worker.finished, worker.fresh = mates[-1] + 1, True

        return job

    def _mates(self, worker: Worker) -> list[int]:
        """Return the operation that a worker is at, and those that wait together with it."""
        operations = self.processes[worker.number]
        return [n for n in range(len(operations)) if first_of(operations, n) == worker.finished]

    def _began(self, worker: Worker) -> None:
        worker.fresh = False
        done = frozenset((w.number, n) for w in self.workers for n in range(w.finished))
        for n in self._mates(worker):
            self._before[worker.number, n] = done

    # --- what may happen

    def choices(self) -> list[Choice]:
        """Return what may happen next; nothing: all are done."""
        going = [self._go(w) for w in self.workers if self._may_go(w)]
        for choice in going:
            if choice.kind == "inner":
                return [choice]  # whatever others do, before or after it, is the same
        found = going + [Choice("timeout", w.number) for w in self._sorted(self._blocked) if w.patient]
        woken = {w for w, news in self._asleep.items() if news}
        early = {w for w in woken if self._naps[w] <= self.database.naps}
        self.held_back = self.held_back or (early != woken and bool(found))
        found += [Choice("wake", w.number) for w in self._sorted(early)]
        if found:
            return found
        if self._asleep:  # who looks again where nothing has changed finds the same: the one whose turn it is
            return [Choice("wake", min(self._asleep, key=lambda w: (w.atom.until if w.atom else 0, w.number)).number)]
        return [Choice("victim", w.number) for w in self._sorted(self._blocked)]

    def _sorted(self, workers: set[Worker]) -> list[Worker]:
        return sorted(workers, key=lambda w: w.number)

    def _may_go(self, worker: Worker) -> bool:
        if worker.atom is None or worker.atom.kind == "wake" or worker in self._blocked:
            return False
        return worker.atom.kind != "begin" or not any(w.writing for w in self.workers)

    def _go(self, worker: Worker) -> Choice:
        assert worker.atom is not None
        return Choice("go", worker.number, worker.atom.kind, worker.fresh, worker.atom.touched)

    def take(self, choice: Choice) -> None:
        """Let it happen, until all have stopped again."""
        worker = self.workers[choice.worker]
        self.trace.append(Step(worker.number, choice.kind or choice.what, worker.atom.text if worker.atom else ""))
        worker.freed = False
        if choice.what in ("timeout", "victim"):
            self._blocked.discard(worker)
            self.database.cancel(worker, deadlock=choice.what == "victim")
        else:
            if choice.what == "wake":
                assert worker.atom is not None
                self.database.pass_time(worker.atom.until)
                del self._asleep[worker]
            elif worker.fresh:
                self._began(worker)
            worker.release()
        self._under_way.add(worker)
        self._settle()
        self.trace += [Step(worker.number, "inner", text) for text in worker.passed]
        worker.passed.clear()

    def _settle(self) -> None:
        """Wait until each worker is at a gate, done, or waits for a lock."""
        waited = 0.0
        while self._under_way:
            try:
                worker = self.threads.arrivals.get(timeout=_LOOK)
            except Empty:
                waited += _LOOK
                asked = [w for w in self._under_way if w.error is None]
                waiting = self.database.waiting(asked, self.workers)
                self._blocked |= waiting
                self._under_way -= waiting
                if waited > _STUCK:
                    raise RuntimeError(f"stuck: {[*map(str, self.trace[-5:])]}") from None
                continue
            self._under_way.discard(worker)
            self._blocked.discard(worker)  # the answer to a COMMIT may come later than whom it has set free
            if worker.atom is not None and worker.atom.kind == "wake":
                self._asleep[worker] = False
                self._naps[worker] += worker.atom.until > self.database.time.at
            if worker.freed:
                worker.freed = False
                self._asleep.update({w: True for w in self._asleep if w is not worker})
                self._under_way |= self._blocked
                self._blocked.clear()

    # --- the end

    def ended(self) -> Ended:
        for worker in self.workers:
            if worker.defect is not None:
                raise worker.defect
        return Ended(self._outcomes, self._before, {w: tuple(c) for w, c in self._causes.items()})

    def abandon(self) -> None:
        """Bring all threads to an end, whatever they were about to do."""
        for worker in self.workers:
            worker.abandoned = True
        while not all(w.done for w in self.workers):
            for worker in self.workers:
                if worker.atom is not None and worker not in self._under_way:
                    self._asleep.pop(worker, None)
                    self._under_way.add(worker)
                    worker.release()
            self._settle()
            for worker in self._sorted(self._blocked):
                if not any(w.atom for w in self.workers):
                    self._blocked.discard(worker)
                    self.database.cancel(worker, deadlock=True)
                    self._under_way.add(worker)
                    break
