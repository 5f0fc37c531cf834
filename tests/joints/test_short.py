"""The short form of ``make joints``: a few seconds of the plans that found the most, and the judge's verdict.

It fails on a contradiction or a doubt. Only the long form checks whether a run had all that its plan needs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.joints.judge.verdict import judged
from tests.joints.plans import PLANS
from tests.joints.run import ground, run

_SECONDS = 3.0


@pytest.mark.parametrize(
    ("name", "database"),
    [
        pytest.param("all", "postgres", marks=pytest.mark.postgres),
        ("interrupts", "sqlite"),
    ],
)
def test_no_answer_contradicts_another(name: str, database: str, tmp_path: Path) -> None:
    plan, folder = PLANS[name], tmp_path / "record"
    with ground(database, tmp_path, plan) as on:
        run(plan, on, folder, _SECONDS, len(name), lambda *_: None)
    verdict = judged(folder)
    assert not verdict.found
    assert not verdict.doubts
    assert verdict.calls > 50
