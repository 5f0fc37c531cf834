"""What a benchmark found: its figures, their bars, the table, the JSON file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from rich.console import Console
from rich.table import Table

__all__ = ["Bar", "Figures", "reported"]

FOLDER = Path(os.environ.get("METASTORE_BENCH_FOLDER") or Path(__file__).resolve().parents[2] / "build" / "bench")
"""Where the figures go. Short forms, whose figures mean nothing, have a folder of their own."""


@dataclass(frozen=True)
class Bar:
    """The bar that a figure is held against; ``limit`` None: it is only reported."""

    direction: Literal[">=", "<=", ""] = ""
    limit: float | None = None

    def met(self, value: float) -> bool | None:
        """Tell whether ``value`` is good enough; None where there is no bar."""
        if self.limit is None:
            return None
        return value >= self.limit if self.direction == ">=" else value <= self.limit

    def __str__(self) -> str:
        return "" if self.limit is None else f"{self.direction} {self.limit:g}"


reported = Bar()


class Figures:
    """The figures of one benchmark, each the median of several values."""

    def __init__(self, name: str, bars: Mapping[str, Bar]) -> None:
        self.name = name
        self.bars = bars
        self.values: dict[str, list[float]] = {}
        self.missing: dict[str, str] = {}

    def record(self, name: str, values: Sequence[float]) -> None:
        """Note what was measured for one figure."""
        if name not in self.bars:
            raise KeyError(f"the figure {name} has no entry in the table of bars")
        self.values[name] = list(values)

    def skip(self, name: str, why: str) -> None:
        """Note that a figure can not be measured."""
        self.missing[name] = why

    def __getitem__(self, name: str) -> float:
        return median(self.values[name])

    def misses(self) -> list[str]:
        """Return the figures that miss their bars."""
        return [name for name in self.values if self.bars[name].met(self[name]) is False]

    def table(self) -> Table:
        """Return everything as a table, in the order of the bars."""
        table = Table(title=f"{self.name}: medians, (min .. max), and how many values")
        for column, justify in (("figure", "left"), ("median", "right"), ("min .. max", "left"), ("n", "right")):
            table.add_column(column, justify="left" if justify == "left" else "right", no_wrap=True)
        table.add_column("bar", no_wrap=True)
        table.add_column("", no_wrap=True)
        words: Mapping[bool | None, str] = {True: "[green]met[/]", False: "[bold red]missed[/]", None: ""}
        for name, bar in self.bars.items():
            if name in self.values:
                values = self.values[name]
                spread = f"{_short(min(values))} .. {_short(max(values))}"
                verdict = words[bar.met(self[name])]
                table.add_row(name, _short(self[name]), spread, str(len(values)), str(bar), verdict)
            elif name in self.missing:
                table.add_row(name, "-", self.missing[name], "0", str(bar), "")
        return table

    def write(self, *, keep: bool) -> Path:
        """Write ``build/bench/NAME.json``; ``keep`` what it holds of figures that were not measured now."""
        path = FOLDER / f"{self.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        found = json.loads(path.read_text()) if keep and path.exists() else {}
        found |= {name: float(f"{self[name]:.6g}") for name in self.values}
        ordered = {name: found[name] for name in self.bars if name in found}
        path.write_text(json.dumps(ordered, indent=2) + "\n")
        return path

    def show(self, console: Console) -> None:
        """Print the table and which bars were missed."""
        console.print(self.table())
        misses = self.misses()
        held = sum(self.bars[name].limit is not None for name in self.values)
        console.print(f"{held - len(misses)} of {held} bars met" + (f"; missed: {', '.join(misses)}" if misses else ""))


def _short(value: float) -> str:
    digits: Callable[[float], str] = lambda v: f"{v:,.0f}" if abs(v) >= 100 else f"{v:.3g}"  # noqa: E731
    return digits(value)
