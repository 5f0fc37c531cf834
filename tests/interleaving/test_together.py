"""Every interleaving of small batches and chains with other operations between them.

``mutants_of_batches`` and ``mutants_of_chains`` have the controls.
"""

from __future__ import annotations

import pytest

from tests.interleaving.chained import CHAINED
from tests.interleaving.checks import Checks, explore
from tests.interleaving.explore import Explorer, Truncated
from tests.interleaving.programs import Program
from tests.interleaving.together import TOGETHER, TOO_LARGE

pytestmark = pytest.mark.one_in(3)

ALL = (*TOGETHER, *CHAINED)
_LIMIT = 10_000
"""States of one program: one that has more belongs to the long tests."""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("program", [p for p in ALL if not p.full], ids=lambda p: p.name)
def test_no_interleaving_of_batches_breaks_the_protocol(program: Program) -> None:
    explored = explore(program, _LIMIT)  # raises Truncated if that was not all
    assert explored.finals > 0
    assert explored.most_undisturbed <= 2


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("program", [p for p in ALL if p.full], ids=lambda p: p.name)
def test_larger_batches(program: Program) -> None:
    explored = explore(program, 1_000_000)
    assert explored.finals > 0
    print(f"{program.name}: {explored.schedules} schedules, {explored.states} states")


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_shortest_schedules_of_what_is_too_large() -> None:
    with pytest.raises(Truncated):  # and not Found
        explore(TOO_LARGE, 1_000_000)


@pytest.mark.parametrize("program", ALL, ids=lambda p: p.name)
def test_the_programs_send_batches(program: Program) -> None:
    """A program whose operations went alone would show nothing. (A batch of drops may find that all are gone.)"""
    explorer = Explorer(program, Checks)
    state, sent = explorer._first(), set[int]()
    while not explorer._ended(state):
        move, state = next(explorer._moves(state))
        if move.process is not None and move.call is not None and move.call.name.endswith(("_together", "_below")):
            sent.add(move.process)
    assert sent == {p for p, ops in enumerate(program.processes) if any(op.with_next for op in ops)}
