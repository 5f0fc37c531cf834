"""The cells as tables: for the console, and as Markdown for docs/performance-leases.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from tests.bench.figures import Figures
from tests.bench.leases.bars import GROUPS, RIVALS
from tests.bench.leases.cells import WORKS, Cell, Load, Work
from tests.bench.leases.measure import Run

__all__ = ["headline", "markdown", "show"]

TITLES: Mapping[Work, str] = {"pair": "acquire, release", "commit": "acquire, commit once, release"}
OF_THE_BARS = ("round_trips", "fenced")


def headline(figures: Figures) -> Figures:
    """Return what is not a cell's: that is little enough for one table."""
    found = Figures(figures.name, {name: bar for group in OF_THE_BARS for name, bar in GROUPS[group].items()})
    found.values = {name: values for name, values in figures.values.items() if name in found.bars}
    return found


def show(run: Run, console: Console) -> None:
    """Print one table for each work, then where others are quicker."""
    for work in WORKS:
        loads = [load for load in _loads(run) if load.work == work]
        if not loads:
            continue
        table = Table(title=f"{TITLES[work]}: per second, p50 and p99 in ms")
        table.add_column("", no_wrap=True)
        for load in loads:
            table.add_column(_heading(load), justify="right", no_wrap=True)
        for peer in run.peers:
            table.add_row(peer, *(_figures(run, Cell(load, peer)) for load in loads))
        console.print(table)
    for line in beaten(run):
        console.print(line, highlight=False)


def markdown(run: Run) -> str:
    """Return the same as Markdown, and with it how fair each is where all want one name."""
    lines: list[str] = []
    for work in WORKS:
        loads = [load for load in _loads(run) if load.work == work]
        if loads:
            rows = [[f"`{peer}`", *(_figures(run, Cell(load, peer)) for load in loads)] for peer in run.peers]
            lines += [f"**{TITLES[work].capitalize()}**: per second · p50 · p99 in ms", ""]
            lines += [*_lines(["", *map(_heading, loads)], rows), ""]
    crowded = [load for load in _loads(run) if load.processes > 1 and load.spread == "one"]
    if crowded:
        rows = [[f"`{peer}`", *(_fairness(run, Cell(load, peer)) for load in crowded)] for peer in run.peers]
        lines += ["**On one name**: operations of the process that did the fewest by the most · the longest, in ms", ""]
        lines += [*_lines(["", *(f"{TITLES[load.work]}, {load.processes}" for load in crowded)], rows), ""]
    loads = _loads(run)
    if rows := [
        row for ours, others in RIVALS.items() for other in others if (row := _ratios(run, ours, other, loads))
    ]:
        lines += ["**Ours by theirs**, operations per second; where it is below 1 they beat us", ""]
        lines += [*_lines(["", *(f"{TITLES[load.work]}, {_heading(load)}" for load in loads)], rows), ""]
    figures = headline(run.setting.figures)
    if figures.values:
        rows = [_measured(figures, name) for name in figures.bars if name in figures.values]
        lines += _lines(["figure", "measured", "bar", ""], rows)
    return "\n".join(lines)


def _ratios(run: Run, ours: str, other: str, loads: Sequence[Load]) -> list[str]:
    """Return a row of ratios, bold where the other does more; nothing if one of the two was not measured."""
    figures = run.setting.figures
    names = [f"{load}_{ours}_vs_{other}" for load in loads]
    if any(name not in figures.values for name in names):
        return []
    ratios = [figures[name] for name in names]
    return [f"`{ours}` by `{other}`", *(f"**{ratio:.2g}**" if ratio < 1 else f"{ratio:.2g}" for ratio in ratios)]


def beaten(run: Run) -> Iterator[str]:
    """Say for each load which of the others do more per second than ours do, and how much."""
    figures = run.setting.figures
    for load in _loads(run):
        for ours, others in RIVALS.items():
            names = {other: f"{load}_{ours}_vs_{other}" for other in others}
            ratios = {other: figures[name] for other, name in names.items() if name in figures.values}
            better = [f"{other} {1 / ratio:.1f} times" for other, ratio in ratios.items() if ratio < 1]
            if better:
                yield f"{TITLES[load.work]}, {_heading(load)}: more per second than {ours}: {', '.join(better)}"


def _loads(run: Run) -> list[Load]:
    return list(dict.fromkeys(cell.load for cell in run.outcomes))


def _heading(load: Load) -> str:
    if load.processes == 1:
        return "1 process"
    return f"{load.processes} on one name" if load.spread == "one" else f"{load.processes} on {load.processes}"


def _figures(run: Run, cell: Cell) -> str:
    rate, p50, p99 = (run.middle(cell, what) for what in ("rate", "p50", "p99"))
    errors = sum(outcome.errors for outcome in run.outcomes[cell])
    failed = f" ({errors} errors)" if errors else ""
    return f"{rate:,.0f} · {_ms(p50)} · {_ms(p99)}{failed}"


def _fairness(run: Run, cell: Cell) -> str:
    return f"{run.middle(cell, 'fairness'):.2f} · {_ms(run.middle(cell, 'worst'))}"


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _measured(figures: Figures, name: str) -> list[str]:
    bar = figures.bars[name]
    met = bar.met(figures[name])
    verdict = "" if met is None else "met" if met else "**missed**"
    value = figures[name]
    return [f"`{name}`", f"{value:,.0f}" if value >= 100 else f"{value:.3g}", str(bar).replace("<=", "≤"), verdict]


def _lines(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    ruler = ["---"] + ["---:"] * (len(heads) - 1)
    return ["| " + " | ".join(cells) + " |" for cells in (heads, ruler, *rows)]
