"""The last results of ``metastore verify`` and of load tests, from a folder that the operator names."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

from metastore.errors import HistoryGone, InvalidArgument
from metastore.serve.console.asked import Asked
from metastore.verify.report import Report, read_report

__all__ = ["LoadTest", "last_loadtest", "last_verify"]

_MOST: Final = 1000
"""How many folders of load tests are read at most."""
_LARGEST: Final = 10_000_000
"""The largest summary of a load test (bytes)."""


@dataclass(frozen=True)
class LoadTest:
    """The results of a load test in its ``summary.json``."""

    folder: str
    started: str
    scenario: str
    checked: bool
    findings: int
    clients: str
    operations_per_second: float


def last_verify(asked: Asked) -> tuple[Report | None, str | None]:
    """Return the report of the last check, and the reason why it cannot be shown, if there is one."""
    if asked.reports is None:
        return None, None
    try:
        report = read_report(asked.reports / "verify.json")
        if report is not None:
            asked.whole.changes_page(after=report.position, size=1)
    except HistoryGone:  # gc has removed the position, so this is an old report of this database
        return report, None
    except InvalidArgument as error:
        return None, f"the report cannot be shown, or is of another database: {error}"
    return report, None


def last_loadtest(asked: Asked) -> LoadTest | None:
    """Return the newest load test of the folder; other files are skipped."""
    if asked.reports is None:
        return None
    found = [one for file in islice(asked.reports.glob("*/summary.json"), _MOST) if (one := _read(file)) is not None]
    return max(found, key=lambda one: one.started, default=None)


def _read(file: Path) -> LoadTest | None:
    try:
        with file.open("rb") as stream:
            values: dict[str, Any] = json.loads(stream.read(_LARGEST))
        runs = values["runs"]
        started = datetime.fromisoformat(values["started"]).astimezone(UTC).isoformat(" ", "seconds")
        clients, most = [str(run["clients"]) for run in runs], max(run["operations_per_second"] for run in runs)
        checked, findings = bool(values["checked"]), len(values["findings"])
        scenario = str(values["scenario"])
        return LoadTest(file.parent.name, started, scenario, checked, findings, ", ".join(clients), float(most))
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
