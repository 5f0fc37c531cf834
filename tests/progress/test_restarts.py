"""The server crashes again and again, or another takes its place: what was acknowledged is there, once."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import metastore as ms
from tests.concurrency.checks import seed, violations
from tests.concurrency.workers import Job, Team, Turn
from tests.progress.accounts import Ledger, wrong
from tests.progress.replica import Replica, primary
from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.postgres

DEADLINE = 5.0
PROCESSES = 16


def write_on(turn: Turn, number: int, folder: str) -> int:
    """Write a hot table, and cold ones, until the flag is there and a call was acknowledged; return how many were."""
    store, done, n = turn.store, 0, 0
    ledger = Ledger(Path(folder) / f"ledger{number}", f"p{number}")
    turn.meet()
    while not (Path(folder) / "over").exists() or not done:
        n += 1
        change, name = ms.SetProperty(f"k{number}", str(n)), f"t{number}_{n}"
        alter = partial(store.tables.alter, "lake.cat.s.t", change)
        create = partial(store.tables.create, f"lake.cat.s.{name}")
        rename = partial(store.tables.rename, f"lake.cat.s.{name}", f"{name}_renamed")
        done += ledger.call(alter, DEADLINE)
        if ledger.call(create, DEADLINE):
            ledger.call(rename, DEADLINE)
    ledger.close()
    return done


def write_while(team: Team, url: str, folder: Path, disturb: Callable[[], None]) -> list[int]:
    """Let sixteen processes write while something is done to the server; return how often each succeeded."""
    jobs = [Job(write_on, n, str(folder)) for n in range(PROCESSES)]
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: team.run(url, jobs))
        try:
            while not (folder / f"ledger{PROCESSES - 1}").exists():
                assert not running.done(), running.result()
                time.sleep(0.01)
            disturb()
        finally:
            (folder / "over").touch()
        done: list[int] = running.result()
        return done


@pytest.mark.only_whole
def test_crashes_every_second(team: Team, tmp_path: Path) -> None:
    """Immediate shutdowns and SIGKILL, three seconds long; ``make soak`` does so for as long as one likes."""
    with PostgresServer() as server:
        url = server.create_database()
        ms.migrate(url)
        seed(url, "lake.cat.s.t")

        def crash() -> None:
            ends, times = time.monotonic() + 3.0, 0
            while time.monotonic() < ends or times < 2:
                time.sleep(1.0)
                if times % 2:
                    server.halt(signal.SIGQUIT)
                else:
                    server.kill()
                server.start()
                times += 1
            time.sleep(0.5)

        done = write_while(team, url, tmp_path, crash)
        found, totals = wrong(url, sorted(tmp_path.glob("ledger*")))
        print(totals)
        assert found == [], totals
        assert all(done), done
        assert totals["ok"] > 50
        assert violations(url) == []


@pytest.mark.long
def test_fail_over_to_a_synchronous_replica(team: Team, tmp_path: Path) -> None:
    """The leader is killed, the replica promoted; clients that know both hosts go on, and nothing is lost."""
    with primary() as leader:
        name = urlsplit(leader.create_database()).path.lstrip("/")
        ms.migrate(leader.url(name))
        seed(leader.url(name), "lake.cat.s.t")
        with Replica(leader) as replica:
            url = (
                f"postgresql+psycopg://postgres@/{name}?host=127.0.0.1,127.0.0.1"
                f"&port={leader.port},{replica.port}&target_session_attrs=read-write"
            )

            def fail_over() -> None:
                time.sleep(1.5)
                leader.kill()
                replica.promote()
                time.sleep(2.0)

            done = write_while(team, url, tmp_path, fail_over)
            own = replica.url(name)
            found, totals = wrong(own, sorted(tmp_path.glob("ledger*")))
            print(totals)
            assert found == [], totals
            assert all(done), done
            with ms.open(url) as store:
                assert store.tables.create("lake.cat.s.after").version == 1
            assert violations(own) == []
