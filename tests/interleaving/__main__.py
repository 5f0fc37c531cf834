"""``python -m tests.interleaving``: explore, and print the number of states and schedules.

``--full``: everything; names choose.

``--minutes`` takes the programs in a random order, and ends when the time is over: other runs explore the others.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tests.interleaving.callers import CALLERS, HANDED, LOOKING, MET, every_two, matters
from tests.interleaving.chained import CHAINED
from tests.interleaving.checks import explore
from tests.interleaving.explore import Explored, Found, Truncated
from tests.interleaving.full import FULL
from tests.interleaving.mutants import MUTANTS
from tests.interleaving.programs import PROGRAMS, Program
from tests.interleaving.together import TOGETHER

_LIMIT = 5_000_000
Job = tuple[str, Callable[[], Iterable[Program]], bool]
"""Its name, the programs, and whether something is to be found."""


def _run(job: Job) -> tuple[bool, str, Explored | None]:
    """Return whether it came out as it should, a line of text, and how much there was."""
    name, programs, is_mutant = job
    began = time.perf_counter()
    explored: Explored | None = Explored()
    try:
        for program in programs():
            assert explored is not None
            explored = explored.with_more(explore(program, _LIMIT))
        assert explored is not None
        good, text = not is_mutant, _figures(explored)
    except Found as found:
        explored = None
        good, text = is_mutant, (f"found in {len(found.schedule)} moves: {found.message}" if is_mutant else str(found))
    except Truncated as truncated:
        explored, good, text = None, False, str(truncated)
    return good, f"{'ok ' if good else 'BAD'} {time.perf_counter() - began:6.1f} s  {name:50s} {text}", explored


def _figures(explored: Explored) -> str:
    return (
        f"{explored.schedules:.3g} schedules in {explored.states} states, longest {explored.longest}; "
        f"at most {explored.most_failed} attempts lost, {explored.most_undisturbed} undisturbed after the announcement"
    )


def _run_named(name: str) -> tuple[bool, str, Explored | None]:
    return _run(next(job for job in _jobs(True) if job[0] == name))


def _jobs(full: bool) -> list[Job]:
    programs = (
        [*PROGRAMS, *TOGETHER, *CHAINED, *FULL] if full else [p for p in (*PROGRAMS, *TOGETHER, *CHAINED) if not p.full]
    )
    mutants = [m for m in MUTANTS if full or not m.slow]
    return [
        *[_job(p.name, lambda p=p: [p]) for p in (*programs, *HANDED, *CALLERS)],
        *[_job(f"{name} | two writes", lambda met=met: filter(matters, met)) for name, met in MET.items()],
        *[_job(f"{name} | any two writes", lambda op=op: every_two(op)) for name, op in LOOKING.items() if full],
        *[(f"mutant: {m.name}", lambda m=m: [m.planted()], True) for m in mutants],
    ]


def _job(name: str, programs: Any) -> Job:
    return name, programs, False


def _explored(names: Sequence[str], workers: int, minutes: float | None) -> Iterator[tuple[bool, str, Explored | None]]:
    """Yield the results of the jobs; of those that are done when the time is over."""
    ends = None if minutes is None else time.monotonic() + 60 * minutes
    with multiprocessing.Pool(workers) as pool:  # its end ends what still runs
        results = pool.imap_unordered(_run_named, names)
        for _ in names:
            try:
                yield results.next(None if ends is None else max(0.0, ends - time.monotonic()))
            except multiprocessing.TimeoutError:
                return


def main() -> int:
    """Explore; return 1 if something is not as it should be."""
    parser = argparse.ArgumentParser(prog="tests.interleaving", description=__doc__)
    parser.add_argument("--full", action="store_true", help="three processes with faults, several faults in one run")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, help="end after so long, whatever is left")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the order, with --minutes")
    parser.add_argument("names", nargs="*", help="programs, or parts of their names")
    arguments = parser.parse_args()
    names = [name for name, _, _ in _jobs(arguments.full or bool(arguments.names))]
    if arguments.names:
        names = [name for name in names if any(part in name for part in arguments.names)]
    if arguments.minutes is not None:
        random.Random(arguments.seed).shuffle(names)
        print(f"seed {arguments.seed}")
    done, bad, schedules, states = 0, 0, 0, 0
    for good, text, explored in _explored(names, arguments.workers, arguments.minutes):
        print(text, flush=True)
        done, bad = done + 1, bad + (not good)
        if explored is not None:
            schedules, states = schedules + explored.schedules, states + explored.states
    of = "" if done == len(names) else f" of {len(names)}"
    print(f"{done}{of} programs and mutants, {schedules:.4g} schedules in {states} states; {bad} bad")
    return int(bad > 0 or not done)


if __name__ == "__main__":
    sys.exit(main())
