"""The Spark job of a crawl: divide the work, run it, report the progress, collect the rows.

The job runs in a separate thread, so the caller's thread can show progress and take Ctrl-C, which cancels the job.
The tasks' commits stay; the next crawl writes the rest.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDone
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from metastore.crawl.dataset.candidates import Candidate
from metastore.crawl.report import Failure, TableResult
from metastore.crawl.tasks import Setting, crawl_whole, cut, look_into, parted, shared, write_bucket
from metastore.crawl.write.commit import Row
from metastore.errors import BackendUnavailable
from metastore.spark.context import spark_context

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

__all__ = ["cause_of", "run"]

_SHARES: Final = 4
"""Tasks per core in each stage, at least."""
_FILES: Final = 1000
"""How many files a task has at most, about. The progress is the share of tasks that are done."""
_PROTOCOL: Final = 5
"""The version of pickle that the driver and the workers share."""
_PACKED: Final = 1000
"""How many rows are packed into one object."""
_POLL: Final = 0.2
"""Seconds between two looks at Spark's progress."""
Tell = Callable[[str, float], None]


def run(
    candidates: Sequence[Candidate],
    setting: Setting,
    master: str,
    tell: Tell,
    profiling: Callable[[SparkContext, list[TableResult]], Iterator[object]] | None = None,
) -> tuple[list[Row], int]:
    """Read the files of all candidates and commit their data sets. Return a row for each table and each failure.

    ``profiling`` is called with the context and the tables. The second value returned is the number of profiles
    written.
    """
    tell("starting Spark", 0.0)
    with spark_context(master) as context:
        rows = _collect(context, _job(context, candidates, setting), setting.crawl_id, tell)
        if profiling is None:
            return rows, 0
        tables = [row for row in rows if isinstance(row, TableResult) and row.action != "failed"]
        profiled = 0
        for number, outcome in enumerate(profiling(context, tables)):
            tell("profiling", number / len(tables))
            if isinstance(outcome, Failure):
                rows.append(outcome)
            else:
                profiled += getattr(outcome, "fresh", True)
        return rows, profiled


def _job(context: SparkContext, candidates: Sequence[Candidate], setting: Setting) -> RDD[Any]:
    """Return the job: whole candidates take one stage, candidates that are too large for one task take two."""
    files = sum(len(candidate.files) for candidate in candidates)
    tasks = max(_SHARES * max(1, context.defaultParallelism), files // _FILES)
    whole, great = parted(candidates, tasks)
    jobs = []
    if whole:
        shares = [pickle.dumps(share, _PROTOCOL) for share in shared(whole, tasks)]
        jobs.append(
            context.parallelize(shares, len(shares)).mapPartitions(
                lambda work: _packed(crawl_whole(_unpacked(work), setting))
            )
        )
    if great:
        work, buckets = cut(great, tasks, tasks)
        jobs.append(
            context.parallelize(work, len(work))
            .mapPartitions(lambda work: look_into(work, setting.options, setting.limits))
            .partitionBy(buckets, _same)
            .mapPartitions(lambda groups: _packed(write_bucket(groups, setting)))
        )
    return jobs[0] if len(jobs) == 1 else context.union(jobs)


def _same(bucket: int) -> int:
    return bucket


# Spark pickles object by object in Python, which is slow: so pack many objects into one first


def _unpacked(work: Iterable[bytes]) -> Iterator[list[Candidate]]:
    return map(pickle.loads, work)


def _packed(rows: Iterable[Row]) -> Iterator[bytes]:
    rows = iter(rows)
    while some := list(islice(rows, _PACKED)):
        yield pickle.dumps(some, _PROTOCOL)


def _collect(context: SparkContext, rows: RDD[Any], group: str, tell: Tell) -> list[Any]:
    """Run the job in a separate thread, and report its progress. Cancel it if the caller is interrupted."""

    def collect() -> list[Any]:
        context.setJobGroup(group, "metastore crawl", interruptOnCancel=True)
        return rows.collect()

    with ThreadPoolExecutor(1, "metastore-crawl") as pool:
        future = pool.submit(collect)
        try:
            while True:
                try:
                    return [row for packed in future.result(_POLL) for row in pickle.loads(packed)]  # noqa: S301 (our own)
                except NotDone:
                    tell("crawling", _fraction(context, group))
        except (PySparkException, Py4JError) as error:
            raise BackendUnavailable(f"Spark gave up: {cause_of(error)}") from None
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


def cause_of(error: Exception) -> str:
    """Return the line of a Spark error that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if ("Error" in line or "Exception" in line) and not line.startswith("at ")]
    return (telling[-1] if telling else lines[0] if lines else type(error).__name__)[:500]
