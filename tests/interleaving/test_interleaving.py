"""Every interleaving of two and three processes, and the planted faults that these must find."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.interleaving.checks import explore
from tests.interleaving.explore import Found
from tests.interleaving.mutants import MUTANTS, Mutant
from tests.interleaving.programs import PROGRAMS, Program

pytestmark = pytest.mark.one_in(3)

_LIMIT = 200_000
"""States of one program: one that has more belongs to ``--full``."""
_LONG = (
    *("three hot alters", "hot alter, deadline", "transaction, two alters", "hot count, hot alter, an alter"),
    *("create, freeze that lapses", "hot alter, freeze", "two alters, rename", "three alters"),
    *("two hot counts, a hot alter", "two alters, rename of the parent"),
)
"""Those with the most schedules: two thirds of the time of all. Each run tries their planted faults all the same."""
_QUICK = [
    pytest.param(p, id=p.name, marks=[pytest.mark.long] if p.name in _LONG else []) for p in PROGRAMS if not p.full
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("program", _QUICK)
def test_no_interleaving_breaks_the_protocol(program: Program, record_property: Callable[[str, object], None]) -> None:
    explored = explore(program, _LIMIT)  # raises Truncated if that was not all
    assert explored.finals > 0
    assert explored.most_undisturbed <= 2
    record_property("schedules", explored.schedules)
    print(f"{program.name}: {explored.schedules} schedules, {explored.states} states")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("mutant", [m for m in MUTANTS if not m.slow], ids=lambda m: m.name)
def test_a_planted_fault_is_found(mutant: Mutant) -> None:
    with pytest.raises(Found, match=mutant.says) as found:
        explore(mutant.planted(), _LIMIT)
    print(found.value)


@pytest.mark.long
@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.slow], ids=lambda m: m.name)
def test_a_planted_fault_is_found_far_down(mutant: Mutant) -> None:
    with pytest.raises(Found, match=mutant.says) as found:
        explore(mutant.planted(), 1_000_000)
    print(found.value)
