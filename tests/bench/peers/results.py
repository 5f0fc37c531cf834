"""The figures as a table, in the terminal and as Markdown; and where a peer is ahead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.table import Table

from tests.bench.peers.bars import MAIN
from tests.bench.peers.contenders import CONTENDERS
from tests.bench.peers.measure import OURS, Run, Size

__all__ = ["ahead", "markdown", "show"]

_COLUMNS = (
    "clients",
    "contender",
    "ops/s",
    "p50 ms",
    "p99 ms",
    "client µs/op",
    "round trips/op",
    "lost attempts/op",
    "failed %",
)
_FOUND = ("contender", "recorded", "by the checker", "by our own count, timed windows too", "refused by a constraint")


def show(run: Run, console: Console) -> None:
    """Print the tables."""
    table = Table(title="the mix, medians of the turns")
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column == "contender" else "right", no_wrap=True)
    before = None
    for row in _rows(run):
        if before not in (None, row[0]):
            table.add_section()
        before = row[0]
        table.add_row(*row)
    console.print(table)
    table = Table(title="what was found in their histories")
    for column in _FOUND:
        table.add_column(column, justify="right" if column == "recorded" else "left")
    for row in _found(run):
        table.add_row(*row)
    console.print(table)
    for line in ahead(run):
        console.print(f"a peer is ahead: {line}", highlight=False)


def markdown(run: Run) -> str:
    """Return the same as Markdown."""
    lines = [_line(_COLUMNS), _line(["---:", "---", *["---:"] * 7]), *map(_line, _rows(run)), ""]
    lines += [_line(_FOUND), _line(["---", "---:", *["---"] * 3]), *map(_line, _found(run)), ""]
    lines += [f"Round trips of each operation, with {MAIN.name} threads:", ""]
    actions = ("load", "alter", "create", "drop", "rename")
    lines += [_line(["contender", *actions]), _line(["---", *["---:"] * len(actions)])]
    for name in [name for name in run.ground.contenders if (name, MAIN.name) in run.figures]:
        trips = run.figures[name, MAIN.name][0].trips_by_action
        lines.append(_line([name, *(f"{trips[action]:.2f}" if action in trips else "" for action in actions)]))
    lines += ["", "Where a peer is ahead:", "", *(f"- {line}" for line in ahead(run) or ["nowhere"])]
    return "\n".join(lines)


def ahead(run: Run) -> list[str]:
    """Say in which figures a correct peer is better than ours by path, and with how many clients."""
    found: dict[tuple[str, str], list[str]] = {}
    for size in run.sizes:
        for name in run.ground.contenders:
            if name.startswith(OURS) or run.wrong(name) or (OURS, size) not in run.figures:
                continue
            if better := list(_better(run, name, size)):
                found.setdefault((name, ", ".join(better)), []).append(str(size))
    return [f"{name}, clients {', '.join(sizes)}: {better}" for (name, better), sizes in found.items()]


def _better(run: Run, name: str, size: Size) -> Iterator[str]:
    for what, said, more in (("rate", "ops/s", True), ("p50", "p50", False), ("p99", "p99", False)):
        ours, theirs = (run.middle(each, size, what) for each in (OURS, name))
        if (theirs > ours) is more and theirs != ours:
            yield said
    if run.middle(name, size, "trips") < run.middle(OURS, size, "trips") - 0.005:
        yield "round trips"


def _rows(run: Run) -> Iterator[list[str]]:
    for size in run.sizes:
        for name in [name for name in CONTENDERS if (name, size) in run.figures]:
            rate, p50, p99, cpu, trips, lost, failed = (
                run.middle(name, size, what) for what in ("rate", "p50", "p99", "cpu_us", "trips", "lost", "failed")
            )
            attempts = "" if size == MAIN.name else f"{lost:.3f}"  # of threads that share a store nobody counts them
            figures = [f"{rate:,.0f}", f"{p50:,.2f}", f"{p99:,.1f}", f"{cpu:,.0f}", f"{trips:.2f}", attempts]
            yield [str(size), name, *figures, f"{100 * failed:.1f}"]


def _found(run: Run) -> Iterator[list[str]]:
    for name in run.ground.contenders:
        findings = "not asked" if run.findings is None else _named(run.findings[name], "none")
        counted = _named(run.anomalies[name], "none")
        yield [name, f"{run.operations[name]:,}", findings, counted, _named(run.errors[name], "")]


def _named(counts: Counter[str], none: str) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.most_common()) or none


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
