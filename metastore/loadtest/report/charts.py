"""The charts of a report as values; ``metastore.charts.svg`` draws them on the page, ``png`` as pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from math import ceil, floor, log10
from typing import Final

from metastore.charts.chart import Bar, Bars, Chart, Lines, Mark, Series, Tone, number, percent
from metastore.loadtest.report.model import Analysis, Moment, Run

__all__ = ["of_ramp", "of_run"]

_MOST_ATTEMPTS: Final = 24
"""The number of bars of the attempts' histogram; the last bar also counts calls that needed more attempts."""


def of_run(run: Run) -> tuple[Chart, ...]:
    """Return the charts of one run."""
    return _conflict_rate(run), _throughput(run), _time_to_commit(run), _attempts(run), _fairness(run)


def of_ramp(analysis: Analysis) -> tuple[Lines, ...]:
    """Return the curves of a ramp against the number of clients."""
    runs = analysis.runs
    clients = tuple([str(run.clients) for run in runs])

    def curves(name: str, title: str, y: str, *series: tuple[str, Tone, Callable[[Run], float]]) -> Lines:
        drawn = [
            Series(label, tuple([(float(place), value(run)) for place, run in enumerate(runs)]), tone)
            for label, tone, value in series
        ]
        return Lines(name, title, "clients", y, tuple(drawn), float(len(runs) - 1), clients)

    return (
        curves("ramp_throughput", "Throughput", "operations/s", ("operations", "work", _per_second)),
        curves("ramp_times", "Time to commit", "ms", ("p99", "second", _p99), ("p50", "work", _p50)),
        curves("ramp_conflicts", "Conflict rate", "% of attempts", ("lost", "conflict", _conflicts)),
        curves("ramp_attempts", "Attempts", "attempts", ("most", "conflict", _most), ("mean", "work", _mean)),
    )


def _per_second(run: Run) -> float:
    return run.operations_per_second


def _p50(run: Run) -> float:
    return run.whole.commit.p50 if run.whole.commit else 0.0


def _p99(run: Run) -> float:
    return run.whole.commit.p99 if run.whole.commit else 0.0


def _conflicts(run: Run) -> float:
    return 100 * run.whole.conflict_rate


def _most(run: Run) -> float:
    return run.whole.attempts_max


def _mean(run: Run) -> float:
    return run.whole.attempts_mean


def _conflict_rate(run: Run) -> Lines:
    points = _over_time(run, lambda moment: 100 * moment.conflict_rate)
    series = (Series("lost attempts", points, "conflict"),)
    return Lines("conflict_rate", "Conflict rate over time", "seconds", "% of attempts", series, run.seconds, least=1.0)


def _throughput(run: Run) -> Lines:
    series = (
        Series("all operations", _over_time(run, lambda moment: moment.operations / moment.seconds), "second"),
        Series("writes", _over_time(run, lambda moment: moment.writes / moment.seconds), "work"),
    )
    return Lines("throughput", "Throughput over time", "seconds", "operations/s", series, run.seconds)


def _over_time(run: Run, value: Callable[[Moment], float]) -> tuple[tuple[float, float], ...]:
    return tuple([(m.start + m.seconds / 2, value(m)) for m in run.moments if m.seconds > 0])


def _time_to_commit(run: Run) -> Bars:
    title, x, y = "Time to commit", "milliseconds", "writes"
    times, buckets = run.whole.commit, run.commit_histogram
    if times is None or not buckets:
        return Bars("time_to_commit", title, x, y, ())
    total = sum(bucket.count for bucket in buckets)
    bars = [
        Bar(
            "",
            bucket.count,
            f"{number(bucket.low)} to {number(bucket.high)} ms: "
            f"{bucket.count:,} writes, {percent(bucket.count / total)}",
        )
        for bucket in buckets
    ]
    low, high = log10(buckets[0].low), log10(buckets[-1].high)

    def at(value: float) -> float:
        return len(buckets) * min(1.0, max(0.0, (log10(max(value, buckets[0].low)) - low) / (high - low)))

    percentiles = (("p50", times.p50), ("p90", times.p90), ("p99", times.p99))
    marks = tuple([Mark(f"{name} {number(value)}", at(value)) for name, value in percentiles])
    return Bars("time_to_commit", title, x, y, tuple(bars), "work", marks, ticks=_powers(low, high, at))


def _powers(low: float, high: float, at: Callable[[float], float]) -> tuple[tuple[str, float], ...]:
    """Return the ticks of a logarithmic axis: powers of ten, and values between them if they are few."""
    factors = (1,) if high - low > 3 else (1, 3) if high - low > 1.5 else (1, 2, 5)
    values = [factor * 10.0**power for power in range(floor(low) - 1, ceil(high) + 1) for factor in factors]
    return tuple([(number(value), at(value)) for value in values if low - 1e-9 <= log10(value) <= high + 1e-9])


def _attempts(run: Run) -> Bars:
    counts = dict(run.attempts_histogram)
    total = sum(counts.values())
    last = min(max(counts, default=0), _MOST_ATTEMPTS)
    more = sum(count for attempts, count in counts.items() if attempts > _MOST_ATTEMPTS)

    def bar(attempts: int) -> Bar:
        cut = more and attempts == _MOST_ATTEMPTS
        label = f"{attempts}{'+' if cut else ''}"
        count = counts.get(attempts, 0) + (more if cut else 0)
        return Bar(label, count, f"{label} attempt{'s' * (label != '1')}: {count:,} writes, {percent(count / total)}")

    return Bars("attempts", "Attempts", "attempts", "writes", tuple([bar(n) for n in range(1, last + 1)]))


def _fairness(run: Run) -> Bars:
    start = _common_start([share.client for share in run.shares if share.operations or share.conflicts])
    counts: Sequence[int] = [share.operations for share in run.shares]
    bars = tuple(
        [
            Bar(
                share.client.removeprefix(start),
                share.operations,
                f"{share.client}: {share.operations:,} operations, {share.conflicts:,} lost attempts",
            )
            for share in run.shares
        ]
    )
    level = ("mean", sum(counts) / len(counts)) if counts and max(counts) else None
    return Bars("fairness", "Fairness: operations by client", "client", "operations", bars, "second", level=level)


def _common_start(names: Sequence[str]) -> str:
    """Return the common prefix of the names, up to its last hyphen: "run-" for run-1 and run-10."""
    common = "".join([chars[0] for chars in takewhile(lambda chars: len(set(chars)) == 1, zip(*names, strict=False))])
    return common[: common.rfind("-") + 1]
