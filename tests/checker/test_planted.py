"""Each planted fault is found by its rule, with the smallest set of operations, and drowns in nothing else."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from metastore.checker.finding import Finding
from metastore.checker.records import Seen
from tests.checker.judged import swept
from tests.checker.lanes import FAULTS, Lane, Step, plant


def findings(since: int, setup: list[dict[str, Any]], steps: list[Step]) -> list[Finding]:
    """Do what :func:`metastore.checker.check.check` does, in memory."""
    events = setup + [event for step in steps for event in step.events]
    rows = [step.operation | {"reads": [Seen(**seen) for seen in step.operation["reads"]]} for step in steps]
    return swept(events, rows, since)


def made(fault: str | None) -> tuple[int, list[dict[str, Any]], list[Step]]:
    lanes = [Lane(number, 2) for number in range(2)]
    before = [event for lane in lanes for event in lane.setup()]
    whole = [list(lane.steps(2_000)) for lane in lanes]
    if fault is not None:
        plant(fault, whole[0], 1_000)
    return lanes[0].since(), before, [step for steps in whole for step in steps]


def test_without_a_fault_there_is_nothing() -> None:
    assert findings(*made(None)) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    found = findings(*made(fault))
    counts = Counter(finding.rule for finding in found)
    rule = FAULTS[fault][1]
    assert rule in counts, counts
    smallest = min((one for one in found if one.rule == rule), key=lambda one: len(one.operations))
    assert 1 <= len(smallest.operations) <= 3
    assert len(found) < 40, "one fault must not drown in what follows from it"
