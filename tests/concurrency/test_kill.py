"""kill -9 of a process in the middle of 1,000 commits, ten times: what was acknowledged is there, nothing is half."""

from __future__ import annotations

import os
import random
import signal
from multiprocessing.connection import Connection, wait

import pytest

import metastore as ms
from tests.concurrency.checks import seed, violations
from tests.concurrency.raw import rows
from tests.concurrency.workers import FORKSERVER

COMMITS, AT_ONCE, ROUNDS = 1000, 5, 2


def commit_and_report(url: str, number: int, pipe: Connection) -> None:
    """Make 1,000 commits of all kinds; say of each, once it returned, which version of what it made."""
    with ms.open(url, principal=f"victim-{os.getpid()}") as store:
        parent = store.schemas.create(f"lake.cat.s{number}", if_exists="return")
        pipe.send("ready")
        pipe.recv()
        for n in range(COMMITS // 5):
            table = store.tables.create(f"t{os.getpid()}_{n}", parent=parent)
            pipe.send((table.id, 1))
            pipe.send((table.id, store.tables.alter(table, ms.SetProperty("n", str(n))).version))
            partition = store.partitions.create(table, "p", values={"n": str(n)})
            pipe.send((partition.id, 1))
            table = store.tables.rename(table.path, f"u{os.getpid()}_{n}")
            pipe.send((table.id, table.version))
            with store.transaction() as tx:
                tx.tables.alter(table.path, ms.SetComment("last"))
                tx.tables.create((*parent.names, f"v{os.getpid()}_{n}"))
            pipe.send((table.id, table.version + 1))


def kill_some(url: str, dice: random.Random) -> list[tuple[int, int]]:
    """Start processes, kill each after a random number of its commits; return what they acknowledged."""
    acknowledged: list[tuple[int, int]] = []
    left: dict[Connection, int] = {}
    processes = {}
    for n in range(AT_ONCE):
        ours, theirs = FORKSERVER.Pipe()
        process = FORKSERVER.Process(target=commit_and_report, args=(url, n, theirs))
        process.start()
        theirs.close()
        processes[ours] = process
        left[ours] = dice.randrange(5, COMMITS // 5)
    for pipe in left:
        assert pipe.recv() == "ready"
    for pipe in left:
        pipe.send("go")
    while left:
        ready = wait(list(left), 60)
        assert ready, "nothing was committed for a minute"
        for pipe in [one for one in left if one in ready]:
            acknowledged.append(pipe.recv())
            left[pipe] -= 1
            if not left[pipe]:
                pid = processes[pipe].pid
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                del left[pipe]
    for pipe, process in processes.items():
        process.join()
        assert process.exitcode == -signal.SIGKILL
        try:
            while True:
                acknowledged.append(pipe.recv())  # it was said before the kill
        except (EOFError, OSError):  # or half said
            pipe.close()
    return acknowledged


@pytest.mark.only_whole
@pytest.mark.each_run_on("postgres")
def test_killed_in_the_middle_of_commits(url: str) -> None:
    """Ten kills: each acknowledged commit is there, the tables are whole, and the store goes on."""
    seed(url)
    dice = random.Random(20)
    acknowledged = [ack for _ in range(ROUNDS) for ack in kill_some(url, dice)]
    there = set(rows(url, "SELECT entity_id, version FROM operation"))
    assert set(acknowledged) <= there
    assert len(acknowledged) > 10 * ROUNDS * AT_ONCE
    assert violations(url) == []
    # the transaction is there as a whole or not at all: a table altered to "last" has its sibling
    halves = """SELECT operation_id FROM operation WHERE operation_id IN
        (SELECT operation_id FROM operation WHERE action = 'alter' AND doc LIKE '%"comment":"last"%')
        GROUP BY operation_id HAVING count(*) <> 2"""
    assert rows(url, halves) == []
    with ms.open(url) as store:
        assert store.tables.create("lake.cat.s.after").version == 1
