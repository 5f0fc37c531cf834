"""A client of a load test: it runs in one Spark task and has its own connection."""

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
from metastore.loadtest.barrier import Barrier
from metastore.loadtest.calls import Calls
from metastore.loadtest.scenarios.scenario import Me, Scenario
from metastore.retry.policy import Attempt
from metastore.store import Store, open_store

__all__ = ["Assignment", "calls_made", "run_client"]

_DEADLINE: Final = 10.0
"""The deadline of a call (seconds). A run may end later by as much."""
_AGAIN: Final = 0.05
"""Seconds between two attempts to reach an unavailable database."""
_Gone = Callable[[], bool]


@dataclass(frozen=True)
class Assignment:
    """The work of a run's clients. ``url`` may hold a password: never show it."""

    url: str
    folder: str
    run: str
    """The prefix of the clients' names, unique among the runs on this database."""
    scenario: Scenario
    clients: int
    seconds: float | None
    seed: int
    ground: str

    @property
    def names(self) -> list[str]:
        """The names of the clients, by number."""
        return [f"{self.run}-{number}" for number in range(self.clients)]


def run_client(assignment: Assignment, number: int, attempt: int, clock: Clock = SYSTEM) -> None:
    """Run client ``number`` until the time is over. ``attempt`` > 0: its previous incarnation was killed."""
    logging.getLogger("metastore").addHandler(logging.NullHandler())
    folder = Path(assignment.folder)
    parent = os.getppid()
    barrier = Barrier(folder, clock)
    recorder, name, attempt = _recorder(folder, assignment.names[number], attempt)

    def gone() -> bool:
        return os.getppid() != parent  # the process that started this one has ended

    with _left_to_the_driver():
        client = _Client(assignment, number, attempt, clock, barrier)
        finished = client.run(recorder, gone)
        recorder.close()
        _tell(folder, name, client, finished)


class _Client:
    """A client, from its connection to its end."""

    def __init__(self, assignment: Assignment, number: int, attempt: int, clock: Clock, barrier: Barrier) -> None:
        self._assignment, self._number, self._attempt = assignment, number, attempt
        self._clock, self._barrier = clock, barrier
        self._calls: Calls | None = None
        self.metrics: dict[str, object] = {}

    @property
    def calls(self) -> int:
        """How many calls it has made."""
        return 0 if self._calls is None else self._calls.last.number

    def run(self, recorder: Recorder, gone: _Gone) -> bool:
        """Call the store until the run is over. Return whether the work was finished before that."""
        store = self._open(gone)
        if store is None:
            return False
        with store:
            self._calls = calls = Calls(store, recorder)
            self._barrier.arrive(self._number)
            began = self._barrier.started(gone)
            finished = False if began is None else self._work(calls, began, gone)
            self.metrics = store.metrics().as_json()
            return finished

    def _open(self, gone: _Gone) -> Store | None:
        """Return the store; wait for an unavailable database. Return None if the run was stopped before that."""
        while not self._barrier.is_over(gone):
            try:
                return open_store(self._assignment.url, deadline=_DEADLINE, hooks=[self._hook])
            except BackendUnavailable as error:
                if not error.transient:
                    raise
                self._clock.sleep(_AGAIN)
        return None

    def _hook(self, attempt: Attempt) -> None:
        if self._calls is not None:
            self._calls.hook(attempt)

    def _work(self, calls: Calls, began: float, gone: _Gone) -> bool:
        assignment, clock = self._assignment, self._clock
        ends = float("inf") if assignment.seconds is None else began + assignment.seconds
        me = Me(
            self._number,
            assignment.clients,
            f"{self._number}" if not self._attempt else f"{self._number}_{self._attempt}",
            assignment.ground,
            assignment.seconds,
            lambda: clock.monotonic() - began,
            Random(f"{assignment.seed} {self._number} {self._attempt}"),  # noqa: S311  (must be repeatable, not secret)
        )
        work = assignment.scenario.work(calls, me)
        while clock.monotonic() < ends and not self._barrier.is_over(gone):
            pause = next(work, None)
            if pause is None:
                return True
            if calls.away:
                pause = max(pause, _AGAIN)
            if pause:
                self._barrier.wait(pause, ends, gone)
        return False


def _recorder(folder: Path, client: str, attempt: int) -> tuple[Recorder, str, int]:
    """Return the log of a new incarnation of ``client``, with the incarnation's name and number."""
    while True:
        name = f"{client}.{attempt}" if attempt else client
        try:
            return Recorder(folder, name), name, attempt
        except FileExistsError:  # after a restart, Spark counts attempts from 0
            attempt += 1


@contextmanager
def _left_to_the_driver() -> Iterator[None]:
    """Ignore Ctrl-C in a client: the driver handles it, and tells the clients when to end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _tell(folder: Path, name: str, client: _Client, finished: bool) -> None:
    """Write the client's metrics, and whether it finished, to ``metrics/<client>.json``."""
    (folder / "metrics").mkdir(exist_ok=True)
    metrics = {"finished": finished, "calls": client.calls, "metrics": client.metrics}
    (folder / "metrics" / f"{name}.json").write_text(json.dumps(metrics))


def calls_made(folder: Path) -> dict[str, int]:
    """Return how many calls each client made, for clients that ended in an orderly way."""
    return {path.stem: json.loads(path.read_text())["calls"] for path in sorted((folder / "metrics").glob("*.json"))}
