"""The report of a load test: report.html, summary.json and, if matplotlib is installed, PNG files.

They are in the folder of the records. The pictures of a ramp's runs are in the folders of the runs.
"""

from __future__ import annotations

import json
from pathlib import Path

from metastore.loadtest.report import charts
from metastore.loadtest.report.conclusion import Findings, conclusion_of
from metastore.loadtest.report.html import page
from metastore.loadtest.report.model import Analysis
from metastore.loadtest.report.png import has_matplotlib, write_png
from metastore.loadtest.report.record_folders import record_folders
from metastore.loadtest.report.summary import summary

__all__ = ["write_report"]


def write_report(analysis: Analysis, folder: Path, findings: Findings) -> Path:
    """Write the report of the records in ``folder``; ``analysis`` is their analysis. Return the path of the page."""
    conclusion = conclusion_of(analysis, findings)
    (folder / "summary.json").write_text(json.dumps(summary(analysis, conclusion), indent=2) + "\n")
    if has_matplotlib():
        _write_pictures(analysis, folder)
    path = folder / "report.html"
    path.write_text(page(analysis, conclusion), encoding="utf-8", errors="replace")
    return path


def _write_pictures(analysis: Analysis, folder: Path) -> None:
    if analysis.is_ramp:
        write_png(charts.of_ramp(analysis), folder / "ramp.png")
    for run, place in zip(analysis.runs, record_folders(folder), strict=True):
        for chart in charts.of_run(run):
            write_png([chart], place / f"{chart.name}.png")
