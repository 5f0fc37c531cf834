"""A client: it makes its calls one after another, in a thread or in a task, and writes each of them down."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import metastore as ms
from tests.interrupts.raising import Raising
from tests.joints.choosing import ROLES, Who, scripts
from tests.joints.journal import Journal, told
from tests.joints.request import Notes, Request, make, make_async

__all__ = ["Lane"]

_SOON: Final = (0.0003, 0.001, 0.005)
"""After how many seconds calls are interrupted, on average: mostly while they wait."""
_LINES: Final = 200
"""How many lines of the library a call runs through, before one has told."""
_LIBRARY: Final = frozenset(str(file) for file in Path(ms.__file__).parent.rglob("*.py"))
_SAME: Final = ("finish", "roll_back")
"""Calls on what an earlier call returned: they have its deadline."""
_SHOWN: Final = ("path", "missing", "expected", "found", "operation", "operation_id")
_AWAY: Final = 0.05
"""Seconds to wait after a call that found no database."""


class Lane:
    """One client. ``interrupts``: the share of its calls that are interrupted, or cancelled in a task."""

    def __init__(self, journal: Journal, role: str, seed: str, interrupts: float) -> None:
        self._journal, self._role, self._interrupts = journal, ROLES[role], interrupts
        self._dice = Random(seed)
        self._who = Who(journal.client, self._dice)
        self._deadline = 0.0
        self._lines: defaultdict[str, int] = defaultdict(lambda: _LINES)

    # --- threads

    def run(self, store: Any, over: Callable[[], bool], between: Callable[[Any], None] | None = None) -> None:
        """Call in this thread until it is over; do ``between`` from time to time."""
        for script in scripts(self._who, self._role):
            answer: Any = None
            with contextlib.suppress(StopIteration):
                while not over():
                    answer = self._called(store, script.send(answer))
            if over():
                break
            if between is not None:
                between(store)
        self._journal.done()

    def _called(self, store: Any, request: Request) -> Any:
        bound, notes = self._begins(store, request), Notes()
        try:
            if self._dice.random() < self._interrupts:
                answer = self._interrupted(request.action, lambda: make(bound, request, notes))
            else:
                answer = make(bound, request, notes)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  (whatever it is: the judge looks at it)
            self._failed(error, notes)
            time.sleep(_AWAY * isinstance(error, ms.BackendUnavailable))
            return None
        return self._returned(answer, notes)

    # --- tasks

    async def run_async(self, store: Any, over: Callable[[], bool]) -> None:
        """Call in this task until it is over."""
        for script in scripts(self._who, self._role):
            answer: Any = None
            with contextlib.suppress(StopIteration):
                while not over():
                    answer = await self._called_async(store, script.send(answer))
            if over():
                break
            await asyncio.sleep(0)
        self._journal.done()

    async def _called_async(self, store: Any, request: Request) -> Any:
        bound, notes = self._begins(store, request), Notes()
        try:
            if self._dice.random() < self._interrupts:
                async with asyncio.timeout(self._soon()):
                    answer = await make_async(bound, request, notes)
            else:
                answer = await make_async(bound, request, notes)
        except Exception as error:  # noqa: BLE001  (likewise)
            self._failed(error, notes)
            await asyncio.sleep(_AWAY * isinstance(error, ms.BackendUnavailable))
            return None
        return self._returned(answer, notes)

    # --- both

    def _begins(self, store: Any, request: Request) -> Any:
        if request.action not in _SAME:
            values, weights = zip(*self._role.deadlines, strict=True)
            self._deadline = self._dice.choices(values, weights)[0]
        self._journal.begin({**request.as_json(), "deadline": self._deadline})
        self._who.number = self._journal.number
        return store.bind(principal=self._journal.principal, deadline=self._deadline)

    def _interrupted(self, action: str, call: Callable[[], Any]) -> Any:
        """Make a call that is interrupted somewhere. Only in the main thread.

        After some time, it is mostly interrupted while it waits. At some line, each line of the library is as likely
        as the next one; a third of the calls has ended before, and tells how many lines it took.
        """
        if self._dice.random() < 0.5:
            return _alarmed(call, self._soon())
        at = 1 + self._dice.randrange(self._lines[action] * 3 // 2)
        raising = Raising(_LIBRARY, at, KeyboardInterrupt)
        answer = raising.run(call)
        self._lines[action] = max(1, at - raising.left)
        return answer

    def _soon(self) -> float:
        """Return after how many seconds a call is interrupted: some in its first lines, some while it waits."""
        return self._dice.expovariate(1 / self._dice.choice(_SOON))

    def _returned(self, answer: Any, notes: Notes) -> Any:
        self._journal.end({"answer": told(answer), **notes.as_json()})
        return answer

    def _failed(self, error: BaseException, notes: Notes) -> None:
        about = {name: told(getattr(error, name)) for name in _SHOWN if getattr(error, name, None) is not None}
        operation = {name: str(value) for name in about if (value := getattr(error, name)) and "operation" in name}
        line = {"error": type(error).__name__, "message": str(error)[:300], "about": about | operation}
        self._journal.end({**line, **notes.as_json()})


def _alarmed(call: Callable[[], Any], after: float) -> Any:
    """Make a call, and raise KeyboardInterrupt in it after some time, wherever it is. Only in the main thread."""
    try:
        signal.setitimer(signal.ITIMER_REAL, max(after, 1e-6))
        return call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
