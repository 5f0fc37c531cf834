"""Programs that use results and errors: see ``callers``."""

from __future__ import annotations

import pytest

from tests.interleaving.callers import CALLERS, HANDED, MET, matters
from tests.interleaving.checks import explore
from tests.interleaving.programs import Program
from tests.long import long_unless

pytestmark = pytest.mark.one_in(3)

_LIMIT = 5_000
_SHORT = ("load", "create", "rename", "drop")
"""The operations that each run tries as a part of a transaction too; the long runs try all of them."""


def _is_long(name: str) -> bool:
    plain, _, noted = name.partition(", ")
    return bool(noted) and plain not in _SHORT


def _is_tried(program: Program) -> bool:
    """Whether ``one_in`` counts it: every second one of the callers' programs, and all with what is in hand."""
    return program in HANDED or CALLERS.index(program) % 2 == 0


@pytest.mark.one_in(2)
@pytest.mark.parametrize("program", long_unless([*HANDED, *CALLERS], _is_tried), ids=lambda p: p.name)
def test_what_is_in_hand_is_a_reference(program: Program) -> None:
    assert explore(program, _LIMIT).finals > 0


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.long] if _is_long(n) else []) for n in MET])
def test_two_writes_in_a_row(name: str) -> None:
    met = [program for program in MET[name] if matters(program)]
    assert met
    for program in met:
        assert explore(program, _LIMIT).finals > 0
