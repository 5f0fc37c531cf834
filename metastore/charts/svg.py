"""Draw charts as SVG elements of a page. The page's style sheet sets the colors.

A mark shows its value under the mouse pointer (``<title>``). A chart has no animation and no script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Final

from metastore.charts.axes import every, steps
from metastore.charts.chart import Bars, Chart, Lines, Series, number

__all__ = ["svg"]

_WIDTH, _HEIGHT, _EMPTY = 520, 270, 40
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 14, 30, 44
_WIDE, _HIGH = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
_LABELS: Final = 12
_LONGEST: Final = 8
"""How many characters the label of a bar has at most."""


def svg(chart: Chart) -> str:
    """Return the chart as an ``<svg>`` element. A chart without values shows a text that says so."""
    parts = list(_bars(chart) if isinstance(chart, Bars) else _lines(chart))
    height = _HEIGHT if parts else _EMPTY
    if not parts:
        parts = [f'<text x="0" y="{_EMPTY / 2}">nothing to show</text>']
    box = f'viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(chart.title)}"'
    return "\n".join([f'<svg class="chart" data-chart="{chart.name}" {box}>', *parts, "</svg>"])


def _frame(chart: Chart, high: float) -> tuple[list[str], Callable[[float], float]]:
    """Return the grid with its numbers and titles, and a function from a value to its y coordinate."""
    values = steps(high)

    def y_of(value: float) -> float:
        return _TOP + _HIGH * (1 - value / values[-1])

    parts = []
    for value in values:
        y = y_of(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{number(value)}</text>')
    parts.append(f'<text class="unit" x="6" y="{_TOP - 14}">{escape(chart.y)}</text>')
    parts.append(
        f'<text class="unit" x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 6}" text-anchor="end">{escape(chart.x)}</text>'
    )
    return parts, y_of


def _tick(x: float, label: str) -> str:
    half = 3.8 * len(label)
    x = min(x, _WIDTH - half)  # keeps the label inside the edge
    return f'<text x="{x:.1f}" y="{_TOP + _HIGH + 17}" text-anchor="middle">{escape(label)}</text>'


def _bars(chart: Bars) -> Iterator[str]:
    if not chart.bars:
        return
    frame, y_of = _frame(chart, max([bar.value for bar in chart.bars] + ([chart.level[1]] if chart.level else [])))
    yield from frame
    width = _WIDE / len(chart.bars)
    gap = min(4.0, width * 0.2)
    for place, bar in enumerate(chart.bars):
        x, y = _LEFT + place * width + gap / 2, y_of(bar.value)
        size = f'width="{width - gap:.2f}" height="{_TOP + _HIGH - y:.2f}" rx="1"'
        tip = f"<title>{escape(bar.tip)}</title>"
        yield f'<rect class="bar {chart.tone}" x="{x:.2f}" y="{y:.2f}" {size}>{tip}</rect>'
    if chart.level is not None:
        yield from _level(*chart.level, y_of)
    yield from _marks(chart, width)
    for label, at in chart.ticks if chart.ticks is not None else _labels(chart):
        yield _tick(_LEFT + at * width, label)


def _labels(chart: Bars) -> Iterator[tuple[str, float]]:
    labels = [bar.label if len(bar.label) <= _LONGEST else f"{bar.label[: _LONGEST - 1]}…" for bar in chart.bars]
    nth = every(len(labels), int(_WIDE / (7.5 * max(map(len, labels)) + 6)))
    for place in range(0, len(labels), nth):
        yield labels[place], place + 0.5


def _level(label: str, value: float, y_of: Callable[[float], float]) -> Iterator[str]:
    y = y_of(value)
    yield f'<line class="mark" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    text = f"{escape(label)} {number(value)}"
    yield f'<text class="mark-label" x="{_WIDTH - _RIGHT}" y="{_TOP - 14}" text-anchor="end">{text}</text>'


def _marks(chart: Bars, width: float) -> Iterator[str]:
    """Yield the marks. Their labels are in one line above, moved apart where they would overlap."""
    left = float(_LEFT + 60)
    for mark in chart.marks:
        x = _LEFT + mark.at * width
        yield f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 6}" y2="{_TOP + _HIGH}"/>'
    places = _apart(
        [_LEFT + mark.at * width for mark in chart.marks], [7.0 * len(mark.label) + 10 for mark in chart.marks], left
    )
    for mark, x in zip(chart.marks, places, strict=True):
        yield f'<text class="mark-label" x="{x:.1f}" y="{_TOP - 10}" text-anchor="middle">{escape(mark.label)}</text>'


def _apart(wanted: Sequence[float], widths: Sequence[float], left: float) -> list[float]:
    """Return the places of labels: near the wanted ones, without overlaps, and within the edges."""
    places: list[float] = []
    for x, width in zip(wanted, widths, strict=True):
        place = max(x, left + width / 2)
        places.append(place)
        left = place + width / 2
    right = float(_WIDTH - 2)
    for at in reversed(range(len(places))):
        places[at] = min(places[at], right - widths[at] / 2)
        right = places[at] - widths[at] / 2
    return places


def _lines(chart: Lines) -> Iterator[str]:
    values = [y for series in chart.series for _, y in series.points]
    if not values:
        return
    frame, y_of = _frame(chart, max(*values, chart.least))
    yield from frame
    inset = _WIDE / (2 * len(chart.categories)) if chart.categories else 0.0
    extent = chart.extent or 1.0

    def x_of(x: float) -> float:
        return _LEFT + inset + (_WIDE - 2 * inset) * x / extent

    for series in chart.series:
        yield from _series(chart, series, x_of, y_of)
    if chart.categories is not None:
        nth = every(len(chart.categories), _LABELS)
        for place in range(0, len(chart.categories), nth):
            yield _tick(x_of(place), chart.categories[place])
    else:
        for value in steps(chart.extent, 6):
            if value <= chart.extent * 1.0001 and chart.extent:
                yield _tick(x_of(value), number(value))
    if len(chart.series) > 1:
        yield from _legend(chart.series)


def _series(
    chart: Lines, series: Series, x_of: Callable[[float], float], y_of: Callable[[float], float]
) -> Iterator[str]:
    way = [(x_of(x), y_of(y)) for x, y in series.points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in way)
    bottom = f"{_TOP + _HIGH}"
    if len(way) > 1:
        around = f"{way[0][0]:.1f},{bottom} {line} {way[-1][0]:.1f},{bottom}"
        yield f'<polygon class="area {series.tone}" points="{around}"/>'
        yield f'<polyline class="line {series.tone}" points="{line}"/>'
    radius = 4 if chart.categories or len(way) == 1 else 2
    for (x, y), (at, value) in zip(way, series.points, strict=True):
        where = f"{chart.categories[int(at)]} {chart.x}" if chart.categories else f"{number(at)} s"
        tip = f"<title>{escape(f'{series.name}, {where}: {number(value)} {chart.y}')}</title>"
        yield f'<circle class="dot {series.tone}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">{tip}</circle>'


def _legend(series: Sequence[Series]) -> Iterator[str]:
    keys = [f'<tspan class="key {one.tone}" dx="14">■</tspan> {escape(one.name)}' for one in series]
    yield f'<text class="legend" x="{_WIDTH - _RIGHT}" y="{_TOP - 14}" text-anchor="end">{"".join(keys)}</text>'
