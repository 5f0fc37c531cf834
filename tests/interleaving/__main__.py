"""``python -m tests.interleaving``: explore, and print how much there was. ``--full``: everything; names choose."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.interleaving.checks import explore
from tests.interleaving.explore import Explored, Found, Truncated
from tests.interleaving.full import FULL
from tests.interleaving.mutants import MUTANTS
from tests.interleaving.programs import PROGRAMS, Program

_LIMIT = 5_000_000
Job = tuple[str, Program, bool]


def _run(job: Job) -> tuple[bool, str, Explored | None]:
    """Return whether it came out as it should, a line of text, and how much there was."""
    name, program, is_mutant = job
    began = time.perf_counter()
    explored: Explored | None = None
    try:
        explored = explore(program, _LIMIT)
        good, text = not is_mutant, _figures(explored)
    except Found as found:
        good, text = is_mutant, (f"found in {len(found.schedule)} moves: {found.message}" if is_mutant else str(found))
    except Truncated as truncated:
        good, text = False, str(truncated)
    return good, f"{'ok ' if good else 'BAD'} {time.perf_counter() - began:6.1f} s  {name:50s} {text}", explored


def _figures(explored: Explored) -> str:
    return (
        f"{explored.schedules:.3g} schedules in {explored.states} states, longest {explored.longest}; "
        f"at most {explored.most_failed} attempts lost, {explored.most_undisturbed} undisturbed after the announcement"
    )


def _run_named(name: str) -> tuple[bool, str, Explored | None]:
    return _run(next(job for job in _jobs(True) if job[0] == name))


def _jobs(full: bool) -> list[Job]:
    programs = [*PROGRAMS, *FULL] if full else [p for p in PROGRAMS if not p.full]
    mutants = [m for m in MUTANTS if full or not m.slow]
    return [(p.name, p, False) for p in programs] + [(f"mutant: {m.name}", m.planted(), True) for m in mutants]


def main() -> int:
    """Explore; return 1 if something is not as it should be."""
    parser = argparse.ArgumentParser(prog="tests.interleaving", description=__doc__)
    parser.add_argument("--full", action="store_true", help="three processes with faults, several faults in one run")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("names", nargs="*", help="programs, or parts of their names")
    arguments = parser.parse_args()
    names = [name for name, _, _ in _jobs(arguments.full or bool(arguments.names))]
    if arguments.names:
        names = [name for name in names if any(part in name for part in arguments.names)]
    bad, schedules, states = 0, 0, 0
    with ProcessPoolExecutor(arguments.workers) as pool:
        for good, text, explored in pool.map(_run_named, names):
            print(text, flush=True)
            bad += not good
            if explored is not None:
                schedules, states = schedules + explored.schedules, states + explored.states
    print(f"{len(names)} programs and mutants, {schedules:.4g} schedules in {states} states; {bad} bad")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
