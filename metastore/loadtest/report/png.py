"""The charts as PNG files, if matplotlib is installed (the extra ``loadtest``)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from metastore.charts.axes import every
from metastore.charts.chart import Bars, Chart, Lines

__all__ = ["HINT", "has_matplotlib", "write_png"]

HINT: Final = "no PNG files without matplotlib: pip install 'versioned-metastore[loadtest]'"
"""report.html shows the same."""
_COLORS: Final = {"work": "#3a6fe0", "conflict": "#d9541e", "second": "#178a7d"}
_LABELS: Final = 12
_LABEL_LENGTH: Final = 8


def has_matplotlib() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def write_png(charts: Sequence[Chart], path: Path) -> None:
    """Write the charts as one picture, two in a row."""
    import matplotlib as mpl  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context({"text.parse_math": False, "axes.spines.top": False, "axes.spines.right": False}):
        columns = min(2, len(charts))
        lines = -(-len(charts) // columns)
        figure = Figure(figsize=(6.4 * columns, 4.0 * lines), layout="constrained")
        places = figure.subplots(lines, columns, squeeze=False).flat
        for chart, place in zip(charts, places, strict=False):
            _draw(chart, place)
        figure.savefig(path, dpi=130)


def _draw(chart: Chart, place: Any) -> None:
    place.set_title(chart.title, loc="left", fontweight="bold")
    place.set_xlabel(chart.x)
    place.set_ylabel(chart.y)
    place.grid(axis="y", color="#dfe3ec")
    place.set_axisbelow(True)
    if isinstance(chart, Bars):
        _draw_bars(chart, place)
    else:
        _draw_lines(chart, place)
    place.set_ylim(bottom=0)


def _draw_bars(chart: Bars, place: Any) -> None:
    if not chart.bars:
        place.text(0.5, 0.5, "nothing to show", ha="center", transform=place.transAxes)
        return
    middles = [at + 0.5 for at in range(len(chart.bars))]
    place.bar(middles, [bar.value for bar in chart.bars], width=0.86, color=_COLORS[chart.tone])
    ticks = chart.ticks
    if ticks is None:
        nth = every(len(chart.bars), _LABELS)
        ticks = tuple([(_plain(bar.label), at + 0.5) for at, bar in enumerate(chart.bars) if at % nth == 0])
    place.set_xticks([at for _, at in ticks], [label for label, _ in ticks])
    place.set_xlim(0, len(chart.bars))
    high = place.get_ylim()[1]
    for number, mark in enumerate(chart.marks):
        place.axvline(mark.at, color="#1b2130", linestyle="--", linewidth=1)
        place.text(mark.at, high * (1 - 0.07 * number), f" {mark.label}", va="top", fontweight="bold")
    if chart.level is not None:
        label, value = chart.level
        place.axhline(value, color="#1b2130", linestyle="--", linewidth=1, label=label)
        place.legend(frameon=False, loc="lower right")


def _plain(label: str) -> str:
    """Return a short label with only ASCII characters, which every font has."""
    short = label if len(label) <= _LABEL_LENGTH else label[: _LABEL_LENGTH - 2] + ".."
    return short.encode("ascii", "replace").decode()


def _draw_lines(chart: Lines, place: Any) -> None:
    for series in chart.series:
        xs, ys = [x for x, _ in series.points], [y for _, y in series.points]
        color = _COLORS[series.tone]
        place.plot(xs, ys, color=color, label=series.name, marker="o" if chart.categories or len(xs) == 1 else None)
        place.fill_between(xs, ys, color=color, alpha=0.13, linewidth=0)
    if chart.categories is not None:
        place.set_xticks(range(len(chart.categories)), chart.categories)
    if place.get_ylim()[1] < chart.least:
        place.set_ylim(top=chart.least)
    if len(chart.series) > 1:
        place.legend(frameon=False)
