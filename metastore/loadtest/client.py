"""One client of a load test: what runs in one Spark task, with a connection of its own."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from metastore.checker.recorder import Recorder
from metastore.clock import SYSTEM, Clock
from metastore.errors import BackendUnavailable
from metastore.loadtest.barrier import Meeting
from metastore.loadtest.calls import Calls
from metastore.loadtest.scenarios.scenario import Me, Scenario
from metastore.retry.policy import Attempt
from metastore.store import Store, open_store

__all__ = ["Plan", "run_client"]

_DEADLINE: Final = 10.0
"""Seconds that a call has: a run ends at most as much later."""
_AGAIN: Final = 0.05
"""Seconds before the next try where the database is away."""
_Gone = Callable[[], bool]


@dataclass(frozen=True)
class Plan:
    """What the clients of a run are told. ``url`` holds the password, if there is one: it is not to be shown."""

    url: str
    folder: str
    run: str
    """A part of the clients' names: those of no other run in this database have it."""
    scenario: Scenario
    clients: int
    seconds: float | None
    seed: int
    ground: str


def run_client(plan: Plan, number: int, attempt: int, clock: Clock = SYSTEM) -> None:
    """Be client ``number`` until the time is over; ``attempt`` > 0: after one that was killed."""
    logging.getLogger("metastore").addHandler(logging.NullHandler())
    folder = Path(plan.folder)
    parent = os.getppid()
    meeting = Meeting(folder, clock)
    recorder, name, attempt = _recorder(folder, f"{plan.run}-{number}", attempt)

    def gone() -> bool:
        return os.getppid() != parent  # whoever has started us

    with _left_to_the_driver():
        client = _Client(plan, number, attempt, clock, meeting)
        finished = client.run(recorder, gone)
        recorder.close()
        _tell(folder, name, client, finished)


class _Client:
    """A client, from its connection to its end."""

    def __init__(self, plan: Plan, number: int, attempt: int, clock: Clock, meeting: Meeting) -> None:
        self._plan, self._number, self._attempt = plan, number, attempt
        self._clock, self._meeting = clock, meeting
        self._calls: Calls | None = None
        self.metrics: dict[str, object] = {}

    def run(self, recorder: Recorder, gone: _Gone) -> bool:
        """Call until it is over; return whether the work was done before."""
        store = self._open(gone)
        if store is None:
            return False
        with store:
            self._calls = calls = Calls(store, recorder)
            self._meeting.arrive(self._number)
            began = self._meeting.started(gone)
            finished = False if began is None else self._work(calls, began, gone)
            self.metrics = store.metrics().as_json()
            return finished

    def _open(self, gone: _Gone) -> Store | None:
        """Return the store; it may have to be waited for."""
        while not self._meeting.is_over(gone):
            try:
                return open_store(self._plan.url, deadline=_DEADLINE, hooks=[self._hook])
            except BackendUnavailable as error:
                if not error.transient:
                    raise
                self._clock.sleep(_AGAIN)
        return None

    def _hook(self, attempt: Attempt) -> None:
        if self._calls is not None:
            self._calls.hook(attempt)

    def _work(self, calls: Calls, began: float, gone: _Gone) -> bool:
        plan, clock = self._plan, self._clock
        ends = float("inf") if plan.seconds is None else began + plan.seconds
        me = Me(
            self._number,
            plan.clients,
            f"{self._number}" if not self._attempt else f"{self._number}_{self._attempt}",
            plan.ground,
            plan.seconds,
            lambda: clock.monotonic() - began,
            Random(f"{plan.seed} {self._number} {self._attempt}"),  # noqa: S311  (to be repeated, not to be secret)
        )
        work = plan.scenario.work(calls, me)
        while clock.monotonic() < ends and not self._meeting.is_over(gone):
            pause = next(work, None)
            if pause is None:
                return True
            if calls.away:
                pause = max(pause, _AGAIN)
            if pause:
                self._meeting.wait(pause, ends, gone)
        return False


def _recorder(folder: Path, client: str, attempt: int) -> tuple[Recorder, str, int]:
    """Return the log of a new incarnation of ``client``, its name and its number."""
    while True:
        name = f"{client}.{attempt}" if attempt else client
        try:
            return Recorder(folder, name), name, attempt
        except FileExistsError:  # Spark counts from 0 again
            attempt += 1


@contextmanager
def _left_to_the_driver() -> Iterator[None]:
    """Let Ctrl-C be the driver's: it tells us when to end, and nothing is cut off."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _tell(folder: Path, name: str, client: _Client, finished: bool) -> None:
    """Leave what the client's own metrics say: ``metrics/<client>.json``."""
    (folder / "metrics").mkdir(exist_ok=True)
    told = {"finished": finished, "metrics": client.metrics}
    (folder / "metrics" / f"{name}.json").write_text(json.dumps(told))
