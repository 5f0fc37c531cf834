"""Checks a record folder on Spark: sorted and joined there, then two passes that keep only what is live.

First the feed by itself (:mod:`metastore.checker.tree`): chains, names, parents, and that it ends in the tables. Then
the clients against it (:mod:`metastore.checker.sweep`): what they were told, what they read, whom they lost to. Each
pass is one task, whose memory does not grow with the length of the history; sorting spills to disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from metastore.checker.finding import Finding
from metastore.checker.gather import since
from metastore.checker.passes import (
    EVENT_COLUMNS,
    FOUND,
    FOUND_COLUMNS,
    MOST,
    PLACED_COLUMNS,
    TOLD_COLUMNS,
    TREE,
    replayed,
    swept,
)
from metastore.checker.spark_paths import readable

__all__ = ["Checked", "check"]

_BEFORE_ALL: Final = -(1 << 63)


@dataclass(frozen=True)
class Checked:
    """What came out."""

    operations: int
    events: int
    findings: tuple[Finding, ...]
    """The first of each rule."""
    counts: dict[str, int]
    """How many there are of each rule that was broken."""

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.counts


def check(spark: SparkSession, folder: Path) -> Checked:
    """Check what :func:`metastore.checker.gather` has written; ``placed/`` is left beside it.

    See :func:`metastore.checker.gather.since`.
    """
    operations = spark.read.parquet(readable(folder / "operations")).withColumn(
        "principal", F.concat_ws("/", "client", "number")
    )
    feed = spark.read.parquet(readable(folder / "feed"))
    tree = _replay(operations, feed, folder)
    placed = tree.where("what = 'placed'").select(*PLACED_COLUMNS)
    began = since(folder)
    whose = F.when(F.col("seq") > began, F.col("principal"))
    placed = placed.withColumn("principal", whose).cache()
    clocks = [row.clock for row in operations.select("clock").distinct().collect()]
    found = [
        *_found(tree.where("what = 'found'").select(*FOUND_COLUMNS).collect()),
        *_few(_unlike(tree.where("what = 'live'"), spark.read.parquet(readable(folder / "tables")))),
        *_few(_unasked(operations, placed)),
    ]
    for clock in clocks:
        passed = _told(operations, placed, clock).mapInArrow(swept(began), FOUND)
        found += _found(passed.collect())
    placed.unpersist()
    counts: Counter[str] = Counter()
    for finding, count in found:
        counts[finding.rule] += count
    findings = tuple([finding for finding, _ in found if finding.message])
    return Checked(operations.count(), feed.count(), findings, dict(counts))


def _replay(operations: DataFrame, feed: DataFrame, folder: Path) -> DataFrame:
    """Replay the feed, and keep what comes of it."""
    asked = operations.where("action = 'drop'").select("principal", F.col("action").alias("asked"))
    events = feed.join(asked, "principal", "left").select(*EVENT_COLUMNS)
    tree = events.repartition(1).sortWithinPartitions("seq").mapInArrow(replayed, TREE)
    tree.write.mode("overwrite").parquet(str(folder / "placed"))
    return feed.sparkSession.read.parquet(readable(folder / "placed"))


def _unlike(live: DataFrame, tables: DataFrame) -> DataFrame:
    """Return a finding for everything in which the end of the feed and the tables differ."""
    columns = ("entity_id", "kind", "path", "version")
    said = live.select("entity_id", F.struct(*columns[1:]).alias("said"))
    is_ = tables.select("entity_id", F.struct(*columns[1:]).alias("is"))
    differ = said.join(is_, "entity_id", "full").where("not (said <=> is)")
    text = "'entity ', entity_id, ': the feed ends with ', {said}, ', the tables have ', {is_}"
    text = text.format(**{name: f"coalesce(to_json({name.strip('_')}), 'nothing')" for name in ("said", "is_")})
    return differ.selectExpr(
        "'replay' as rule", f"concat({text}) as message", "cast(array() as array<string>) as operations", "1L as count"
    )


def _unasked(operations: DataFrame, placed: DataFrame) -> DataFrame:
    """Return a finding for each event that carries a client's name, and a number that it never noted."""
    clients = operations.select("client").distinct()
    whose = placed.withColumn("client", F.regexp_extract("principal", "^(.*)/[0-9]+$", 1))
    nobodys = whose.join(clients, "client").join(operations.select("principal"), "principal", "left_anti")
    return nobodys.selectExpr(
        "'once' as rule",
        "concat('entity ', entity_id, ' was written at ', seq, ', and its client never asked for it') as message",
        "array(principal) as operations",
        "1L as count",
    )


def _told(operations: DataFrame, placed: DataFrame, clock: str) -> DataFrame:
    """Return the operations of a clock with what they wrote, by start; before them what everybody else wrote."""
    event = F.struct(*PLACED_COLUMNS)
    events = F.array_sort(F.collect_list(event)).alias("events")
    wrote = placed.where("principal is not null").groupBy("principal").agg(events)
    mine = operations.where(F.col("clock") == clock)
    told = mine.join(wrote, "principal", "left").select(*TOLD_COLUMNS)
    others = placed.join(mine.select("principal"), "principal", "left_anti").select(F.array(event).alias("events"))
    nothing = {name: F.lit(None).cast(told.schema[name].dataType) for name in TOLD_COLUMNS[:-1]}
    nothing["start"] = F.lit(_BEFORE_ALL)
    nulls = [column.alias(name) for name, column in nothing.items()]
    both = told.unionByName(others.select(*nulls, "events"))
    return both.repartition(1).sortWithinPartitions("start", F.element_at("events", 1)["seq"])


def _few(findings: DataFrame) -> list[tuple[Finding, int]]:
    """Return the first of them, and how many more there are."""
    few = _found(findings.limit(MOST).collect())
    more = findings.count() - MOST if len(few) == MOST else 0
    return [*few, (Finding(few[0][0].rule, "", ()), more)] if more else few


def _found(rows: Iterable[Row]) -> list[tuple[Finding, int]]:
    return [(Finding(row["rule"], row["message"] or "", tuple(row["operations"])), row["count"]) for row in rows]
