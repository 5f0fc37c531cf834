"""The lane alone, without a database: who leads, who waits, and what happens to them when something goes wrong."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from metastore.clock import Clock, ThreadWaker
from metastore.combine.handle import Handle, Term
from metastore.combine.lane import Lane
from metastore.errors import PoolExhausted
from tests.combine.gate import LONGEST, held, until_waiting

Waiters = Sequence[Handle[Any, Any]]


def _answer_all(handles: Waiters) -> None:
    for handle in handles:
        handle.answer(handle.request)


class Sender:
    """A lane whose batches answer each request with its own value, after a gate."""

    def __init__(self, **options: Any) -> None:
        self.lane: Lane[Any, Any] = Lane(**options)
        self.batches: list[list[Any]] = []
        self.alone: list[Any] = []
        self.fails: Callable[[Waiters], None] = lambda _: None
        self.told: Callable[[Waiters], None] = _answer_all

    def call(self, request: Any, seconds: float = LONGEST) -> Any:
        return self._call(request, time.monotonic() + seconds)

    def _call(self, request: Any, ends: float) -> Any:
        return self.lane.run(request, ends, lambda _: self._alone(request), self._together)

    def _alone(self, request: Any) -> Any:
        self.alone.append(request)
        time.sleep(0)  # lets another thread run
        return request

    def _together(self, handles: Waiters) -> Callable[[], None]:
        self.batches.append([handle.request for handle in handles])
        self.fails(handles)
        return lambda: self.told(handles)

    def all(self, requests: Sequence[Any]) -> list[Any]:
        """Let the requests wait behind a leader, in this order; return their answers or errors."""
        with ThreadPoolExecutor(len(requests)) as pool:
            futures: list[Future[Any]] = []
            ends = time.monotonic() + LONGEST  # one for all: the one with the most time left leads
            with held(self.lane):
                for number, request in enumerate(requests, 1):
                    futures.append(pool.submit(self._call, request, ends))
                    until_waiting(self.lane, number, futures)
            return [future.exception(LONGEST) or future.result() for future in futures]


def test_one_client_is_always_alone() -> None:
    sender = Sender()
    assert [sender.call(n) for n in range(5)] == list(range(5))
    assert (sender.alone, sender.batches) == (list(range(5)), [])
    assert not sender.lane._token.locked()


def test_those_that_wait_go_together_in_their_order() -> None:
    sender = Sender(most=4, patience=LONGEST)
    assert sender.all(list(range(10))) == list(range(10))
    assert sender.batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert sender.alone == []
    assert not sender.lane._token.locked()


def test_a_leader_waits_for_others_only_where_several_travel() -> None:
    slept: list[float] = []

    class Noting(Clock):
        def sleep(self, seconds: float) -> None:
            slept.append(seconds)

    sender = Sender(clock=Noting(), patience=LONGEST)
    for requests in (range(3), range(5), range(3), range(1)):
        sender.all(list(requests))
    assert [bool(seconds) for seconds in slept] == [False, False, True, False]
    assert max(slept) <= 0.001


def test_a_leader_whose_request_goes_back_leads_again() -> None:
    """Also where one waits that has more time left, which is elected else."""
    sender = Sender(patience=LONGEST)
    leaders: list[int] = []

    def back_once(handles: Waiters) -> None:
        leaders.append(threading.get_ident())
        if len(leaders) > 1:
            return
        futures.append(pool.submit(sender.call, 9, 10 * LONGEST))
        until_waiting(sender.lane, 1, futures)
        sender.lane.back(handles)

    sender.told = lambda handles: None if len(leaders) == 1 else _answer_all(handles)
    sender.fails = back_once
    futures: list[Future[Any]] = []
    with ThreadPoolExecutor(1) as pool:
        assert sender.all(list(range(4))) == list(range(4))
        assert futures[0].result(LONGEST) == 9
    assert sender.batches == [[0, 1, 2, 3], [0, 1, 2, 3, 9]]
    assert leaders[0] == leaders[1]


def test_a_batch_that_fails_is_tried_one_by_one() -> None:
    sender = Sender()

    def fail(_: Waiters) -> None:
        raise RuntimeError("the batch")

    sender.fails = fail
    assert sender.all([0, 1, 2]) == [0, 1, 2]
    assert sorted(sender.alone) == [0, 1, 2]


@pytest.mark.parametrize("own", [True, False], ids=["its deadline", "the longest wait"])
def test_a_leader_that_got_no_connection_by_its_own_deadline_speaks_for_itself(own: bool) -> None:
    sender, leader = Sender(), list[Any]()

    def exhausted(handles: Waiters) -> None:
        leader.extend(one for one in handles if one.leads)
        leader[0].ends -= own * LONGEST
        raise PoolExhausted("all are in use")

    sender.fails = exhausted
    failed = [isinstance(one, PoolExhausted) for one in sender.all([0, 1, 2])]
    assert failed == ([n == leader[0].request for n in range(3)] if own else [True] * 3)
    assert len(sender.alone) == (2 if own else 0)


def test_who_gets_no_answer_goes_alone_and_an_error_is_its_owners() -> None:
    sender = Sender()
    bad = ValueError("mine")

    def tell(handles: Waiters) -> None:
        handles[0].answer("first")
        handles[1].fail(bad)

    sender.told = tell
    assert sender.all([0, 1, 2]) == ["first", bad, 2]
    assert sender.alone == [2]


@pytest.mark.parametrize("when", ["before it is sent", "when it is told"])
def test_an_interrupt_in_the_leader_is_its_own(when: str) -> None:
    sender = Sender()

    def interrupt(handles: Waiters) -> None:
        sender.fails = lambda _: None
        raise KeyboardInterrupt

    if when == "before it is sent":
        sender.fails = interrupt
    else:
        sender.told = interrupt
    found = sender.all([0, 1, 2])
    assert [type(one) for one in found] == [KeyboardInterrupt, int, int]
    assert sorted(sender.alone) == [1, 2]
    assert sender.call(3) == 3
    assert not sender.lane._token.locked()


def test_a_waiter_whose_time_is_over_leaves_the_queue() -> None:
    sender = Sender()
    with ThreadPoolExecutor(2) as pool, held(sender.lane):
        late = pool.submit(sender.call, "late", seconds=0.05)
        with pytest.raises(TimeoutError):
            late.result(LONGEST)
        in_time = pool.submit(sender.call, "in time")
        until_waiting(sender.lane, 1, [in_time])
    assert in_time.result(LONGEST) == "in time"
    assert sender.batches == [["in time"]]


def test_a_member_whose_time_is_over_is_not_held_by_its_batch() -> None:
    sender = Sender()
    sent, goes_on = threading.Event(), threading.Event()

    def slow(_: Waiters) -> None:
        sent.set()
        goes_on.wait(LONGEST)

    sender.fails = slow
    with ThreadPoolExecutor(2) as pool:
        with held(sender.lane):
            leader = pool.submit(sender.call, "leader")
            until_waiting(sender.lane, 1, [leader])
            member = pool.submit(sender.call, "member", seconds=2.0)
            until_waiting(sender.lane, 2, [leader, member])
        assert sent.wait(LONGEST)
        assert member.result(LONGEST) == "member"  # alone, which knows that something may be in flight
        assert sender.alone == ["member"]
        goes_on.set()
        assert leader.result(LONGEST) == "leader"
    assert sender.batches == [["leader", "member"]]


def test_the_one_with_the_most_time_leads() -> None:
    sender = Sender(patience=LONGEST)
    leaders: list[int] = []
    sender.fails = lambda _: leaders.append(threading.get_ident())
    threads: dict[str, int] = {}

    def call(name: str, seconds: float) -> Any:
        threads[name] = threading.get_ident()
        return sender.call(name, seconds=seconds)

    with ThreadPoolExecutor(2) as pool:
        with held(sender.lane):
            hurried = pool.submit(call, "hurried", 10.0)
            until_waiting(sender.lane, 1, [hurried])
            patient = pool.submit(call, "patient", 60.0)
            until_waiting(sender.lane, 2, [hurried, patient])
        assert (hurried.result(LONGEST), patient.result(LONGEST)) == ("hurried", "patient")
    assert leaders == [threads["patient"]]
    assert sender.batches == [["hurried", "patient"]]


def test_a_leader_that_does_not_come_back_is_replaced() -> None:
    """Its thread died between two lines: it holds the token, and no term of it is open or will be ended."""
    sender = Sender(patience=0.01)
    assert sender.lane._token.acquire(False)
    assert sender.call(1) == 1
    assert sender.call(2) == 2
    sender.lane._term = Term()
    sender.lane._term.end()
    assert sender.lane._token.acquire(False)
    assert sender.call(3) == 3


@pytest.mark.parametrize("same", [True, False], ids=["the same", "another"])
def test_only_the_term_that_was_open_before_is_taken_over(same: bool) -> None:
    """Another one has begun meanwhile: its leader has not had its time yet, and two would send at once."""
    lane: Lane[Any, Any] = Lane(patience=0.01)
    assert lane._token.acquire(False)
    term = lane._term = Term()
    handle = lane.submit(1, time.monotonic() + LONGEST)
    lane._look_after(handle, term if same else Term(), LONGEST)
    assert handle.leads is same
    assert handle.waits is not same


def test_a_leader_that_takes_long_holds_nobody_up() -> None:
    sender = Sender(patience=0.01)
    began, goes_on = threading.Event(), threading.Event()

    def slow() -> Any:
        began.set()
        goes_on.wait(LONGEST)
        return "slow"

    with ThreadPoolExecutor(1) as pool:
        ends = time.monotonic() + LONGEST
        slowly = pool.submit(sender.lane.run, "slow", ends, lambda _: slow(), sender._together)
        assert began.wait(LONGEST)
        assert [sender.call(n) for n in range(3)] == [0, 1, 2]
        goes_on.set()
        assert slowly.result(LONGEST) == "slow"
    assert sender.call(4) == 4
    assert not sender.lane._token.locked()


def test_who_goes_back_from_a_batch_that_was_taken_over_is_not_forgotten() -> None:
    """Another leader came and went meanwhile: nobody leads when the request comes back, and nobody else will call."""
    sender = Sender(patience=0.01)
    began, goes_on = threading.Event(), threading.Event()

    def first(handles: Waiters) -> Callable[[], None]:
        began.set()
        assert goes_on.wait(LONGEST)
        sender.lane.back(handles)
        sent.append(sender._together)
        return lambda: None

    sent: list[Callable[[Waiters], Callable[[], None]]] = [first]
    ends = time.monotonic() + LONGEST

    def call() -> Any:
        return sender.lane.run("lost", ends, lambda _: sender._alone("lost"), lambda handles: sent[-1](handles))  # noqa: PLW0108  (it changes)

    with ThreadPoolExecutor(1) as pool:
        with held(sender.lane):
            lost = pool.submit(call)
            until_waiting(sender.lane, 1, [lost])
        assert began.wait(LONGEST)
        assert sender.call("meanwhile") == "meanwhile"
        assert not sender.lane._token.locked()
        goes_on.set()
        assert lost.result(LONGEST) == "lost"
    assert not sender.lane._token.locked()


def test_a_request_alone_may_resign_early() -> None:
    sender = Sender()
    resigned, goes_on = threading.Event(), threading.Event()

    def retrying(resign: Callable[[], None]) -> Any:
        resign()
        resigned.set()
        goes_on.wait(LONGEST)
        resign()
        return "done"

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(sender.lane.run, 0, time.monotonic() + LONGEST, retrying, sender._together)
        assert resigned.wait(LONGEST)
        assert sender.call(1) == 1
        assert sender.alone == [1]
        goes_on.set()
        assert future.result(LONGEST) == "done"
    assert not sender.lane._token.locked()


def test_one_request_is_elected_once() -> None:
    """Two threads elect at once, where one leader was taken over: one of them succeeds."""
    lane: Lane[Any, Any] = Lane()
    handle: Handle[Any, Any] = Handle("a", math.inf, 0, ThreadWaker())
    assert lane._leads(handle)
    assert not lane._leads(handle)
    assert handle.leads


def test_a_thread_that_is_woken_twice_waits_once_less() -> None:
    """Two leaders, one of which was replaced, may wake one thread. (Seen once in a million calls: it raised.)"""
    waker = ThreadWaker()
    waker.wake()
    waker.wake()
    assert waker.wait(LONGEST)
    assert not waker.wait(0.0)


def test_a_forked_child_begins_with_an_empty_lane() -> None:
    sender = Sender()
    with ThreadPoolExecutor(1) as pool:
        with held(sender.lane):
            waits = pool.submit(sender.call, "parent's")
            until_waiting(sender.lane, 1, [waits])
            pid = os.fork()
            if not pid:  # pragma: no cover  (in the child)
                right = sender.call("child's") == "child's" and (sender.alone, sender.batches) == (["child's"], [])
                os._exit(0 if right else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert waits.result(LONGEST) == "parent's"


@pytest.mark.parametrize("interrupted", [False, True])
def test_many_threads_lose_nothing(interrupted: bool) -> None:
    """Each request is answered once, by a batch or alone, whatever the interleaving."""
    sender = Sender(most=5, patience=0.005)

    hurt: list[Any] = []

    def sometimes(handles: Waiters) -> None:
        time.sleep(0)  # lets another thread run
        if interrupted and len(sender.batches) % 7 == 3:
            hurt.append(handles)
            raise KeyboardInterrupt

    sender.fails = sometimes

    def calls(k: int) -> int:
        lost = 0
        for n in range(200):
            try:
                assert sender.call((k, n)) == (k, n)
            except KeyboardInterrupt:
                lost += 1
        return lost

    with ThreadPoolExecutor(16) as pool:
        lost = sum(pool.map(calls, range(16)))
    assert len(sender.batches) > 10
    assert lost == len(hurt)
    assert interrupted is (lost > 0)
    assert not sender.lane._token.locked()
    assert all(len(batch) <= 5 for batch in sender.batches)
