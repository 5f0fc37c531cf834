"""Each plan on each database, for a while: rounds of ``make joints`` as long tests, which the planted faults use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.joints.judge.verdict import judged
from tests.joints.plans import PLANS
from tests.joints.run import ground, run

_SECONDS = 20.0


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "database"), [(name, database) for name, plan in PLANS.items() for database in plan.databases]
)
def test_no_answer_of_a_plan_contradicts_another(name: str, database: str, tmp_path: Path) -> None:
    plan, folder = PLANS[name], tmp_path / "record"
    with ground(database, tmp_path, plan) as on:
        run(plan, on, folder, _SECONDS, len(name), lambda *_: None)
    verdict = judged(folder)
    assert not verdict.found
    assert not verdict.doubts
