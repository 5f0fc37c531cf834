"""The causes of lost attempts, and the entities with most conflicts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 (its usual name)

from metastore.checker.records import EVENTS
from metastore.loadtest.report.model import HotEntity
from metastore.loadtest.report.records import read_parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

__all__ = ["Causes", "Hot", "conflicts_of"]

Causes = Mapping[tuple[int, str], Mapping[str, int]]
"""By run and action ("": all actions): how many attempts lost, by cause, the most frequent cause first."""
Hot = Mapping[int, tuple[HotEntity, ...]]
_MOST: Final = 10
_LOOKED_AT: Final = 30
"""How many entities are examined: more than are shown, because one entity may be counted by its id and by its path."""


def conflicts_of(spark: SparkSession, operations: DataFrame, folders: Sequence[Path]) -> tuple[Causes, Hot]:
    """Return the causes and the hot entities of each run. An attempt without a known entity counts for its path.

    This does not query the database: the last path of an entity comes from the feed, else from an operation.
    """
    rows = _grouped(operations)
    hot = [row for row in rows if row["of_entity"] and (row["entity_id"] is not None or row["path"] is not None)]
    return _causes([row for row in rows if not row["of_entity"]]), _hot(spark, operations, folders, hot)


def _grouped(operations: DataFrame) -> list[Row]:
    """Return the conflicts by (run, action, cause), and the most frequent by (run, entity)."""
    own, its = F.col("entity_id").alias("own_id"), F.explode("conflicts").alias("lost")
    lost = operations.select("run", "action", "last_path", own, its)
    told = F.coalesce("lost.entity_id", F.when(F.col("last_path").isNull(), F.col("own_id"))).alias("entity_id")
    split = lost.select("run", "action", "last_path", "lost.cause", told)
    known = split.withColumn("path", F.when(F.col("entity_id").isNull(), F.col("last_path")))
    sets = [("run", "action", "cause"), ("run", "entity_id", "path")]
    grouped = known.groupingSets(sets, "run", "action", "cause", "entity_id", "path").agg(
        (F.grouping("action") == 1).alias("of_entity"), F.count("*").alias("conflicts")
    )
    order = Window.partitionBy("run", "of_entity").orderBy(F.desc("conflicts"), "entity_id", "path")
    placed = grouped.withColumn("place", F.row_number().over(order))
    rows: list[Row] = placed.where(~F.col("of_entity") | (F.col("place") <= _LOOKED_AT)).orderBy("place").collect()
    return rows


def _causes(rows: Sequence[Row]) -> Causes:
    by_entity = defaultdict[tuple[int, str], dict[str, int]](dict)
    for row in rows:
        for action in (row["action"], ""):
            causes = by_entity[row["run"], action]
            causes[row["cause"]] = causes.get(row["cause"], 0) + row["conflicts"]
    for key, causes in by_entity.items():
        by_entity[key] = dict(sorted(causes.items(), key=lambda item: (-item[1], item[0])))
    return by_entity


def _hot(spark: SparkSession, operations: DataFrame, folders: Sequence[Path], rows: Sequence[Row]) -> Hot:
    hottest = defaultdict[int, tuple[HotEntity, ...]](tuple)
    if not rows:
        return hottest
    ids = {row["entity_id"] for row in rows if row["entity_id"] is not None}
    paths = {row["path"] for row in rows if row["path"] is not None}
    about = _operations_about(operations, ids, paths)
    in_feed = _last_in_feed(spark, folders, ids)
    for run in {row["run"] for row in rows}:
        mine = [row for row in about if row["run"] == run]
        known = {row["entity_id"] for row in rows if row["run"] == run} - {None}
        here = {entity_id: in_feed.get((run, entity_id)) for entity_id in known}
        for row in sorted(mine, key=lambda row: row["at"]):
            if row["latest"] is not None and row["entity_id"] in here and (run, row["entity_id"]) not in in_feed:
                here[row["entity_id"]] = row["latest"]
        lost = _by_entity([row for row in rows if row["run"] == run], here)
        # the sort is stable: equal counts keep their order
        most = sorted(lost.items(), key=lambda item: -item[1])[:_MOST]
        hottest[run] = tuple([HotEntity(*key, conflicts, _operations_of(mine, *key)) for key, conflicts in most])
    return hottest


def _by_entity(rows: Sequence[Row], paths: Mapping[int | None, str | None]) -> dict[tuple[int | None, str | None], int]:
    """Return the conflicts by entity and path. A conflict with only a path counts for the entity that is there."""
    ids = {path: entity_id for entity_id, path in paths.items() if path is not None}
    counts: dict[tuple[int | None, str | None], int] = {}
    for row in rows:
        entity_id = row["entity_id"] if row["path"] is None else ids.get(row["path"])
        key = entity_id, row["path"] or paths.get(entity_id)
        counts[key] = counts.get(key, 0) + row["conflicts"]
    return counts


def _operations_of(rows: Sequence[Row], entity_id: int | None, path: str | None) -> int:
    """Return how many operations concerned an entity: by its id, or, without an id, by its path."""

    def is_it(row: Row) -> bool:
        known: int | None = row["entity_id"]
        return known == entity_id if known is not None and entity_id is not None else row["path"] == path is not None

    return sum(row["operations"] for row in rows if is_it(row))


def _operations_about(operations: DataFrame, ids: set[int], paths: set[str]) -> list[Row]:
    """Return how many operations had one of ``ids`` or ``paths``, and the path of the last one."""
    by_id = F.when(F.col("entity_id").isin(*ids), F.col("entity_id")).alias("entity_id")
    by_path = F.when(F.col("last_path").isin(*paths), F.col("last_path")).alias("path")
    counted = operations.groupBy("run", by_id, by_path).agg(
        F.count("*").alias("operations"),
        F.max_by("last_path", F.when(F.col("last_path").isNotNull(), F.col("at"))).alias("latest"),
        F.max("at").alias("at"),
    )
    rows: list[Row] = counted.where("entity_id is not null or path is not null").collect()
    return rows


def _last_in_feed(spark: SparkSession, folders: Sequence[Path], ids: set[int]) -> dict[tuple[int, int], str]:
    """Return the last path of each of the entities ``ids`` in the feed, without owned rows."""
    if not ids:
        return {}
    events = read_parquet(spark, folders, "feed", EVENTS).where("owner_id is null").where(F.col("entity_id").isin(*ids))
    path = F.max_by(F.coalesce("path_after", "path_before"), "seq")
    return {(run, entity_id): at for run, entity_id, at in events.groupBy("run", "entity_id").agg(path).collect()}
