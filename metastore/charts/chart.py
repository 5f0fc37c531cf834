"""Charts as values (bars and lines), and the format of their numbers. ``svg`` draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Bar", "Bars", "Chart", "Lines", "Mark", "Series", "Tone", "number", "percent"]

Tone = Literal["work", "conflict", "second"]
"""The meaning of a color: completed work, lost attempts, anything else."""


@dataclass(frozen=True)
class Bar:
    """One bar: the label below it, its height, and its text under the mouse pointer."""

    label: str
    value: float
    tip: str


@dataclass(frozen=True)
class Mark:
    """A line across the bars. ``at``: 0 is the left edge of the first bar, 1 its right edge."""

    label: str
    at: float


@dataclass(frozen=True)
class Bars:
    """A bar chart."""

    name: str
    title: str
    x: str
    y: str
    bars: tuple[Bar, ...]
    tone: Tone = "work"
    marks: tuple[Mark, ...] = ()
    level: tuple[str, float] | None = None
    """A horizontal line."""
    ticks: tuple[tuple[str, float], ...] | None = None
    """The texts below the axis, with their places as in :class:`Mark`; None: the bars' labels."""


@dataclass(frozen=True)
class Series:
    """One line: (x, y) from left to right."""

    name: str
    points: tuple[tuple[float, float], ...]
    tone: Tone


@dataclass(frozen=True)
class Lines:
    """A line chart whose y axis begins at zero."""

    name: str
    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    extent: float
    """The end of the x axis."""
    categories: tuple[str, ...] | None = None
    """The labels at x = 0, 1, 2 …; None: numbers."""
    least: float = 0.0
    """The least end of the y axis."""


Chart = Bars | Lines


def number(value: float) -> str:
    """Return a number as text, with about three digits: 0.042, 3.1, 74, 1,240, 12.4k, 3.1M."""
    if value >= 999_950:
        return f"{value / 1e6:.3g}M"
    if value >= 10_000:
        return f"{value / 1e3:.3g}k"
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2g}" if value < 1 else f"{value:.3g}"


def percent(share: float) -> str:
    """Return a share as a percentage: 0 %, 0.03 %, 12.5 %."""
    return f"{number(100 * share)} %"
