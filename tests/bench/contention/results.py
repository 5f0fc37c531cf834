"""The outcomes of all cells: printed as a table, kept in build/bench/contention_cells.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace

from rich.console import Console
from rich.table import Table

from tests.bench.contention.cells import Cell, every_cell
from tests.bench.contention.outcome import Outcome
from tests.bench.figures import FOLDER

__all__ = ["PATH", "Outcomes", "load", "save", "show"]

Outcomes = Mapping[Cell, Outcome]
PATH = FOLDER / "contention_cells.json"
_FIELDS = {field.name for field in fields(Outcome)}


def load() -> dict[Cell, Outcome]:
    """Return what was kept of cells that there still are, in their order."""
    found = json.loads(PATH.read_text()) if PATH.exists() else {}
    known = {name: values for name, values in found.items() if set(values) == _FIELDS}
    return {cell: Outcome(**known[str(cell)]) for cell in every_cell() if str(cell) in known}


def save(outcomes: Outcomes) -> None:
    """Keep all; of cells that are not among them, what was kept before."""
    PATH.parent.mkdir(parents=True, exist_ok=True)
    merged = load() | dict(outcomes)
    PATH.write_text(json.dumps({str(cell): asdict(outcome) for cell, outcome in merged.items()}, indent=1) + "\n")


def show(outcomes: Outcomes, console: Console) -> None:
    """Print one line for each cell."""
    table = Table(title="times in ms from the call to the commit; attempts: mean and worst")
    table.add_column("cell", no_wrap=True)
    for column in ("ops/s", "att.", "worst", "p50", "p99", "worst", "slowest", "fastest", "err."):
        table.add_column(column, justify="right", no_wrap=True)
    before = None
    for cell, o in outcomes.items():
        load = replace(cell, policy="")
        if before not in (None, load):
            table.add_section()
        before = load
        times = [f"{value:,.1f}" for value in (o.p50, o.p99, o.worst)]
        counts = [f"{o.slowest:,}", f"{o.fastest:,}", o.causes or "0"]
        table.add_row(str(cell), f"{o.rate:,.0f}", f"{o.attempts_mean:.2f}", f"{o.attempts_worst:,}", *times, *counts)
    console.print(table)
