"""Faults of the load test's report: it says that all is well without having seen the records of all clients."""

from __future__ import annotations

from tests.faults.fault import Fault

__all__ = ["IN_REPORTS"]

_ANALYSIS = "tests/loadtest/test_analysis.py -k 'missing_clients or fewer_than_clients or idle_clients or empty'"
_PAGE = "tests/loadtest/test_report.py -k 'missing or gave_up'"
_RUN = "tests/loadtest/test_runs.py -m long -k records_of_all"

IN_REPORTS: tuple[Fault, ...] = (
    Fault(
        "a client without a log is taken for idle",
        "metastore/checker",
        "silent = names - calls.keys() - there - wrote.keys()",
        "silent = set()",
        _ANALYSIS,
    ),
    Fault(
        "what the feed has of a client without a log is not missed",
        "metastore/checker",
        'return {row["client"]: row["count"] for row in ours.groupBy("client").count().collect()}',
        "return {}",
        _ANALYSIS,
    ),
    Fault(
        "a log that lost a part is whole",
        "metastore/checker",
        "if recorded.get(client, 0) < calls[client]]",
        "if False]",
        _ANALYSIS,
    ),
    Fault(
        "a run of which nobody left a record is whole",
        "metastore/checker",
        "    elif not there:\n",
        "    elif False:\n",
        _ANALYSIS,
    ),
    Fault(
        "a run does not say who its clients are",
        "metastore/loadtest",
        "names=assignment.names",
        "names=[]",
        _RUN,
    ),
    Fault(
        "a run without all records exits with 0",
        "metastore/loadtest",
        "run.findings or run.checked.missing for run",
        "run.findings for run",
        _RUN,
    ),
    Fault(
        "a check without all records is clean",
        "metastore/checker",
        "return not self.counts and not self.missing",
        "return not self.counts",
        _RUN,
    ),
    Fault(
        "a report without all records is green",
        "metastore/loadtest/report",
        "    if missing:\n        explanation",
        "    if False:\n        explanation",
        _PAGE,
    ),
    Fault(
        "a summary without all records says that all was checked",
        "metastore/loadtest/report",
        "checked = not unchecked and not missing",
        "checked = not unchecked",
        _PAGE,
    ),
    Fault(
        "a report does not say that calls gave up",
        "metastore/loadtest/report",
        'return self.outcomes["conflicted"] + self.outcomes["unknown"]',
        "return 0",
        _PAGE,
    ),
)
