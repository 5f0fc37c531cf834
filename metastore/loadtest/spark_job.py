"""The Spark job of a run: a task for each client, all at once.

The job runs in a separate thread. The driver waits until all clients are ready, starts them together, and watches their
logs. After an interrupt, it lets each client end its operation, and cancels those that do not end.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDone
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark import SparkContext, TaskContext
from pyspark.errors import PySparkException

from metastore.clock import Clock
from metastore.crawl.spark_job import cause_of
from metastore.errors import BackendUnavailable, InvalidArgument
from metastore.loadtest.barrier import Barrier
from metastore.loadtest.client import Assignment, run_client
from metastore.loadtest.masters import check_master, slots
from metastore.loadtest.monitor import Monitor, Progress
from metastore.spark.context import spark_context

__all__ = ["Tell", "loadtest_context", "run_clients"]

Tell = Callable[[Progress], None]
_OPTIONS: Final = {
    "spark.app.name": "metastore loadtest",
    "spark.python.daemon.module": "metastore.loadtest.worker_daemon",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
}
_POLL: Final = 0.2
"""Seconds between two looks at the progress."""
_DELAY: Final = 0.2
"""Seconds from the last client's arrival to the start."""
_PATIENCE: Final = 60.0
"""Seconds within which one more client must arrive, and within which all must end."""
_GRACE: Final = 15.0
"""Seconds that clients have to end after the stop: an operation lasts ten at most."""


@contextmanager
def loadtest_context(master: str, clients: int) -> Iterator[SparkContext]:
    """Give a Spark context with room for all clients. Ctrl-C keeps its handler: Spark's would kill the clients."""
    mine = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    with spark_context(master, _OPTIONS) as context:
        if mine:
            signal.signal(signal.SIGINT, before)
        if context._jsc.sc().isStopped():  # noqa: SLF001  (there is no public way to ask)
            raise BackendUnavailable(
                f"{master} takes connections, but does not answer as a Spark master does; give the URL of a master"
            )
        check_master(context.master, clients)  # a context on another master may have existed
        yield context


def run_clients(
    context: SparkContext,
    assignment: Assignment,
    prepare: Callable[[], None],
    monitor: Monitor,
    tell: Tell,
    clock: Clock,
) -> bool:
    """Run all clients until their time is over. ``prepare`` is called when all are ready, before they begin.

    Return False after an interrupt: the record folder has the operations so far. Raises BackendUnavailable if Spark
    gives up, InvalidArgument if the master cannot run all clients at once.
    """
    barrier = Barrier(Path(assignment.folder), clock)
    barrier.open()
    group = f"metastore-loadtest-{assignment.run}"

    def work() -> None:
        context.setJobGroup(group, "metastore loadtest", interruptOnCancel=True)
        context.parallelize(range(assignment.clients), assignment.clients).foreachPartition(_task(assignment))

    with ThreadPoolExecutor(1, "metastore-loadtest") as pool:
        job = pool.submit(work)
        try:
            _wait_for_all(job, context.master, assignment, barrier, tell, clock)
            tell(Progress("preparing"))
            prepare()
            barrier.start(_DELAY)
            _watch(job, assignment, monitor, tell, clock)
            return True
        except KeyboardInterrupt:
            tell(Progress("stopping"))
            return False
        except (PySparkException, Py4JError) as error:
            raise BackendUnavailable(f"Spark gave up: {cause_of(error)}") from None
        finally:
            _end(job, context, group, barrier)


def _task(assignment: Assignment) -> Callable[[Iterable[int]], None]:
    def task(numbers: Iterable[int]) -> None:
        here = TaskContext.get()
        for number in numbers:
            run_client(assignment, number, 0 if here is None else here.attemptNumber())

    return task


def _wait_for_all(
    job: Future[None], master: str, assignment: Assignment, barrier: Barrier, tell: Tell, clock: Clock
) -> None:
    ready, since = -1, clock.monotonic()
    while (now_ready := barrier.ready()) < assignment.clients:
        tell(Progress(f"{now_ready} of {assignment.clients} clients are ready"))
        if now_ready > ready:
            ready, since = now_ready, clock.monotonic()
        if clock.monotonic() - since > _PATIENCE:
            raise _too_few(ready, assignment, master)
        _pause(job)
        if job.done():
            raise BackendUnavailable(
                f"{ready} of {assignment.clients} clients began, and ended again; see {assignment.folder}"
            )


def _too_few(ready: int, assignment: Assignment, master: str) -> Exception:
    if slots(master) is None and not ready:
        return BackendUnavailable(
            f"no client began on {master} within {_PATIENCE:g} s: it needs free workers, with metastore installed, "
            f"that share the folder {assignment.folder} and reach the database"
        )
    return InvalidArgument(
        f"{master} runs {ready} of {assignment.clients} clients at once: give it more cores, or --clients"
    )


def _watch(job: Future[None], assignment: Assignment, monitor: Monitor, tell: Tell, clock: Clock) -> None:
    """Report the progress until all clients have ended, or are inactive because their executors are gone."""
    began = busy = clock.monotonic() + _DELAY
    ends = began + (assignment.seconds or 0.0)
    while not job.done():
        _pause(job)
        before, now = monitor.operations, clock.monotonic()
        monitor.look()
        busy = now if monitor.operations > before else busy
        tell(Progress("running", max(0.0, now - began), assignment.seconds, monitor.operations, monitor.causes.total()))
        if now - max(busy, ends) > _PATIENCE:
            raise BackendUnavailable(
                f"the clients have done nothing for {_PATIENCE:g} s, and Spark does not say that they ended; "
                f"their records are in {assignment.folder}"
            )


def _pause(job: Future[None]) -> None:
    """Wait a moment; raise the job's error if it has failed."""
    try:
        job.result(_POLL)
    except NotDone:
        return


def _end(job: Future[None], context: SparkContext, group: str, barrier: Barrier) -> None:
    """Stop all clients, and wait for them. A second Ctrl-C ends the wait."""
    barrier.stop()
    try:
        job.exception(_GRACE)
    except NotDone:
        pass
    finally:
        if not job.done():
            context.cancelJobGroup(group)
