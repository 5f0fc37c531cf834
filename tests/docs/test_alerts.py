"""The alerts for Prometheus: each names metrics that there are, and fires on the series that it is for alone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import metastore as ms
from metastore.prometheus import register, unregister
from tests.docs.examples import ROOT

FOLDER = ROOT / "docs" / "examples" / "server"
RULES = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
ALERTS = {rule["alert"]: rule for rule in RULES}
NORMAL = {
    'up{job="metastore",instance="a"}': "1x300",
    'metastore_pool_waiting{instance="a"}': "0x300",
    'metastore_pool_in_use{instance="a"}': "3x300",
    'metastore_pool_size{instance="a"}': "16x300",
    'metastore_gc_backlog_seconds{instance="a"}': "0+60x60 0+60x60 0+60x60",
    'metastore_feed_lag_seconds{instance="a",reader="changes"}': "2x300",
    'metastore_conflicts_total{instance="a",cause="self",operation="alter"}': "0+100x300",
    'metastore_conflicts_total{instance="a",cause="lost",operation="alter"}': "0x100 1x200",
    'metastore_cache_events_total{instance="a",event="fence"}': "0x100 1x200",
    **{f'metastore_commit_seconds_bucket{{instance="a",le="{le}"}}': "0+100x300" for le in ("0.01", "2", "+Inf")},
    **{f'metastore_attempts_bucket{{instance="a",le="{le}"}}': "0+100x300" for le in ("1", "5", "+Inf")},
}
"""A quiet afternoon of one server, by the minute: one lost connection, or one fence, wakes nobody."""
BAD: dict[str, dict[str, str | None]] = {
    "MetastoreDown": {'up{job="metastore",instance="a"}': "0x300"},
    "MetastoreDatabaseAway": {
        'metastore_conflicts_total{instance="a",cause="unavailable",operation="alter"}': "0+60x300"
    },
    "MetastorePoolExhausted": {
        'metastore_pool_waiting{instance="a"}': "4x300",
        'metastore_pool_in_use{instance="a"}': "16x300",
    },
    "MetastoreCommitsSlow": {
        'metastore_commit_seconds_bucket{instance="a",le="2"}': "0+90x300",
        'metastore_commit_seconds_bucket{instance="a",le="0.01"}': "0+80x300",
        'metastore_commit_seconds_bucket{instance="a",le="8"}': "0+100x300",
    },
    "MetastoreHotEntity": {
        'metastore_attempts_bucket{instance="a",le="5"}': "0+90x300",
        'metastore_attempts_bucket{instance="a",le="1"}': "0+50x300",
        'metastore_attempts_bucket{instance="a",le="13"}': "0+100x300",
    },
    "MetastoreFeedBehind": {'metastore_feed_lag_seconds{instance="a",reader="changes"}': "0+60x300"},
    "MetastoreCacheFenced": {'metastore_cache_events_total{instance="a",event="fence"}': "0+6x300"},
    "MetastoreGcBehind": {'metastore_gc_backlog_seconds{instance="a"}': "21000+60x300"},
    "MetastoreNoGc": {'metastore_gc_backlog_seconds{instance="a"}': None},
}
"""What differs where an alert must fire."""
OWN = {
    "MetastoreDown": {"job": "metastore"},
    "MetastoreFeedBehind": {"reader": "changes"},
    "MetastoreCacheFenced": {"event": "fence"},
}
VALUES = {
    "MetastoreCommitsSlow": "7.4",
    "MetastoreHotEntity": "12.2",
    "MetastoreFeedBehind": "3h 0m 0s",
    "MetastoreGcBehind": "8h 50m 0s",
}


DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
PANELS = [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]]
RECORDED = json.loads((ROOT / "tests" / "drills" / "recorded.json").read_text())
"""What clients wrote down in a drill where no server led for a while, and in a quiet one: ``tests.drills.recorded``."""


def test_each_alert_and_each_panel_names_metrics_that_there_are() -> None:
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    with ms.open("memory://") as store:
        collector = register(store, registry)
        there = {f"{family.name}{'_total' * (family.type == 'counter')}" for family in collector.describe()}
        unregister(store, registry)
    for name, expression in [*((name, rule["expr"]) for name, rule in ALERTS.items()), *PANELS]:
        named = {re.sub("_bucket$", "", one) for one in re.findall(r"metastore_\w+", expression)}
        assert named or name == "MetastoreDown", name
        assert named <= there, (name, named - there)
    told = (ROOT / "docs" / "operations.md").read_text()
    assert [name for name in ALERTS if f"| `{name}` |" not in told] == []


def test_prometheus_takes_each_expression_of_the_dashboard(tmp_path: Path) -> None:
    """Each is a recording rule, with the values of Grafana's variables in it."""
    shown = [expression.replace("$__rate_interval", "1m").replace("$instance", ".*") for _, expression in PANELS]
    rules = [{"record": f"panel:{n}", "expr": expression} for n, expression in enumerate(shown)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = _promtool("check", "rules", "rules.yml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("drill", ["away", "quiet"])
def test_an_alert_fires_in_its_drill_and_none_in_a_quiet_one(drill: str, tmp_path: Path) -> None:
    """Nothing is counted in the 10 minutes after the drill, and its gauges end with it."""
    shutil.copy(FOLDER / "alerts.yml", tmp_path)
    scrapes, recorded = RECORDED["scrapes"], RECORDED[drill]["series"]
    series = [
        {"series": name, "values": f"{values} {_after(name, values, scrapes)}"} for name, values in recorded.items()
    ]
    ends = max(len(values.split()) for values in recorded.values()) * scrapes
    away = _expected("MetastoreDatabaseAway", instance="p1")
    fires = [
        {"eval_time": f"{ends + later:.0f}s", "alertname": name, "exp_alerts": [away] if name in expected else []}
        for later, expected in ((0, ()), (180, ("MetastoreDatabaseAway",) if drill == "away" else ()), (590, ()))
        for name in ALERTS
    ]
    tests = [{"interval": f"{scrapes:.0f}s", "input_series": series, "alert_rule_test": fires}]
    (tmp_path / "tests.yml").write_text(yaml.safe_dump({"rule_files": ["alerts.yml"], "tests": tests}))
    done = _promtool("test", "rules", "tests.yml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def _after(name: str, values: str, scrapes: float) -> str:
    counts = re.search("_(total|bucket){", name)
    return f"{values.rsplit(maxsplit=1)[-1]}x{600 / scrapes:.0f}" if counts else "stale"


def _promtool(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("needs promtool (apt-get install prometheus)")
    return subprocess.run([program, *words], cwd=folder, capture_output=True, text=True, check=False)


def _series(more: dict[str, str | None]) -> list[dict[str, Any]]:
    series = NORMAL | more
    return [{"series": name, "values": values} for name, values in series.items() if values is not None]


def test_each_alert_fires_on_what_it_is_for_alone(tmp_path: Path) -> None:
    """Series made by hand."""
    assert BAD.keys() == ALERTS.keys()
    shutil.copy(FOLDER / "alerts.yml", tmp_path)
    tests = []
    for bad in (None, *BAD):
        fires = [
            {"eval_time": "3h", "alertname": name, **({"exp_alerts": [_expected(name)]} if name == bad else {})}
            for name in ALERTS
        ]
        tests.append({"interval": "1m", "input_series": _series(BAD[bad] if bad else {}), "alert_rule_test": fires})
    (tmp_path / "tests.yml").write_text(yaml.safe_dump({"rule_files": ["alerts.yml"], "tests": tests}))
    done = _promtool("test", "rules", "tests.yml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def _expected(name: str, instance: str = "a") -> dict[str, Any]:
    """Return the alert as promtool compares it: its labels, and its text with the values of the series."""
    rule = ALERTS[name]
    text, labels = rule["annotations"]["summary"], dict(rule["labels"]) | OWN.get(name, {})
    if "$labels.instance" in text or name == "MetastoreFeedBehind":
        labels["instance"] = instance
    for label, value in labels.items():
        text = text.replace("{{ $labels." + label + " }}", value)
    return {"exp_labels": labels, "exp_annotations": {"summary": re.sub("{{.*}}", VALUES.get(name, ""), text)}}


def test_prometheus_takes_the_files_and_the_metrics(tmp_path: Path) -> None:
    for file in ("alerts.yml", "scrape.yml"):
        shutil.copy(FOLDER / file, tmp_path)
    done = _promtool("check", "config", "scrape.yml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    with ms.open("memory://") as store:
        store.metalakes.create("m")
        register(store, registry)
        text = client.generate_latest(registry).decode()
        unregister(store, registry)
    checked = subprocess.run(
        [str(shutil.which("promtool")), "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, json.dumps([checked.stdout, checked.stderr])
