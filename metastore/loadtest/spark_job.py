"""The Spark job of a run: a task for each client, all at once.

The job runs in a thread of its own. The driver waits until all clients are there, lets them begin together, and
watches their logs; interrupted, it lets them end what they are at, and cancels what does not.
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
from metastore.loadtest.barrier import Meeting
from metastore.loadtest.client import Plan, run_client
from metastore.loadtest.masters import check_master, slots
from metastore.loadtest.monitor import Progress, Watch
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
"""Seconds between two looks at how far it is."""
_DELAY: Final = 0.2
"""Seconds from the last client's arrival to the start."""
_PATIENCE: Final = 60.0
"""Seconds in which one more client must arrive, and in which all must have ended."""
_GRACE: Final = 15.0
"""Seconds that clients have to end when they are told to: an operation lasts ten at most."""


@contextmanager
def loadtest_context(master: str, clients: int) -> Iterator[SparkContext]:
    """Give a Spark context with room for so many clients. Ctrl-C stays ours: Spark would kill the clients."""
    mine = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    with spark_context(master, _OPTIONS) as context:
        if mine:
            signal.signal(signal.SIGINT, before)
        if context._jsc.sc().isStopped():  # noqa: SLF001  (there is no public way to ask)
            raise BackendUnavailable(f"{master} takes connections, and does not answer as a Spark master does")
        check_master(context.master, clients)  # there may have been another one
        yield context


def run_clients(
    context: SparkContext, plan: Plan, prepare: Callable[[], None], watch: Watch, tell: Tell, clock: Clock
) -> bool:
    """Run all clients until their time is over; ``prepare`` is called when they are there, and before they begin.

    Return False if it was interrupted: what there is of it is in the record folder. Raises BackendUnavailable if
    Spark gives up, InvalidArgument if it does not run as many clients at once.
    """
    meeting = Meeting(Path(plan.folder), clock)
    meeting.open()
    group = f"metastore-loadtest-{plan.run}"

    def work() -> None:
        context.setJobGroup(group, "metastore loadtest", interruptOnCancel=True)
        context.parallelize(range(plan.clients), plan.clients).foreachPartition(_task(plan))

    with ThreadPoolExecutor(1, "metastore-loadtest") as pool:
        job = pool.submit(work)
        try:
            _wait_for_all(job, context.master, plan, meeting, tell, clock)
            tell(Progress("preparing"))
            prepare()
            meeting.start(_DELAY)
            _watch(job, plan, watch, tell, clock)
            return True
        except KeyboardInterrupt:
            tell(Progress("stopping"))
            return False
        except (PySparkException, Py4JError) as error:
            raise BackendUnavailable(f"Spark gave up: {cause_of(error)}") from None
        finally:
            _end(job, context, group, meeting)


def _task(plan: Plan) -> Callable[[Iterable[int]], None]:
    def task(numbers: Iterable[int]) -> None:
        here = TaskContext.get()
        for number in numbers:
            run_client(plan, number, 0 if here is None else here.attemptNumber())

    return task


def _wait_for_all(job: Future[None], master: str, plan: Plan, meeting: Meeting, tell: Tell, clock: Clock) -> None:
    ready, since = -1, clock.monotonic()
    while (now_ready := meeting.ready()) < plan.clients:
        tell(Progress(f"{now_ready} of {plan.clients} clients are ready"))
        if now_ready > ready:
            ready, since = now_ready, clock.monotonic()
        if clock.monotonic() - since > _PATIENCE:
            raise _too_few(ready, plan, master)
        _pause(job)
        if job.done():
            raise BackendUnavailable(f"{ready} of {plan.clients} clients began, and ended again; see {plan.folder}")


def _too_few(ready: int, plan: Plan, master: str) -> Exception:
    if slots(master) is None and not ready:
        return BackendUnavailable(
            f"no client began on {master} within {_PATIENCE:g} s: it needs free workers, with metastore installed, "
            f"that share the folder {plan.folder} and reach the database"
        )
    return InvalidArgument(f"{master} runs {ready} of {plan.clients} clients at once: give it more cores, or --clients")


def _watch(job: Future[None], plan: Plan, watch: Watch, tell: Tell, clock: Clock) -> None:
    """Tell how far it is until all have ended; whose executors are gone will not."""
    began = busy = clock.monotonic() + _DELAY
    ends = began + (plan.seconds or 0.0)
    while not job.done():
        _pause(job)
        before, now = watch.operations, clock.monotonic()
        watch.look()
        busy = now if watch.operations > before else busy
        tell(Progress("running", max(0.0, now - began), plan.seconds, watch.operations, watch.causes.total()))
        if now - max(busy, ends) > _PATIENCE:
            raise BackendUnavailable(
                f"the clients have done nothing for {_PATIENCE:g} s, and Spark does not say that they ended; "
                f"what they noted is in {plan.folder}"
            )


def _pause(job: Future[None]) -> None:
    """Wait a moment; raise what the job has raised."""
    try:
        job.result(_POLL)
    except NotDone:
        return


def _end(job: Future[None], context: SparkContext, group: str, meeting: Meeting) -> None:
    """Let no client go on; a second Ctrl-C does not wait for them."""
    meeting.stop()
    try:
        job.exception(_GRACE)
    except NotDone:
        pass
    finally:
        if not job.done():
            context.cancelJobGroup(group)
