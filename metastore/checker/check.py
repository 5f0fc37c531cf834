"""Check a record folder on Spark: sort and join the records, then read them in two passes.

The first pass checks the feed alone (:mod:`metastore.checker.tree`): version chains, names, parents, and that the end
of the feed equals the tables. The second pass checks the clients against the feed (:mod:`metastore.checker.sweep`):
outcomes, reads and conflicts. Each pass is one task. Its memory does not grow with the length of the history, and
sorting spills to disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from metastore.checker.clients import missing_records, records_by_client, run_facts
from metastore.checker.finding import Finding
from metastore.checker.gather import since
from metastore.checker.passes import (
    EVENT_COLUMNS,
    FOUND,
    FOUND_COLUMNS,
    MOST,
    OPERATION_COLUMNS,
    PLACED_COLUMNS,
    TREE,
    replayed,
    swept,
)
from metastore.checker.spark_paths import readable
from metastore.checker.tree import DROPPED

__all__ = ["Checked", "check"]

_BEFORE_ALL: Final = -(1 << 63)
_NEWER: Final = (("other_id", "long"), ("other_path", "string"), ("scope_version", "long"), ("fences", "string"))
"""Columns of the feed that were added later, with their types: about relations, and about the evidence of commits."""


@dataclass(frozen=True)
class Checked:
    """The result of a check."""

    operations: int
    events: int
    findings: tuple[Finding, ...]
    """The first hundred findings of each rule."""
    counts: dict[str, int]
    """The number of findings of each broken rule."""
    missing: tuple[str, ...]
    """A sentence for each client whose records are missing: without these records, the check proves nothing."""

    @property
    def clean(self) -> bool:
        """Whether the check found nothing, and no client's records are missing."""
        return not self.counts and not self.missing


def check(spark: SparkSession, folder: Path) -> Checked:
    """Check the Parquet files that :func:`metastore.checker.gather.gather` wrote; write ``placed/`` beside them.

    Events before :func:`metastore.checker.gather.since` belong to no client of the run.
    """
    operations = spark.read.parquet(readable(folder / "operations")).withColumn(
        "principal", F.concat_ws("/", "client", "number")
    )
    feed = _whole(spark.read.parquet(readable(folder / "feed")))
    tree = _replay(operations, feed, folder)
    placed = tree.where("what = 'placed'").select(*PLACED_COLUMNS)
    began = since(folder)
    whose = F.when(F.col("seq") > began, F.col("principal"))
    placed = _asked_for(placed, operations).withColumn("principal", whose).cache()
    clocks = [row.clock for row in operations.select("clock").distinct().collect()]
    found = [
        *_found(tree.where("what = 'found'").select(*FOUND_COLUMNS).collect()),
        *_few(_unlike(tree.where("what = 'live'"), spark.read.parquet(readable(folder / "tables")))),
        *_few(_unasked(operations, placed)),
    ]
    for clock in clocks:
        passed = _by_start(operations, placed, clock).mapInArrow(swept(began), FOUND)
        found += _found(passed.collect())
    placed.unpersist()
    counts: Counter[str] = Counter()
    for finding, count in found:
        counts[finding.rule] += count
    findings = tuple([finding for finding, _ in found if finding.message])
    missing = missing_records(
        run_facts(folder), records_by_client(operations), operations, feed.where(F.col("seq") > began)
    )
    return Checked(operations.count(), feed.count(), findings, dict(counts), missing)


def _whole(feed: DataFrame) -> DataFrame:
    """Return the feed with the columns that older record folders do not have."""
    missing = [(name, type_) for name, type_ in _NEWER if name not in feed.columns]
    return feed.select("*", *[F.lit(None).cast(type_).alias(name) for name, type_ in missing])


def _replay(operations: DataFrame, feed: DataFrame, folder: Path) -> DataFrame:
    """Replay the feed, and write the result to ``placed/``."""
    asked = operations.where("action in ('drop', 'restore')").select("principal", F.col("action").alias("asked"))
    events = feed.join(asked, "principal", "left").select(*EVENT_COLUMNS)
    tree = events.repartition(1).sortWithinPartitions("seq").mapInArrow(replayed, TREE)
    tree.write.mode("overwrite").parquet(str(folder / "placed"))
    return feed.sparkSession.read.parquet(readable(folder / "placed"))


def _asked_for(placed: DataFrame, operations: DataFrame) -> DataFrame:
    """Return the events; if no client looked for dropped entities, without these, which would fill the memory."""
    seen = operations.schema["reads"].dataType.elementType
    if "of" in seen.names and not operations.where("exists(reads, seen -> seen.of = 'dropped')").isEmpty():
        return placed
    return placed.withColumn("names", F.expr(f"filter(names, one -> not startswith(one.family, '{DROPPED}'))"))


def _unlike(live: DataFrame, tables: DataFrame) -> DataFrame:
    """Return a finding for each entity for which the end of the feed and the tables differ."""
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
    """Return a finding for each event of a client that the client never recorded."""
    clients = operations.select("client").distinct()
    whose = placed.withColumn("client", F.regexp_extract("principal", "^(.*)/[0-9]+$", 1))
    nobodys = whose.join(clients, "client").join(operations.select("principal"), "principal", "left_anti")
    return nobodys.selectExpr(
        "'once' as rule",
        "concat('entity ', entity_id, ' was written at ', seq, ', and its client did not record it') as message",
        "array(principal) as operations",
        "1L as count",
    )


def _by_start(operations: DataFrame, placed: DataFrame, clock: str) -> DataFrame:
    """Return the operations of one clock with their events, sorted by start. All other events come first."""
    event = F.struct(*PLACED_COLUMNS)
    events = F.array_sort(F.collect_list(event)).alias("events")
    wrote = placed.where("principal is not null").groupBy("principal").agg(events)
    mine = operations.where(F.col("clock") == clock)
    told = mine.join(wrote, "principal", "left").select(*OPERATION_COLUMNS)
    others = placed.join(mine.select("principal"), "principal", "left_anti").select(F.array(event).alias("events"))
    nothing = {name: F.lit(None).cast(told.schema[name].dataType) for name in OPERATION_COLUMNS[:-1]}
    nothing["start"] = F.lit(_BEFORE_ALL)
    nulls = [column.alias(name) for name, column in nothing.items()]
    both = told.unionByName(others.select(*nulls, "events"))
    return both.repartition(1).sortWithinPartitions("start", F.element_at("events", 1)["seq"])


def _few(findings: DataFrame) -> list[tuple[Finding, int]]:
    """Return the first hundred findings, and the number of the remaining ones."""
    few = _found(findings.limit(MOST).collect())
    more = findings.count() - MOST if len(few) == MOST else 0
    return [*few, (Finding(few[0][0].rule, "", ()), more)] if more else few


def _found(rows: Iterable[Row]) -> list[tuple[Finding, int]]:
    return [(Finding(row["rule"], row["message"] or "", tuple(row["operations"])), row["count"]) for row in rows]
