"""The analysis of a load test's records, on Spark SQL: only sums, percentiles and histograms reach the driver.

All runs of a ramp are analysed together: each query groups by run. A run's number is the index of its folder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 (its usual name)

from metastore.checker.clients import missing_records, records_by_client
from metastore.checker.records import EVENTS, OPERATIONS, OUTCOMES
from metastore.loadtest.report.conflicts import Causes, conflicts_of
from metastore.loadtest.report.counts import Spans, count
from metastore.loadtest.report.model import Action, Analysis, ClientShare, Run, Times
from metastore.loadtest.report.record_folders import read_facts, record_folders
from metastore.loadtest.report.records import read_operations, read_parquet

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

__all__ = ["analyse"]

_NOTHING: Final = Action("", dict.fromkeys(OUTCOMES, 0), 0, 0, 0.0, 0, 0, 0, {}, 0, None, None)


def analyse(spark: SparkSession, folder: Path) -> Analysis:
    """Analyse the run, or the ramp, that left its records in ``folder``."""
    folders = record_folders(folder)
    operations = read_operations(spark, folders)
    causes, hot = conflicts_of(spark, operations, folders)
    actions, spans = _actions(operations, causes)
    counts = count(operations, spans)
    runs = []
    for number, path in enumerate(folders):
        whole, *single = [actions[number][name] for name in sorted(actions[number])] or [_NOTHING]
        facts = read_facts(path)
        everybody = _with_idle(counts.shares[number], facts)
        seconds = spans[number][1] if number in spans else 0.0
        runs.append(
            Run(
                folder=path.name,
                clients=_clients(everybody, facts),
                missing=_missing(spark, path, facts, everybody),
                seconds=seconds,
                whole=whole,
                actions=tuple(single),
                moments=counts.moments[number],
                commit_histogram=counts.commits[number],
                attempts_histogram=counts.attempts[number],
                shares=everybody,
                hot=hot[number],
                facts=facts,
            )
        )
    return Analysis(tuple(runs), read_facts(folder) or runs[0].facts)


def _actions(operations: DataFrame, causes: Causes) -> tuple[dict[int, dict[str, Action]], Spans]:
    """Return the actions of each run, with their total as the action "", and the start and length of each run."""
    write, applied, tried = ~F.col("looks"), F.col("outcome") == "applied", ~F.col("looks") & (F.col("attempts") > 0)
    rows = (
        operations.rollup("run", "action")
        .agg(
            F.grouping("action").alias("whole"),
            *[F.count_if(F.col("outcome") == outcome).alias(f"is_{outcome}") for outcome in OUTCOMES],
            F.count_if(write).alias("writes"),
            F.sum(F.when(write, F.col("attempts"))).alias("attempts"),
            F.mean(F.when(tried, F.col("attempts"))).alias("attempts_mean"),
            F.percentile_approx(F.when(tried, F.col("attempts")), 0.99).alias("attempts_p99"),
            F.max(F.when(write, F.col("attempts"))).alias("attempts_max"),
            F.sum("lost").alias("conflicts"),
            F.count_if(applied & F.col("helped")).alias("helped"),
            *_times("commit", applied),
            *_times("read", F.col("outcome") == "read"),
            F.min("at").alias("began"),
            F.max("until").alias("until"),
        )
        .where("run is not null")
        .collect()
    )
    actions, spans = defaultdict[int, dict[str, Action]](dict), {}
    for row in rows:
        name = "" if row["whole"] else row["action"]
        actions[row["run"]][name] = _action(name, row, causes[row["run"], name])
        if row["whole"]:
            spans[row["run"]] = row["began"], (row["until"] or row["began"]) - row["began"]
    return actions, spans


def _times(name: str, which: Column) -> tuple[Column, ...]:
    taken = F.when(which, F.col("ms"))
    return (
        F.count(taken).alias(f"{name}_count"),
        F.mean(taken).alias(f"{name}_mean"),
        F.percentile_approx(taken, [0.5, 0.9, 0.99]).alias(f"{name}_percentiles"),
        F.max(taken).alias(f"{name}_max"),
    )


def _action(name: str, row: Row, causes: Mapping[str, int]) -> Action:
    return Action(
        name=name,
        outcomes={outcome: row[f"is_{outcome}"] for outcome in OUTCOMES},
        writes=row["writes"],
        attempts=row["attempts"] or 0,
        attempts_mean=row["attempts_mean"] or 0.0,
        attempts_p99=row["attempts_p99"] or 0,
        attempts_max=row["attempts_max"] or 0,
        conflicts=row["conflicts"] or 0,
        causes=causes,
        helped=row["helped"],
        commit=_found_times("commit", row),
        read=_found_times("read", row),
    )


def _found_times(name: str, row: Row) -> Times | None:
    count = row[f"{name}_count"]
    if not count:
        return None
    p50, p90, p99 = row[f"{name}_percentiles"]
    return Times(count, row[f"{name}_mean"], p50, p90, p99, row[f"{name}_max"])


def _with_idle(shares: list[ClientShare], facts: Mapping[str, Any]) -> tuple[ClientShare, ...]:
    """Return the shares, with those of clients that ended in an orderly way and reported no calls."""
    there = {share.client for share in shares}
    told = dict(facts.get("calls") or {})
    idle = [ClientShare(name, 0, 0, 0) for name, calls in told.items() if calls == 0 and name not in there]
    return tuple(sorted([*shares, *idle], key=lambda share: _natural(share.client)))


def _missing(
    spark: SparkSession, folder: Path, facts: Mapping[str, Any], shares: Sequence[ClientShare]
) -> tuple[str, ...]:
    operations = read_parquet(spark, [folder], "operations", OPERATIONS)
    since = int(facts.get("since") or 0)
    events = read_parquet(spark, [folder], "feed", EVENTS).where(f"seq > {since}")
    # if clients have names, each incarnation counts; without names, the query would find no more than the shares show
    recorded = records_by_client(operations) if facts.get("names") else {share.client: 1 for share in shares}
    return missing_records(facts, recorded, operations, events)


def _clients(shares: Sequence[ClientShare], facts: Mapping[str, Any]) -> int:
    meant = facts.get("clients")
    return max(len(shares), meant) if isinstance(meant, int) else len(shares)


def _natural(name: str) -> tuple[int, str]:
    """Return a sort key that puts client-2 before client-10."""
    return len(name), name
