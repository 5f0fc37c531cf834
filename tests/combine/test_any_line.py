"""An interrupt, or a lack of memory, between any two lines of a lane: it is its own thread's, and nobody waits for it.

Each run raises the error three lines further down (in the long tests at the next instruction), until a run has none
left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from metastore.combine import handle, lane
from metastore.combine.handle import Handle
from tests.combine.gate import LONGEST, waiting
from tests.combine.test_lane import Sender
from tests.interrupts.raising import Raising
from tests.servers.process import wait_until

_CODE = {handle.__file__, lane.__file__}
_PATIENCE = 0.1
_PROMPT = LONGEST / 3
"""Who waits for longer was forgotten: until its own time is over (seconds)."""
_MOST = 20_000


class _PutsBack(Sender):
    """A sender whose first batch puts one request back. No batch answers the request "alone"."""

    def __init__(self) -> None:
        super().__init__(patience=_PATIENCE)
        self.put: list[Handle[Any, Any]] = []
        self.fails = self._back
        self.told = self._tell

    def _back(self, handles: Sequence[Handle[Any, Any]]) -> None:
        again = [one for one in handles if one.request == "again"]
        if again and not self.put:
            self.put += again
            self.lane.back(again)

    def _tell(self, handles: Sequence[Handle[Any, Any]]) -> None:
        for one in handles:
            if one.request != "alone" and (one not in self.put or len(self.batches) > 1):
                one.answer(one.request)


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    began = time.monotonic()
    try:
        value = call()
    except BaseException as error:  # noqa: BLE001  (it is looked at)
        value = error
    return value, time.monotonic() - began


def _all(sender: Sender, calls: Sequence[Callable[[], Any]]) -> list[tuple[Any, float]]:
    """Make calls that wait together behind a leader; return what each returned or raised, and how long it waited."""
    with ThreadPoolExecutor(len(calls)) as pool:
        futures: list[Future[tuple[Any, float]]] = []
        term = sender.lane.lead()
        assert term is not None
        for number, call in enumerate(calls, 1):
            futures.append(pool.submit(_timed, call))
            # no longer than until one of them takes over: that is a case too
            wait_until(lambda n=number, one=futures[-1]: one.done() or waiting(sender.lane) >= n, _PATIENCE)  # type: ignore[misc]
        sender.lane.leave(term)
        return [future.result(2 * LONGEST) for future in futures]


def _hurt(raising: Raising, role: str) -> bool:
    """Let three requests wait, and one that the error meets; return whether it met it."""
    sender = _PutsBack()
    seconds = {"leader": LONGEST + 100, "member": LONGEST - 10, "again": LONGEST - 10}[role]
    request = "again" if role == "again" else "hurt"
    others = ["a", "b" if role == "again" else "again", "alone"]
    calls: list[Callable[[], Any]] = [lambda one=one: sender.call(one) for one in others]  # type: ignore[misc]
    *found, (own, _) = _all(sender, [*calls, lambda: raising.run(lambda: sender.call(request, seconds=seconds))])
    assert [value for value, _ in found] == others
    assert own == request or isinstance(own, raising.error)
    assert max(waited for _, waited in found) < _PROMPT
    after, waited = _timed(lambda: sender.call("after"))
    assert after == "after"
    assert waited < _PROMPT
    return not raising.left


def _everywhere(role: str, error: type[BaseException], *, instructions: bool, places: range = range(1, _MOST)) -> int:
    for at in places:
        if not _hurt(Raising(_CODE, at, error, instructions=instructions), role):
            return at - 1
    raise AssertionError("it has no end")


@pytest.mark.parametrize(("error", "first"), [(KeyboardInterrupt, 1), (MemoryError, 2)])
@pytest.mark.parametrize("role", ["leader", "member", "again"])
def test_between_any_two_lines(role: str, error: type[BaseException], first: int) -> None:
    assert _everywhere(role, error, instructions=False, places=range(first, _MOST, 3)) > 20


@pytest.mark.long
@pytest.mark.parametrize("role", ["leader", "member", "again"])
def test_a_lack_of_memory_between_any_two_lines(role: str) -> None:
    assert _everywhere(role, MemoryError, instructions=False) > 20


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("role", ["leader", "member", "again"])
def test_between_any_two_instructions(role: str) -> None:
    assert _everywhere(role, KeyboardInterrupt, instructions=True) > 200
