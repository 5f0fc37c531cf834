"""The threads of an async store: each one makes one call of the backend at a time.

A call that waits for a thread can be withdrawn: then nothing was sent. A running call cannot be withdrawn. It is asked
to stop (:class:`metastore.deadlines.Stop`), which ends a statement at the server as a deadline does, and the task waits
for it. So no call continues after its task was cancelled.

After the store was closed, calls that clean up are still made, as in a sync store: they withdraw announced intents, and
remove marks.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from metastore.backends.sql.limits import Limits
from metastore.clock import SYSTEM
from metastore.deadlines import Stop, cleans_up, remaining, stoppable
from metastore.errors import BackendUnavailable, DeadlineExceeded, StoreClosed

__all__ = ["Job", "Threads"]

_TURN = 4
"""Of each group of this many calls, the threads take the last from those that are not urgent, if any wait."""


class Job:
    """One call on its way from a task to a thread and back."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._context = copy_context()
        self._stop = Stop()
        self._started = threading.Lock()  # taken once: by the thread that runs the call, or to withdraw it
        self._loop = asyncio.get_running_loop()
        self.done = self._loop.create_future()
        """Wakes the task, which then checks :attr:`over`. Cancelling the task cancels this future, not the call."""
        self.over = False
        """Whether the call has ended or was withdrawn. Used only by the loop's thread."""
        self.timer: asyncio.TimerHandle | None = None
        self._ends = math.inf
        self._late: BaseException | None = None
        self._result: Any = None
        self._error: BaseException | None = None

    def wait_at_most(self, seconds: float, error: BaseException) -> None:
        """Let the task get ``error`` if no thread has taken the call until then."""
        self._ends, self._late = SYSTEM.monotonic() + seconds, error
        self.timer = self._loop.call_later(seconds, self.withdraw, error)

    def run(self, free: Callable[[], None]) -> None:
        """Make the call, unless it was withdrawn; call ``free`` before the task is woken. (Runs in a thread.)"""
        made = self._started.acquire(blocking=False)
        if made:
            try:
                self._result = self._context.run(self._called)
            except BaseException as error:  # noqa: BLE001  (it is raised in the task)
                self._error = error
        free()
        if made:
            self._tell()

    def _called(self) -> Any:
        if self._late is not None and SYSTEM.monotonic() >= self._ends:  # the loop is too busy to run the timer
            raise self._late
        stoppable(self._stop)
        return self._call()

    def _tell(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._finish)
        except RuntimeError:  # the loop was closed: no task waits any more
            return

    def _finish(self) -> None:
        self.over = True
        if self.timer is not None:
            self.timer.cancel()
        if not self.done.done():
            self.done.set_result(None)

    def withdraw(self, error: BaseException | None = None) -> bool:
        """Make sure that the call is never made. Return False if it has begun, or was withdrawn before.

        The task gets ``error``, if there is one.
        """
        if not self._started.acquire(blocking=False):
            return False
        self._error = error
        self._finish()
        return True

    def stop(self) -> None:
        """Ask the call to end early."""
        self._stop.asked = True

    def again(self) -> asyncio.Future[None]:
        """Return a new future with which a cancelled task waits for the end."""
        self.done = self._loop.create_future()
        return self.done

    def result(self) -> Any:
        """Return the result of the call, or raise its error."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._result


class _Calls:
    """The calls that wait for a thread, the urgent ones first.

    The next step of a call that has begun is urgent, because other operations may change, between its read and its
    commit, the rows that it read. One call in ``_TURN`` is the oldest one that is not urgent, if there is any. So a
    search through many pages does not keep other calls from starting.
    """

    def __init__(self) -> None:
        self._there: SimpleQueue[None] = SimpleQueue()
        self._urgent, self._others = deque[Job](), deque[Job]()
        self._lock = threading.Lock()  # two threads must not take one call; never held during a call
        self._taken = 0

    def put(self, job: Job, *, urgent: bool = False) -> None:
        (self._urgent if urgent else self._others).append(job)
        self._there.put(None)

    def end(self) -> None:
        """Let one thread end, after the waiting calls."""
        self._there.put(None)

    def get(self) -> Job | None:
        self._there.get()
        with self._lock:
            self._taken += 1
            first, then = self._urgent, self._others
            if self._taken % _TURN == 0:
                first, then = then, first
            calls = first or then
            return calls.popleft() if calls else None


class Threads:
    """At most ``limits.size`` threads, which start with the first calls and end when the store is closed.

    Any event loop may use them. A forked child has its own.
    """

    def __init__(self, limits: Limits, deadline: float = math.inf) -> None:
        """``deadline`` (seconds) applies to calls that do not set one."""
        self._limits, self._deadline = limits, deadline
        self._be_new()

    def _be_new(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()  # the loop and threads change the counts and lists; no call runs while it is held
        self._calls = _Calls()
        self._workers: list[threading.Thread] = []
        self._waits: set[Job] = set()
        self._under_way = 0
        self._closed = False
        self._last: SimpleQueue[Job] = SimpleQueue()
        """The calls that clean up after the store was closed. The next attribute counts their threads."""
        self._cleaners = 0

    @property
    def waiting(self) -> int:
        """The number of calls that wait for a thread."""
        return max(0, self._under_way - self._limits.size)

    def submit(self, call: Callable[[], Any], *, urgent: bool = False) -> Job:
        """Make a call in one of the threads, an urgent one before others. Raises StoreClosed.

        If all threads are busy, the call waits as long as it may wait for a connection. After that, the job ends with
        PoolExhausted or DeadlineExceeded.
        """
        if os.getpid() != self._pid:
            self._be_new()
        job = Job(call)
        with self._lock:
            if self._closed:
                return self._clean_up(job)
            if len(self._workers) < min(self._under_way + 1, self._limits.size):
                self._begin()
            self._under_way += 1
            busy = self._under_way > self._limits.size
            self._calls.put(job, urgent=urgent)  # under the lock, so that the job comes before the end mark of a close
        if busy:
            self._let_wait(job)
        return job

    def _clean_up(self, job: Job) -> Job:
        """Make a call after the store was closed, if it only cleans up. Raises StoreClosed. (The lock is held.)"""
        if not cleans_up():
            raise StoreClosed
        self._last.put(job)
        if self._cleaners < self._limits.size:
            try:
                threading.Thread(target=self._make_last, name="metastore-async-last", daemon=True).start()
            except RuntimeError as error:
                if not self._cleaners:
                    raise _no_thread(error) from error
            else:
                self._cleaners += 1
        return job

    def _make_last(self) -> None:
        while True:
            with self._lock:
                try:
                    job = self._last.get_nowait()
                except Empty:
                    self._cleaners -= 1
                    return
            job.run(lambda: None)

    def _begin(self) -> None:
        """Start one more thread. If that fails, the call waits for an existing thread, or fails if there is none."""
        name = f"metastore-async-{len(self._workers) + 1}"
        thread = threading.Thread(target=self._work, args=(self._calls,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._workers:
                raise _no_thread(error) from error
        else:
            self._workers.append(thread)

    def _let_wait(self, job: Job) -> None:
        patience = math.inf if self._limits.max_wait is None else self._limits.max_wait
        left = remaining(SYSTEM, self._deadline)
        error = (
            self._limits.exhausted()
            if patience < left
            else DeadlineExceeded("the deadline passed before the database was asked; call again, with a longer one")
        )
        if min(patience, left) < math.inf:
            job.wait_at_most(max(0.0, min(patience, left)), error)

    def _work(self, calls: _Calls) -> None:
        while (job := calls.get()) is not None:
            job.run(self._free)

    def _free(self) -> None:
        with self._lock:
            self._under_way -= 1

    def alone(self, call: Callable[[], Any], *, waits: bool = False) -> Job:
        """Make a long call in a separate thread. ``waits``: the call only waits, so closing the store ends it early."""
        if os.getpid() != self._pid:
            self._be_new()
        job = Job(call)
        if waits:
            self._waits.add(job)
        work = partial(job.run, partial(self._waits.discard, job))
        try:
            threading.Thread(target=work, name="metastore-async-alone", daemon=True).start()
        except RuntimeError as error:
            self._waits.discard(job)
            raise _no_thread(error) from error
        return job

    def close(self) -> None:
        """Wait until the calls under way have ended; no more start. One of these threads must not call this."""
        with self._lock:
            closed, self._closed = self._closed or os.getpid() != self._pid, True
        if closed:
            return
        for job in list(self._waits):
            job.stop()
        for _ in self._workers:
            self._calls.end()
        for thread in self._workers:
            thread.join()


def _no_thread(error: RuntimeError) -> BackendUnavailable:
    return BackendUnavailable(f"nothing was sent: the system starts no thread for the call ({error}); call again later")
