"""A scenario without Spark: its clients take turns in this process, on the memory model, on a clock that is made up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import metastore as ms
from metastore.checker.recorder import Recorder
from metastore.checker.records import Lost, Operation, Seen
from metastore.loadtest.calls import Calls
from metastore.loadtest.fixture import make_ground
from metastore.loadtest.scenarios import Me, Scenario
from metastore.retry.policy import Attempt

__all__ = ["Alone", "alone", "recorded"]


@dataclass
class Alone:
    """What came of it: the operations in the order in which they ended, and when (made-up seconds)."""

    store: ms.Store
    ground: str
    operations: list[Operation]
    times: list[float]
    finished: bool

    def mine(self, operation: Operation, client: int) -> bool:
        """Whether it is one of this client's."""
        return operation.client == f"c-{client}"


def alone(
    scenario: Scenario, folder: Path, *, clients: int = 1, turns: int = 10**9, seconds: float = 10.0, seed: int = 0
) -> Alone:
    """Give each client so many turns, one after the other; who waits is not waited for."""
    hooks: list[Callable[[Attempt], None]] = []
    store = ms.open("memory://", hooks=[lambda attempt: hooks[-1](attempt)])  # noqa: PLW0108  (the last one then)
    hooks.append(lambda _: None)
    ground = make_ground(store, "lake")
    scenario.prepare(store, ground)
    now = [0.0] * clients
    calls, work = [], []
    for number in range(clients):
        calls.append(Calls(store, Recorder(folder, f"c-{number}")))
        me = Me(number, clients, str(number), ground, seconds, lambda n=number: now[n], Random(f"{seed} {number}"))  # type: ignore[misc]
        work.append(scenario.work(calls[-1], me))
    operations: list[Operation] = []
    times: list[float] = []
    going = set(range(clients))
    for _ in range(turns):
        for number in sorted(going):
            hooks.append(calls[number].hook)
            before = calls[number].last
            pause = next(work[number], None)
            if calls[number].last is not before:
                operations.append(calls[number].last)
                times.append(now[number])
            if pause is None:
                going.discard(number)
            else:
                now[number] += pause + 1e-4
            hooks.pop()
        if not going:
            break
    return Alone(store, ground, operations, times, not going)


def recorded(folder: Path) -> Iterator[Operation]:
    """Read the operations that ended from the logs of a record folder."""
    for path in sorted((folder / "log").iterdir()):
        for line in path.read_text().splitlines():
            if "end" in (found := json.loads(line)):
                fields = found["end"]
                fields["conflicts"] = [Lost(**lost) for lost in fields["conflicts"]]
                fields["reads"] = [Seen(**seen) for seen in fields["reads"]]
                yield Operation(**fields)
