"""One run: a database, processes of clients, and weather (faults); it leaves a record folder for the judge."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

import metastore as ms
from tests.joints import world
from tests.joints.crew import Crew
from tests.joints.crews import Crews
from tests.joints.losing import lose
from tests.joints.machine import Machine
from tests.joints.plans import Plan
from tests.joints.record import keep
from tests.joints.weather import Weather
from tests.progress.replica import Replica, primary
from tests.servers.postgres import PostgresServer, database_of
from tests.servers.process import wait_until
from tests.servers.proxy import PostgresProxy

__all__ = ["Ground", "ground", "run"]

Say = Callable[[str, float], None]
_END: Final = 40.0
"""How long processes may take to end (seconds)."""
_BEGIN: Final = 300.0
"""How long processes may take to begin."""
_SETTLES: Final = 1.0
"""How long nothing is done to processes that have begun: members of the lease cache join."""
_AFTERWARDS: Final = 3.0
"""How long a run goes on after a fail-over (seconds)."""
_FAIR: Final = 0.4
"""The part of a run that is fair."""


@dataclass(frozen=True)
class Ground:
    """A database to run on."""

    url: str
    server: PostgresServer | None = None
    proxy: PostgresProxy | None = None
    replica: Replica | None = None

    def url_for(self, n: int) -> str:
        """Return the URL for process ``n``: every second one goes through the proxy."""
        return self.proxy.url_for(self.url) if self.proxy is not None and n % 2 else self.url


@contextmanager
def ground(database: str, folder: Path, plan: Plan) -> Iterator[Ground]:
    """Make a database, and what stands before it or beside it."""
    with ExitStack() as stack:
        if database == "sqlite":
            yield Ground(f"sqlite:///{folder}/store.db")
        elif plan.ends == "fail_over":
            leader = stack.enter_context(primary())
            name = database_of(leader.create_database())
            replica = stack.enter_context(Replica(leader))
            hosts = f"host=127.0.0.1,127.0.0.1&port={leader.port},{replica.port}&target_session_attrs=read-write"
            yield Ground(f"postgresql+psycopg://{leader.user}@/{name}?{hosts}", leader, None, replica)
        else:
            server = stack.enter_context(PostgresServer(in_memory=True))
            proxy = stack.enter_context(PostgresProxy("127.0.0.1", server.port))
            yield Ground(server.create_database(), server, proxy)


def run(plan: Plan, on: Ground, folder: Path, seconds: float, seed: int, say: Say) -> None:
    """Run a plan for some seconds: first fair, then with faults, then a calm end. Leave the record."""
    (folder / "journals").mkdir(parents=True)
    ms.migrate(on.url)
    world.begin(on.url)
    own = [replace(crew, folder=str(folder), url=on.url_for(n), seed=seed) for n, crew in enumerate(plan.crews)]
    crews = own if on.server is not None else [_without_a_lease(crew) for crew in own]
    running = Crews(folder, on.url, crews)
    machine = Machine()
    weather = Weather(folder, Random(seed), running, on.server, on.proxy)
    try:
        if not wait_until(running.at_work, _BEGIN):
            raise RuntimeError(f"the clients did not begin within {_BEGIN:.0f} s: see {folder / 'output.txt'}")
        time.sleep(_SETTLES)
        rough = _disturb(plan, weather, seconds, on.server is not None, say)
        weather.clear()
        if plan.ends == "fail_over" and on.server is not None and on.replica is not None:
            began = time.monotonic_ns()
            lose(on.server, on.replica)
            weather.note("fail_over", since=began)
            time.sleep(_AFTERWARDS)
        left = machine.left()
        wrong = running.end(_END / left)
        keep(on.url, folder)
    finally:
        running.kill()
    wrong += (folder / "wrong").read_text().splitlines() if (folder / "wrong").exists() else []
    wrong += [] if weather.sessions is None else weather.sessions.wrong()
    database = "sqlite" if on.server is None else "postgres"
    told = {
        "database": database,
        "wrong": wrong,
        "weather": weather.done,
        "rough": rough,
        "largest": weather.largest,
        "left": left,
    }
    (folder / "run.json").write_text(json.dumps({**told, "seed": seed}))


def _without_a_lease(crew: Crew) -> Crew:
    """SQLite has only the validating cache."""
    return replace(crew, cache=("validate", crew.cache[1])) if crew.cache else crew


def _disturb(plan: Plan, weather: Weather, seconds: float, postgres: bool, say: Say) -> int:
    """Disturb until the time is over; return when the rough part began, on the clock of the calls."""
    dice, began, rough = Random(0), time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < seconds:
        say(", ".join(f"{what} {count}" for what, count in sorted(weather.done.items())) or "fair", elapsed)
        if plan.rough and elapsed > _FAIR * seconds and not rough:
            rough = time.monotonic_ns()
        weather.step(plan.faults(postgres=postgres, rough=bool(rough)))
        weather.measure()
        weather.pass_by(time.monotonic() + dice.uniform(0.2, 1.8) * plan.every)
    return rough or time.monotonic_ns()
