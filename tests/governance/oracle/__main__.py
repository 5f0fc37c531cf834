"""Compare many decisions with the oracle: ``python -m tests.governance.oracle --decisions N``.

It goes on over worlds with new seeds, on each backend in turn, and ends with 1 after a difference. Most decisions are
those of sweeps, which ask for everything at once. One of a hundred is a call of its own, of any kind; one of a hundred
is of a world whose REST servers are asked, too.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from tests.governance.oracle.runs import worker


def main() -> None:
    """Read the arguments, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0, help="the first of the worlds")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    one = partial(worker, options.decisions, options.seed, options.workers)
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        found = sum(pool.map(one, range(options.workers)))
    print(f"{found} differences in {options.decisions:,} decisions")
    raise SystemExit(1 if found else 0)


if __name__ == "__main__":
    main()
