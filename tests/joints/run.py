"""One run: a database, processes of clients, weather; it leaves a record folder that the judge reads."""

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
from tests.joints.crews import Crews
from tests.joints.plans import Plan
from tests.joints.record import keep
from tests.joints.weather import Weather
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import PostgresProxy

__all__ = ["Ground", "ground", "run"]

_END: Final = 40.0
"""How long processes may take to end (seconds)."""


@dataclass(frozen=True)
class Ground:
    """A database to run on."""

    url: str
    server: PostgresServer | None = None
    proxy: PostgresProxy | None = None

    def url_for(self, n: int) -> str:
        """Return the URL for process ``n``: every second one goes through the proxy."""
        return self.proxy.url_for(self.url) if self.proxy is not None and n % 2 else self.url


@contextmanager
def ground(database: str, folder: Path) -> Iterator[Ground]:
    """Make a database, and what stands before it."""
    with ExitStack() as stack:
        if database == "sqlite":
            yield Ground(f"sqlite:///{folder}/store.db")
            return
        server = stack.enter_context(PostgresServer(in_memory=True))
        proxy = stack.enter_context(PostgresProxy("127.0.0.1", server.port))
        yield Ground(server.create_database(), server, proxy)


def run(plan: Plan, on: Ground, folder: Path, seconds: float, seed: int, say: Callable[[str, float], None]) -> None:
    """Run a plan for some seconds: a third of them fair, then with faults, then a calm end. Leave the record."""
    (folder / "journals").mkdir(parents=True)
    ms.migrate(on.url)
    world.begin(on.url)
    dice = Random(seed)
    crews = [replace(crew, folder=str(folder), url=on.url_for(n), seed=seed) for n, crew in enumerate(plan.crews)]
    running = Crews(folder, crews)
    weather = Weather(folder, dice, running, on.server, on.proxy)
    try:
        began = time.monotonic()
        while (elapsed := time.monotonic() - began) < seconds:
            say(", ".join(f"{what} {count}" for what, count in sorted(weather.done.items())) or "fair", elapsed)
            if elapsed > seconds / 3 and plan.faults:
                weather.step(plan.faults)
            weather.resume(time.monotonic())
            time.sleep(dice.uniform(0.2, 1.8) * plan.every)
        weather.clear()
        wrong = running.end(_END)
        keep(on.url, folder)
    finally:
        running.kill()
    (folder / "run.json").write_text(json.dumps({"wrong": wrong, "weather": weather.done, "seed": seed}))
