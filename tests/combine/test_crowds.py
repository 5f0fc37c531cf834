"""Thousands of requests that wait in one lane: what a call costs the lane does not depend on how many wait.

Nothing here depends on how fast the machine is: the event loop's time goes on only when all tasks wait.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

from metastore.aio.core import run
from metastore.aio.port import AioClock
from metastore.clock import Waker
from metastore.combine.handle import Handle
from metastore.combine.lane import PATIENCE, Lane

_MESSAGE = 0.025
"""How long one batch takes (seconds)."""
_LONG = 1e6


class _Ahead(selectors.SelectSelector):
    """In the place of waiting, time goes on."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0  # 0: tasks are ready
        return super().select(0.0)


class _Clock(AioClock):
    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class _Counted(deque[Any]):
    """A queue that counts how many of its items are touched."""

    touched = 0

    def __iter__(self) -> Any:
        for one in super().__iter__():
            self.touched += 1
            yield one

    def __getitem__(self, index: Any) -> Any:
        self.touched += 1
        return super().__getitem__(index)

    def remove(self, value: Any) -> None:
        self.touched += next((n for n, one in enumerate(super().__iter__(), 1) if one is value), len(self))
        super().remove(value)

    def __contains__(self, value: object) -> bool:
        self.touched += len(self)
        return super().__contains__(value)

    def index(self, *_: SupportsIndex) -> int:
        raise NotImplementedError


class _Waker:
    """A task's waker that counts the waits."""

    def __init__(self, crowd: Crowd, waker: Waker) -> None:
        self._crowd, self._waker = crowd, waker

    def wait(self, seconds: float) -> bool:
        self._crowd.looks += 1
        return self._waker.wait(seconds)

    def wake(self) -> None:
        self._waker.wake()


class Crowd:
    """Tasks that share one lane."""

    def __init__(self, selector: _Ahead) -> None:
        self.selector = selector
        self.clock = _Clock()
        self.lane: Lane[Any, Any] = Lane(self.clock, waker=lambda: _Waker(self, self.clock.waker()))
        self.queue = self.lane._queue = _Counted()
        self.looks = self.done = self.gave_up = self.alone = 0
        self.batches: list[int] = []
        self.worst_late = 0.0
        self.fails: Callable[[Sequence[Handle[Any, Any]]], None] = lambda _: None

    def _together(self, handles: Sequence[Handle[Any, Any]]) -> Callable[[], None]:
        self.batches.append(len(handles))
        self.fails(handles)
        self.clock.sleep(_MESSAGE)

        def tell() -> None:
            for handle in handles:
                handle.answer(handle.request)

        return tell

    def _alone(self, request: Any) -> Any:
        self.alone += 1
        self.clock.sleep(_MESSAGE)
        return request

    async def call(self, request: Any, seconds: float = _LONG) -> None:
        ends = self.clock.monotonic() + seconds
        try:
            answer = await run(self.lane.run, request, ends, lambda _: self._alone(request), self._together)
            assert answer == request
            self.done += 1
        except TimeoutError:
            self.gave_up += 1
        self.worst_late = max(self.worst_late, self.clock.monotonic() - ends)


def _simulated(main: Callable[[Crowd], Any]) -> Crowd:
    """Run tasks in an event loop whose time is simulated."""
    selector = _Ahead()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]

    async def all_of_it() -> Crowd:
        crowd = Crowd(selector)
        await main(crowd)
        return crowd

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(all_of_it())


def _cost(tasks: int) -> tuple[float, float]:
    """Return for one call of so many tasks: how many items of the queue are touched, and how often a task waits."""

    async def main(crowd: Crowd) -> None:
        async def calls(number: int) -> None:
            for n in range(3):
                await crowd.call((number, n))

        await asyncio.gather(*[calls(number) for number in range(tasks)])

    crowd = _simulated(main)
    assert crowd.done == 3 * tasks
    assert max(crowd.batches) == 64
    return crowd.queue.touched / crowd.done, crowd.looks / crowd.done


def test_a_calls_cost_does_not_grow_with_the_queue() -> None:
    (few_touched, few_waits), (touched, waits) = _cost(400), _cost(4_000)
    assert touched < 1.5 * few_touched + 1
    assert touched < 10
    assert waits < 3  # one for the answer, and now and then a look
    assert few_waits < 3


def test_leaders_that_take_long_hold_no_crowd_up() -> None:
    """One of those that wait watches, also after the one that watched before has its answer."""
    tasks, stuck, took = 4_000, list[int](), list[float]()

    async def main(crowd: Crowd) -> None:
        def sometimes(handles: Sequence[Handle[Any, Any]]) -> None:
            if len(crowd.batches) % 10 == 1 and len(stuck) < 3:
                stuck.append(len(handles))
                crowd.clock.sleep(30.0)

        crowd.fails = sometimes
        everyone = [asyncio.ensure_future(crowd.call(n)) for n in range(tasks)]
        while crowd.done < tasks - sum(stuck):
            await asyncio.sleep(_MESSAGE)
        took.append(crowd.clock.monotonic())
        await asyncio.gather(*everyone)

    crowd = _simulated(main)
    assert crowd.done == tasks
    assert stuck == [64, 64, 64]
    assert took[0] < tasks / 64 * _MESSAGE + len(stuck) * 3 * PATIENCE


def test_a_batch_takes_nobody_whose_time_is_over() -> None:
    """The loop is busy, so that those whose time is over have not noticed it yet."""

    async def main(crowd: Crowd) -> None:
        def busy(handles: Sequence[Handle[Any, Any]]) -> None:
            assert min(handle.ends for handle in handles) > crowd.clock.monotonic()
            crowd.selector.now += 0.1

        crowd.fails = busy
        await asyncio.gather(*[crowd.call(n, 1.0 if n % 2 else _LONG) for n in range(2_000)])

    crowd = _simulated(main)
    assert crowd.done + crowd.gave_up == 2_000
    assert crowd.gave_up > 500
    assert crowd.alone < 100


def test_a_crowd_whose_time_ends_at_one_instant_ends_there() -> None:
    async def main(crowd: Crowd) -> None:
        await asyncio.gather(*[crowd.call(n, 1.0) for n in range(4_000)])

    crowd = _simulated(main)
    assert crowd.done + crowd.gave_up == 4_000
    assert crowd.gave_up > 1_000
    assert crowd.worst_late <= 2 * _MESSAGE


def test_where_each_goes_by_itself_the_oldest_is_first() -> None:
    """Also where those that came later have more time: else they would pass it again and again."""
    order: list[int] = []

    async def main(_: Crowd) -> None:
        clock = _Clock()
        lane: Lane[None, None] = Lane(clock, 1, patience=_LONG)

        def one(number: int) -> None:
            ends = clock.monotonic() + 100.0
            term = lane.lead() or lane.elected(lane.submit(None, ends), TimeoutError)
            order.append(number)
            clock.sleep(5.0)
            lane.leave(term)

        async def later(number: int) -> None:
            await asyncio.sleep(2.0 * number)
            await run(one, number)

        await asyncio.gather(*[later(number) for number in range(12)])

    _simulated(main)
    assert order == list(range(12))
