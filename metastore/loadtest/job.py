"""``loadtest``: many clients on Spark call one store; their calls are recorded, checked and reported.

    driver      check URL, scenario and master before anything is written
    executors   a task for each client: connect, and wait for the others
    driver      drop the previous run's metalake, create the scenario's entities, let all clients begin
    executors   call the store, and record every call
    driver      write logs, feed and tables as Parquet; check; report

A ramp does this for each number of clients, one after the other, in one Spark context.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from metastore.arguments import integer, items, positive_integer, positive_seconds
from metastore.clock import SYSTEM, Clock
from metastore.errors import BackendUnavailable, InvalidArgument
from metastore.loadtest.client import Assignment, calls_made
from metastore.loadtest.fixture import check_ground, make_ground, names_of
from metastore.loadtest.masters import check_master
from metastore.loadtest.monitor import Monitor, Progress
from metastore.loadtest.run_file import check_new, facts, write_facts
from metastore.loadtest.scenarios import Ended, Scenario, scenario_named
from metastore.names import format_path
from metastore.store import open_store
from metastore.urls import reachable_url

if TYPE_CHECKING:
    from pyspark import SparkContext

    from metastore.checker.check import Checked
    from metastore.checker.finding import Finding
    from metastore.loadtest.report.model import Analysis
    from metastore.loadtest.spark_job import Tell

__all__ = ["LoadTest", "Run", "run"]

_CLIENTS: Final = 8
_PATIENCE: Final = 10.0
"""Seconds in which the database must answer before the test begins."""


@dataclass(frozen=True)
class Run:
    """The result of a run with one number of clients."""

    folder: Path
    clients: int
    checked: Checked
    findings: tuple[Finding, ...]
    """The findings of the checker, and one for each broken promise of the scenario."""


@dataclass(frozen=True)
class LoadTest:
    """The result of a load test."""

    folder: Path
    runs: tuple[Run, ...]
    interrupted: bool
    report: Path | None
    """None: the load test was interrupted before there were results."""
    analysis: Analysis | None

    @property
    def clean(self) -> bool:
        """Whether the runs have no findings, no missing records of a client, and no broken promises."""
        return not any(run.findings or run.checked.missing for run in self.runs)


def run(
    url: str | None,
    scenario: str | Scenario,
    *,
    clients: int | Sequence[int] = _CLIENTS,
    seconds: float | None = None,
    master: str | None = None,
    out: str | Path | None = None,
    seed: int = 0,
    skew: float | None = None,
    trace: str | None = None,
    metalake: str = "loadtest",
    progress: Tell | None = None,
    clock: Clock = SYSTEM,
) -> LoadTest:
    """Run a load test against the database ``url``, in a metalake that no other program uses.

    ``scenario`` is a name or a TOML file (docs/loadtest.md). ``clients`` is how many run at once; several numbers are a
    ramp. ``seconds`` is the length of each run; None: the scenario's length. ``master`` is Spark's; None: this machine.
    ``out`` is a new folder, which driver and workers must share. Raises InvalidArgument, BackendUnavailable or
    MigrationNeeded before anything is written.
    """
    steps = _numbers(clients)
    chosen = _scenario(scenario, skew, trace)
    length = chosen.seconds if seconds is None else positive_seconds(seconds, "a run's length")
    integer(seed, "a seed")
    names_of(metalake)
    reachable = reachable_url(url)
    most = max(steps)
    where = master or f"local[{most}]"
    check_master(where, most)
    folder = _folder(out, chosen, clock)
    check_new(folder)
    spark_job = _spark_job()
    with open_store(reachable, deadline=_PATIENCE) as store:
        check_ground(store, metalake)
    job = _Job(reachable, chosen, length, folder, seed, metalake, progress or _silent, clock)
    job.tell(Progress("starting Spark"))
    with spark_job.loadtest_context(where, most) as context:
        return job.all(context, steps)


def _numbers(clients: int | Sequence[int]) -> tuple[int, ...]:
    numbers = (clients,) if isinstance(clients, int) else items(clients, "numbers of clients")
    for number in numbers:
        positive_integer(number, "the number of clients")
    if not numbers or len(set(numbers)) < len(numbers):
        raise InvalidArgument("clients are one number, or several different ones: 1,2,4,8")
    return tuple(numbers)


def _scenario(scenario: str | Scenario, skew: float | None, trace: str | None) -> Scenario:
    if isinstance(scenario, str):
        return scenario_named(scenario, skew=skew, trace=trace)
    if skew is not None or trace is not None:
        raise InvalidArgument("skew and trace need a scenario by name; a Scenario object has its own")
    scenario.check()
    return scenario


def _folder(out: str | Path | None, scenario: Scenario, clock: Clock) -> Path:
    if out is not None:
        return Path(out).absolute()
    return Path(f"loadtest-{scenario.name}-{clock.micros() // 1_000_000}").absolute()


def _spark_job() -> Any:
    """Import the module that needs Spark. Raises InvalidArgument if a package is missing."""
    try:
        from metastore.loadtest import spark_job  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise InvalidArgument(
            f"a load test needs the package {error.name}: pip install 'versioned-metastore[loadtest]'"
        ) from None
    return spark_job


def _silent(_: Progress) -> None:
    pass


class _Job:
    """One load test, on the driver."""

    def __init__(
        self,
        url: str,
        scenario: Scenario,
        seconds: float | None,
        folder: Path,
        seed: int,
        metalake: str,
        tell: Tell,
        clock: Clock,
    ) -> None:
        self.url, self.scenario, self.seconds, self.folder = url, scenario, seconds, folder
        self.seed, self.metalake, self.tell, self.clock = seed, metalake, tell, clock
        self.interrupted = False

    def all(self, context: SparkContext, steps: Sequence[int]) -> LoadTest:
        """Run each number of clients, and report."""
        whole = self._facts(list(steps) if len(steps) > 1 else steps[0])
        runs: list[Run] = []
        for clients in steps:
            folder = self.folder if len(steps) == 1 else self.folder / f"clients-{clients}"
            done = self._run(context, folder, clients)
            if done is not None:
                runs.append(done)
            if self.interrupted:
                break
        if len(steps) > 1:
            write_facts(self.folder, whole | {"state": self._state()})
        return self._report(runs)

    def _facts(self, clients: int | list[int]) -> dict[str, Any]:
        more = {"clients": clients, "seconds": self.seconds, "seed": self.seed}
        return facts(self.url, self.scenario.name, self.scenario.parameters(), self.clock, **more)

    def _state(self) -> str:
        return "interrupted" if self.interrupted else "done"

    def _run(self, context: SparkContext, folder: Path, clients: int) -> Run | None:
        """Run ``clients`` clients. Return None if the run was interrupted before they began."""
        new = [path for path in (folder, *folder.parents) if not path.exists()]
        about = self._facts(clients)
        ground = format_path(names_of(self.metalake))
        name = f"r{self.clock.operation_id().hex[-8:]}"
        assignment = Assignment(self.url, str(folder), name, self.scenario, clients, self.seconds, self.seed, ground)
        monitor = Monitor(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            begun = self._clients(context, assignment, monitor, about)
        except BaseException:
            if "since" not in about and new:
                shutil.rmtree(new[-1], ignore_errors=True)  # no client has begun
            raise
        if not begun:
            return None
        monitor.look()
        about["calls"] = calls_made(folder)
        write_facts(folder, about | {"state": "unchecked"})
        try:
            done = self._settle(context, assignment, monitor)
        except BackendUnavailable as error:
            logs = folder / "log"
            raise BackendUnavailable(
                f"{error}; the clients' records are in {logs}: gather and check them when the database is back"
            ) from None
        write_facts(folder, about | {"state": self._state()})
        return done

    def _clients(self, context: SparkContext, assignment: Assignment, monitor: Monitor, about: dict[str, Any]) -> bool:
        """Run the clients; return whether they began."""

        def prepare() -> None:
            from metastore.checker.gather import position  # noqa: PLC0415  (the checker needs Spark)

            with open_store(self.url) as store:
                self.scenario.prepare(store, make_ground(store, self.metalake))
            about.update(since=position(self.url), names=assignment.names)
            write_facts(Path(assignment.folder), about | {"state": "running"})

        self.interrupted = not _spark_job().run_clients(context, assignment, prepare, monitor, self.tell, self.clock)
        return "since" in about

    def _settle(self, context: SparkContext, assignment: Assignment, monitor: Monitor) -> Run:
        """Gather the clients' records, and check them."""
        from pyspark.sql import SparkSession  # noqa: PLC0415

        from metastore.checker.check import check  # noqa: PLC0415
        from metastore.checker.gather import gather  # noqa: PLC0415

        folder = Path(assignment.folder)
        session = SparkSession.builder.getOrCreate()
        self.tell(Progress("gathering"))
        gather(session, folder, self.url)
        self.tell(Progress("checking"))
        checked = check(session, folder)
        with open_store(self.url) as store:
            ended = Ended(assignment.ground, assignment.clients, _finished(folder, assignment.clients), monitor.causes)
            broken = self.scenario.broken(store, ended)
        return Run(folder, assignment.clients, checked, (*checked.findings, *broken))

    def _report(self, runs: Sequence[Run]) -> LoadTest:
        if not runs:
            return LoadTest(self.folder, (), self.interrupted, None, None)
        from pyspark.sql import SparkSession  # noqa: PLC0415

        from metastore.loadtest.report.analysis import analyse  # noqa: PLC0415
        from metastore.loadtest.report.writing import write_report  # noqa: PLC0415

        self.tell(Progress("reporting"))
        analysis = analyse(SparkSession.builder.getOrCreate(), self.folder)
        report = write_report(analysis, self.folder, {run.folder: run.findings for run in runs})
        return LoadTest(self.folder, tuple(runs), self.interrupted, report, analysis)


def _finished(folder: Path, clients: int) -> bool:
    """Return whether each client finished its work in its first incarnation."""
    metrics = [json.loads(path.read_text()) for path in (folder / "metrics").glob("*.json")]
    logs = sum(1 for _ in (folder / "log").iterdir())
    return len(metrics) == logs == clients and all(one["finished"] for one in metrics)
