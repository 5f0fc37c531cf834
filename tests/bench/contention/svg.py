"""Line charts as SVG, by hand: panels side by side that share one legend, on logarithmic scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

__all__ = ["Line", "Panel", "panels"]

WIDTH, HEIGHT, GAP = 300, 220, 30
LEFT, TOP, BOTTOM, LEGEND = 48, 26, 34, 24
STYLE = """
text { font: 11px system-ui, sans-serif; fill: #333 } .title { font-weight: 600 }
.grid { stroke: #ccc; stroke-width: 0.5 } .line { fill: none; stroke-linejoin: round }
@media (prefers-color-scheme: dark) { text { fill: #ccc } .grid { stroke: #555 } }
"""


@dataclass(frozen=True)
class Line:
    """How one series is drawn."""

    color: str
    width: float = 1.5
    dashes: str = "none"


@dataclass(frozen=True)
class Panel:
    """One chart: by series, the values by category."""

    title: str
    series: Mapping[str, Mapping[int, float]]


def panels(shown: Sequence[Panel], categories: Sequence[int], lines: Mapping[str, Line], axis: str) -> str:
    """Return one SVG document; ``axis`` says what the categories are."""
    width = len(shown) * (LEFT + WIDTH + GAP)
    height = TOP + HEIGHT + BOTTOM + LEGEND
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">']
    parts.append(f"<style>{STYLE}</style>")
    for number, panel in enumerate(shown):
        parts.append(f'<g transform="translate({number * (LEFT + WIDTH + GAP) + LEFT} {TOP})">')
        parts += [*_panel(panel, categories, lines, axis), "</g>"]
    drawn = [name for name in lines if any(name in panel.series for panel in shown)]
    parts += _legend({name: lines[name] for name in drawn}, TOP + HEIGHT + BOTTOM + LEGEND / 2)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(panel: Panel, categories: Sequence[int], lines: Mapping[str, Line], axis: str) -> list[str]:
    values = [value for points in panel.series.values() for value in points.values() if value > 0]
    low, high = floor(log10(min(values, default=1))), ceil(log10(max(values, default=1)))
    high += high == low

    def x_of(category: int) -> float:
        return WIDTH * (categories.index(category) + 0.5) / len(categories)

    def y_of(value: float) -> float:
        return HEIGHT * (high - log10(max(value, 10.0**low))) / (high - low)

    parts = [f'<text class="title" x="0" y="-10">{escape(panel.title)}</text>']
    for power in range(low, high + 1):
        y = y_of(10.0**power)
        parts.append(f'<line class="grid" x1="0" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="-6" y="{y + 4:.1f}" text-anchor="end">{10.0**power:,.6g}</text>')
    parts += [f'<text x="{x_of(c):.1f}" y="{HEIGHT + 16}" text-anchor="middle">{c}</text>' for c in categories]
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT + 30}" text-anchor="middle">{escape(axis)}</text>')
    for name, line in reversed(list(lines.items())):  # the first on top
        points = [(x_of(c), y_of(v), v) for c, v in sorted(panel.series.get(name, {}).items())]
        parts += _drawn(name, line, points)
    return parts


def _drawn(name: str, line: Line, points: Sequence[tuple[float, float, float]]) -> list[str]:
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
    stroke = f'stroke="{line.color}" stroke-width="{line.width}" stroke-dasharray="{line.dashes}"'
    parts = [f'<polyline class="line" {stroke} points="{way}"/>'] if len(points) > 1 else []
    for x, y, value in points:
        tip = f"<title>{escape(name)}: {value:,.4g}</title>"
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{line.width + 1}" fill="{line.color}">{tip}</circle>')
    return parts


def _legend(lines: Mapping[str, Line], y: float) -> list[str]:
    parts, x = [], float(LEFT)
    for name, line in lines.items():
        stroke = f'stroke="{line.color}" stroke-width="{line.width}" stroke-dasharray="{line.dashes}"'
        parts.append(f'<line {stroke} x1="{x}" x2="{x + 20}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{x + 25}" y="{y + 4}">{escape(name)}</text>')
        x += 45 + 6.5 * len(name)
    return parts
