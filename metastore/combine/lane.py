"""A lane: the first request goes at once; the requests that come meanwhile go together after it.

The method is flat combining (Hendler, Incze, Shavit, Tzafrir, SPAA 2010), used as in a group commit::

    answer = lane.run(request, ends, alone=…, together=…)

* Nothing is in flight: the calling thread *leads*. It calls ``alone(resign)`` and returns the result. No other thread
  takes part, so a single client has no overhead.
* Another thread leads: the request waits in a queue. When the leader's message is answered, the leader elects one of
  the waiting requests. The elected thread calls ``together(handles)`` for itself and at most ``most`` waiting requests
  in all. ``together`` sends one message, and returns a function that gives each :class:`Handle` its answer. This
  function runs when the next leader has begun.
* A handle that ``together`` puts back (:meth:`Lane.back`) goes with the next batch. If it is the leader's own, its
  thread leads that batch too: it is awake already.
* A handle without an answer runs ``alone()`` in its own thread. So a batch that fails as a whole does not affect its
  members: each is tried again alone, and meets its own error. (But if the batch got no connection, each member has
  waited as long as it may, and fails.)

**Deadlines.** A request waits in the queue until ``ends``, then leaves it and raises ``expired()``. If its time ends
while it is in a batch, its thread stops waiting and runs ``alone()``, which deals with the message in flight.

**Leaders that do not come back.** Correctness does not depend on a single leader: the term only says which thread sends
next. If nothing has happened for ``patience``, a waiting thread leads beside the old leader, on another connection. So
a message that waits for a locked row, a dead thread, or an interrupt between two lines delays the others no longer than
that. After an error or interrupt in the leader, the next one leads at once. A request whose batch ended without its
answer goes alone, even if an interrupt kept the leader from telling it (:class:`~.handle.Batch`). A forked child begins
with an empty lane.

**The watcher.** Each look wakes a thread or task, so not all waiting requests may look often. One of them, the
*watcher*, looks after each ``patience`` whether a leader is stuck. It is the newest in the queue, which will wait
longest. The others look rarely, ``_LOOKS`` times a second in total, in case an interrupt has lost their request or the
watcher. So a call's work for the lane does not grow with the number of waiting calls.

**Threads and tasks.** A request waits with a waker of the lane's clock: a thread waits on a lock, a task lets its event
loop run other tasks. A leader may then be a task. :meth:`Lane.submit` and :meth:`Lane.result` are the two halves of
``run`` for requests that must not go alone; :meth:`Lane.lead` and :meth:`Lane.leave` are for a request that does.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final, Generic, TypeVar

from metastore.clock import SYSTEM, Clock, Waker, process_id
from metastore.combine.handle import BY_AGE, Batch, Handle, Resign, Term
from metastore.errors import PoolExhausted

Q = TypeVar("Q")
A = TypeVar("A")

MOST: Final = 64
"""How many requests a batch has at most."""
PATIENCE: Final = 0.2
"""How long a leader may take before a waiting thread leads beside it (seconds)."""
_log = logging.getLogger("metastore.combine")
_GATHERS, _SEVERAL = 0.0001, 4
"""How long a leader waits for others (seconds) if the last batch had several requests. ``sleep(0)`` lets few threads
run. With 64 threads and mixed calls, this wait cut the clients' processor time by 10 %, and the p99 by half."""
_LOOKS = 250
"""How many looks per second all waiting requests share; if few wait, each looks once per patience."""
_CANDIDATES = 8
"""This many of the oldest waiting requests, and the newest, may lead next; the one with the most time left does. If a
request with hardly any time left led, its batch would fail for all members."""


Tell = Callable[[], None]
Together = Callable[[Sequence[Handle[Q, A]]], Tell]
"""Send one message for all of these requests; return the function that gives each its answer."""


class Lane(Generic[Q, A]):
    """The queue and the leader of one sort of request; see the module. Any number of threads may use it.

    ``patience``, ``gathers``: how long one leader may take, and how long it waits for others (seconds).
    """

    def __init__(
        self,
        clock: Clock = SYSTEM,
        most: int = MOST,
        waker: Callable[[], Waker] | None = None,
        patience: float = PATIENCE,
        gathers: float = _GATHERS,
    ) -> None:
        self._patience, self._gathers = patience, gathers
        self._clock = clock
        self._most = most
        self._waker = waker or clock.waker
        self._begin()

    def _begin(self) -> None:
        """Begin with an empty queue. In a forked child, the waiting requests belong to the parent."""
        self._pid = process_id()
        self._token = threading.Lock()
        """A thread holds the token while it leads, or after its election. No thread ever waits for the token."""
        self._term = Term()
        self._queue: deque[Handle[Q, A]] = deque()
        """The requests in the order of their numbers. One that no longer waits is removed at the head."""
        self._watcher: Handle[Q, A] | None = None
        self._numbers = count()
        self._size = 0
        """How many requests the last batch had."""

    def run(
        self,
        request: Q,
        ends: float,
        alone: Callable[[Resign], A],
        together: Together[Q, A],
        expired: Callable[[], BaseException] = TimeoutError,
    ) -> A:
        """Return the request's answer: see the module. ``alone`` gets a function that lets the next leader begin.

        Raises ``expired()`` if the instant ``ends`` comes while the request waits in the queue.
        """
        term = self.lead()
        if term is None:
            return self.result(self.submit(request, ends), alone, together, expired)
        try:
            return alone(lambda: self.leave(term))
        finally:
            self.leave(term)

    def lead(self) -> Term | None:
        """Begin a term for one request that goes alone, to :meth:`leave` later. Return None if another thread leads."""
        if process_id() != self._pid:  # this is a forked child
            self._begin()
        if not self._token.acquire(False):
            return None
        term = self._term = Term()
        return term

    def leave(self, term: Term, again: Handle[Q, A] | None = None) -> None:
        """End a term, unless it has ended, and begin the next one; ``again`` leads the next one if it waits."""
        if term.end():
            self._elect(again)

    def submit(self, request: Q, ends: float) -> Handle[Q, A]:
        """Put a request into the queue. Its thread must call :meth:`result` next."""
        if process_id() != self._pid:  # this is a forked child
            self._begin()
        handle: Handle[Q, A] = Handle(request, ends, next(self._numbers), self._waker())
        self._queue.append(handle)
        if self._token.acquire(False):  # the leader may have ended before it saw the handle
            self._elect()
        return handle

    def result(
        self,
        handle: Handle[Q, A],
        alone: Callable[[Resign], A],
        together: Together[Q, A],
        expired: Callable[[], BaseException] = TimeoutError,
    ) -> A:
        """Wait for the answer of a request, and lead a batch if the request is elected."""
        while True:
            term: Term | None = None
            try:
                if not self._woken(handle):
                    raise expired()
                stay = handle.stay
                if stay.leads:
                    term = stay.term
                    if self._clock.monotonic() < handle.ends:
                        self._lead(handle, term, together)
                    stay.end()
                elif not handle.answered and not stay.waits and self._clock.monotonic() >= handle.ends:
                    stay.end()  # a batch has the request, but its time is over: it continues alone
            except BaseException:
                self.give_up(handle)
                raise
            finally:
                if term is not None:
                    self.leave(term)
            if handle.answered or stay.is_over:
                return handle.take(alone)

    def back(self, handles: Sequence[Handle[Q, A]]) -> None:
        """Let requests of an answered batch go with the next batch, before those that wait already."""
        for handle in reversed(handles):
            stay = handle.stay.following()
            if stay is not None:
                handle.stay = stay
                self._queue.appendleft(handle)
        if self._token.acquire(False):  # a leader that took over may have ended before it saw them
            self._elect()

    def elected(self, handle: Handle[Q, A], expired: Callable[[], BaseException]) -> Term:
        """Wait until a request is elected; return its term, which the caller must :meth:`leave`. ``most`` must be 1."""
        try:
            while not handle.leads:
                if not self._woken(handle):
                    raise expired()
        except BaseException:
            self.give_up(handle)
            raise
        return handle.stay.term

    def give_up(self, handle: Handle[Q, A]) -> None:
        """Let a request leave the queue; if it was elected, perhaps after a batch put it back, elect another one."""
        handle.stay.decide("left")
        if handle.leads:
            self.leave(handle.stay.term)
        self._let_watch()

    def more(self, term: Term, batch: Batch) -> list[Handle[Q, A]]:
        """Take the waiting requests into a term's batch; return all requests taken in the term, oldest first."""
        self._take(term, batch.members)
        return sorted([one for one in batch.members if one.stay.is_in(term)], key=BY_AGE)

    def number(self) -> int:
        """Return a number greater than those of all earlier requests."""
        return next(self._numbers)

    def waits_before(self, number: int) -> bool:
        """Whether a request waits whose number is smaller."""
        candidates = self._candidates()
        return bool(candidates) and candidates[0].number < number

    def _woken(self, handle: Handle[Q, A]) -> bool:
        """Wait until the request can continue. Return False if its time ended while it was in the queue."""
        while True:
            handle.catch_up()
            left = handle.ends - self._clock.monotonic()
            if left <= 0:
                handle.stay.decide("left")
                return not handle.stay.left
            term = self._term
            if handle._waker.wait(min(left, self._next_look(handle))) or handle.goes_on:  # noqa: SLF001  (our own)
                return True
            if handle.waits:
                self._look_after(handle, term, left)
            elif handle.stay.is_forsaken:
                handle.stay.end()
                return True

    def _next_look(self, handle: Handle[Q, A]) -> float:
        """Return the time until a request looks again (seconds). It becomes the watcher if there is none."""
        if not handle.waits:  # a batch has the request already; only few requests are in a batch
            return self._patience
        if self._watcher is None or not self._watcher.waits:
            self._watcher = handle
        return self._patience if self._watcher is handle else max(self._patience, len(self._queue) / _LOOKS)

    def _let_watch(self) -> None:
        """Wake the newest request, so that it becomes the watcher, if the watcher no longer waits."""
        if self._watcher is not None and not self._watcher.waits and (candidates := self._candidates()):
            candidates[-1]._waker.wake()  # noqa: SLF001

    def _look_after(self, handle: Handle[Q, A], term: Term, left: float) -> None:
        """Make sure that a thread leads, because nothing has happened for a while.

        ``term``: the term that was open at the last look.
        """
        if self._is_lost(handle):
            self._queue.appendleft(handle)
        if self._token.acquire(False):
            self._elect()
        elif left > self._patience and term is self._term:  # still the same term, so its leader is stuck
            self._take_over(term)

    def _is_lost(self, handle: Handle[Q, A]) -> bool:
        """Whether a waiting request is missing from the queue, because an interrupt hit the leader that put it back.

        The queue is ordered by age, so the request is missing if the first one there is younger. (If the younger
        request has only passed this one, this one enters the queue twice, which does no harm.)
        """
        try:
            return self._queue[0].number > handle.number
        except IndexError:
            return True

    def _take_over(self, term: Term) -> None:
        """Elect another leader beside one that takes too long."""
        if not term.end():  # the thread that ended it may have been interrupted before the election
            self._term = Term()
        self._elect()

    def _lead(self, handle: Handle[Q, A], term: Term, together: Together[Q, A]) -> None:
        """Send a batch, let the next leader begin, then give each request its answer."""
        going = [handle]
        with Batch(term) as batch:
            try:
                # let other runnable threads go first, so that their requests join the batch
                self._clock.sleep(self._gathers if self._size >= _SEVERAL else 0)
                going = sorted([handle, *self.more(term, batch)], key=BY_AGE)
                self._size = len(going)
                tell = together(going)
                self.leave(term, handle)
                tell()
            except PoolExhausted as error:  # nothing was sent
                now = self._clock.monotonic()
                # a leader with time left has waited as long as any call may wait; otherwise its deadline ended the
                # wait, and requests with more time left go alone
                for one in [one for one in going if not one.answered]:
                    if one.ends <= now or handle.ends - now > self._patience:
                        one.fail(PoolExhausted(str(error)))
            except Exception as error:  # noqa: BLE001  (each of them meets its own error, alone)
                _log.debug("a batch failed, and its %d requests go alone: %r", len(batch.members) + 1, error)

    def _take(self, term: Term, met: dict[Handle[Q, A], None]) -> None:
        """Take waiting requests, oldest first, as many as the leader's batch may hold; add them to ``met``.

        Note each before taking it, so that an interrupt loses none. A request may be in the queue twice. A request
        whose time is over gives up here, even if its thread has not noticed yet: its late answer would delay those
        behind it.
        """
        taken, now = 1, self._clock.monotonic()
        while taken < self._most:
            try:
                handle = self._queue[0]
            except IndexError:
                break
            if handle.ends <= now:
                handle.stay.decide("left")
            else:
                met[handle] = None
                taken += handle.stay.decide(term)
            self._forget(handle)
        self._let_watch()

    def _forget(self, handle: Handle[Q, A]) -> None:
        """Remove a request that no longer waits from the head of the queue. No interrupt loses it: it was decided.

        (Removing from a deque is atomic: no handle compares by Python code.)
        """
        try:  # noqa: SIM105
            self._queue.remove(handle)
        except ValueError:  # another leader has removed the request
            pass

    def _elect(self, first: Handle[Q, A] | None = None) -> None:
        """Elect the next leader, ``first`` if it waits; if no request waits, put the token back."""
        while True:
            elected = self._elected(first) if self._queue else None
            if elected is not None:
                elected._waker.wake()  # noqa: SLF001
                return
            try:  # noqa: SIM105  (a context manager takes longer, in each call)
                self._token.release()
            except RuntimeError:  # there were two terms at once, and the other term's leader has released the token
                pass
            # a request that came just before the release found the token taken, so it waits for an election
            if not self._queue or not self._token.acquire(False):
                return

    def _elected(self, first: Handle[Q, A] | None) -> Handle[Q, A] | None:
        """Return ``first`` or else the best candidate, elected; None: no request could be elected."""
        if first is not None and self._leads(first):
            return first
        while candidates := self._candidates():
            elected = self._best(candidates)
            if self._leads(elected):
                return elected
        return None

    def _best(self, candidates: Sequence[Handle[Q, A]]) -> Handle[Q, A]:
        """Return the candidate with the most time left; the oldest, if requests never go together."""
        return max(candidates, key=_ends) if self._most > 1 else candidates[0]

    def _candidates(self) -> list[Handle[Q, A]]:
        """Return the oldest waiting requests, and the newest at the end; []: no request waits.

        Remove older requests that no longer wait.
        """
        now = self._clock.monotonic()
        while True:
            try:
                first = self._queue[0]
            except IndexError:
                return []
            if first.ends <= now:
                first.stay.decide("left")
            if first.waits:
                break
            self._forget(first)
        found = [first]
        try:
            for n in (*range(1, _CANDIDATES), -1):
                found.append(self._queue[n])  # noqa: PERF401  (what was found before the end counts)
        except IndexError:  # the queue has fewer requests
            pass
        return [one for one in found if one is first or one.waits]

    def _leads(self, handle: Handle[Q, A]) -> bool:
        """Let a request lead if it still waits."""
        stay = handle.stay
        if not stay.decide("leads"):
            return False
        self._term = stay.term
        return True


def _ends(handle: Handle[Any, Any]) -> int:
    return round(min(handle.ends, 1e9))  # rounded, so that of nearly equal requests the oldest leads
