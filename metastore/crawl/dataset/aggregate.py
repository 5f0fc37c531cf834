"""The figures of a profile: one aggregation over all columns of a data frame, in one pass over its files.

* ``nulls``: how many values are missing.
* ``distinct``: how many different values there are; an estimate, mostly within 4 %.
* ``min``, ``max``: exact; of texts the first 256 characters, of bytes the first 256 hexadecimal digits.
* ``quantiles``: of numbers and times, at 25, 50 and 75 %; each is a value whose rank is within 0.01 % of the rows.
* ``top``: the most frequent values (of texts: beginnings) and how often each occurs, most frequent first. Exact up
  to ten thousand different values, estimates beyond. Needs Spark 4.1; with an older one it is left out.

Values are written as the statistic ``crawl`` has them. NaN is neither null nor a value. A text with a NUL is left out,
because PostgreSQL cannot store it. For nested columns and intervals only the nulls are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 (its usual name)

from metastore.columns.column import Column
from metastore.columns.types import parse
from metastore.crawl.read.facts import MAX_TEXT, text

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame

__all__ = ["figures_of"]

_WIDEST: Final = 50
"""Columns in one pass: for more columns Spark generates code that the JVM no longer compiles."""
_TOP: Final = 10
_QUANTILES: Final = (0.25, 0.5, 0.75)
_NUMBERS: Final = frozenset({"byte", "short", "int", "long", "float", "double", "decimal"})
_TIMES: Final = frozenset({"date", "timestamp", "timestamptz"})
_TEXTS: Final = frozenset({"string", "varchar", "char", "uuid"})
_FLOATING: Final = frozenset({"float", "double"})
_ORDERED: Final = _NUMBERS | _TIMES | _TEXTS | {"boolean", "binary", "fixed"}
_COUNTED: Final = _NUMBERS | _TIMES | _TEXTS | {"boolean"}


def figures_of(frame: DataFrame, columns: Sequence[Column]) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the number of rows of ``frame``, and the figures of each of its ``columns``."""
    has_top = frame.sparkSession.catalog.functionExists("approx_top_k")
    rows, all_figures = 0, dict[str, dict[str, Any]]()
    for at in range(0, max(1, len(columns)), _WIDEST):
        aggregations = [
            _Aggregation(column, f"c{number}_", has_top) for number, column in enumerate(columns[at : at + _WIDEST])
        ]
        expressions = [expression for one in aggregations for expression in one.expressions()]
        (row,) = frame.agg(F.count(F.lit(1)).alias("rows"), *expressions).collect()
        rows = row["rows"]
        all_figures |= {one.column.name: one.figures(row) for one in aggregations}
    return rows, all_figures


@dataclass(frozen=True, slots=True)
class _Aggregation:
    """The aggregations of one column. ``key`` is the prefix of the names of their results."""

    column: Column
    key: str
    has_top: bool

    @property
    def kind(self) -> str:
        return parse(self.column.type).name

    def expressions(self) -> Iterator[Expression]:
        """Yield the aggregations."""
        raw = F.col("`" + self.column.name.replace("`", "``") + "`")
        yield F.count_if(raw.isNull()).alias(f"{self.key}nulls")
        if self.kind not in _ORDERED:
            return
        value = self._value(raw)
        whole = raw if self.kind in _TEXTS else value
        # not approx_count_distinct: Spark takes seconds to plan and compile its dozens of state columns for each column
        sketch = F.hll_sketch_agg(F.when(whole.isNotNull(), F.xxhash64(whole)))
        yield F.hll_sketch_estimate(sketch).alias(f"{self.key}distinct")
        yield self._shown(F.min(value)).alias(f"{self.key}min")
        yield self._shown(F.max(value)).alias(f"{self.key}max")
        if self.kind in _NUMBERS | _TIMES:
            quantiles = F.percentile_approx(value, list(_QUANTILES))
            yield F.transform(quantiles, self._shown).alias(f"{self.key}quantiles")
        if self.kind in _COUNTED and self.has_top:
            top = F.call_function("approx_top_k", value, F.lit(_TOP + 1))  # one more, because null may be among them
            yield F.transform(
                top, lambda item: F.struct(self._shown(item["item"]).alias("value"), item["count"].alias("count"))
            ).alias(f"{self.key}top")

    def _value(self, raw: Expression) -> Expression:
        """Return the value to aggregate: bounded in length, without a time zone."""
        if self.kind in _FLOATING:
            return F.when(~F.isnan(raw), raw)
        if self.kind == "timestamptz":
            return F.unix_micros(raw)
        if self.kind in _TEXTS:
            return F.substring(raw, 1, MAX_TEXT)
        return F.substring(raw, 1, MAX_TEXT // 2) if self.kind in ("binary", "fixed") else raw

    def _shown(self, value: Expression) -> Expression:
        """Return times without a zone as text: Python has no year 10,000."""
        return value.cast("string") if self.kind in ("date", "timestamp") else value

    def figures(self, row: Any) -> dict[str, Any]:
        """Return the figures from the results in ``row``."""
        figures: dict[str, Any] = {"type": self.column.type, "nulls": row[f"{self.key}nulls"]}
        if self.kind not in _ORDERED:
            return figures
        figures["distinct"] = row[f"{self.key}distinct"]
        for name in ("min", "max"):
            if (bound := self._text(row[f"{self.key}{name}"])) is not None:
                figures[name] = bound
        answers = row.asDict()
        if quantiles := answers.get(f"{self.key}quantiles"):
            figures["quantiles"] = [self._text(value) for value in quantiles]
        texts = [(self._text(item["value"]), item["count"]) for item in answers.get(f"{self.key}top") or ()]
        if top := [{"value": value, "count": count} for value, count in texts if value is not None]:
            figures["top"] = top[:_TOP]
        return figures

    def _text(self, value: Any) -> str | None:
        if isinstance(value, bytearray):
            value = bytes(value)
        if self.kind == "timestamptz" and value is not None:
            value *= 1000
        return text(value, self.column.type)
