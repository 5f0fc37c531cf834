"""One drill: clients on a database of their own, what is done to the cluster, and the record that the judge reads."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psycopg

import metastore as ms
from tests.concurrency.checks import seed, violations
from tests.concurrency.raw import dsn, rows
from tests.drills.clients import CREW, LEASED, WATCHED, work
from tests.drills.cluster import Cluster
from tests.drills.kinds import BY_WAYS, KINDS
from tests.leases.fencing import late_commits
from tests.progress.accounts import written
from tests.servers.process import wait_until
from tests.soak.client import HOT

__all__ = ["run"]

_SPAWN: Final = multiprocessing.get_context("spawn")
_BEGIN: Final = 120.0
"""How long the clients may take to begin (seconds)."""
_WARM: Final = 12.0
"""How long they work before something happens: longer than a gap in the feed counts against a consumer."""
_CALM: Final = 5.0
"""How long they work after all is well again."""
_LED: Final = 6.0
"""How long the new leader leads before the old one comes back."""
_END: Final = 60.0
"""How long they may take to end."""


def run(cluster: Cluster, kind: str, folder: Path, number: int, say: Callable[[str], None]) -> None:
    """Run a drill; leave its record in ``folder``. Raises TimeoutError if the cluster does not become whole again."""
    (folder / "journals").mkdir(parents=True)
    (folder / "ledgers").mkdir()
    (folder / "metrics").mkdir()
    url = _prepared(cluster, f"drill{number}", kind)
    processes = [_SPAWN.Process(target=work, args=(url, name, str(folder)), name=name, daemon=True) for name in CREW]
    for process in processes:
        process.start()
    try:
        say("clients begin")
        if not wait_until(lambda: _at_work(folder), _BEGIN):
            raise TimeoutError(f"the clients did not begin within {_BEGIN:.0f} s")
        time.sleep(_WARM)
        before, began = cluster.leader().title, time.monotonic_ns()
        say("waits for a leader")
        with KINDS[kind](cluster):
            led, after = time.monotonic_ns(), cluster.leader().title
            say("one leads")
            time.sleep(_LED)
        say("heals")
        cluster.wait_whole()
        whole = time.monotonic_ns()
        time.sleep(_CALM)
        say("clients end")
        wrong = _ended(folder, processes)
    finally:
        for process in processes:
            process.kill()
    say("is checked")
    times = {"began": began, "led": led, "whole": whole}
    with ms.open(url) as store:
        for n in range(2):  # the next writer resolves what was left
            store.tables.alter(HOT, ms.SetComment(f"the end {n}"), principal="seed")
            store.schemas.alter("lake.cat.s", ms.SetComment(f"the end {n}"), principal="seed")
        feed = [change.position for change in store.changes()]
        watched = [change.entity.comment for change in store.changes(under=WATCHED) if change.entity is not None]
    told = {
        "kind": kind,
        "synchronous": cluster.synchronous,
        "leaders": [before, after],
        **times,
        "wrong": wrong + [f"under a lease: {one}" for one in late_commits(url)] + violations(url),
        "applied": written(url),
        "feed": feed,
        "watched": watched,
        "bare": [n for (n,) in rows(url, "SELECT n FROM bare")],
    }
    (folder / "run.json").write_text(json.dumps(told))


def _prepared(cluster: Cluster, name: str, kind: str) -> str:
    url = cluster.create_database(name, by_ways=kind in BY_WAYS)
    ms.migrate(url)
    seed(url, HOT, "lake.cat.other", WATCHED, LEASED)
    with psycopg.connect(dsn(url), autocommit=True) as raw:
        raw.execute("CREATE TABLE bare (n int PRIMARY KEY)")
    return url


def _at_work(folder: Path) -> bool:
    """Whether each process was told something."""
    told = [path for path in (folder / "journals").iterdir() if '"ok":true' in path.read_text()]
    ledgers = {path.name.partition("t")[0] for path in (folder / "ledgers").iterdir() if "ok " in path.read_text()}
    return len(told) + len(ledgers) == len(CREW)


def _ended(folder: Path, processes: list[multiprocessing.context.SpawnProcess]) -> list[str]:
    """Let all end by themselves; return what is wrong with that."""
    (folder / "over").touch()
    ends = time.monotonic() + _END
    for process in processes:
        process.join(max(0.0, ends - time.monotonic()))
    return [
        f"{process.name} did not end within {_END:.0f} s"
        if process.exitcode is None
        else f"{process.name} ended with {process.exitcode}"
        for process in processes
        if process.exitcode != 0
    ]
