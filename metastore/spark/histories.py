"""Data frames about the catalog's history, for analysts."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everywhere in Spark)

from metastore.errors import InvalidArgument
from metastore.spark.source.source import register_source

__all__ = ["history"]

_NAME = "(?:`(?:[^`]|``)*`|[^.`]+)"
"""One name of a path: one with a dot is in back-quotes."""


def history(spark: SparkSession, view: str, *, url: str | None = None, at: str | None = None) -> DataFrame:
    """Return a data frame about the history that gc has kept, up to ``at`` (a position or time).

    ``churn``: changes by schema and day. ``who``: changes by principal, kind and action. ``schemas``: each change of a
    table's columns, with the columns after it. ``hours``: changes by hour and kind; ``contended`` counts the changes of
    entities that several principals changed in that hour, which is where conflicts come from. (Conflicts leave nothing
    in the database; metrics count them.) Raises InvalidArgument.
    """
    register_source(spark)
    if view not in _VIEWS:
        raise InvalidArgument(f"there is no view {view!r}; known are {', '.join(_VIEWS)}")
    reader = spark.read.format("metastore").option("table", "versions")
    for name, value in (("url", url), ("at", at)):
        reader = reader if value is None else reader.option(name, value)
    return _VIEWS[view](reader.load())


def _churn(versions: DataFrame) -> DataFrame:
    path = F.coalesce("path_after", "path_before")
    schema = F.regexp_extract(path, rf"^({_NAME}\.{_NAME}\.{_NAME})\.", 1)
    rows = versions.where(F.col("kind") != "lease").where(schema != "")
    return rows.groupBy(schema.alias("schema"), F.to_date("time").alias("day")).agg(
        F.count("*").alias("changes"), F.countDistinct("entity_id").alias("entities")
    )


def _who(versions: DataFrame) -> DataFrame:
    return versions.groupBy("principal", "kind", "action").agg(
        F.count("*").alias("changes"), F.max("time").alias("last")
    )


def _schemas(versions: DataFrame) -> DataFrame:
    columns = F.get_json_object("document", "$.columns")
    tables = versions.where(F.col("kind") == "table").withColumn("columns", columns)
    from pyspark.sql import Window  # noqa: PLC0415

    before = F.lag("columns").over(Window.partitionBy("entity_id").orderBy("version"))
    rows = tables.withColumn("before", before).where(~F.col("columns").eqNullSafe(F.col("before")))
    path = F.coalesce("path_after", "path_before").alias("path")
    return rows.select("entity_id", path, "version", "time", "principal", "before", "columns")


def _hours(versions: DataFrame) -> DataFrame:
    hour = F.date_trunc("hour", F.col("time")).alias("hour")
    each = versions.where(F.col("kind") != "lease").groupBy(hour, "kind", "entity_id")
    entities = each.agg(F.count("*").alias("changes"), F.countDistinct("principal").alias("principals"))
    contended = F.sum(F.when(F.col("principals") > 1, F.col("changes")).otherwise(0))
    return entities.groupBy("hour", "kind").agg(F.sum("changes").alias("changes"), contended.alias("contended"))


_VIEWS = {"churn": _churn, "who": _who, "schemas": _schemas, "hours": _hours}
