"""Which way the requests of one cell went, by counting: ``python -m tests.bench.combining.ways``.

It runs the mix once, in processes of so many threads, on a server of its own. It prints how many operations of each
kind waited, how many left their batch for the full operation, and to what they lost. It also prints the sizes of
batches, the round trips by statement, and the processor time of clients and server. A rate of a busy machine says
little; these figures say what to mend.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import psutil
from rich.console import Console

import metastore as ms
from metastore.backends.postgres import alter, create, exclusive, intents
from metastore.backends.postgres.backend import PostgresBackend
from metastore.backends.postgres.connect import Pool
from metastore.backends.postgres.connection import Connection
from metastore.backends.postgres.together import alter as many_alters
from metastore.backends.postgres.together import below, message
from metastore.backends.postgres.together import create as many_creates
from metastore.backends.postgres.together import exclusive as many_exclusive
from metastore.combine.lane import Lane
from metastore.metrics import Metrics
from metastore.operation.operation import Operation
from metastore.port.batches import Altered, Below, Written
from tests.bench.combining.window import OURS, Arrangement, Cell, windows
from tests.bench.contention.crew import Meet
from tests.bench.contention.crew import together as in_processes
from tests.bench.core.setting import Setting
from tests.bench.figures import Figures
from tests.bench.peers.ground import Ground
from tests.bench.peers.mix import Lake
from tests.bench.peers.told import Figure, Told

__all__ = ["Ways", "counted"]

_MODULES = (below, many_creates, alter, create, exclusive, intents)
_NAMES = {
    value: f"{module.__name__.rpartition('.')[2]}.{name}"
    for module in _MODULES
    for name, value in vars(module).items()
    if isinstance(value, str) and name.isupper()
}
_NAMES |= dict.fromkeys(many_alters._ALTER.values(), "alter.ALTER_TOGETHER")
_NAMES |= dict.fromkeys(message.LOCKS.values(), "message.LOCKS")
_NAMES |= dict.fromkeys(many_exclusive._EXCLUSIVE.values(), "exclusive.EXCLUSIVE_TOGETHER")


@dataclass
class Ways:
    """What was counted in one process."""

    ways: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By kind of operation and way."""
    sizes: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """By kind of batch: how many had how many requests."""
    conflicts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By kind of operation and cause."""
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Of the members of batches."""
    statements: Counter[str] = field(default_factory=Counter)
    """Round trips, by statement."""
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """How long the server was waited for, by statement."""


class _Counting:
    """Counts what the library does in this process."""

    def __init__(self, ways: Ways) -> None:
        self.ways = ways
        self._here = threading.local()

    def fetch(self, original: Any) -> Any:
        return self._named(original, lambda text: _name(str(text)))

    def send(self, original: Any) -> Any:
        return self._named(original, lambda sent: "+".join([_name(text) for text, _ in sent]))

    def _named(self, original: Any, name: Callable[[Any], str]) -> Any:
        def call(pool: Any, what: Any, *arguments: Any, **options: Any) -> Any:
            self._here.statement = name(what)
            try:
                return original(pool, what, *arguments, **options)
            finally:
                self._here.statement = None

        return call

    def wait(self, original: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            begun = time.perf_counter()
            try:
                return original(*arguments, **options)
            finally:
                name = getattr(self._here, "statement", None) or "other"
                self.ways.statements[name] += 1
                self.ways.seconds[name] += time.perf_counter() - begun

        return call

    def find_below(self, original: Any) -> Any:
        def call(*arguments: Any) -> Any:
            answers = original(*arguments)
            self.ways.outcomes.update(("find", _said(one)) for one in answers)
            return answers

        return call

    def write_together(self, original: Any) -> Any:
        def call(*arguments: Any) -> Any:
            outcome = original(*arguments)
            found = outcome._asdict() if isinstance(outcome, Written) else {"write": [str(outcome)]}
            for kind, answers in found.items():
                self.ways.outcomes.update((kind, _said(one)) for one in answers)
            return outcome

        return call

    def lead(self, original: Any) -> Any:
        def call(lane: Any, handle: Any, term: Any, send: Any) -> Any:
            def counting(batch: Any) -> Any:
                self.ways.sizes[_lane(handle)][len(batch)] += 1
                return send(batch)

            return original(lane, handle, term, counting)

        return call

    def result(self, original: Any) -> Any:
        def call(lane: Any, handle: Any, alone: Any, *arguments: Any) -> Any:
            def left(resign: Any) -> Any:
                self.ways.ways[_lane(handle), "batch, then full"] += 1
                return alone(resign)

            self.ways.ways[_lane(handle), "queue"] += 1
            return original(lane, handle, left, *arguments)

        return call

    def run(self, original: Any) -> Any:
        def call(operation: Any) -> Any:
            self.ways.ways[operation._request.verb, "full operation"] += 1
            return original(operation)

        return call

    def conflict(self, original: Any) -> Any:
        def call(metrics: Any, verb: str, cause: str, *arguments: Any) -> Any:
            self.ways.conflicts[verb, cause] += 1
            return original(metrics, verb, cause, *arguments)

        return call


@contextmanager
def counted(ways: Ways) -> Iterator[None]:
    """Count in this process."""
    counting = _Counting(ways)
    with ExitStack() as stack:
        for owner, name, make in (
            (Pool, "fetch", counting.fetch),
            (Pool, "send", counting.send),
            (Connection, "execute", counting.fetch),
            (Connection, "wait", counting.wait),
            (PostgresBackend, "find_below", counting.find_below),
            (PostgresBackend, "write_together", counting.write_together),
            (Lane, "_lead", counting.lead),
            (Lane, "result", counting.result),
            (Operation, "run", counting.run),
            (Metrics, "conflict", counting.conflict),
        ):
            stack.enter_context(patch.object(owner, name, make(getattr(owner, name))))
        yield


def _lane(handle: Any) -> str:
    """Return what a request travels with: reads, or writes."""
    return "find" if isinstance(handle.request, Below) else "write"


def _name(text: str) -> str:
    return _NAMES.get(text) or " ".join(text.split())[:90]


def _said(one: object) -> str:
    """Return what became of one member of a batch."""
    if one is None:
        return "not applied"
    if isinstance(one, bool):
        return "parents moved" if one else "nothing there"
    if isinstance(one, str):
        return one
    if not isinstance(one, Altered) or one.time is not None:
        return "done"
    return "queued" if one.queued else "pending" if one.pending else "not free" if one.version is None else "overtaken"


def _counted(
    meet: Meet, cell: Cell, lake: Lake, process: int, count: bool, pid: int
) -> tuple[list[Told], Ways, float, float]:
    """Return what the clients were told, the ways, and the seconds of the server and of this process in the window."""
    ways = Ways()
    at: list[tuple[float, float]] = []

    def begin() -> None:
        meet()
        if not at:
            vars(ways).update(vars(Ways()))
        else:
            time.sleep(0.5)  # the server notes what its processes used when they have ended
        at.append((_server_seconds(pid), time.process_time()))

    with counted(ways) if count else nullcontext():
        told = windows(begin, [cell], lake, process)[0]
    (server, own), (server_end, own_end) = at
    return told, ways, server_end - server, own_end - own


def _server_seconds(pid: int) -> float:
    try:
        one = psutil.Process(pid)
        # the postmaster counts its children that have ended
        return float(sum(one.cpu_times()[:4]) + sum(sum(each.cpu_times()[:2]) for each in one.children()))
    except psutil.Error:
        return 0.0


def _print(console: Console, all_ways: list[Ways], operations: int) -> None:
    ways = Ways()
    for one in all_ways:
        for name in ("ways", "conflicts", "outcomes", "statements"):
            getattr(ways, name).update(getattr(one, name))
        for kind, sizes in one.sizes.items():
            ways.sizes[kind].update(sizes)
        for name, seconds in one.seconds.items():
            ways.seconds[name] += seconds
    for (verb, way), n in sorted(ways.ways.items()):
        console.print(f"  {verb:10} {way:20} {n:7}")
    for (verb, cause), n in sorted(ways.conflicts.items()):
        console.print(f"  {verb:10} conflict {cause:20} {n:7}")
    for (kind, outcome), n in sorted(ways.outcomes.items()):
        console.print(f"  {kind:10} in a batch: {outcome:20} {n:7}")
    for kind, sizes in ways.sizes.items():
        batches, members = sizes.total(), sum(size * n for size, n in sizes.items())
        console.print(f"  batches of {kind:8} {batches:6}, mean {members / batches:5.1f}, largest {max(sizes)}")
    for name, n in ways.statements.most_common(25):
        each = 1e3 * ways.seconds[name] / n
        console.print(
            f"  {n:7} trips  {n / operations:.3f} per operation, {each:7.2f} ms each  {name}", highlight=False
        )


def main() -> int:
    """Run the cell; print what was counted."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.combining.ways", description=__doc__)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--length", type=float, default=4.0, help="of the window, in seconds")
    parser.add_argument("--contender", default=OURS, help="ours, before, or a peer")
    parser.add_argument("--hot", action="store_true", help="one table, loaded and altered in turns")
    parser.add_argument("--plain", action="store_true", help="do not count: only the figures of the bench")
    arguments = parser.parse_args()
    console = Console(width=150)
    setting = Setting(Figures("ways", {}), console, True)
    lake, processes = Lake(), arguments.processes
    with setting.closing:
        ground = Ground(setting, setting.durable, lake, [])
        arrangement = Arrangement("cell", processes, arguments.threads, arguments.hot)
        cell = Cell(arguments.contender, arrangement, ground.fresh(), 0, 0, arguments.length)
        ground.settle()
        tasks = [
            (_counted, (cell, lake, process, not arguments.plain, ground.server.pid)) for process in range(processes)
        ]
        found = in_processes(tasks, cell.length + 10)
        told = [each for process, *_ in found for each in process]
        figure = Figure.of(told, cell.length)
        operations = sum(len(one.seconds) for each in told for one in each.by_action.values())
        console.print(
            f"{figure.rate:,.0f}/s, p50 {figure.p50:.1f} ms, p99 {figure.p99:.0f} ms, client {figure.cpu_us:.0f} µs, "
            f"{figure.trips:.3f} trips, {operations} operations, {figure.errors} errors, failed {figure.failed:.3f}",
            highlight=False,
        )
        server, clients = found[0][2], sum(own for *_, own in found)
        console.print(
            f"processor time per operation: server {1e6 * server / operations:.0f} µs, "
            f"whole clients {1e6 * clients / operations:.0f} µs",
            highlight=False,
        )
        for action, trips in figure.trips_by_action.items():
            mine = [each.by_action[action] for each in told]
            count = sum(len(one.seconds) for one in mine)
            cpu = 1e6 * sum(one.cpu for one in mine) / count
            console.print(f"  {action:8} {count:7}, {trips:.3f} trips, client {cpu:.0f} µs", highlight=False)
        done = [each.in_time for each in told]
        console.print(f"  fairness {min(done) / max(done):.2f}", highlight=False)
        _print(console, [ways for _, ways, _, _ in found], operations)
        if arguments.contender in (OURS, "before"):
            with ms.open(cell.url) as store:
                console.print(f"verify: {len(store.verify())} wrong", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
