"""What callers do with results and errors: see ``callers``."""

from __future__ import annotations

import pytest

from tests.interleaving.callers import CALLERS, HANDED, MET, matters
from tests.interleaving.checks import explore
from tests.interleaving.programs import Program

_LIMIT = 5_000


@pytest.mark.parametrize("program", [*HANDED, *CALLERS], ids=lambda p: p.name)
def test_what_is_in_hand_is_a_reference(program: Program) -> None:
    assert explore(program, _LIMIT).finals > 0


@pytest.mark.parametrize("name", MET)
def test_two_writes_in_a_row(name: str) -> None:
    met = [program for program in MET[name] if matters(program)]
    assert met
    for program in met:
        assert explore(program, _LIMIT).finals > 0
