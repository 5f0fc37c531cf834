"""The counts of a run by time, time to commit, attempts and client, in one pass over its records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 (its usual name)

from metastore.loadtest.report.model import Bucket, ClientShare, Moment

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

__all__ = ["Counts", "Spans", "count"]

Spans = Mapping[int, tuple[float, float]]
"""By run: its start in seconds since 1970, and its length in seconds."""
_ANSWERED: Final = ("applied", "nothing", "read", "failed")
_PER_DECADE: Final = 8
_SHORTEST: Final = 1e-3
"""The shortest counted time (milliseconds). Shorter times count as this."""
_MOMENTS: Final = 60
"""The largest number of moments. Each is at least a tenth of a second long."""
_KEYS: Final = ("moment", "bucket", "tries", "client")


@dataclass(frozen=True)
class Counts:
    """The counts by run; see :class:`metastore.loadtest.report.model.Run`. A missing part is empty."""

    moments: Mapping[int, tuple[Moment, ...]]
    commits: Mapping[int, tuple[Bucket, ...]]
    attempts: Mapping[int, tuple[tuple[int, int], ...]]
    shares: Mapping[int, list[ClientShare]]


def count(operations: DataFrame, spans: Spans) -> Counts:
    """Count the operations of the runs whose times are known."""
    lengths = {run: _nice_length(seconds) for run, (_, seconds) in spans.items()}
    lasts = {run: max(0, round(spans[run][1] / length) - 1) for run, length in lengths.items()}
    applied, write = F.col("outcome") == "applied", ~F.col("looks")
    rows = (
        operations.withColumn("moment", _moment(spans, lengths, lasts))
        .withColumn(
            "bucket",
            F.when(
                applied & F.col("ms").isNotNull(), F.floor(F.log10(F.greatest("ms", F.lit(_SHORTEST))) * _PER_DECADE)
            ),
        )
        .withColumn("tries", F.when(write & (F.col("attempts") > 0), F.col("attempts")))
        .groupingSets([("run", key) for key in _KEYS], "run", *_KEYS)
        .agg(
            *[F.grouping(key).alias(f"without_{key}") for key in _KEYS],
            F.count("*").alias("operations"),
            F.count_if(write).alias("writes"),
            F.sum(F.when(write, F.col("attempts")).otherwise(0)).alias("attempts"),
            F.sum("lost").alias("lost"),
            F.count_if(F.col("outcome").isin(*_ANSWERED)).alias("answered"),
            F.count_if(applied).alias("applied"),
        )
        .collect()
    )
    counts = {key: defaultdict[int, dict[Any, Any]](dict) for key in _KEYS}
    for row in rows:
        key = next(key for key in _KEYS if not row[f"without_{key}"])
        if row[key] is not None:
            counts[key][row["run"]][row[key]] = row
    moments = {run: _moments(counts["moment"][run], spans[run][1], lengths[run], lasts[run]) for run in spans}
    attempts = {
        run: tuple([(tries, rows[tries]["operations"]) for tries in sorted(rows)])
        for run, rows in counts["tries"].items()
    }
    shares = {
        run: [ClientShare(name, row["answered"], row["applied"], row["lost"]) for name, row in rows.items()]
        for run, rows in counts["client"].items()
    }
    return Counts(
        defaultdict(tuple, moments),
        defaultdict(tuple, {run: _buckets(rows) for run, rows in counts["bucket"].items()}),
        defaultdict(tuple, attempts),
        defaultdict(list, shares),
    )


def _nice_length(seconds: float) -> float:
    """Return the shortest length of a moment among 0.1, 0.2, 0.5, 1, 2, 5 … seconds that gives few enough moments."""
    length, factors = 0.1, (2.0, 2.5, 2.0)
    for step in range(60):
        if seconds <= length * _MOMENTS:
            break
        length *= factors[step % 3]
    return round(length, 1)


def _moment(spans: Spans, lengths: Mapping[int, float], lasts: Mapping[int, int]) -> Column:
    """Return the number of the moment in which an operation returned; null: it did not return."""
    returned = F.col("until").isNotNull()  # least() and greatest() ignore nulls

    def of_run(cases: Any, run: int) -> Any:
        place = F.floor((F.col("until") - F.lit(spans[run][0])) / F.lit(lengths[run]))
        return cases.when((F.col("run") == run) & returned, F.least(place, F.lit(lasts[run])))

    return reduce(of_run, spans, F) if spans else F.lit(None).cast("long")


def _moments(rows: Mapping[int, Row], seconds: float, length: float, last: int) -> tuple[Moment, ...]:
    edges = [*[round(place * length, 6) for place in range(last + 1)], seconds]
    names = ("operations", "writes", "attempts", "lost")
    counts = [[rows[place][name] if place in rows else 0 for name in names] for place in range(last + 1)]
    return tuple(
        [Moment(start, end - start, *sums) for (start, end), sums in zip(pairwise(edges), counts, strict=True)]
    )


def _buckets(rows: Mapping[int, Row]) -> tuple[Bucket, ...]:
    return tuple(
        [
            Bucket(
                10 ** (place / _PER_DECADE),
                10 ** ((place + 1) / _PER_DECADE),
                rows[place]["operations"] if place in rows else 0,
            )
            for place in range(min(rows), max(rows) + 1)
        ]
    )
