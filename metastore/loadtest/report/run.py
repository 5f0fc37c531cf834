"""One run in a report: numbers, charts, hot entities, and a table with a row for each action."""

from __future__ import annotations

from collections.abc import Iterator

from metastore.charts.chart import number, percent
from metastore.loadtest.report.charts import of_run
from metastore.loadtest.report.model import Action, Run, Times
from metastore.loadtest.report.parts import cells, charts, heads, name, ranking, tile

__all__ = ["run_sections"]


def run_sections(run: Run) -> Iterator[str]:
    """Yield the parts of the page about ``run``."""
    yield f'<div class="tiles">{"".join(_tiles(run))}</div>'
    yield from charts(of_run(run), "".join(_causes(run.whole)))
    yield from _hot(run)
    yield from _operations(run)


def _tiles(run: Run) -> Iterator[str]:
    whole, (low, high) = run.whole, run.slowest_fastest
    outcomes, rate = whole.outcomes, whole.conflict_rate
    gave_up = f"; {whole.gave_up:,} of them gave up" if whole.gave_up else ""
    without = f"; without {whole.gave_up:,} that gave up" if whole.gave_up else ""
    returned = f"{whole.returned:,} in {number(run.seconds)} s{gave_up}"
    yield tile("Operations per second", number(run.operations_per_second), returned)
    yield _times_tile("Time to commit", whole.commit, "nothing was applied", without)
    yield _times_tile("Time to read", whole.read, "nothing was only read", without)
    lost = f"{whole.conflicts:,} of {whole.attempts:,} attempts lost"
    yield tile("Conflict rate", percent(rate), lost, warn=rate > 0.5)
    attempts = f"p99 {whole.attempts_p99:,}, most {whole.attempts_max:,}"
    yield tile("Attempts", f"{number(whole.attempts_mean)} <small>mean</small>", attempts)
    yield tile(
        "Fairness",
        f"{run.fairness:.2f} <small>Jain's index</small>",
        f"slowest {low:,}, fastest {high:,} operations{without}",
    )
    yield tile("Helped", percent(whole.helped_share), f"{whole.helped:,} of {outcomes['applied']:,} applied writes")
    undone = outcomes["unknown"] + outcomes["conflicted"] + outcomes["open"]
    more = f"{outcomes['unknown']:,} unknown, {outcomes['conflicted']:,} gave up, {outcomes['open']:,} open"
    yield tile("Without a result", f"{undone:,}", more, warn=undone > 0)


def _times_tile(what: str, times: Times | None, otherwise: str, without: str) -> str:
    if times is None:
        return tile(what, "–", otherwise)
    more = f"p90 {number(times.p90)}, p99 {number(times.p99)}, most {number(times.max)} ms{without}"
    return tile(what, f"{number(times.p50)} <small>ms p50</small>", more)


def _causes(whole: Action) -> Iterator[str]:
    yield '<section class="card" data-chart="causes"><h3>Lost attempts by cause</h3>'
    rows = [(name(cause), "", count) for cause, count in whole.causes.items()]
    yield from ranking(rows, "No attempt lost.")
    yield "</section>"


def _hot(run: Run) -> Iterator[str]:
    yield '<section class="card wide" data-chart="hot"><h3>Hot entities: where attempts lost</h3>'
    rows = []
    for hot in run.hot:
        known = f"id {hot.entity_id}, " if hot.entity_id is not None else ""
        rows.append((name(hot.path or "path unknown"), f"{known}{hot.operations:,} operations", hot.conflicts))
    yield from ranking(rows, "No attempt lost.")
    yield "</section>"


def _operations(run: Run) -> Iterator[str]:
    yield '<section class="card scroll wide"><h3>Operations</h3><table data-chart="operations"><thead>'
    yield '<tr><th colspan="3"></th><th class="group" colspan="4">milliseconds</th>'
    yield '<th class="group" colspan="4">attempts</th><th colspan="2"></th></tr>'
    yield "<tr><th>operation</th>" + heads("count", "per second", "p50", "p90", "p99", "max")
    yield heads("mean", "p99", "max", "lost") + "<th>outcomes</th><th>lost to</th></tr></thead><tbody>"
    for action in run.actions:
        yield f"<tr>{_operation(action, run.seconds)}</tr>"
    yield f'<tr class="sum">{_operation(run.whole, run.seconds)}</tr></tbody></table></section>'


def _operation(action: Action, seconds: float) -> str:
    """Return the cells of a row. The times are those to commit; those of reads if no write was applied."""
    times = action.commit or action.read
    texts = [f"{action.operations:,}", number(action.returned / seconds if seconds else 0.0)]
    texts += [number(value) for value in (times.p50, times.p90, times.p99, times.max)] if times else ["–"] * 4
    if action.writes:
        texts += [number(action.attempts_mean), f"{action.attempts_p99:,}", f"{action.attempts_max:,}"]
        texts.append(percent(action.conflict_rate))
    else:
        texts += ["–"] * 4
    title = name(action.name) if action.name else "all (times: of writes)"
    causes = ", ".join(f"{name(cause)} {count:,}" for cause, count in action.causes.items())
    ends = f'<td class="outcomes">{_outcomes(action)}</td><td class="soft causes">{causes or "–"}</td>'
    return f"<td>{title}</td>{cells(texts)}{ends}"


def _outcomes(action: Action) -> str:
    there = {outcome: 100 * count / action.operations for outcome, count in action.outcomes.items() if count}
    bars = "".join(f'<i class="{outcome}" style="width:{share:.3f}%"></i>' for outcome, share in there.items())
    words = ", ".join(f"{outcome} {action.outcomes[outcome]:,}" for outcome in there)
    return f'<div class="stack">{bars}</div><span class="soft">{words or "none"}</span>'
