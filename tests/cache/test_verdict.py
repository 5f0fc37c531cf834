"""The verdict over an announced change, exhaustively: every answer, and every two of them."""

from __future__ import annotations

from itertools import product

import pytest

from metastore.port.acknowledgement import Answer, Verdict, decide, verdict

SAID = ("acknowledged", "nothing", "error")
TABLE = {
    # (said, silent, budget left): the table of field case 58
    ("acknowledged", False, False): Verdict.SAFE,
    ("acknowledged", False, True): Verdict.SAFE,
    ("acknowledged", True, False): Verdict.SAFE,
    ("acknowledged", True, True): Verdict.SAFE,
    ("nothing", True, False): Verdict.SAFE,
    ("nothing", True, True): Verdict.SAFE,
    ("nothing", False, True): Verdict.WAIT,
    ("nothing", False, False): Verdict.FAIL,
    ("error", False, False): Verdict.FAIL,
    ("error", False, True): Verdict.FAIL,
    ("error", True, False): Verdict.FAIL,
    ("error", True, True): Verdict.FAIL,
}
ANSWERS = [Answer(said, silent) for said, silent in product(SAID, (False, True))]  # type: ignore[arg-type]


def test_the_table_has_every_case() -> None:
    assert {case[0] for case in TABLE} == set(SAID)
    assert len(TABLE) == 12


@pytest.mark.parametrize("case", TABLE)
def test_one_member(case: tuple[str, bool, bool]) -> None:
    said, silent, budget = case
    assert verdict(Answer(said, silent), budget_left=budget) is TABLE[case]  # type: ignore[arg-type]


@pytest.mark.parametrize("budget", [False, True])
def test_several_members(budget: bool) -> None:
    """One that fails decides; else one that is waited for; else all are safe."""
    assert decide([], budget_left=budget) is Verdict.SAFE
    for answers in product(ANSWERS, repeat=3):
        each = {TABLE[one.said, one.silent, budget] for one in answers}
        expected = next(v for v in (Verdict.FAIL, Verdict.WAIT, Verdict.SAFE) if v in each)
        assert decide(answers, budget_left=budget) is expected
