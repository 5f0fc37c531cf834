"""The report of a load test: the page in a real browser, the pictures, summary.json, and a screen of text."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
from rich.console import Console

from metastore.charts.chart import Bars, number
from metastore.checker.finding import Finding
from metastore.checker.records import Outcome
from metastore.loadtest.report import png
from metastore.loadtest.report.charts import of_run
from metastore.loadtest.report.conclusion import Findings, conclusion_of
from metastore.loadtest.report.html import _ABOUT
from metastore.loadtest.report.model import Analysis
from metastore.loadtest.report.summary import terminal
from metastore.loadtest.report.writing import write_report
from metastore.port.commit import Cause
from tests.loadtest.browser import Opened, chromium, opened
from tests.loadtest.plain import plain_run
from tests.loadtest.record_folders import lively, operation
from tests.long import long_unless

pytestmark = pytest.mark.one_in(3)

HOSTILE = "</script></style><img src=x onerror=alert(1)><script>alert(2)</script>\"'&\u202e\x1b[31m$x^2$" + "x" * 200
FACTS = {"scenario": HOSTILE, "seed": 7, "url": "postgresql://me:***@host/db", HOSTILE: [HOSTILE]}
FOUND = Finding("read", f"it read {HOSTILE}", (f"c1/1 load {HOSTILE}", "c2/7 alter"))
RUNS = {"empty": "clients-0", "calm": "clients-1", "lively": "clients-8", "crowd": "clients-64"}
PAGES = (*RUNS, "ramp")
SVGS = ("conflict_rate", "throughput", "time_to_commit", "attempts", "fairness")


@pytest.fixture(scope="module")
def ramp(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Analysis]:
    """Give a ramp: nobody, one client without a conflict, eight, and 64 with hostile names everywhere."""
    folder = tmp_path_factory.mktemp("ramp")
    crowd = lively(64, 0.3, [HOSTILE, "lake." + "n" * 200])
    for one in crowd[:9]:
        one.action = one.client = HOSTILE
    runs = {
        "clients-0": [],
        "clients-1": [operation("c1", n, ms=n, start=n / 9) for n in range(1, 99)],
        "clients-8": lively(8, 1.5, ["lake.main.sales.orders", "lake.main.sales.items"]),
        "clients-64": crowd,
    }
    for name in runs:
        (folder / name / "operations").mkdir(parents=True)
    return folder, Analysis(tuple([plain_run(name, made, FACTS) for name, made in runs.items()]), FACTS)


@pytest.fixture(scope="module")
def reports(ramp: tuple[Path, Analysis]) -> dict[str, Path]:
    """Give the pages: of the ramp, and of each of its runs alone."""
    folder, analysis = ramp
    found: Findings = {folder / "clients-1": (), folder / "clients-64": [FOUND]}
    pages = {
        name: write_report(Analysis((run,), run.facts), folder / run.folder, found)
        for name, run in zip(RUNS, analysis.runs, strict=True)
    }
    return {**pages, "ramp": write_report(analysis, folder, found)}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def shown(reports: dict[str, Path], browser: Any, request: pytest.FixtureRequest) -> Iterator[Opened]:
    """Open the page that the test is called with."""
    with opened(browser, reports[request.param]) as found:
        yield found


@pytest.mark.parametrize("name", long_unless(PAGES, lambda name: name == PAGES[-1]))
def test_a_page_stands_alone_and_fits(reports: dict[str, Path], browser: Any, name: str) -> None:
    """Whatever the names are: nothing is fetched or run, and nothing is wider than the window."""
    with opened(browser, reports[name]) as found:
        assert found.asked == [reports[name].as_uri()]
        assert found.page.eval_on_selector_all("script, img, iframe, [onerror]", "all => all.length") == 0
        _fits(found)
        found.page.eval_on_selector_all("details", "all => all.forEach(one => { one.open = true })")
        _fits(found)
        assert found.said == []


def _fits(found: Opened) -> None:
    """The page is no wider than the window, be that wide or narrow."""
    for width in (1280, 400):
        found.page.set_viewport_size({"width": width, "height": 900})
        assert found.overflow() <= 0, width


@pytest.mark.parametrize("shown", ["lively"], indirect=True)
def test_every_value_is_a_bar(shown: Opened, ramp: tuple[Path, Analysis]) -> None:
    run = ramp[1].runs[2]
    for svg in SVGS:
        ((width, height),) = shown.boxes(f'svg[data-chart="{svg}"]')
        assert width > 400
        assert height > 200
    bars = {"time_to_commit": len(run.commit_histogram), "attempts": run.whole.attempts_max, "fairness": 8}
    for svg, count in bars.items():
        boxes = shown.boxes(f'svg[data-chart="{svg}"] rect.bar')
        assert len(boxes) == count
        assert all(width > 1 for width, _ in boxes)
    counts = [share.operations for share in run.shares]
    heights = [height for _, height in shown.boxes('svg[data-chart="fairness"] rect.bar')]
    assert [height / heights[0] for height in heights] == pytest.approx([n / counts[0] for n in counts], rel=0.02)
    assert len(shown.boxes('svg[data-chart="time_to_commit"] line.mark')) == 3
    assert len(shown.boxes('svg[data-chart="throughput"] polyline')) == 2
    assert len(shown.boxes('svg[data-chart="conflict_rate"] circle')) == len(run.moments)
    assert len(shown.boxes('[data-chart="causes"] li')) == len(run.whole.causes) == 4
    assert len(shown.boxes('[data-chart="hot"] li')) == len(run.hot)
    assert len(shown.boxes('[data-chart="operations"] tbody tr')) == len(run.actions) + 1
    tracks = [width for width, _ in shown.boxes('[data-chart="causes"] .track i')]
    assert all(one >= two > 1 for one, two in pairwise(tracks))


@pytest.mark.parametrize("shown", ["lively"], indirect=True)
def test_the_percentiles_stand_at_their_bars(shown: Opened, ramp: tuple[Path, Analysis]) -> None:
    run = ramp[1].runs[2]
    left = "all => all.map(one => one.getBoundingClientRect().left)"
    bars = shown.page.eval_on_selector_all('svg[data-chart="time_to_commit"] rect.bar', left)
    marks = shown.page.eval_on_selector_all('svg[data-chart="time_to_commit"] line.mark', left)
    assert run.whole.commit is not None
    for x, value in zip(marks, (run.whole.commit.p50, run.whole.commit.p90, run.whole.commit.p99), strict=True):
        under = next(at for at, bucket in enumerate(run.commit_histogram) if bucket.low <= value < bucket.high)
        assert bars[under] - 3 <= x <= (bars[under + 1] if under + 1 < len(bars) else x)


@pytest.mark.parametrize("shown", ["ramp"], indirect=True)
def test_a_ramp_has_curves_and_its_runs(shown: Opened) -> None:
    for svg in ("ramp_throughput", "ramp_times", "ramp_conflicts", "ramp_attempts"):
        ((width, height),) = shown.boxes(f'svg[data-chart="{svg}"]')
        assert width > 300
        assert height > 150
    assert len(shown.boxes('svg[data-chart="ramp_throughput"] circle')) == 4
    assert len(shown.boxes('[data-chart="ramp"] tbody tr')) == 4
    assert shown.page.eval_on_selector_all("details", "all => all.map(one => one.open)") == [False] * 3 + [True]


@pytest.mark.parametrize("shown", ["empty"], indirect=True)
def test_an_empty_run_says_so(shown: Opened) -> None:
    assert shown.page.inner_text("body").count("nothing to show") == 5
    assert shown.page.inner_text("body").count("No attempt lost.") == 2


@pytest.mark.parametrize(("name", "tone"), [("calm", "good"), ("crowd", "bad"), ("lively", "unsure"), ("ramp", "bad")])
def test_the_verdict_stands_first(reports: dict[str, Path], browser: Any, name: str, tone: str) -> None:
    with opened(browser, reports[name]) as found:
        assert found.page.get_attribute("section >> nth=0", "class") == f"card verdict {tone}"
        lines = found.page.locator("section >> nth=0 >> li").all_inner_texts()
        assert [" ".join(line.split()) for line in lines] == (
            [" ".join(text.split()) for text in FOUND.operations] if tone == "bad" else []
        )


def test_light_and_dark(reports: dict[str, Path], browser: Any) -> None:
    """Text and bars stand out against what is behind them, in both."""
    for scheme in ("light", "dark"):
        with opened(browser, reports["lively"], scheme=scheme) as found:
            card = luminance(found.color("section.card:not(.verdict)", "backgroundColor"))
            assert (card < 0.1) == (scheme == "dark")
            assert contrast(card, luminance(found.color("h3", "color"))) > 7
            assert contrast(card, luminance(found.color("svg text", "fill"))) > 4.5
            for bar in ("rect.bar.work", "rect.bar.second", ".track i"):
                back = "backgroundColor" if bar == ".track i" else "fill"
                assert contrast(card, luminance(found.color(bar, back))) > 3


def luminance(color: tuple[int, ...]) -> float:
    """The relative luminance of WCAG 2."""
    parts = [part / 255 for part in color]
    red, green, blue = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: float, other: float) -> float:
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


def test_the_summary_is_stable(reports: dict[str, Path], ramp: tuple[Path, Analysis]) -> None:
    text = (reports["ramp"].parent / "summary.json").read_text()
    found = json.loads(text)
    assert set(found) == {
        "format", "scenario", "seed", "started", "url", "versions", "checked", "missing", "findings", "runs"
    }  # fmt: skip
    assert (found["format"], found["seed"], found["started"], found["checked"]) == (1, 7, None, False)
    assert found["missing"] == ["clients-0: no client left a record"]
    assert found["findings"] == [
        {"run": "clients-64", "rule": "read", "message": FOUND.message, "operations": list(FOUND.operations)}
    ]
    empty, calm, _, crowd = found["runs"]
    assert (calm["clients"], calm["operations"], calm["conflict_rate"], calm["fairness"]) == (1, 98, 0.0, 1.0)
    assert calm["time_to_commit_ms"] == {"count": 98, "mean": 49.5, "p50": 49.0, "p90": 89.0, "p99": 98.0, "max": 98.0}
    assert set(empty) == set(crowd)
    assert set(crowd["actions"]) == {action.name for action in ramp[1].runs[3].actions}
    assert crowd["conflict_rate"] > 0.5


def test_pictures_are_pictures(reports: dict[str, Path]) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install matplotlib")
    folder = reports["ramp"].parent
    paths = [folder / "ramp.png", *[folder / run / f"{svg}.png" for run in RUNS.values() for svg in SVGS]]
    for path in paths:
        head = path.read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", head[16:])
        assert min(width, height) > 300


def test_without_matplotlib_the_rest_is_there(
    ramp: tuple[Path, Analysis], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(png, "find_spec", lambda name: None)
    assert write_report(ramp[1], tmp_path, {}) == tmp_path / "report.html"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "summary.json"]
    assert "pip install" in png.HINT


def test_a_screen_of_text(ramp: tuple[Path, Analysis]) -> None:
    """It fits 80 columns and, without findings, 40 lines; nothing in it is an order to the terminal."""
    folder, analysis = ramp
    for run in analysis.runs:
        alone = Analysis((run,), run.facts)
        text = printed(alone, {folder / run.folder: [FOUND] * 20})
        assert len(text.splitlines()) <= 60
        assert "contradictions found" in text
        assert not {"\x1b", "\u202e"} & set(text)
    text = printed(analysis, {})
    assert len(text.splitlines()) <= 40
    assert max(map(len, text.splitlines())) <= 80
    clients = [line.split()[0] for line in text.splitlines() if line[:1].isdigit()]
    assert clients == ["0", "1", "8", "65"]
    assert "Not checked" in text


def test_what_is_missing_makes_no_verdict_good(tmp_path: Path, browser: Any) -> None:
    """Records are missing: neither the page, the screen nor the summary says that all is well."""
    made = [operation("c-0", n, outcome="conflicted" if n == 1 else "applied") for n in range(1, 9)]
    lost = replace(
        plain_run("run", made), missing=("c-1 left no records, and the feed has 85 events of it",), clients=2
    )
    (tmp_path / "run" / "operations").mkdir(parents=True)
    for run, line in ((lost, lost.missing[0]), (plain_run("run", []), "no client left a record")):
        alone, found = Analysis((run,), {}), {tmp_path / "run": ()}
        text = " ".join(printed(alone, found).split())
        assert "Records are missing" in text
        assert line in text
        assert "No contradiction" not in text
        page = write_report(alone, tmp_path / "run", found)
        summary = json.loads(page.with_name("summary.json").read_text())
        assert (summary["checked"], summary["missing"]) == (False, [line])
        with opened(browser, page) as shown:
            assert shown.page.get_attribute("section >> nth=0", "class") == "card verdict unsure"
            assert line in shown.page.inner_text("section >> nth=0")
    both = conclusion_of(Analysis((lost,), {}), {tmp_path / "run": [FOUND]})
    assert (both.tone, both.checked, both.missing) == ("bad", False, lost.missing)


def test_what_gave_up_is_said(tmp_path: Path) -> None:
    """Which figures contain calls that gave up, and which do not."""
    outcomes: tuple[Outcome, ...] = ("applied", "conflicted", "unknown", "open")
    made = [operation("c-0", n, outcome=outcome) for n, outcome in enumerate(outcomes, 1)]
    (tmp_path / "run" / "operations").mkdir(parents=True)
    alone = Analysis((plain_run("run", made),), {})
    page = write_report(alone, tmp_path / "run", {}).read_text()
    assert "; 2 of them gave up" in page
    assert page.count("; without 2 that gave up") == 2  # the time to commit and the fairness; nothing was read
    text = " ".join(printed(alone, {}).split())
    assert "gave up: 2, which are in ops/s and in the attempts, and not in the times and in slow/fast" in text
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["runs"][0]["gave_up"], summary["runs"][0]["clients_operations"]) == (2, {"c-0": 1})
    calm = Analysis((plain_run("run", made[:1]),), {})
    assert "gave up:" not in printed(calm, {})
    assert "that gave up<" not in write_report(calm, tmp_path / "run", {}).read_text()


def printed(analysis: Analysis, findings: Findings) -> str:
    out = StringIO()
    Console(file=out, width=80, color_system=None).print(terminal(analysis, conclusion_of(analysis, findings)))
    return out.getvalue()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (0.0421, "0.042"), (0.1, "0.1"), (3.14159, "3.14"), (74, "74"), (123.6, "124"), (1240, "1,240"),
        (12_440, "12.4k"), (999_949, "1e+03k"), (3_100_000, "3.1M"),
    ],
)  # fmt: skip
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_marks_and_ticks_lie_within(ramp: tuple[Path, Analysis]) -> None:
    for run in ramp[1].runs:
        for chart in of_run(run):
            for _, at in getattr(chart, "ticks", None) or ():
                assert -1e-6 <= at <= len(getattr(chart, "bars", ())) + 1e-6


def test_labels_are_what_tells_clients_apart() -> None:
    made = [operation(f"r50c94114-{n}", 1) for n in range(3)]
    bars = of_run(plain_run("run", made))[-1]
    assert isinstance(bars, Bars)
    assert [bar.label for bar in bars.bars] == ["0", "1", "2"]


def test_every_cause_is_explained() -> None:
    assert set(get_args(Cause)) <= set(re.findall(r"(\w+):", _ABOUT["What attempts lost to"]))
