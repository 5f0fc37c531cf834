"""Each planted fault is found by its rule, with the smallest set of operations, and drowns in nothing else."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from metastore.checker.finding import Finding
from metastore.checker.operation import ClientOperation
from metastore.checker.records import Seen
from metastore.checker.sweep import Sweep
from metastore.checker.tree import Event, Placed, Tree
from tests.checker.lanes import FAULTS, Lane, Step, plant


def findings(since: int, setup: list[dict[str, Any]], steps: list[Step]) -> list[Finding]:
    """Do what :func:`metastore.checker.check.check` does, in memory."""
    tree, found = Tree(), list[Finding]()
    before: list[Placed] = []
    wrote: dict[str, list[Placed]] = {}
    events = setup + [event for step in steps for event in step.events]
    for event in sorted(events, key=lambda event: int(event["seq"])):
        placed, problems = tree.apply(Event._make([event.get(name) for name in Event._fields]))
        found += problems
        wrote.setdefault(placed.principal, []).append(placed) if placed.principal else before.append(placed)
    sweep = Sweep(since)
    sweep.place(before)
    for step in sorted(steps, key=lambda step: int(step.operation["start"])):
        found += sweep.take(_told(step, wrote))
    return [*found, *sweep.close()]


def _told(step: Step, wrote: dict[str, list[Placed]]) -> ClientOperation:
    row: dict[str, Any] = {name: step.operation.get(name) for name in ClientOperation._fields}
    row["reads"] = tuple([Seen(**seen) for seen in step.operation["reads"]])
    row["events"] = tuple(wrote.get(f"{row['client']}/{row['number']}", ()))
    return ClientOperation(**row)


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
