"""The verdict of the checker on a run, or on all runs of a ramp."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from metastore.checker.finding import Finding
from metastore.loadtest.report.model import Analysis

__all__ = ["Conclusion", "Findings", "conclusion_of"]

Findings = Mapping[Path, Sequence[Finding]]
"""The checker's findings by record folder. A folder that is not a key was not checked."""


@dataclass(frozen=True)
class Conclusion:
    """The conclusion of a report. ``findings``: each with the name of its folder ("" if there is only one).

    ``checked``: whether the checker saw the records of all clients of all runs.
    """

    tone: Literal["good", "bad", "unsure"]
    headline: str
    explanation: str
    findings: tuple[tuple[str, Finding], ...]
    missing: tuple[str, ...]
    checked: bool


def conclusion_of(analysis: Analysis, findings: Findings) -> Conclusion:
    """Sum up the findings of all runs."""
    by_name = {path.name: of_check for path, of_check in findings.items()}
    listed = tuple(
        [
            (run.folder if analysis.is_ramp else "", finding)
            for run in analysis.runs
            for finding in by_name.get(run.folder, ())
        ]
    )
    unchecked = [run for run in analysis.runs if run.folder not in by_name]
    missing = tuple(
        [f"{run.folder}: {line}" if analysis.is_ramp else line for run in analysis.runs for line in run.missing]
    )
    checked = not unchecked and not missing
    operations = sum(run.whole.operations for run in analysis.runs if run.folder in by_name)
    if listed:
        headline = f"{len(listed):,} contradiction{'s' * (len(listed) != 1)} found"
        explanation = "Each with the smallest set of operations that cannot all be true."
        return Conclusion("bad", headline, explanation, listed, missing, checked)
    if unchecked:
        explanation = "The history checker did not look at all of these records."
        return Conclusion("unsure", "Not checked", explanation, (), missing, checked)
    if missing:
        explanation = (
            f"The history checker found no contradiction in {operations:,} operations, but it did not see those of "
            "all clients. The figures are without them."
        )
        return Conclusion("unsure", "Records are missing", explanation, (), missing, checked)
    explanation = (
        f"The history checker went through {operations:,} operations: no change was lost or applied twice, "
        "and every read was true."
    )
    return Conclusion("good", "No contradiction", explanation, (), missing, checked)
