"""One process through all windows of a crew: in each it is one client of one contender, until the window is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psycopg

import metastore as ms
from metastore.checker.recorder import Recorder
from metastore.checker.records import Operation, Seen
from tests.bench.contention.crew import Meet
from tests.bench.core.setting import CATALOG
from tests.bench.peers.contender import WAITS, Contender, Did, count_waits
from tests.bench.peers.contenders import ON_SERVERS, opened
from tests.bench.peers.mix import Lake, Step, steps
from tests.bench.peers.process_tree import Forest
from tests.bench.peers.told import Told

__all__ = ["WARM", "Cell", "call", "warm", "windows"]

WARM = f"{CATALOG}.warm"
"""The schema in which clients warm up."""
ROUNDS = {"ours": 4, "ours_in_hand": 4}
"""How often each operation is done before a window: the library prepares a statement at its third execution, the peers
at the first."""


@dataclass(frozen=True)
class Cell:
    """One window: whose it is, with how many clients, on which database, and where it is recorded, if it is."""

    contender: str
    clients: int
    url: str
    port: int | None
    number: int
    """Of the window: no two have the same."""
    turn: int
    """All contenders do the same in a turn."""
    length: float
    """In seconds."""
    folder: Path | None = None


def windows(meet: Meet, cells: Sequence[Cell], lake: Lake, process: int) -> list[list[Told]]:
    """Measure the cells one after the other, each from when all have met.

    Return for each what the clients of this process were told: one, or of a peer on two servers half of them all, or
    none.
    """
    count_waits()
    told = []
    for cell in cells:
        mine = _clients(cell, process)
        forest = Forest()
        ready = threading.Barrier(len(mine) + 1)
        with ThreadPoolExecutor(max(1, len(mine))) as pool:
            running = [pool.submit(_client, cell, lake, number, forest, ready) for number in mine]
            _wait_for_all(ready, running)
            meet()
            ready.wait()
            told.append([each.result() for each in running])
        meet()
    return told


def _wait_for_all(ready: threading.Barrier, running: Sequence[object]) -> None:
    try:
        ready.wait()
    except threading.BrokenBarrierError:
        for each in running:
            each.result()  # type: ignore[attr-defined]  # the one that broke it says why
        raise


def _clients(cell: Cell, process: int) -> list[int]:
    if cell.contender != ON_SERVERS:
        return [process]
    servers = min(2, cell.clients)
    return list(range(process, cell.clients, servers)) if process < servers else []


def _client(cell: Cell, lake: Lake, number: int, forest: Forest, ready: threading.Barrier) -> Told:
    label = f"c{number}w{cell.number}"
    try:
        contender = opened(cell.contender, cell.url, label, cell.port, forest)
        recorder = None if cell.folder is None else Recorder(cell.folder, label)
        warm(contender, f"{WARM}.{label}", ROUNDS.get(cell.contender, 1))
        plan = steps(lake, label, 1000 * cell.turn + number)
        ready.wait()
    except BaseException:
        ready.abort()
        raise
    try:
        ready.wait()
        return _through(contender, plan, cell.length, f"c{number}", recorder)
    finally:
        contender.close()
        if recorder is not None:
            recorder.close()


def warm(contender: Contender, path: str, rounds: int) -> None:
    """Do every operation ``rounds`` times."""
    above, _, name = path.rpartition(".")
    for number in range(rounds):
        contender.create(path)
        contender.load(path)
        contender.alter(path, "warm", str(number))
        contender.rename(path, f"{name}_")
        contender.drop(f"{above}.{name}_")
    contender.lost.clear()


def call(contender: Contender, step: Step, key: str, value: str) -> Did:
    """Do one step."""
    match step.action:
        case "load":
            return contender.load(step.path)
        case "alter":
            return contender.alter(step.path, key, value)
        case "create":
            return contender.create(step.path)
        case "drop":
            return contender.drop(step.path)
        case "rename":
            return contender.rename(step.path, step.to)


def _through(contender: Contender, plan: Iterator[Step], length: float, key: str, recorder: Recorder | None) -> Told:
    """Go on until the window is over."""
    told, me = Told(), threading.get_ident()
    ends = time.monotonic() + length
    while time.monotonic() < ends:
        step = next(plan)
        operation = None if recorder is None else _begun(recorder, step, contender)
        before, used, begun = WAITS[me], time.thread_time(), time.monotonic()
        did, error = _tried(contender, step, key, str(told.in_time if operation is None else operation.number))
        over = time.monotonic()
        spent = told.by_action[step.action]
        spent.seconds.append(over - begun)
        spent.cpu += time.thread_time() - used
        spent.waits += WAITS[me] - before
        told.in_time += over <= ends
        told.outcomes[did.outcome] += 1
        told.lost += len(contender.lost)
        if error is not None:
            told.errors[type(error).__name__] += 1
        if recorder is not None and operation is not None:
            _note(operation, step, did, contender)
            recorder.end(operation, did.outcome, error)
        contender.lost.clear()
    return told


def _begun(recorder: Recorder, step: Step, contender: Contender) -> Operation:
    operation = recorder.begin(step.action, "table", step.path, to=step.path_to)
    contender.principal = operation.principal
    return operation


def _tried(contender: Contender, step: Step, key: str, value: str) -> tuple[Did, Exception | None]:
    """Do one step; what a constraint or the library refuses is an outcome too."""
    try:
        return call(contender, step, key, value), None
    except (psycopg.IntegrityError, ms.MetastoreError) as error:
        return Did("unknown" if isinstance(error, ms.OutcomeUnknown) else "failed"), error


def _note(operation: Operation, step: Step, did: Did, contender: Contender) -> None:
    operation.entity_id = did.entity_id
    operation.conflicts = list(contender.lost)
    operation.attempts = len(operation.conflicts) + 1
    if did.outcome == "applied":
        operation.version_after = did.version
    elif did.outcome == "read":
        operation.reads = [Seen(step.path, did.entity_id is not None, did.entity_id, did.version)]
    elif did.outcome == "nothing":
        operation.reads = [Seen(step.path, there=False)]
