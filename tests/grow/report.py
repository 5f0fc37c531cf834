"""The table of what calls cost at two sizes, and the bars that they must keep."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

import metastore as ms
from tests.grow.counting import Cost

__all__ = ["DEADLINE", "TRUSTED", "Line", "judged", "table"]

_ONE: Final = 1.3
"""How much more blocks and statements what returns one entity or a page may take in the larger store."""
_EACH: Final = 1.3
"""How much more each item of a longer answer may take."""
_FEW: Final = 40
"""Blocks and statements that do not count: an index is a level deeper."""
_LATE: Final = 0.5
"""So many seconds after its deadline a call may end, or a step of a listing."""
_MEMORY: Final = 4_000_000
"""Bytes that a longer listing may take more at most, because of its pages."""


class Line(NamedTuple):
    """One call by one caller, at two sizes."""

    call: str
    by: str
    answer: str
    small: Cost
    large: Cost


def judged(lines: Sequence[Line], growth: float, rich: Collection[str]) -> Iterator[str]:
    """Yield what breaks a bar. ``growth``: how many times larger the larger store is, and what the ``rich`` have."""
    for line in lines:
        rights = growth if line.by in rich and (line.call, line.by) not in _OF_FEW else 1.0
        yield from (f"{line.call} by {line.by}: {why}" for why in _broken(line, growth, rights))


def _broken(line: Line, growth: float, rights: float) -> Iterator[str]:
    small, large = line.small, line.large
    if (line.answer != "all" or line.call in _FILTERED) and large.seconds > DEADLINE + _LATE:
        yield f"ended after {large.seconds:.1f} s, and its deadline is {DEADLINE:.0f} s"
    if _TIMED_OUT in (small.refused, large.refused):  # what it cost until then says nothing
        yield f"did not come to its end: {_TIMED_OUT} after {large.seconds:.1f} s"
        return
    if line.by == TRUSTED and large.refused and line.call not in _REFUSED:
        yield f"was not measured: it is refused with {large.refused}"
    answer = "all" if line.by != TRUSTED and (line.call in _FILTERED or large.refused) else line.answer
    items = max(1.0, large.answer / max(1, small.answer))
    allowed = {"one": max(_ONE, items * _EACH), "many": items * _EACH, "all": growth * _ONE}[answer]
    for what in ("blocks", "statements"):
        before, after = getattr(small, what), getattr(large, what)
        if after > allowed * (rights if what == "blocks" else 1) * before + _FEW * (items if answer == "many" else 1):
            yield f"{before} {what} for {small.answer} items became {after} for {large.answer}"
    if answer == "many" and large.peak > small.peak * _ONE + _MEMORY and line.call not in _LISTS:
        yield f"{small.peak} bytes became {large.peak}"


DEADLINE: Final = 30.0
"""Of the calls that are measured (seconds)."""
_TIMED_OUT: Final = ms.DeadlineExceeded.__name__
TRUSTED: Final = "store"
"""The caller that may see everything."""
_OF_FEW: Final = (("a page of few", "owns much"), ("names of few", "owns much"))
"""Calls on a place with few children: what a user owns elsewhere does not count there."""
_FILTERED: Final = ("store.changes", "store.find", "changes for one")
"""Calls that read, for a user, rows that they do not show: docs/performance-growth.md says so."""
_REFUSED: Final = (
    "attach to what has most",
    "store.relations",
    "store.reveal",
    "crawls.load",
    "leases.bound",
    "store.backup",
)
"""Calls that are refused without declared relations, secrets or crawls, or on PostgreSQL; the first is a repetition."""
_LISTS: Final = ("tags on a table", "roles of one", "users.groups", "roles.of")
"""Calls that return a list: it takes memory for all its items."""


def table(lines: Sequence[Line], small: int, large: int) -> Iterator[str]:
    """Yield a table in Markdown."""
    yield f"| call | by | items | statements | rows | blocks | memory (kB): {small:,} and {large:,} entities |"
    yield "|---|---|---|---|---|---|---|"
    for line in lines:
        pairs = [(getattr(line.small, one), getattr(line.large, one)) for one in _SHOWN]
        memory = f"{line.small.peak // 1000} / {line.large.peak // 1000}" if line.large.peak else "not watched"
        shown = " | ".join(f"{a} / {b}" if a != b else str(a) for a, b in pairs)
        refused = f" ({line.large.refused})" if line.large.refused else ""
        yield f"| {line.call}{refused} | {line.by} | {shown} | {memory} |"


_SHOWN: Final = ("answer", "statements", "rows", "blocks")
