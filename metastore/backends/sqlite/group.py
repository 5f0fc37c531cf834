"""Group commit: threads that write at the same time share one transaction, and one wait for the disk.

The first thread *leads*: it begins to write at once. Later changes wait in a queue. When the leader has SQLite's only
lock for writers, it takes the changes that wait by then, makes them one after the other in its own transaction, and
commits once. If a change came too late for this group, its thread leads next.

A large change has a transaction of its own. Small changes that came before it are committed first. Only the changes
after it wait for it.

Each change has a savepoint: a change that fails is rolled back alone, and affects no other. A change runs with the
deadline of its own thread. No thread gets an answer before the COMMIT, so a group has the same effect as its changes
one after the other. If the transaction fails as a whole, each change is tried again alone, and meets its own error. An
error of the COMMIT itself is the answer to all.

A thread leads while its block runs (:mod:`metastore.block`). If an interrupt ends the block, the waiting threads see
that no thread leads, and one of them begins. If an interrupt ends the thread of a waiting change, the change is not
made.
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from sqlite3 import SQLITE_IOERR
from typing import Any, Final, Protocol, Self, TypeVar

from metastore.backends.sqlite.connect import DRIVER, Pool
from metastore.block import Block
from metastore.clock import SYSTEM, Clock, ThreadWaker
from metastore.deadlines import remaining

T = TypeVar("T")
Change = Callable[[Any, int], Any]

MOST: Final = 64
"""How many changes share a transaction at most."""
_PATIENCE: Final = 1.0
"""After this time without progress, a waiting thread leads beside the leader, which may be stuck (seconds)."""
_LOOKS: Final = 0.1
"""How often a waiting thread checks that another one leads (seconds)."""


class Written(Protocol):
    """A function that runs a change (of connection and time) in a writing transaction. Raises the caller's errors."""

    def __call__(self, change: Callable[[Any, int], T], /) -> T: ...


def wrote(written: Written, sql: str, **values: Any) -> bool:
    """Run a statement in a writing transaction, at ``:now``; return whether it returned a row."""
    return written(lambda connection, now: bool(connection.execute(sql, {**values, "now": now}).fetchall()))


class _Turn(Block):
    """The block of a thread that makes a change, as leader or waiting."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def end(self, *_: object) -> None:
        """Do nothing: only the end of the block counts."""


class _Fate:
    """The outcome of a transaction that several changes share.

    The results of the changes count only if the transaction was committed.

    An interrupt may end the leader's thread anywhere, and a second interrupt may end the handling of the first one.
    """

    sent = False
    """Whether its COMMIT was sent. Until ``done``, its outcome is in doubt."""
    done = False
    error: BaseException | None = None
    """The error of the COMMIT."""


class _Job:
    """One waiting change, and its answer."""

    def __init__(self, change: Change, turn: _Turn, large: bool) -> None:
        self.change, self.turn, self.large = change, turn, large
        self.context = copy_context()
        self.waker = ThreadWaker()
        self.leads = False
        self.leader: _Turn | None = None
        """The turn of the leader that makes the change, if that is another thread."""
        self.fate = _Fate()
        self.value: Any = None
        self.error: BaseException | None = None

    def make(self, fate: _Fate, connection: Any, now: int) -> None:
        """Make the change after a savepoint. Raises the error that ended the whole transaction."""
        self.fate = fate
        connection.execute("SAVEPOINT one")
        try:
            self.value = self.context.run(self.change, connection, now)
        except Exception as error:
            # SQLite has rolled back the whole group, for example because the disk is full
            if not connection.in_transaction:
                raise DRIVER.OperationalError("the transaction of a group was rolled back") from error
            connection.execute("ROLLBACK TO one")
            self.error = error
        connection.execute("RELEASE one")

    @property
    def answered(self) -> bool:
        """Whether there is an answer, after the leader has made the change. False: nothing was committed."""
        return self.fate.sent

    def answer(self) -> Any:
        if self.fate.error is not None:
            raise self.fate.error
        if not self.fate.done:
            raise _in_doubt()
        if self.error is not None:
            raise self.error
        return self.value


def _in_doubt() -> Exception:
    """Return the error for a change that may have been applied."""
    error: Exception = DRIVER.OperationalError("the thread that sent the COMMIT was interrupted")
    error.sqlite_errorcode = SQLITE_IOERR  # type: ignore[attr-defined]
    return error


class GroupCommit:
    """The group commit of one pool; see the module. Any number of threads may use it."""

    def __init__(self, pool: Pool, clock: Clock) -> None:
        self._pool, self._clock = pool, clock
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._leader: _Turn | None = None
        self._moves = 0
        self._queue: deque[_Job] = deque()

    def run(self, change: Callable[[Any, int], T], *, large: bool = False) -> T:
        """Make a change in a transaction; return its result. Raises its errors, and the driver's.

        ``large``: the change has a transaction of its own.
        """
        if os.getpid() != self._pid:  # in a forked child, no thread is inside of a transaction
            self._begin()
        with _Turn() as turn:
            job = self._queued(change, turn, large)
            if job is None or (self._waited(job) and job.leads):
                value: T = self._lead(_Job(change, turn, large))
            else:
                value = self._answer(job)
        return value

    @property
    def _is_led(self) -> bool:
        return self._leader is not None and self._leader.runs

    def _queued(self, change: Change, turn: _Turn, large: bool) -> _Job | None:
        """Put a change into the queue, and return its job. Return None if its own thread leads instead."""
        with self._mutex:
            if not self._is_led:
                self._leader = turn
                return None
            job = _Job(change, turn, large)
            self._queue.append(job)
            return job

    def _answer(self, job: _Job) -> Any:
        return job.answer() if job.answered else self._alone(job.change)

    def _waited(self, job: _Job) -> bool:
        """Wait until the job has its answer, leads or has no leader. Return False if its time ended in the queue."""
        taken, moves, since = False, self._moves, SYSTEM.monotonic()
        while True:
            left = remaining(SYSTEM, math.inf)
            # once the job is taken, the wait has no deadline; it looks rarely, because each look takes time from the
            # leader
            if job.waker.wait(_PATIENCE if taken else max(0.0, min(left, _LOOKS))):
                return True
            with self._mutex:
                if job.leads:  # an interrupt stopped the thread that should wake this one
                    return True
                if job not in self._queue:
                    taken = True  # the leader makes the change, so the answer will come
                    if job.leader is not None and job.leader.runs:
                        continue
                    return True  # an interrupt stopped its leader, or a fork happened when it entered the queue
                now = SYSTEM.monotonic()
                if moves != self._moves:
                    moves, since = self._moves, now
                is_over = left <= _LOOKS and remaining(SYSTEM, math.inf) <= 0
                if is_over or not self._is_led or now - since >= _PATIENCE:
                    self._queue.remove(job)
                    if not is_over:
                        self._leader, job.leads = job.turn, True
                    return job.leads

    def _alone(self, change: Change) -> Any:
        with self._pool.connection() as connection:
            self._pool.begin(connection)
            value = change(connection, self._clock.micros())
            connection.execute("COMMIT")
            return value

    def _lead(self, first: _Job) -> Any:
        jobs = [first]
        try:
            with self._pool.connection() as connection:
                self._pool.begin(connection)
                self._take(jobs)
                if len(jobs) == 1:
                    value = first.change(connection, self._clock.micros())
                    connection.execute("COMMIT")
                    return value
                self._make(connection, jobs)
        finally:
            self._end(jobs[1:])
        return self._answer(jobs[0])

    def _end(self, waiting: list[_Job]) -> None:
        """Resign, and wake all that wait for an answer, even if interrupts hit this thread meanwhile."""
        leads, interrupt = True, None
        while leads or waiting:
            try:
                if leads:
                    self._resign()  # again, after an interrupt: two threads may then lead, one after the other
                    leads = False
                while waiting:
                    waiting[-1].waker.wake()
                    waiting.pop()
            except BaseException as error:  # noqa: BLE001  (raised below)
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _make(self, connection: Any, jobs: list[_Job]) -> None:
        """Make all changes, and commit once. A job that gets no answer is tried again alone."""
        fate, made = _Fate(), 0
        try:
            while made < len(jobs):
                jobs[made].make(fate, connection, self._clock.micros())
                made += 1
                if made == len(jobs):
                    self._take(jobs)  # also make the changes that came meanwhile
            fate.sent = True
            connection.execute("COMMIT")
            fate.done = True
        except DRIVER.Error as error:
            fate.error = error
        except BaseException:  # an interrupt stopped the leader
            fate.done = fate.sent and not connection.in_transaction
            fate.sent = fate.done
            raise

    def _take(self, jobs: list[_Job]) -> None:
        """Add the waiting changes, as far as they fit."""
        with self._mutex:
            self._moves += 1
            turn = jobs[0].turn
            while self._queue and len(jobs) < MOST and not (jobs[0].large or self._queue[0].large):
                job = self._queue[0]
                # before the job leaves the queue, so that an interrupt cannot lose it
                job.leader = job.turn if job.leads else turn
                self._queue.popleft()
                if job.leader is turn and job.turn.runs:  # an interrupted job has no waiting thread
                    jobs.append(job)

    def _resign(self) -> None:
        """Let the thread that has waited longest lead."""
        with self._mutex:
            self._moves += 1
            while self._queue and not self._queue[0].turn.runs:
                self._queue.popleft()  # an interrupt ended the job's thread
            if self._queue:
                job = self._queue[0]
                # before the job leaves the queue, so that an interrupt cannot lose it
                self._leader, job.leads = job.turn, True
                self._queue.popleft()
                job.waker.wake()
            else:
                self._leader = None
