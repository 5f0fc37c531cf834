"""The summary of a load test: ``summary.json`` for scripts, and a page of text on the terminal for people.

docs/loadtest-report.md lists the keys. A key is never removed or changed in meaning without a new ``format``.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from metastore.charts.chart import number, percent
from metastore.loadtest.report.conclusion import Conclusion
from metastore.loadtest.report.model import Action, Analysis, Run

__all__ = ["FORMAT", "summary", "terminal"]

FORMAT: Final = 1
_FACTS: Final = ("scenario", "seed", "started", "url", "versions")
_SHOWN_ACTIONS: Final = 12
_SHOWN_RUNS: Final = 16
_SHOWN_FINDINGS: Final = 3
_SHOWN_LINES: Final = 5
_LINE: Final = 200
_COLORS: Final = {"good": "green", "bad": "red", "unsure": "yellow"}


def summary(analysis: Analysis, conclusion: Conclusion) -> dict[str, Any]:
    """Return the content of ``summary.json`` as plain JSON values."""
    return {
        "format": FORMAT,
        **{key: analysis.facts.get(key) for key in _FACTS},
        "checked": conclusion.checked,
        "missing": list(conclusion.missing),
        "findings": [
            {"run": where, "rule": finding.rule, "message": finding.message, "operations": list(finding.operations)}
            for where, finding in conclusion.findings
        ],
        "runs": [_run(run) for run in analysis.runs],
    }


def _run(run: Run) -> dict[str, Any]:
    slowest, fastest = run.slowest_fastest
    return {
        "folder": run.folder,
        "clients": run.clients,
        "seconds": run.seconds,
        "operations_per_second": run.operations_per_second,
        **_action(run.whole),
        "fairness": run.fairness,
        "slowest_client_operations": slowest,
        "fastest_client_operations": fastest,
        "actions": {action.name: _action(action) for action in run.actions},
        "hot_entities": [dataclasses.asdict(hot) for hot in run.hot],
        "clients_operations": {share.client: share.operations for share in run.shares},
        "attempts_histogram": {str(attempts): count for attempts, count in run.attempts_histogram},
        "commit_histogram_ms": [dataclasses.asdict(bucket) for bucket in run.commit_histogram],
        "over_time": [dataclasses.asdict(moment) for moment in run.moments],
    }


def _action(action: Action) -> dict[str, Any]:
    return {
        "operations": action.operations,
        "outcomes": dict(action.outcomes),
        "gave_up": action.gave_up,
        "writes": action.writes,
        "attempts": action.attempts,
        "attempts_mean": action.attempts_mean,
        "attempts_p99": action.attempts_p99,
        "attempts_max": action.attempts_max,
        "conflicts": action.conflicts,
        "conflict_rate": action.conflict_rate,
        "conflicts_by_cause": dict(action.causes),
        "helped": action.helped,
        "helped_share": action.helped_share,
        "time_to_commit_ms": dataclasses.asdict(action.commit) if action.commit else None,
        "time_to_read_ms": dataclasses.asdict(action.read) if action.read else None,
    }


def terminal(analysis: Analysis, conclusion: Conclusion) -> RenderableType:
    """Return the summary for a terminal."""
    parts: list[RenderableType] = [_runs(analysis)]
    if not analysis.is_ramp:
        parts += [Text(), _actions(analysis.runs[0]), *_remarks(analysis.runs[0])]
    parts += _given_up(analysis)
    parts += [Text(), Text(conclusion.headline, style=f"bold {_COLORS[conclusion.tone]}"), Text(conclusion.explanation)]
    parts += _missing(conclusion)
    for where, finding in conclusion.findings[:_SHOWN_FINDINGS]:
        first, *lines = str(finding).splitlines()
        parts.append(_plain(_cut(f"{where + ': ' if where else ''}{first}")))
        parts += [_plain(_cut(line)) for line in lines[:_SHOWN_LINES]]
    if len(conclusion.findings) > _SHOWN_FINDINGS:
        parts.append(Text(f"… and {len(conclusion.findings) - _SHOWN_FINDINGS:,} more in report.html"))
    return Group(*parts)


def _given_up(analysis: Analysis) -> list[Text]:
    """Say which figures contain the calls that gave up, if there are any."""
    count = sum(run.whole.gave_up for run in analysis.runs)
    text = f"gave up: {count:,}, which are in ops/s and in the attempts, and not in the times and in slow/fast"
    return [Text(text)] if count else []


def _missing(conclusion: Conclusion) -> list[Text]:
    """Return the first lines about missing records."""
    lines = [_plain(_cut(line)) for line in conclusion.missing[:_SHOWN_LINES]]
    left = len(conclusion.missing) - _SHOWN_LINES
    return [*lines, Text(f"… and {left:,} more clients")] if left > 0 else lines


def _plain(text: str) -> Text:
    """Return text without control characters of terminals."""
    return Text("".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text))


def _table(first: str, *numbers: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, overflow="fold", min_width=8)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _runs(analysis: Analysis) -> Table:
    shown = _table("clients", "ops/s", "p50 ms", "p99", "max", "conflicts", "attempts", "most", "slow/fast")
    for run in analysis.runs[:_SHOWN_RUNS]:
        slowest, fastest = run.slowest_fastest
        tried = _tried(run.whole)
        shown.add_row(
            str(run.clients), number(run.operations_per_second), *_taken(run.whole), *tried, f"{slowest}/{fastest}"
        )
    return shown


def _actions(run: Run) -> Table:
    shown = _table("operation", "count", "p50 ms", "p99", "max", "conflicts", "attempts", "most", "failed", "undone")
    for action in sorted(run.actions, key=lambda action: -action.operations)[:_SHOWN_ACTIONS]:
        outcomes = action.outcomes
        undone = outcomes["unknown"] + outcomes["conflicted"] + outcomes["open"]
        ends = f"{outcomes['failed']:,}", f"{undone:,}"
        shown.add_row(_plain(_short(action.name)), f"{action.operations:,}", *_taken(action), *_tried(action), *ends)
    return shown


def _taken(action: Action) -> list[str]:
    times = action.commit or action.read
    return [number(value) for value in (times.p50, times.p99, times.max)] if times else ["–"] * 3


def _tried(action: Action) -> list[str]:
    if not action.writes:
        return ["–"] * 3
    return [percent(action.conflict_rate), number(action.attempts_mean), f"{action.attempts_max:,}"]


def _remarks(run: Run) -> list[Text]:
    causes = ", ".join(f"{cause} {count:,}" for cause, count in run.whole.causes.items())
    hot = ", ".join(f"{_short(one.path or f'id {one.entity_id}')} {one.conflicts:,}" for one in run.hot[:3])
    helped = f"{percent(run.whole.helped_share)} of the applied writes" if run.whole.helped else ""
    return [_plain(f"{what}: {said}") for what, said in (("lost to", causes), ("hot", hot), ("helped", helped)) if said]


def _cut(line: str) -> str:
    return line if len(line) <= _LINE else f"{line[: _LINE - 1]}…"


def _short(path: str) -> str:
    return path if len(path) <= 40 else f"…{path[-39:]}"
