"""Find the rows that a query's filters exclude. Spark applies all filters again, so it is safe to exclude too few."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

__all__ = ["Wanted", "wanted"]

_POSITION: Final = re.compile(r"[^-]*-([0-9a-f]{16})([0-9a-f]{8})?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER: Final = 1 << 62


@dataclass(frozen=True)
class Wanted:
    """Rows that a query may need: those of all kinds, or of some; of ids or positions from ``low`` up to ``high``."""

    kinds: frozenset[str] | None = None
    low: int = 0
    high: int = _NEVER
    """The last one."""
    prefix: str = ""
    """With what a path begins."""
    since: int = 0
    until: int = _NEVER
    """Times, in microseconds since 1970."""

    def of_kinds(self, kinds: Iterable[str]) -> Wanted:
        """Return it with only these kinds."""
        some = frozenset(kind for kind in kinds if isinstance(kind, str))
        return replace(self, kinds=some if self.kinds is None else self.kinds & some)

    def between(self, low: int, high: int) -> Wanted:
        """Return it with only these ids or positions."""
        return replace(self, low=max(self.low, low), high=min(self.high, high))

    def during(self, since: int, until: int) -> Wanted:
        """Return it with only these times."""
        return replace(self, since=max(self.since, since), until=min(self.until, until))

    def below(self, prefix: str) -> Wanted:
        """Return it with only paths that begin like this; of two beginnings the longer one counts."""
        return replace(self, prefix=max(self.prefix, prefix, key=len))


def wanted(filters: Iterable[Filter], known: Wanted) -> Wanted:
    """Return what the filters leave of ``known``."""
    for one in filters:
        attribute: tuple[str, ...] = getattr(one, "attribute", ())
        value = getattr(one, "value", None)
        if len(attribute) == 1 and value is not None:
            known = _less(known, attribute[0], one, value)
    return known


def _less(known: Wanted, column: str, one: Filter, value: Any) -> Wanted:
    values = list(value) if isinstance(one, In) else [value]
    if column == "kind" and isinstance(one, EqualTo | In):
        return known.of_kinds(values)
    if column == "path" and isinstance(one, EqualTo | StringStartsWith):
        return known.below(value)
    numbers = [number for each in values if (number := _NUMBERS.get(column, _none)(each)) is not None]
    if len(numbers) < len(values) or not numbers:
        return known
    narrowed = known.during if column == "time" else known.between
    if isinstance(one, EqualTo | In):
        return narrowed(min(numbers), max(numbers))
    if isinstance(one, GreaterThan | GreaterThanOrEqual):
        return narrowed(numbers[0], _NEVER)
    return narrowed(0, numbers[0]) if isinstance(one, LessThan | LessThanOrEqual) else known


def _none(_: Any) -> None:
    return None


def _number(value: Any) -> int | None:
    return value if type(value) is int else None


def _position(value: Any) -> int | None:
    matched = _POSITION.fullmatch(value) if isinstance(value, str) else None
    return int(matched[1], 16) if matched else None


def _micros(value: Any) -> int | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    passed = value - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds


_NUMBERS: Final = {"id": _number, "position": _position, "time": _micros}
