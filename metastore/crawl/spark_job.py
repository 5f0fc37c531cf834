"""The Spark job of a crawl: cut the work, run it, tell how far it is, bring back its rows.

The job runs in a thread of its own, so that the caller's thread can show progress and be interrupted: then the job is
cancelled. What tasks have committed stays; the next crawl writes the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDone
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from metastore.clock import SYSTEM
from metastore.crawl.candidates import Candidate
from metastore.crawl.commit import Row
from metastore.crawl.spark_context import spark_context
from metastore.crawl.stages import cut, look_into, write_bucket
from metastore.errors import BackendUnavailable

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

__all__ = ["run"]

_SHARES: Final = 4
"""Tasks per core in each stage."""
_POLL: Final = 0.2
"""Seconds between two looks at how far Spark is."""


def run(
    found: list[Candidate], url: str, principal: str | None, master: str, tell: Callable[[str, float], None]
) -> list[Row]:
    """Look into the files of all candidates and commit their data sets; return a row for each, and for each failure."""
    tell("starting Spark", 0.0)
    with spark_context(master) as context:
        tasks = _SHARES * max(1, context.defaultParallelism)
        work, buckets = cut(found, tasks, tasks)
        crawl_id = f"metastore-crawl-{SYSTEM.operation_id()}"
        rows = (
            context.parallelize(work, len(work))
            .mapPartitions(look_into)
            .partitionBy(buckets, _same)
            .mapPartitions(lambda groups: write_bucket(groups, url, principal, crawl_id))
        )
        return _collect(context, rows, crawl_id, tell)


def _same(bucket: int) -> int:
    return bucket


def _collect(context: SparkContext, rows: RDD[Any], group: str, tell: Callable[[str, float], None]) -> list[Any]:
    """Run the job in a thread of its own, and tell how far it is; cancel it if the caller is interrupted."""

    def collect() -> list[Any]:
        context.setJobGroup(group, "metastore crawl", interruptOnCancel=True)
        return rows.collect()

    with ThreadPoolExecutor(1, "metastore-crawl") as pool:
        future = pool.submit(collect)
        try:
            while True:
                try:
                    return future.result(_POLL)
                except NotDone:
                    tell("crawling", _fraction(context, group))
        except (PySparkException, Py4JError) as error:
            raise BackendUnavailable(f"Spark gave up: {_cause(error)}") from None
        except BaseException:
            context.cancelJobGroup(group)
            raise


def _fraction(context: SparkContext, group: str) -> float:
    tracker = context.statusTracker()
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info else ():
            tasks = tracker.getStageInfo(stage)
            done, total = (done + tasks.numCompletedTasks, total + tasks.numTasks) if tasks else (done, total)
    return done / total if total else 0.0


def _cause(error: Exception) -> str:
    """Return the line of a Spark error that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if ("Error" in line or "Exception" in line) and not line.startswith("at ")]
    return (telling[-1] if telling else lines[0] if lines else type(error).__name__)[:500]
