"""``python -m tests.load.faults``: load tests with faults, each checked at its end; it exits with 1 if one is wrong.

killed, stopped: the clients; cut: their connections; restarted: the server, crashed and started again; failed_over: to
a synchronous replica; partitioned: a network namespace whose cable is pulled (where the machine allows it).
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

import metastore as ms
from metastore.loadtest.job import LoadTest, run
from metastore.loadtest.spark_job import loadtest_context
from tests.load.disturbing import Disturbance, cut, failed_over, killed, restarted, stopped
from tests.progress.replica import Replica, primary
from tests.servers.network import Network, NoNetwork
from tests.servers.postgres import PostgresServer, database_of
from tests.servers.proxy import PostgresProxy

__all__ = ["FAULTS", "Fault", "Outcome", "partitioned", "under"]

_SCENARIO = "rename-storm"
_CALM = 2.0
"""Seconds at a run's end without a fault: the server must be there to be asked what became of it."""


@dataclass(frozen=True)
class Outcome:
    """What came of one load test with faults."""

    fault: str
    operations: int
    done: dict[str, int]
    """What was done to it, and how often."""
    findings: list[str]
    verified: list[str]
    """What ``store.verify`` finds afterwards."""

    @property
    def good(self) -> bool:
        """Whether nothing was found, and something was done."""
        return not self.findings and not self.verified and sum(self.done.values()) > 0 and self.operations > 0


@dataclass(frozen=True)
class Fault:
    """How one is set up: it yields the URL for the clients, the one for us, and what to do."""

    every: float
    setting: Callable[[Path, random.Random], Iterator[tuple[str, str, Callable[[], object]]]]


def _killed(folder: Path, dice: random.Random) -> Iterator[tuple[str, str, Callable[[], object]]]:
    with PostgresServer() as server:
        url = server.create_database()
        yield url, url, lambda: killed(folder, dice)


def _stopped(folder: Path, dice: random.Random) -> Iterator[tuple[str, str, Callable[[], object]]]:
    with PostgresServer() as server:
        url = server.create_database()
        yield url, url, lambda: stopped(folder, dice)


def _cut(folder: Path, dice: random.Random) -> Iterator[tuple[str, str, Callable[[], object]]]:
    with PostgresServer() as server, PostgresProxy("127.0.0.1", server.port) as proxy:
        url = server.create_database()
        yield proxy.url_for(url), url, lambda: cut(proxy, dice)
        proxy.reset()


def _restarted(folder: Path, dice: random.Random) -> Iterator[tuple[str, str, Callable[[], object]]]:
    with PostgresServer() as server:
        url = server.create_database()
        yield url, url, lambda: restarted(server, dice)


def _failed_over(folder: Path, dice: random.Random) -> Iterator[tuple[str, str, Callable[[], object]]]:
    with primary() as leader:
        name = database_of(leader.create_database())
        with Replica(leader) as replica:
            both = (
                f"postgresql+psycopg://postgres@/{name}?host=127.0.0.1,127.0.0.1"
                f"&port={leader.port},{replica.port}&target_session_attrs=read-write"
            )
            yield both, both, lambda: failed_over(leader, replica)


FAULTS = {
    "killed": Fault(0.5, _killed),
    "stopped": Fault(0.2, _stopped),
    "cut": Fault(0.05, _cut),
    "restarted": Fault(1.0, _restarted),
    "failed_over": Fault(1.5, _failed_over),
}


def under(fault: str, scenario: str, clients: int, seconds: float, seed: int) -> Outcome:
    """Run a load test with a fault; the Spark context that is there is used."""
    dice = random.Random(seed)
    kind = FAULTS[fault]
    with tempfile.TemporaryDirectory(prefix="metastore-faults-") as place:
        folder = Path(place) / "run"
        with contextmanager(kind.setting)(folder, dice) as (theirs, ours, action):
            ms.migrate(ours)
            disturbance = Disturbance(folder, action, kind.every, seconds - _CALM)
            with disturbance.going_on():
                done = run(
                    theirs,
                    scenario,
                    clients=clients,
                    seconds=seconds,
                    master=f"local[{clients},1000]",
                    out=folder,
                    seed=seed,
                )
                with ms.open(ours) as store:
                    verified = [str(violation) for violation in store.verify()]
        return _outcome(fault, done, dict(disturbance.done), verified)


def _outcome(fault: str, done: LoadTest, actions: dict[str, int], verified: list[str]) -> Outcome:
    findings = [str(one) for run_ in done.runs for one in (*run_.findings, *run_.checked.missing)]
    operations = sum(run_.checked.operations for run_ in done.runs)
    return Outcome(fault, operations, actions, findings, verified)


def partitioned(scenario: str, clients: int, seconds: float, seed: int) -> Outcome:
    """Run a load test in a network of its own, whose cable is pulled again and again. Raises NoNetwork."""
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        server = stack.enter_context(PostgresServer(settings={"listen_addresses": "*"}))
        with (server.data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {network.here}/30 trust\n")
        server.restart()
        ours = server.create_database()
        ms.migrate(ours)
        theirs = f"postgresql+psycopg://{server.user}@{network.here}:{server.port}/{database_of(ours)}"
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="metastore-faults-"))) / "run"
        words = ["--url", theirs, "loadtest", "--scenario", scenario, "--seconds", str(seconds), "--seed", str(seed)]
        words += ["--clients", str(clients), "--out", str(folder), "--json"]
        process = subprocess.Popen(
            network.inside([sys.executable, "-m", "metastore", *words]), stdout=subprocess.PIPE, text=True
        )
        disturbance = Disturbance(folder, lambda: network.pull(0.7), 0.7, seconds - _CALM)
        with disturbance.going_on():
            said, _ = process.communicate(timeout=seconds + 240)
        told = json.loads(said)
        with ms.open(ours) as store:
            verified = [str(violation) for violation in store.verify()]
        findings = [json.dumps(one) for one in told["findings"]] + told["missing"]
        operations = sum(share for one in told["runs"] for share in one["clients_operations"].values())
        if process.returncode != 0 and not findings:
            findings.append(f"it exited with {process.returncode}")
        return Outcome("partitioned", operations, dict(disturbance.done), findings, verified)


def main() -> int:
    """Run them; return 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="tests.load.faults", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--scenario", default=_SCENARIO)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("faults", nargs="*", default=[*FAULTS, "partitioned"])
    chosen = parser.parse_args()
    console, good = Console(), True
    inside = [fault for fault in chosen.faults if fault != "partitioned"]
    console.print(f"seed {chosen.seed}")
    with loadtest_context(f"local[{chosen.clients},1000]", chosen.clients):
        for fault in inside:
            good = _print(console, under(fault, chosen.scenario, chosen.clients, chosen.seconds, chosen.seed)) and good
    if "partitioned" in chosen.faults:
        try:
            outcome = partitioned(chosen.scenario, chosen.clients, chosen.seconds, chosen.seed)
            good = _print(console, outcome) and good
        except NoNetwork as error:
            console.print(f"partitioned: left out, {error}")
    return 0 if good else 1


def _print(console: Console, outcome: Outcome) -> bool:
    word = "[green]nothing is wrong[/green]" if outcome.good else "[red]WRONG[/red]"
    console.print(f"{outcome.fault:12} {outcome.operations:7,} operations, {outcome.done}: {word}")
    for line in [*outcome.findings, *outcome.verified][:10]:
        console.print(line, highlight=False, markup=False)
    return outcome.good


if __name__ == "__main__":
    sys.exit(main())
