"""The page of a report: one file that needs no other files, and has no scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

from metastore.charts.chart import number, percent
from metastore.checker.finding import Finding
from metastore.loadtest.report.charts import of_ramp
from metastore.loadtest.report.conclusion import Conclusion
from metastore.loadtest.report.model import Analysis
from metastore.loadtest.report.parts import cells, charts, facts_list, heads, name
from metastore.loadtest.report.run import run_sections
from metastore.loadtest.report.style import STYLE

__all__ = ["page"]

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_MOST_FINDINGS: Final = 50
_LONGEST: Final = 300
"""How many characters of a fact are shown."""
_OF_CLIENTS: Final = ("names", "calls")
"""Facts with an item for each client, which the charts show instead."""
_ABOUT: Final = {
    "Operations per second": "all calls that returned, including those that gave up.",
    "Conflict rate": "the share of the writes' attempts that lost to another operation's change. A lost one is tried "
    "again: a conflict is work done twice, not a failure.",
    "Time to commit": "from the call to the return, of writes that were applied: all attempts and waits are in it, and "
    "calls that gave up are not.",
    "Attempts": "how often a write was sent until it was decided, or gave up.",
    "What attempts lost to": "self: the entity had another version; ancestor: something above it was moved, renamed or "
    "dropped; name: the name was taken; not_empty: a drop found children; read: an entity that was read changed; "
    "pending: announced changes come first; marked: an exclusive operation is announced; ticket: a transaction is in "
    "line for the entity; busy: a lock was not free in time; serialization: a deadlock; lease: it was taken over; "
    "operation: it was applied or sent before; claim: another message has the operation's row; stale_id: the caller's "
    "operation id is too old.",
    "Helped": "applied by the commit of another operation.",
    "Fairness": "Jain's index of the answered operations by client: 1 if all got the same done, 1/n if one of n did "
    "everything. Calls that gave up, and clients whose records are missing, are not in it.",
    "Unknown": "the acknowledgement was lost for good; the checker finds in the feed whether it was applied.",
    "Gave up": "the attempts or the time ran out (outcome: conflicted); nothing was applied.",
    "Open": "never returned: the client was killed or stopped.",
}


def page(analysis: Analysis, conclusion: Conclusion) -> str:
    """Return the report as an HTML document."""
    scenario = _short(analysis.facts.get("scenario") or "unknown scenario")
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<link rel="icon" href="data:,">',
        f"<title>Load test: {escape(scenario)}</title><style>{STYLE}</style></head><body><main>",
        f"<h1>Load test: {name(scenario)}</h1>",
        _headline(analysis),
        *_conclusion(conclusion),
    ]
    if analysis.is_ramp:
        parts += _ramp(analysis)
    else:
        parts += run_sections(analysis.runs[0])
    parts += facts_list("What the words mean", [(word, escape(meaning)) for word, meaning in _ABOUT.items()])
    shown = {key: value for key, value in analysis.facts.items() if key not in _OF_CLIENTS}
    if facts := {key: value for key, value in shown.items() if value not in (None, {}, [])}:
        parts += facts_list("The run", [(name(_short(key)), name(_fact(value))) for key, value in facts.items()])
    return "\n".join([*parts, "</main></body></html>"]) + "\n"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return _short(", ".join(f"{key} {inner}" for key, inner in value.items()))
    return _short(", ".join(str(inner) for inner in value) if isinstance(value, list) else value)


def _headline(analysis: Analysis) -> str:
    facts = analysis.facts
    clients = ", ".join(str(run.clients) for run in analysis.runs)
    seconds = max(run.seconds for run in analysis.runs)
    shown = [f"{clients} client{'s' * (clients != '1')}", f"{number(seconds)} s"]
    shown += [name(_short(facts[key])) for key in ("started", "url") if facts.get(key) is not None]
    return '<p class="facts">' + "".join(f"<span>{text}</span>" for text in shown) + "</p>"


def _conclusion(conclusion: Conclusion) -> Iterator[str]:
    yield f'<section class="card verdict {conclusion.tone}"><strong>{escape(conclusion.headline)}</strong>'
    yield f"<p>{escape(conclusion.explanation)}</p>"
    for line in conclusion.missing[:_MOST_FINDINGS]:
        yield f'<p class="missing">{name(line)}</p>'
    for where, finding in conclusion.findings[:_MOST_FINDINGS]:
        yield from _finding(where, finding)
    left = len(conclusion.findings) - _MOST_FINDINGS
    if left > 0:
        yield f"<p>{left:,} more are not shown here.</p>"
    yield "</section>"


def _finding(where: str, finding: Finding) -> Iterator[str]:
    place = f' <span class="soft">in {name(where)}</span>' if where else ""
    yield f'<div class="finding"><span class="rule">{escape(finding.rule)}</span>{name(finding.message)}{place}'
    if finding.operations:
        yield "<ol>" + "".join(f"<li>{name(line)}</li>" for line in finding.operations) + "</ol>"
    yield "</div>"


def _ramp(analysis: Analysis) -> Iterator[str]:
    """Yield the curves, a table, and each run in a section that can be unfolded; the last one is unfolded."""
    yield "<h2>With more clients</h2>"
    yield from charts(of_ramp(analysis))
    yield '<section class="card scroll wide"><table data-chart="ramp"><thead><tr>'
    yield heads("clients", "operations/s", "p50 ms", "p99 ms", "conflict rate", "most attempts")
    yield heads("slowest / fastest", "fairness") + "</tr></thead><tbody>"
    for run in analysis.runs:
        times, (low, high) = run.whole.commit, run.slowest_fastest
        texts = [f"{run.clients:,}", number(run.operations_per_second)]
        texts += [number(times.p50), number(times.p99)] if times else ["–", "–"]
        texts += [percent(run.whole.conflict_rate), f"{run.whole.attempts_max:,}"]
        yield f"<tr>{cells([*texts, f'{low:,} / {high:,}', f'{run.fairness:.2f}'])}</tr>"
    yield "</tbody></table></section>"
    for run in analysis.runs:
        title = f"{run.clients:,} client{'s' * (run.clients != 1)}"
        yield f"<details{' open' * (run is analysis.runs[-1])}><summary>{title}</summary>"
        yield from run_sections(run)
        yield "</details>"
