"""Runs of the oracle over worlds with new seeds, on each backend in turn."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import metastore as ms
from metastore import Store
from tests.governance.oracle.compare import Difference, compare
from tests.governance.oracle.sweep import sweep

__all__ = ["compared", "run", "swept", "through_servers", "worker"]

_WORLD, _SWEPT = 3_000, 20_000
"""How many decisions one world has, of calls and of sweeps: later it holds so much that each call is slow."""
_CALLS = 100
"""One decision of so many is a call of its own; and one is of a world whose servers are asked, too."""
_SERVED = 3_000
"""How many decisions such a world has."""


@contextmanager
def _stores(seed: int) -> Iterator[list[Store]]:
    """Open the stores of a world: most in memory, one of eight in SQLite, where two processes remember apart."""
    with ExitStack() as stack:
        if seed % 8:
            yield [stack.enter_context(ms.open("memory://", principal="root"))]
            return
        url = f"sqlite:///{Path(stack.enter_context(tempfile.TemporaryDirectory())) / 'oracle.db'}"
        yield [stack.enter_context(ms.open(url, principal="root")) for _ in range(2)]


def run(decisions: int, first: int, step: int = 1) -> list[Difference]:
    """Compare so many decisions of calls; return the differences. ``step``: from one seed to the next."""
    made, found = 0, list[Difference]()
    for seed in count(first, step):
        if made >= decisions:
            return found
        with _stores(seed) as stores:
            wanted = min(_WORLD, decisions - made)
            made += compared(compare(stores, seed, wanted), found)
            _verified(stores, seed, found)
        print(f"seed {seed}: {made:,} decisions of calls", flush=True)
    raise AssertionError


def swept(decisions: int, first: int, step: int = 1) -> list[Difference]:
    """Compare so many decisions of sweeps; return the differences."""
    made, found = 0, list[Difference]()
    for seed in count(first, step):
        if made >= decisions:
            return found
        with _stores(seed) as stores:
            made += compared(sweep(stores, seed, min(_SWEPT, decisions - made)), found)
            _verified(stores, seed, found)
        print(f"seed {seed}: {made:,} decisions of sweeps", flush=True)
    raise AssertionError


def through_servers(decisions: int, first: int, step: int = 1) -> list[Difference]:
    """Compare so many decisions of sweeps that ask the two REST servers, too: one of five is an answer of theirs."""
    from tests.governance.oracle.served import icebergs, serving

    made, found = 0, list[Difference]()
    for seed in count(first, step):
        if made >= decisions:
            return found
        with _stores(seed) as stores, tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with serving(stores[0], folder) as served:
                told = sweep(stores, seed, min(_SERVED, decisions - made), [served], icebergs(folder))
                made += compared(told, found)
            _verified(stores, seed, found)
        print(f"seed {seed}: {made:,} decisions with servers, {served.made:,} of them by servers", flush=True)
    raise AssertionError


def compared(told: Iterator[Difference | int], found: list[Difference]) -> int:
    """Return how many decisions were compared; note the differences."""
    made = 0
    for one in told:
        if isinstance(one, Difference):
            found.append(one)
            print(one, flush=True)
        else:
            made += one
    return made


def _verified(stores: Sequence[Store], seed: int, found: list[Difference]) -> None:
    if violations := stores[0].verify():
        found.append(Difference(seed, 0, f"verify: {violations[:3]}"))
        print(found[-1], flush=True)


def worker(decisions: int, first: int, workers: int, number: int) -> int:
    """Compare one worker's part of so many decisions; return how many differences there are."""
    calls = max(1, decisions // _CALLS // workers)
    found = run(calls, first + number, workers) + through_servers(calls, first + number, workers)
    return len(found) + len(swept(decisions // workers - 2 * calls, first + number, workers))
