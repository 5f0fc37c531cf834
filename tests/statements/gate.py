"""The gate at which a thread waits for its release, before each statement that it sends.

A thread that no scheduler has started passes all gates.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from queue import SimpleQueue
from typing import Any, Literal, NamedTuple
from uuid import UUID

from metastore.clock import Clock
from tests.interleaving.process import operation_id
from tests.interleaving.tasks import Tasks
from tests.interleaving.world import START

__all__ = ["Abandoned", "Atom", "Kind", "Time", "Touched", "Worker", "WorkerClock", "current"]

Kind = Literal["read", "write", "begin", "inner", "commit", "wake"]
"""What a released thread does: a statement that changes and locks nothing; one that may; SQLite's BEGIN IMMEDIATE; a
statement that nobody else can see, or whose answer nobody can change; a COMMIT; nothing, its time to sleep is over.
"""

_here: ContextVar[Worker | None] = ContextVar("_here", default=None)
"""Whose statements these are: also in a thread that the worker's operation has started."""
_GATHERS = 0.0001
"""How long the leader of a batch waits for others at most (seconds)."""
_AHEAD = 1_000_000_000.0
"""Our monotonic clock is ahead of the machine's: a deadline by ours is never over for what looks at the other one."""


class Abandoned(BaseException):
    """Nobody wants to know how this schedule ends."""


class Touched(NamedTuple):
    """What a transaction looks at or locks in shared mode, and what it may change: ids, names, leases."""

    shared: frozenset[object] = frozenset()
    changed: frozenset[object] = frozenset()

    def meets(self, other: Touched) -> bool:
        """Whether one may see or hinder what the other does."""
        return not (
            self.changed.isdisjoint(other.changed)
            and self.changed.isdisjoint(other.shared)
            and self.shared.isdisjoint(other.changed)
        )


class Atom(NamedTuple):
    """What a thread does when it is released."""

    kind: Kind
    text: str = ""
    until: int = 0
    """When it wakes up (µs)."""
    touched: Touched | None = None
    """None: perhaps everything."""


class Time:
    """The time of one database and of all who use it. It stands still while anybody works."""

    def __init__(self) -> None:
        self.at = START


class Worker:
    """One thread, and where it is."""

    def __init__(self, number: int, arrivals: SimpleQueue[Worker]) -> None:
        self.number = number
        self.atom: Atom | None = None
        """What it does next; None: it is under way, or done."""
        self.done = True
        self.finished = 0
        """How many of its operations have returned."""
        self.fresh = True
        """Whether its present operation has sent nothing yet."""
        self.abandoned = False
        self.writing = False
        """It is inside of a transaction that writes."""
        self.freed = False
        """It has ended a transaction that others may have waited for."""
        self.patient = False
        """Its transaction would give up waiting for a lock after a while."""
        self.pid = 0
        """Of the server's process that works for it."""
        self.error: type[Exception] | None = None
        """What it is told instead, when its statement is cancelled."""
        self.defect: BaseException | None = None
        self.passed: list[str] = []
        """What it has sent since its last gate."""
        self._arrivals = arrivals
        self._orders: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=f"worker {number}", daemon=True)
        self._thread.start()

    def start(self, job: Callable[[], None]) -> None:
        """Let the thread do a job: it goes up to its first gate."""
        self.done = self.abandoned = self.writing = self.freed = self.patient = False
        self.atom = self.error = self.defect = None
        self.passed.clear()
        self.finished, self.fresh = 0, True
        self._orders.put(job)

    def release(self) -> None:
        self.atom = None
        self._orders.put(None)

    def end(self) -> None:
        """End the thread, which has nothing to do."""
        self._orders.put(None)
        self._thread.join()

    def gate(self, kind: Kind, text: str = "", until: int = 0, touched: Touched | None = None) -> None:
        """Called by the thread: wait for the release."""
        if self.abandoned:
            raise Abandoned
        self.atom = Atom(kind, text, until, touched)
        self._arrivals.put(self)
        self._orders.get()
        if self.abandoned:
            raise Abandoned

    def pass_by(self, text: str) -> None:
        """Called by the thread: note a statement that nobody else can see, or whose answer nobody can change.

        Whatever others do, before or after it, is the same: it needs no gate, and to stop there would take a while.
        """
        self.passed.append(text)

    def _serve(self) -> None:
        _here.set(self)
        while (job := self._orders.get()) is not None:
            try:
                job()
            except Abandoned:
                pass
            except BaseException as error:  # noqa: BLE001  (the thread that looks at the schedule gets it)
                self.defect = error
            self.atom, self.done, self.freed = None, True, True
            self._arrivals.put(self)


def current() -> Worker | None:
    """Return whose thread this is; None: nobody's, and there are no gates."""
    return _here.get()


class WorkerClock(Clock):
    """One process's clock: it stops at the gates, and draws ids that are the same in each run."""

    def __init__(self, time: Time, number: int, tasks: Tasks | None = None) -> None:
        self._time, self._number, self._drawn, self._tasks = time, number, 0, tasks

    def monotonic(self) -> float:
        return _AHEAD + (self._time.at - START) / 1_000_000

    def boottime(self) -> float:
        return self.monotonic()

    def micros(self) -> int:
        return self._time.at

    def sleep(self, seconds: float) -> None:
        ends = self._time.at + round(seconds * 1_000_000)
        worker = current()
        if self._tasks is not None and self._tasks.running and seconds <= _GATHERS:
            return  # a leader lets others come: all are there
        if worker is None:
            self._time.at = ends
        else:
            worker.gate("wake", until=ends)

    def uniform(self, low: float, high: float) -> Any:
        return high

    def waker(self) -> Any:
        return self._tasks.waker() if self._tasks is not None and self._tasks.running else super().waker()

    def operation_id(self) -> UUID:
        self._drawn += 1
        return operation_id(self._number, self._drawn)
