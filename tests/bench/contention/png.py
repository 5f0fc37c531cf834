"""The same charts as PNG, if matplotlib happens to be installed: nothing here needs it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from tests.bench.contention.svg import Line, Panel

__all__ = ["write"]


def write(
    drawn: Mapping[str, Sequence[Panel]],
    categories: Sequence[int],
    lines: Mapping[str, Line],
    axis: str,
    folders: Sequence[Path],
    console: Console,
) -> list[Path]:
    """Write NAME.png for each name to each folder; return the paths."""
    try:
        importlib.import_module("matplotlib").use("Agg")
        plots: Any = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        console.print("no PNG: matplotlib is not installed; the SVG files show the same", highlight=False)
        return []
    paths = []
    for name, shown in drawn.items():
        figure, axes = plots.subplots(1, len(shown), figsize=(5 * len(shown), 4), layout="constrained")
        for panel, place in zip(shown, axes, strict=True):
            _draw(panel, place, categories, lines, axis)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        for folder in folders:
            figure.savefig(folder / f"{name}.png", dpi=120)
            paths.append(folder / f"{name}.png")
        plots.close(figure)
    return paths


def _draw(panel: Panel, place: Any, categories: Sequence[int], lines: Mapping[str, Line], axis: str) -> None:
    for name, line in lines.items():
        points = sorted(panel.series.get(name, {}).items())
        if points:
            xs, ys = [categories.index(category) for category, _ in points], [value for _, value in points]
            style = "-" if line.dashes == "none" else "--"
            place.plot(xs, ys, style, color=line.color, linewidth=line.width, marker="o", markersize=4, label=name)
    place.set_yscale("log")
    place.set_xticks(range(len(categories)), [str(category) for category in categories])
    place.set(title=panel.title, xlabel=axis)
    place.grid(visible=True, axis="y", alpha=0.4)
