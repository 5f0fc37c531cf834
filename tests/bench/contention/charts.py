"""Charts of all cells that are known: SVG files, one page of them, and PNG where matplotlib is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path

from rich.console import Console

from tests.bench.contention import png
from tests.bench.contention.cells import PROCESSES, Cell
from tests.bench.contention.outcome import Outcome
from tests.bench.contention.results import Outcomes
from tests.bench.contention.svg import Line, Panel, panels
from tests.bench.figures import FOLDER

__all__ = ["write"]

DOCS = Path(__file__).resolve().parents[3] / "docs"
AXIS = "processes"
LINES: Mapping[str, Line] = {
    "helping": Line("#0072b2", 3),
    "helping, 5 ms per operation applied": Line("#0072b2", 1.5, "5 4"),
    "cas": Line("#d55e00"),
    "cas_jitter": Line("#e69f00"),
    "for_update": Line("#009e73"),
    "advisory": Line("#cc79a7"),
    "serializable": Line("#56b4e9"),
    "blind_update": Line("#888888", 1.5, "2 3"),
}
PANELS: Mapping[str, Callable[[Outcome], float]] = {
    "operations per second": lambda outcome: outcome.rate,
    "p99 of the time to commit, ms": lambda outcome: outcome.p99,
    "attempts of the worst operation": lambda outcome: outcome.attempts_worst,
}
DATABASES = {"postgres": "PostgreSQL", "sqlite": "SQLite"}
SPREADS = {"hot": "one entity for all", "warm": "ten entities for all", "cold": "an entity for each process"}
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Contention</title>
<style>
  :root {{ color-scheme: light dark }}
  body {{ font: 14px system-ui, sans-serif; max-width: 1150px; margin: 2em auto; padding: 0 1em }}
  svg {{ max-width: 100%; height: auto }}
  table {{ border-collapse: collapse; font-size: 12px; font-variant-numeric: tabular-nums }}
  td, th {{ padding: 2px 8px; text-align: right }} td:first-child, th:first-child {{ text-align: left }}
</style>
<h1>Contention</h1>
<p>The same change by many processes at once: what <code>python -m tests.bench.contention</code> found.</p>
{body}
</html>
"""
COLUMNS = (
    "cell",
    "ops/s",
    "attempts",
    "worst",
    "p50 ms",
    "p99 ms",
    "worst ms",
    "slowest",
    "fastest",
    "errors",
    "window s",
)


def write(outcomes: Outcomes, *, docs: bool, console: Console) -> list[Path]:
    """Write all charts to build/bench/, and where ``docs`` is set to docs/; return the paths."""
    folders = [FOLDER, DOCS] if docs else [FOLDER]
    loads: dict[str, list[Cell]] = {}
    for cell in outcomes:
        loads.setdefault(_name(cell), []).append(cell)
    drawn = {name: _panels({cell: outcomes[cell] for cell in cells}) for name, cells in loads.items()}
    files = {f"{name}.svg": panels(shown, PROCESSES, LINES, AXIS) for name, shown in drawn.items()}
    sections = [
        f"<h2>{escape(_title(cells[0]))}</h2>\n{files[f'{name}.svg']}{_table(cells, outcomes)}"
        for name, cells in loads.items()
    ]
    files["contention.html"] = PAGE.format(body="\n".join(sections))
    paths = []
    for folder in folders:
        for name, text in files.items():
            (folder / name).write_text(text)
            paths.append(folder / name)
    return paths + png.write(drawn, PROCESSES, LINES, AXIS, folders, console)


def _panels(outcomes: Outcomes) -> list[Panel]:
    return [Panel(title, _series(outcomes, value)) for title, value in PANELS.items()]


def _series(outcomes: Outcomes, value: Callable[[Outcome], float]) -> dict[str, dict[int, float]]:
    series: dict[str, dict[int, float]] = {}
    for cell, outcome in outcomes.items():
        name = f"{cell.policy}, 5 ms per operation applied" if cell.work == "apply5ms" else cell.policy
        series.setdefault(name, {})[cell.processes] = value(outcome)
    return series


def _work(cell: Cell) -> str:
    """What its chart is called after: both kinds of 5 ms are in one."""
    return cell.work.removeprefix("apply")


def _name(cell: Cell) -> str:
    return f"contention-{cell.database}-{cell.spread}-{_work(cell)}"


def _title(cell: Cell) -> str:
    return f"{DATABASES[cell.database]}, {SPREADS[cell.spread]}, {_work(cell)} of work in each attempt"


def _table(cells: list[Cell], outcomes: Outcomes) -> str:
    rows = [_row("th", COLUMNS)]
    for cell in cells:
        o = outcomes[cell]
        times = (o.p50, o.p99, o.worst)
        numbers = (o.rate, o.attempts_mean, o.attempts_worst, *times, o.slowest, o.fastest, o.errors, o.window)
        rows.append(_row("td", (str(cell), *(f"{n:,.0f}" if n >= 100 or n == int(n) else f"{n:.3g}" for n in numbers))))
    return f"<details><summary>Figures</summary><table>{''.join(rows)}</table></details>"


def _row(tag: str, texts: tuple[str, ...]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts) + "</tr>\n"
