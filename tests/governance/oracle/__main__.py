"""Compare many decisions with the oracle: ``python -m tests.governance.oracle --decisions N``.

It goes on over worlds with new seeds, on each backend in turn, and ends with 1 after a difference.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import metastore as ms
from metastore import Store
from tests.governance.oracle.compare import Difference, compare

_WORLD = 3_000
"""How many decisions one world has: later it holds so much that each call is slow."""


@contextmanager
def _stores(seed: int) -> Iterator[list[Store]]:
    """Open the stores of a world: most in memory, one of eight in SQLite, where two processes remember apart."""
    with ExitStack() as stack:
        if seed % 8:
            yield [stack.enter_context(ms.open("memory://", principal="root"))]
            return
        url = f"sqlite:///{Path(stack.enter_context(tempfile.TemporaryDirectory())) / 'oracle.db'}"
        yield [stack.enter_context(ms.open(url, principal="root")) for _ in range(2)]


def run(decisions: int, first: int) -> list[Difference]:
    """Compare so many decisions; return the differences."""
    made, found = 0, list[Difference]()
    for seed in count(first):
        if made >= decisions:
            return found
        with _stores(seed) as stores:
            for one in compare(stores, seed, min(_WORLD, decisions - made)):
                if isinstance(one, Difference):
                    found.append(one)
                    print(one, flush=True)
                else:
                    made += one
            if violations := stores[0].verify():
                found.append(Difference(seed, made, f"verify: {violations[:3]}"))
                print(found[-1], flush=True)
        print(f"seed {seed}: {made:,} decisions", flush=True)
    raise AssertionError


def main() -> None:
    """Read the arguments, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0, help="the first of the worlds")
    options = parser.parse_args()
    found = run(options.decisions, options.seed)
    print(f"{len(found)} differences")
    raise SystemExit(1 if found else 0)


if __name__ == "__main__":
    main()
