"""Many processes that want one lease, and are killed and stopped: a holder's whole life, again and again.

``python -m tests.leases.many`` is the long form (``make soak-leases``); test_many_processes runs a short one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter as Count
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import metastore as ms
from tests.concurrency.checks import seed, violations
from tests.concurrency.raw import rows
from tests.leases.counter import Counter, TooOld
from tests.leases.fencing import late_commits
from tests.servers.postgres import PostgresServer

__all__ = ["Report", "run"]

NAME, PATH, TTL = "the one", "lake.cat.s.t", 0.3
_ANYBODY = 0.15
"""How often it is anybody who is killed or stopped: mostly one who waits, which holds the others up for 3 seconds.
Else it is the present holder."""
_FORK = multiprocessing.get_context("forkserver")


class Report(NamedTuple):
    """What happened, and what is wrong."""

    figures: dict[str, Any]
    wrong: list[str]


def work(url: str, folder: str, name: str) -> None:
    """Acquire, count outside, commit inside, release; until the flag is there, or somebody kills us."""
    parent, over = os.getppid(), Path(folder) / "over"
    dice, counter = random.Random(name), Counter(Path(folder) / "counter")
    with ms.open(url, principal=name, deadline=10.0) as store:
        while not over.exists() and os.getppid() == parent:
            try:
                _once(store, name, counter, dice)
            except (ms.LeaseHeld, ms.LeaseLost, TooOld):
                continue


def _once(store: ms.Store, owner: str, counter: Counter, dice: random.Random) -> None:
    beats = TTL / 5 if dice.random() < 0.5 else None
    lease = store.leases.acquire(NAME, ttl=TTL, timeout=5.0, owner=owner, renew_every=beats)
    try:
        assert lease.token is not None
        value = counter.get(lease.token)
        for _ in range(dice.choice((0, 1, 1, 2))):
            store.tables.alter(PATH, ms.SetComment(f"{lease.token} {uuid4()}"), lease=lease)
        if dice.random() < 0.02:
            time.sleep(dice.uniform(0.0, 2 * TTL))  # work that takes its time
        counter.put(lease.token, value + 1)
    finally:
        if dice.random() < 0.97:  # else it is forgotten, until its time is over
            lease.release()


class _Crew:
    """The processes, and what is done to them."""

    def __init__(self, url: str, folder: Path, processes: int, dice: random.Random) -> None:
        self._url, self._folder, self._dice = url, folder, dice
        self._started = 0
        self.done: Count[str] = Count()
        self._stopped: list[tuple[float, Any]] = []
        self.all = [self._start() for _ in range(processes)]

    def _start(self) -> Any:
        self._started += 1
        name = f"p{self._started}"
        process = _FORK.Process(target=work, args=(self._url, str(self._folder), name), name=name, daemon=True)
        process.start()
        return process

    def disturb(self, holder: str | None) -> None:
        """Kill or stop one of them; let those go on whose time has come."""
        now = time.monotonic()
        for until, process in [one for one in self._stopped if one[0] < now]:
            self._stopped.remove((until, process))
            os.kill(process.pid, signal.SIGCONT)
        names = [process.name for process in self.all]
        n = self._dice.randrange(len(self.all))
        if self._dice.random() > _ANYBODY:
            if holder not in names:
                return
            n = names.index(holder)
        process = self.all[n]
        assert process.exitcode is None, f"{process.name} ended with {process.exitcode}"
        if any(stopped is process for _, stopped in self._stopped):
            return
        if self._dice.random() < 0.5:
            process.kill()
            process.join()
            self.all[n] = self._start()
            self.done["kills"] += 1
        else:
            os.kill(process.pid, signal.SIGSTOP)
            self._stopped.append((now + self._dice.uniform(0.0, 3 * TTL), process))
            self.done["stops"] += 1

    def end(self, within: float) -> list[str]:
        for _, process in self._stopped:
            os.kill(process.pid, signal.SIGCONT)
        (self._folder / "over").touch()
        ends = time.monotonic() + within
        for process in self.all:
            process.join(max(0.0, ends - time.monotonic()))
        wrong = [f"{p.name} ended with {p.exitcode}" for p in self.all if p.exitcode != 0]
        for process in self.all:
            process.kill()
        return wrong


def run(
    url: str, folder: Path, *, processes: int, acquisitions: int, every: float, number: int, limit: float
) -> Report:
    """Let them acquire the lease so often, and something happen to one of them ``every`` so many seconds."""
    seed(url, PATH)
    _FORK.set_forkserver_preload([__name__])
    crew = _Crew(url, folder, processes, random.Random(number))
    began = time.monotonic()
    wrong: list[str] = []
    with ms.open(url) as store:
        while (lease := _token(url)) < 2 * acquisitions:  # each is followed by a release, or a take-over
            if time.monotonic() - began > limit:
                wrong.append(f"only {lease} tokens within {limit} s")
                break
            holder = store.leases.holder(NAME)
            crew.disturb(None if holder is None else holder.owner)
            time.sleep(every)
        took = time.monotonic() - began
        wrong += crew.end(30.0)
        events = Count(event.action for event in store.leases.audit(NAME))
        wrong += [str(violation) for violation in store.verify()]
    counter = Counter(folder / "counter")
    wrong += late_commits(url) + counter.wrong() + violations(url)
    lines = Count(line.what for line in counter.lines())
    figures = {
        "seconds": round(took, 1),
        "processes": processes,
        "acquisitions": events["acquire"] + events["takeover"],
        **events,
        **crew.done,
        "counted outside": lines["put"],
        "refused outside": lines["refused"],
    }
    return Report(figures, wrong)


def _token(url: str) -> int:
    return int(rows(url, f"SELECT coalesce(max(token), 0) FROM lease WHERE name = '{NAME}'")[0][0])


def main(arguments: list[str]) -> int:
    """Run the long form; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.leases.many", description=__doc__)
    parser.add_argument("--acquisitions", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    chosen = parser.parse_args(arguments)
    with ExitStack() as stack:
        server = stack.enter_context(PostgresServer())
        url = server.create_database()
        ms.migrate(url)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="metastore-leases-")))
        asked = {"processes": chosen.processes, "acquisitions": chosen.acquisitions, "number": chosen.seed}
        report = run(url, folder, every=0.5, limit=3600.0, **asked)
    sys.stdout.write(f"seed {chosen.seed}: {report.figures}\n")
    for line in report.wrong[:50]:
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"{len(report.wrong)} violations\n" if report.wrong else "nothing is wrong\n")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv[1:]))
